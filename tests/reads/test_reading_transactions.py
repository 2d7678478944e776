"""Readers of transactions get what the rules say, wherever they begin and however little is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kordon.codecs import apis
from kordon.codecs.split import split
from kordon.codecs.witness import WITNESS_KEY
from kordon.proxy.kafka.batches import BatchIdentity, Copy, build_copies
from kordon.proxy.ordering.identity import tag, writer_id
from kordon.proxy.ordering.reading import Hidden, place_in
from kordon.proxy.ordering.streams import physical_stream
from kordon.proxy.ordering.transactions.events import Protocol
from kordon.proxy.reads import absence_questions, committed_read, log_transactions
from kordon.proxy.reads.stable_ends import StableEnds
from kordon.proxy.reads.stay_read import StayRead
from kordon.proxy.reads.timed_offsets import NOWHERE, TimedOffsets
from kordon.proxy.reads.worker_reads import WorkerReads
from kordon.testing.fake_broker import Answer, Asked
from kordon.testing.random_logs import LEADER_EPOCH, NAME, consume, fetch, is_asked_again
from kordon.testing.transactional_logs import History, TransactionBroker, broker_of, histories, readers_of_history
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


@asynccontextmanager
async def reading(history: History, most_bytes: int = 1 << 20) -> AsyncIterator[WorkerReads]:
    """A worker in front of the logs of a history, which may go on."""
    readers, _ = readers_of_history(history, most_bytes, 1 << 20)
    try:
        yield readers
    finally:
        await readers.close()


def opened() -> History:
    """A transaction of partition 0 that is open; partition 1 is its neighbour on the same physical one."""
    history = History.begun(1, 2)
    history.witness(0, P, 5, V1)
    history.write(0, ("open",), P, 5, protocol=V1)
    history.write(0, ("behind",))
    history.write(1, ("of a neighbour",))
    history.open_at.add((0, P))
    return history


async def test_an_open_transaction_holds_readers_of_its_own_partition() -> None:
    """STABLE-END: they are moved up to it, and told that they have read all; neighbours read on."""
    async with reading(opened()) as readers:
        got, row = await read_to(readers, 0, 0, 1, isolation_level=COMMITTED)
        assert (got, row.last_stable_offset, row.high_watermark) == ([], 1, 4)
        got, row = await read_to(readers, 1, 0, 4, isolation_level=COMMITTED)
        assert (got, row.last_stable_offset) == (["of a neighbour"], 4)
        assert (await read_to(readers, 0, 0, 4, isolation_level=UNCOMMITTED))[0] == ["open", "behind"]


async def test_who_has_passed_what_is_not_decided_does_not_rest() -> None:
    """It is told where its partition is stable, as all others are (STABLE-END); its neighbour rests there."""
    async with reading(opened()) as readers:
        await read_to(readers, 0, 0, 4, isolation_level=UNCOMMITTED)
        for _ in range(2):  # the second time all is known
            rows = await fetch(readers, {0: 4, 1: 4}, isolation_level=COMMITTED)
        assert {v: row.last_stable_offset for v, row in rows.items()} == {0: 1, 1: 4}


async def test_a_reader_goes_on_when_the_marker_comes() -> None:
    """What it is given was decided by what came behind it; what was aborted is passed by a filler."""
    history = opened()
    async with reading(history) as readers:
        await read_to(readers, 0, 0, 1, isolation_level=COMMITTED)
        history.mark(0, P, 5, is_commit=False)
        history.open_at.clear()
        assert (await read_to(readers, 0, 1, 5, isolation_level=COMMITTED))[0] == ["behind"]


async def test_markers_are_looked_for_behind_the_cut() -> None:
    """A partition leaves a home when all its transactions there are decided, and no earlier."""
    history = History.begun(1, 2)
    history.witness(0, P, 5, V1)
    history.write(1, ("of the old home",), P, 5, protocol=V1)
    history.open_at.add((0, P))
    history.grow(2)
    history.write(1, ("of the new home",))
    async with reading(history) as readers:
        got, row = await read_to(readers, 1, 0, 1, isolation_level=COMMITTED)
        assert (got, row.last_stable_offset) == ([], 1)
        history.mark(0, P, 5, is_commit=True)
        history.open_at.clear()
        got, _ = await read_to(readers, 1, 1, 3, isolation_level=COMMITTED)
        assert got == ["of the old home", "of the new home"]


async def test_an_end_lies_where_a_transaction_is_open_in_a_former_home() -> None:
    """Readers stand still there, so nobody is told an end behind it that they cannot reach."""
    history = History.begun(1, 2)
    history.witness(0, P, 5, V1)
    history.write(1, ("of the old home",), P, 5, protocol=V1)
    history.open_at.add((0, P))
    history.grow(2)
    history.write(1, ("of the new home",))
    readers, topic = readers_of_history(history, 1 << 20, 0)
    ends = StableEnds(readers)
    assert await ends.of(topic, 1, 1) == 1
    history.mark(0, P, 5, is_commit=True)
    history.open_at.clear()

    async def is_stable() -> bool:
        return await ends.of(topic, 1, 1) == 3

    await until("the end is that of the new home", is_stable)
    await readers.close()


async def test_witnesses_are_no_records_of_a_bypass() -> None:
    """They are hidden and counted as what they are; whoever writes round Kordon can hide nothing else by their key."""
    history = committed()
    copies = [Copy(WITNESS_KEY, b"a value", 1_000)]
    forged = history.logs[0].write(build_copies(copies, BatchIdentity(P, 5, 1), is_transactional=True))
    async with reading(history) as readers:
        got, _ = await read_to(readers, 0, forged, forged + 1, isolation_level=UNCOMMITTED)
        other, _ = await read_to(readers, 1, forged, forged + 1, isolation_level=UNCOMMITTED)
        assert got + other == ["a value"]
        await read_to(readers, 0, 0, forged + 1, isolation_level=UNCOMMITTED)
        assert readers.tally.hidden[Hidden.WITNESS.value] == 1
        assert readers.tally.bypassed[NAME] == readers.tally.hidden[Hidden.BYPASS.value] > 0


@pytest.mark.parametrize("trouble", ["open", "unlisted", "forbidden", "moved"])
async def test_only_coordinators_say_that_no_marker_is_to_come(trouble: str) -> None:
    """PROVEN-ABSENCE: a reader waits while they have it open, cannot be asked, or may not tell, and goes on then."""
    history = History.begun(1, 2)
    history.write(0, ("late",), P, 5, protocol=V1)
    history.write(0, ("behind",))
    readers, _ = readers_of_history(history, 1 << 20, 0)
    broker = broker_of(readers)
    if trouble == "open":
        history.open_at.add((0, P))
    elif trouble == "unlisted":
        broker.handlers[apis.LIST_TRANSACTIONS] = lambda _: {"error_code": 14, "transaction_states": []}
    elif trouble == "forbidden":
        state = {"error_code": 53, "transactional_id": "", "transaction_state": "", "topics": []}
        numbers = {"transaction_timeout_ms": 0, "transaction_start_time_ms": 0, "producer_id": 0, "producer_epoch": 0}
        broker.handlers[apis.DESCRIBE_TRANSACTIONS] = lambda _: {"transaction_states": [state | numbers]}
    else:
        broker.told_epoch = LEADER_EPOCH + 1
    asked, listed = list[Asked](), broker.handlers[apis.LIST_TRANSACTIONS]

    def noted(request: Asked) -> Answer | Awaitable[Answer]:
        asked.append(request)
        return listed(request)

    broker.handlers[apis.LIST_TRANSACTIONS] = noted
    at, values, stable = 0, list[str](), set[int]()
    for _ in range(20):
        row = (await fetch(readers, {0: at}, isolation_level=COMMITTED))[0]
        at = consume(row.records, at, values)
        stable.add(row.last_stable_offset)
    assert len(asked) > 1
    assert (at, values, stable) == (0, [], {0})
    mended = TransactionBroker(history, 1 << 20)
    broker.handlers |= mended.handlers
    history.open_at.clear()
    broker.told_epoch = LEADER_EPOCH
    assert (await read_to(readers, 0, 0, 2, isolation_level=COMMITTED))[0] == ["behind"]
    assert readers.tally.late[NAME] == 1
    await readers.close()


async def test_one_request_looks_ahead_within_a_bound_and_the_next_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one record of a client costs the others is bounded; what was found is remembered."""
    monkeypatch.setattr(committed_read, "_MOST_AHEAD", 2)
    history = opened()
    for number in range(30):
        history.write(1, (f"neighbour {number}",))
    history.mark(0, P, 5, is_commit=True)
    async with reading(history, most_bytes=100) as readers:
        pulled = list[int]()
        at, values = 0, list[str]()
        while not values:
            before = readers.tally.pulled_bytes
            row = (await fetch(readers, {0: at}, isolation_level=COMMITTED, max_wait_ms=100))[0]
            at = consume(row.records, at, values)
            pulled.append(readers.tally.pulled_bytes - before)
        assert values[0] == "open"
        assert len(pulled) > 4
        assert max(pulled[1:-1]) < 1_000


