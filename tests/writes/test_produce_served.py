"""Writes to a managed topic of a real broker: what is stored, what is told, in which order, over moves and failures."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from kordon.proxy.ordering.identity import Identity
from kordon.proxy.writes import broker_writer, unsent_writes
from kordon.proxy.writes.client_writes import ClientWrite
from kordon.proxy.writes.stream_queue import StreamQueue
from kordon.proxy.writes.unsent_writes import UnsentWrites
from kordon.testing.broker_features import DESCRIBED_PRODUCERS
from kordon.testing.cluster import Cluster
from kordon.testing.managed_writes import Worker, a_batch, a_worker
from kordon.testing.waiting import until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(DESCRIBED_PRODUCERS.is_missing, reason=DESCRIBED_PRODUCERS.reason),
]

NONE, NOT_LEADER, TIMED_OUT = 0, 6, 7
CORRUPT, UNSUPPORTED_FORMAT, OUT_OF_ORDER, INVALID_EPOCH, INVALID_TXN_STATE = 2, 43, 45, 47, 48
INVALID_PRODUCER_ID, UNKNOWN_PRODUCER, UNSUPPORTED_COMPRESSION, INVALID_RECORD = 49, 59, 76, 87
UNKNOWN_PARTITION, INVALID_ACKS = 3, 21


@pytest.fixture
async def worker(cluster: Cluster) -> AsyncIterator[Worker]:
    """Four virtual partitions, all on physical partition 0; there are four physical ones."""
    async with a_worker(cluster) as started:
        yield started


async def test_batches_stand_under_their_identities(worker: Worker) -> None:
    """ORIGIN-TAG: each names its virtual partition and its producer; offsets are virtual; records are untouched."""
    first = a_batch("a", "b", producer_id=7, epoch=0, sequence=0)
    second = a_batch("c", producer_id=7, epoch=0, sequence=0)
    assert await worker.send((0, first)) == [(NONE, 0)]
    assert await worker.send((2, second)) == [(NONE, 2)]
    stored = await worker.stored(0)
    assert [(b.identity, b.sequence, b.values) for b in stored] == [
        (Identity(0, 0, 7), 0, ["a", "b"]),
        (Identity(2, 0, 7), 0, ["c"]),
    ]


async def test_a_retry_is_known_again(worker: Worker) -> None:
    """The broker itself de-duplicates, per virtual partition."""
    batch = a_batch("a", producer_id=7, epoch=0, sequence=0)
    assert [await worker.send((v, batch)) for v in (1, 3, 1)] == [[(NONE, 0)], [(NONE, 1)], [(NONE, 0)]]


async def test_damage_is_told_by_the_broker(worker: Worker) -> None:
    """DAMAGE-STAYS: a batch that came with a wrong CRC leaves with a wrong CRC."""
    damaged = bytearray(a_batch("value", producer_id=7, epoch=0, sequence=0))
    damaged[-3] ^= 1
    good = a_batch("b", producer_id=7, epoch=0, sequence=0)
    assert await worker.send((0, bytes(damaged)), (1, good)) == [(CORRUPT, -1), (NONE, 0)]


@pytest.mark.parametrize("version", range(14))
async def test_every_version_is_answered(worker: Worker, version: int) -> None:
    """By name or by the face's topic id, walked over or parsed by the table."""
    for offset, by_table in enumerate((False, True)):
        (row,) = await worker.rows((0, a_batch("a")), version=version, by_table=by_table)
        assert (row.index, row.error_code, row.base_offset) == (0, NONE, offset)
        assert row.get("log_append_time_ms", -1) == -1
        assert row.get("log_start_offset", 0) == 0


