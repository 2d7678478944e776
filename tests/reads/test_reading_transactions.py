"""Readers of transactions get what the rules say, wherever they begin and however little is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kordon.codecs.split import split
from kordon.proxy.ordering.transactions.events import Protocol
from kordon.proxy.reads import absence_questions, log_transactions
from kordon.proxy.reads.stable_ends import StableEnds
from kordon.proxy.reads.worker_reads import WorkerReads
from kordon.testing.random_logs import consume, fetch, is_asked_again
from kordon.testing.transactional_logs import History, histories, readers_of_history
from kordon.testing.waiting import until

COMMITTED, UNCOMMITTED = 1, 0
UNSHRUNK = (Phase.explicit, Phase.reuse, Phase.generate)
"""What goes wrong mostly takes all the time there is, so a smaller example would take too long to find."""
P = 1
V1, V2 = Protocol.V1, Protocol.V2


@pytest.fixture(autouse=True, scope="module")
def no_patience() -> Iterator[None]:
    """Coordinators are asked at once, as often as somebody waits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_transactions, "_FIRST_DOUBT_SECONDS", 0.0)
        patch.setattr(log_transactions, "_LONGEST_DOUBT_SECONDS", 0.0)
        patch.setattr(absence_questions, "_PAUSE_SECONDS", 0.0)
        yield


async def read_to(readers: WorkerReads, v: int, at: int, end: int, **fields: Any) -> tuple[list[str], Any]:
    """Reads as a consumer does until it stands at an offset, and once more; returns what it got, and the last row."""
    values: list[str] = []
    async with asyncio.timeout(20):
        while True:
            is_there = at == end
            row = (await fetch(readers, {v: at}, **fields))[v]
            if not await is_asked_again(row):
                at = consume(row.records, at, values)
                assert at <= end
                if is_there:
                    return values, row


async def agree(history: History, data: st.DataObject) -> None:
    """Every reader gets what the history says, and is told the last stable offset that ListOffsets tells."""
    most_bytes, cache_bytes = data.draw(st.sampled_from([150, 400, 1 << 20])), data.draw(st.sampled_from([0, 1 << 20]))
    readers, topic = readers_of_history(history, most_bytes, cache_bytes)
    stable_ends = StableEnds(readers)
    try:
        for v, chain in enumerate(history.layout.chains):
            if chain.home is None:
                continue
            end = history.logs[chain.home.partition].end + chain.home.delta
            for start in {0, data.draw(st.integers(0, end))}:
                for isolation in (COMMITTED, UNCOMMITTED):
                    expected, stop = history.given(v, start, is_committed=isolation == COMMITTED)
                    got, row = await read_to(readers, v, start, stop, isolation_level=isolation)
                    assert got == expected
                    assert row.last_stable_offset <= row.high_watermark == (end if stop < end else stop)
                    assert row.aborted_transactions in (None, [])
                    if isolation == COMMITTED and stop < end:
                        assert row.last_stable_offset == stop
            wanted, high_watermark = history.stable_end(v), history.logs[chain.home.partition].end

            async def is_told(v: int = v, high_watermark: int = high_watermark, wanted: int = wanted) -> bool:
                return await stable_ends.of(topic, v, high_watermark) == wanted

            await until(f"partition {v} is stable up to {wanted}", is_told)
    finally:
        await readers.close()


@given(history=histories(), data=st.data())
@settings(max_examples=25, phases=UNSHRUNK, suppress_health_check=[HealthCheck.too_slow])
def test_readers_agree_wherever_they_begin(history: History, data: st.DataObject) -> None:
    """Committed ones to read_committed readers up to the first undecided one, all that is no stray to the others."""
    asyncio.run(agree(history, data))


def committed() -> History:
    """A transaction of v1 whose records lie between those of a neighbour."""
    history = History.begun(1, 2)
    history.witness(0, P, 5, V1)
    history.write(0, ("first", "second"), P, 5, protocol=V1)
    history.write(1, ("of a neighbour",))
    history.mark(0, P, 5, is_commit=True)
    return history


async def test_clients_get_batches_as_they_were_sent() -> None:
    """With the producer id and epoch that the client knows, and the transactional bit; the checksum is right."""
    history = committed()
    readers, _ = readers_of_history(history, 1 << 20, 0)
    (row,) = (await fetch(readers, {0: 0}, isolation_level=COMMITTED)).values()
    await readers.close()
    sent, *_ = split(row.records)
    assert (sent.producer_id, sent.attributes & 0x10, sent.base_offset) == (P, 0x10, 1)
    values: list[str] = []
    assert consume(row.records, 0, values) == 5
    assert values == ["first", "second"]