async def test_what_an_index_has_forgotten_is_read_again_for_one_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader in front of more transactions than are kept finds the marker that it needs all the same."""
    monkeypatch.setattr(log_transactions.LogTransactions.__init__, "__defaults__", (4,))
    history = History.begun(1, 2)
    history.witness(0, P, 5, V1)
    history.write(0, ("open for long",), P, 5, protocol=V1)
    for number in range(12):
        history.witness(0, P + 1, number, V2)
        history.mark(0, P + 1, number + 1, is_commit=True)
    history.mark(0, P, 5, is_commit=True)
    async with reading(history, most_bytes=300) as readers:
        end = history.logs[0].end
        assert (await read_to(readers, 0, 0, end, isolation_level=COMMITTED))[0] == ["open for long"]


@pytest.mark.parametrize(("asked_ms", "wanted"), [(500, 7), (2_000, 8), (9_000, NOWHERE)])
async def test_no_witness_or_marker_is_the_answer_to_a_time(asked_ms: int, wanted: int) -> None:
    """Both are as young as can be; a record behind them is told that is as young as was asked for, or none."""
    history = committed()  # the marker stands at 4
    history.write(1, ("of a neighbour",), at_ms=3_000)
    history.mark(0, P, 5, is_commit=False)
    history.write(0, ("old",), at_ms=1_000)
    history.write(0, ("young",), at_ms=2_000)
    readers, topic = readers_of_history(history, 150, 1 << 20)
    timed = TimedOffsets(readers)
    assert await timed.of(topic, 0, 4, asked_ms) == wanted
    assert await timed.of(topic, 0, 5, asked_ms) == 5, "a neighbour's record is told as ever"
    await readers.close()


async def test_topics_without_transactions_are_read_as_ever() -> None:
    """Nothing looks for witnesses there, and nothing is kept; a layout that says otherwise has its logs read anew."""
    history = committed()
    layout, history.layout = history.layout, replace(history.layout, has_transactions=False)
    readers, topic = readers_of_history(history, 1 << 20, 1 << 20)
    before = readers.logs.of(topic, 0)
    assert before.transactions is None
    topic.adopt(layout, {})
    assert readers.logs.of(topic, 0).transactions is not None
    assert before.is_closed
    await readers.close()


async def test_readers_of_a_physical_partition_stand_still_too() -> None:
    """In the dialect a partition is read as such: witnesses are hidden, and an open transaction holds all behind it."""
    history, stream = opened(), physical_stream(0)
    readers, topic = readers_of_history(history, 1 << 20, 1 << 20)
    place = place_in(topic.layout, stream, 0)
    assert place is not None
    read = StayRead(readers, topic, stream, place, 0, is_committed=True)
    await asyncio.wait({task for task in [read.take(1 << 20, 1 << 20)] if task is not None})
    read.take(1 << 20, 1 << 20)
    assert (read.taken.position, read.taken.entries) == (1, [])
    history.mark(0, P, 5, is_commit=True)
    history.open_at.clear()
    bringing = read.take(1 << 20, 1 << 20)
    while read.taken.position < 5:
        assert bringing is not None
        await asyncio.wait({bringing})
        bringing = read.take(1 << 20, 1 << 20)
    assert [(each.base_offset, each.records) for each in read.taken.entries] == [(1, 1), (2, 1), (3, 1)]
    await readers.close()


async def test_a_transaction_of_a_dialect_client_is_shared_out_when_it_is_committed() -> None:
    """Its batch belongs to a physical partition; readers of virtual ones get their keys' records, and not before."""
    history = History.begun(1, 2)
    history.witness(0, P, 5, V1)
    identity = BatchIdentity(tag(physical_stream(0), 0, writer_id(P, V1)), 5, 0)
    values = [f"{number}" for number in range(6)]
    history.logs[0].write(build_copies([Copy(each.encode(), each.encode(), 1_000) for each in values], identity))
    history.open_at.add((0, P))
    async with reading(history) as readers:
        rows = [
            row for _ in range(5) for row in (await fetch(readers, {0: 0, 1: 0}, isolation_level=COMMITTED)).values()
        ]
        given: list[str] = []
        for row in rows:
            consume(row.records, 0, given)
        assert given == []
        history.mark(0, P, 5, is_commit=True)
        history.open_at.clear()
        got = [(await read_to(readers, v, 0, 8, isolation_level=COMMITTED))[0] for v in range(2)]
        assert sorted(got[0] + got[1]) == values
        assert all(got)