async def test_what_cannot_be_written_is_refused(worker: Worker) -> None:
    """Each with its own code and reason, and nothing of it reaches the broker."""
    batch = a_batch("a", producer_id=7, epoch=0, sequence=0)
    magic_1 = batch[:16] + b"\x01" + batch[17:]
    wanted: list[tuple[bytes | None, int]] = [
        (None, INVALID_RECORD),
        (batch + batch, INVALID_RECORD),
        (batch[:-1], INVALID_RECORD),
        (magic_1, UNSUPPORTED_FORMAT),
        (a_batch("a", producer_id=7, epoch=0, sequence=0, txn=1), INVALID_TXN_STATE),
        (a_batch("a", producer_id=1 << 40, epoch=0, sequence=0), INVALID_PRODUCER_ID),
        (a_batch("a", producer_id=7, epoch=-1, sequence=0), INVALID_RECORD),
    ]
    rows = await worker.rows(*((0, records) for records, _ in wanted))
    assert [row.error_code for row in rows] == [code for _, code in wanted]
    assert all(row.error_message for row in rows)
    assert [await worker.send((v, batch)) for v in (-1, 4)] == [[(UNKNOWN_PARTITION, -1)]] * 2
    assert await worker.send((0, batch), acks=2) == [(INVALID_ACKS, -1)]
    zstd = a_batch("a" * 100, compression=4)
    assert await worker.send((0, zstd), version=6) == [(UNSUPPORTED_COMPRESSION, -1)]
    assert await worker.stored(0) == []


async def test_unmanaged_names_and_ids_are_unknown(worker: Worker) -> None:
    """A topic that ceased to be managed between the look and the service."""
    worker.topics.remove(worker.topic.name)
    assert await worker.send((0, a_batch("a"))) == [(UNKNOWN_PARTITION, -1)]
    assert await worker.send((0, a_batch("a")), version=13) == [(100, -1)]


async def test_requests_of_many_clients_are_merged_and_keep_their_order(worker: Worker) -> None:
    """SHARED-LANES: one batch of each physical partition to a request, a few requests under way."""
    await worker.move(4)

    async def client(number: int) -> None:
        v = number % 4
        for sequence in range(0, 30, 5):
            sends = [
                worker.send((v, a_batch(f"{number}-{s}", producer_id=number, epoch=0, sequence=s)))
                for s in range(sequence, sequence + 5)
            ]
            assert all(answer[0][0] == NONE for answer in await asyncio.gather(*sends))

    await asyncio.gather(*(client(number) for number in range(12)))
    for v in range(4):
        values = await worker.read(v)
        for number in range(v, 12, 4):
            mine = [value for value in values if value.startswith(f"{number}-")]
            assert mine == [f"{number}-{s}" for s in range(30)]


async def test_sequences_go_on_over_moves(worker: Worker) -> None:
    """SEQ-IMAGE, OFFSET-CHAIN: after 1 → 4 → 2 partitions all stands once, in order, at rising virtual offsets."""
    offsets: list[int] = []
    for sequence in range(12):
        if sequence in (4, 8):
            await worker.move(4 if sequence == 4 else 2)
        batch = a_batch(f"{sequence}", producer_id=7, epoch=0, sequence=sequence)
        ((code, offset),) = await worker.send((3, batch))
        assert code == NONE
        offsets.append(offset)
    assert offsets == list(range(12))
    assert await worker.read(3) == [f"{sequence}" for sequence in range(12)]
    moves = {batch.identity.move for q in range(4) for batch in await worker.stored(q) if batch.identity}
    assert moves == {0, 1, 2}


async def test_a_retry_across_a_move_is_acknowledged_and_not_written(worker: Worker) -> None:
    """SEQ-IMAGE: NONE without an offset; the epoch before is fenced."""
    batches = [a_batch(f"{s}", producer_id=7, epoch=3, sequence=s) for s in range(3)]
    for batch in batches:
        await worker.send((3, batch))
    await worker.move(4)
    assert [await worker.send((3, batch)) for batch in batches] == [[(NONE, -1)]] * 3
    late = a_batch("late", producer_id=7, epoch=2, sequence=9)
    assert await worker.send((3, late)) == [(INVALID_EPOCH, -1)]
    assert await worker.read(3) == ["0", "1", "2"]


async def test_only_the_next_batch_opens_a_segment(worker: Worker) -> None:
    """OPENER-ALONE: what comes too early is told so, what nobody knows begins another epoch (log start included)."""
    await worker.send((3, a_batch("0", producer_id=7, epoch=0, sequence=0)))
    await worker.move(4)
    assert await worker.send((3, a_batch("2", producer_id=7, epoch=0, sequence=2))) == [(OUT_OF_ORDER, -1)]
    (row,) = await worker.rows((3, a_batch("5", producer_id=8, epoch=0, sequence=5)))
    assert (row.error_code, row.log_start_offset) == (UNKNOWN_PRODUCER, 0)
    assert await worker.send((3, a_batch("1", producer_id=7, epoch=0, sequence=1))) == [(NONE, 1)]


async def test_another_worker_finds_what_has_begun(worker: Worker) -> None:
    """OPENER-ALONE: it asks the broker, and the identity goes on in the middle."""
    await worker.send((3, a_batch("0", producer_id=7, epoch=0, sequence=0)))
    other = worker.another()
    try:
        sends = [other.send((3, a_batch(f"{s}", producer_id=7, epoch=0, sequence=s))) for s in (1, 2, 3)]
        assert await asyncio.gather(*sends) == [[(NONE, 1)], [(NONE, 2)], [(NONE, 3)]]
    finally:
        await other.dispatcher.close()


async def test_batches_without_identity_are_written_once_in_order(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LENT-IDENTITY: also around one that the broker refuses, of which the others do not hear."""
    monkeypatch.setattr(broker_writer, "REQUESTS_UNDER_WAY", 4)  # so that one is under way behind it
    resent, add_again = list[ClientWrite](), UnsentWrites.add_again

    def noted(unsent: UnsentWrites, queue: StreamQueue, write: ClientWrite) -> None:
        resent.append(write)
        add_again(unsent, queue, write)

    monkeypatch.setattr(UnsentWrites, "add_again", noted)
    damaged = bytearray(a_batch("bad"))
    damaged[-2] ^= 1
    await worker.send((1, a_batch("first")))
    entries = [a_batch("a"), a_batch("b"), bytes(damaged), a_batch("c"), a_batch("d"), a_batch("e")]
    answers = await asyncio.gather(*(worker.send((1, batch)) for batch in entries))
    assert [answer[0][0] for answer in answers] == [NONE, NONE, CORRUPT, NONE, NONE, NONE]
    assert await worker.read(1) == ["first", "a", "b", "c", "d", "e"]
    assert resent


async def test_acks_0_is_written_and_outlives_its_connection(worker: Worker) -> None:
    """LENT-IDENTITY: it goes up as acks=1; a client may close behind its last write."""
    task = asyncio.ensure_future(worker.send((1, a_batch("a")), acks=0))
    await asyncio.sleep(0)
    task.cancel()
    await until("it is written", lambda: worker.dispatcher.counts.batches, pause=0)
    assert await worker.read(1) == ["a"]


async def test_writes_wait_for_a_fence(worker: Worker) -> None:
    """LATE-BINDING: what came before it and was not sent, and what comes, goes to the new home; others are not held."""
    await worker.move(2)
    stays, moves = worker.topic.layout.residence.residents(1)[0], worker.topic.layout.residence.residents(0)[-1]
    await worker.send((moves, a_batch("0", producer_id=7, epoch=0, sequence=0)))
    sealed = worker.seal(3)
    assert worker.topic.layout.homes[moves] in sealed
    assert worker.topic.layout.homes[stays] not in sealed
    held = asyncio.ensure_future(worker.send((moves, a_batch("1", producer_id=7, epoch=0, sequence=1))))
    assert (await worker.send((stays, a_batch("s"))))[0][0] == NONE
    await worker.dispatcher.drain(worker.topic.name, sealed)
    assert not held.done()
    await worker.adopt(3)
    assert (await held)[0][0] == NONE
    home = worker.topic.layout.homes[moves]
    assert home not in (0, None)
    assert await worker.read(moves) == ["0", "1"]
    assert (await worker.stored(2))[-1].values == ["1"]


async def test_what_is_held_for_too_long_is_refused_with_all_behind_it(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SHORT-FENCE: retriable, nothing overtakes, and afterwards all goes on."""
    monkeypatch.setattr(unsent_writes, "HOLD_SECONDS", 0.1)
    worker.seal(2)
    batches = [a_batch(f"{s}", producer_id=7, epoch=0, sequence=s) for s in range(3)]
    held = [asyncio.ensure_future(worker.send((0, batch))) for batch in batches[:2]]
    assert await asyncio.gather(*held) == [[(NOT_LEADER, -1)]] * 2
    assert await worker.send((0, batches[2])) == [(NOT_LEADER, -1)]
    worker.topic.cancel_fence()
    assert [await worker.send((0, batch)) for batch in batches] == [[(NONE, 0)], [(NONE, 1)], [(NONE, 2)]]


async def test_what_is_behind_a_refused_batch_is_refused_until_that_comes_again(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REPEAT-FIRST: upon a gap librdkafka would send both under a new epoch, which hides a copy that is under way."""
    monkeypatch.setattr(unsent_writes, "HOLD_SECONDS", 0.1)
    first, second, third = (a_batch(f"{s}", producer_id=7, epoch=0, sequence=s) for s in range(3))
    assert await worker.send((0, first)) == [(NONE, 0)]
    worker.seal(2)
    assert await worker.send((0, second)) == [(NOT_LEADER, -1)]
    worker.topic.cancel_fence()
    assert await worker.send((0, third)) == [(NOT_LEADER, -1)]
    assert await worker.send((0, a_batch("other", producer_id=8, epoch=0, sequence=0))) == [(NONE, 1)]
    assert [await worker.send((0, batch)) for batch in (second, third)] == [[(NONE, 2)], [(NONE, 3)]]
    gap = a_batch("5", producer_id=7, epoch=0, sequence=5)
    assert await worker.send((0, gap)) == [(OUT_OF_ORDER, -1)], "what is missing was never refused"


async def test_a_stray_is_not_acknowledged(worker: Worker) -> None:
    """LATE-ANSWER: what landed behind the cut is written again, by its client, in the new home."""
    await worker.send((0, a_batch("0")))
    batch = a_batch("1", producer_id=7, epoch=0, sequence=0)
    layout = worker.topic.layout
    stray = asyncio.ensure_future(worker.send((3, batch)))
    await until("it is sent", lambda: worker.dispatcher.under_way, pause=0)
    worker.lease.alive = False
    await until("it is answered", lambda: worker.dispatcher.counts.kept, pause=0)
    cuts = {0: 1, **dict.fromkeys(range(1, 4), 0)}
    worker.topic.adopt(layout.changed(layout.next_epoch(4), cuts), {})
    worker.lease.alive = True
    worker.dispatcher.lease_renewed()
    assert await stray == [(NOT_LEADER, -1)]
    assert worker.dispatcher.counts.strays == 1
    assert await worker.send((3, batch)) == [(NONE, 1)]
    assert await worker.read(3) == ["1"]


async def test_a_lost_connection_is_told_and_survived(worker: Worker) -> None:
    """What was under way is retriable (it may stand in the log); retries are known again, plain writes go on."""
    await worker.send((0, a_batch("0", producer_id=7, epoch=0, sequence=0)), (1, a_batch("p0")))
    batch = a_batch("1", producer_id=7, epoch=0, sequence=1)
    lost = asyncio.ensure_future(worker.send((0, batch), (1, a_batch("p1"))))
    await until("it is sent", lambda: worker.dispatcher.under_way, pause=0)
    for number in range(3):
        (await worker.links.to(1, f"lane {number}")).close()
    assert await lost == [(TIMED_OUT, -1)] * 2
    ((code, _),) = await worker.send((0, batch))
    assert code == NONE
    assert await worker.read(0) == ["0", "1"]
    assert (await worker.send((1, a_batch("p2"))))[0][0] == NONE
    stored = [(b.epoch, b.sequence) for b in await worker.stored(0) if b.values == ["p2"]]
    assert stored == [(1, 0)], "LENT-IDENTITY: the next epoch, from sequence 0"


async def test_a_drain_ends_when_all_is_answered(worker: Worker) -> None:
    """It does not wait for what is only queued (LATE-BINDING)."""
    sends = [asyncio.ensure_future(worker.send((v, a_batch(f"{n}")))) for v in range(4) for n in range(20)]
    await until("some are sent", lambda: worker.dispatcher.under_way, pause=0)
    sealed = worker.seal(4)
    await worker.dispatcher.drain(worker.topic.name, sealed)
    written = sum(send.done() for send in sends)
    assert written < len(sends)
    await worker.adopt(4)
    assert {answer[0][0] for answer in await asyncio.gather(*sends)} == {NONE}
    for v in range(4):
        assert await worker.read(v) == [f"{n}" for n in range(20)]


async def test_large_batches_pass(worker: Worker) -> None:
    """A megabyte is neither copied into pieces nor refused."""
    large = "x" * 900_000
    assert sorted(await worker.send((0, a_batch(large)), (1, a_batch("y")))) == [(NONE, 0), (NONE, 1)]
    assert await worker.read(0) == [large]
