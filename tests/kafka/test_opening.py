"""Batches that hold too much are passed over, once and for all; large ones are opened in nobody's way."""

import asyncio
import threading
from typing import Any
from uuid import UUID

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from kordon.codecs.decision import Kind
from kordon.codecs.error_codes import Code
from kordon.codecs.errors import WireError
from kordon.codecs.split import split
from kordon.codecs.unpack import unpacked
from kordon.proxy.controller.log_walk import LogWalk, Stretch
from kordon.proxy.decisions.journal import NO_JOURNAL
from kordon.proxy.handlers.batch_checks import Unfit, look_records
from kordon.proxy.kafka import opening
from kordon.proxy.kafka.opening import BatchAddress, Opener, PassedOver
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.reads.segment_views import LogSegmentView
from kordon.proxy.reads.view_cache import ViewCache
from kordon.proxy.reads.worker_reads import WorkerReads
from kordon.testing.messages.bombs import CODECS, bomb, old_bomb
from kordon.testing.noted import Noted
from kordon.testing.random_logs import NAME, Log, World, fetch, read_all, readers_of

PLACE = BatchAddress("orders", 0, 0)
LIMIT = 1 << 20


def a_batch(values: list[bytes], codec: int = 0) -> bytes:
    """As a producer of no idempotence builds it."""
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 30)
    for delta, value in enumerate(values):
        builder.append(delta, 1_000, b"key-%d" % delta, value, [])
    return bytes(builder.build())


def a_world(*batches: bytes) -> World:
    """Two virtual partitions on one physical one, in which these stand."""
    world = World(Layout.created(NAME, UUID(int=1), 1, 2), {q: Log() for q in range(2)}, {0: [], 1: []})
    for data in batches:
        world.logs[0].write(data)
    return world


class Unpacked:
    """Counts what is unpacked, and how much at a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.limits: list[int] = []
        self.in_threads = 0
        self.most_at_once = 0
        self._now = 0
        monkeypatch.setattr(opening, "unpacked", self)

    def __call__(self, data: memoryview, limit_bytes: int) -> memoryview:
        """Unpacks, as the product does."""
        self.limits.append(limit_bytes)
        if threading.current_thread() is threading.main_thread():
            return unpacked(data, limit_bytes)
        self.in_threads += 1
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        try:
            return unpacked(data, limit_bytes)
        finally:
            self._now -= 1


async def opened(opener: Opener, data: bytes, place: BatchAddress = PLACE) -> list[list[Any]]:
    """Opens a batch; returns its slices."""
    slices: list[list[Any]] = []
    (batch,) = split(data)
    await opener.open(place, batch, memoryview(data), slices.append)
    return slices


def readers_within(world: World, limit_bytes: int, noted: Noted | None = None) -> WorkerReads:
    """Makes readers that open so much at once."""
    return reads_by(world, Opener(limit_bytes), noted)


def reads_by(world: World, opener: Opener, noted: Noted | None = None) -> WorkerReads:
    """Makes readers that open batches by an opener."""
    readers, _ = readers_of(world, 1 << 20, 1 << 20, noted.journal if noted else NO_JOURNAL, opener)
    return readers


@pytest.mark.parametrize("codec", CODECS)
async def test_readers_pass_over_a_batch_that_holds_too_much(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both virtual partitions get what stands before and behind it, now and whenever they come by again."""
    seen, noted = Unpacked(monkeypatch), Noted()
    world = a_world(a_batch([b"before"] * 4), bomb(codec, 3_000_000), a_batch([b"behind"] * 4))
    readers = readers_within(world, LIMIT, noted)
    client = noted.journal.connected()
    found = await read_all(readers, [0, 1], client=client)
    assert sorted(found[0] + found[1]) == ["before"] * 4 + ["behind"] * 4
    unpacked = len(seen.limits)
    again = reads_by(world, readers.opener)
    assert await read_all(again, [0, 1]) == found
    assert len(seen.limits) == unpacked <= 2
    assert readers.opener.passed == {(NAME, "too_large"): 1}
    noted.journal.end_runs()
    await readers.close()
    await again.close()
    passed = [each for each in noted.of(Kind.DELIVER) if "passed_over" in each.evidence]
    assert {each.stream: each.evidence["passed_over"] for each in passed} == {v: [[4, 4, "too_large"]] for v in (0, 1)}


async def test_a_log_of_nothing_else_is_read_to_its_end() -> None:
    """Where all is passed over a filler moves readers on, so that their lag is 0."""
    world = a_world(*[bomb("zstd", 3_000_000)] * 5)
    readers = readers_within(world, LIMIT)
    assert await read_all(readers, [0, 1]) == {0: [], 1: []}
    assert readers.opener.passed == {(NAME, "too_large"): 5}
    await readers.close()


async def test_what_is_no_records_is_passed_over() -> None:
    """The broker's checksum is right, so that no other read would bring anything else."""
    for data in (old_bomb("gzip", 100, wrapped=2), _rebuilt(a_batch([b"x"] * 9), CODECS["gzip"])):
        opener = Opener(LIMIT)
        for _ in range(2):
            with pytest.raises(PassedOver, match="unreadable"):
                await opened(opener, data)
        assert opener.passed == {("orders", "unreadable"): 1}


async def test_what_was_damaged_on_its_way_is_read_again() -> None:
    """A wrong checksum says nothing about the batch that stands in the log."""
    opener, good = Opener(LIMIT), a_batch([b"x" * 100] * 9, CODECS["gzip"])
    broken = bytearray(good)
    broken[90] ^= 0xFF
    with pytest.raises(WireError):
        await opened(opener, bytes(broken))
    assert len((await opened(opener, good))[0]) == 9
    assert not opener.passed


async def test_another_batch_at_the_same_place_is_opened() -> None:
    """A topic that was made anew has the name of the former one, and offsets from 0 on."""
    opener = Opener(LIMIT)
    with pytest.raises(PassedOver):
        await opened(opener, bomb("zstd", 3_000_000))
    assert len(await opened(opener, bomb("zstd", 300))) == 1


async def test_large_batches_are_unpacked_one_at_a_time_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded by the limit for all partitions together; little ones do not wait for that."""
    seen, opener = Unpacked(monkeypatch), Opener(8 << 20)
    large, little = bomb("gzip", 3_000_000), bomb("gzip", 3_000)
    jobs = [opened(opener, large, BatchAddress("orders", q, 0)) for q in range(5)]
    slices = await asyncio.gather(*jobs, opened(opener, little))
    assert [len(each[0][0].value) for each in slices] == [3_000_000] * 5 + [3_000]
    assert (seen.in_threads, seen.most_at_once) == (5, 1)


async def test_very_many_records_are_handed_on_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop has its turn in between; nothing is out of order."""
    monkeypatch.setattr(opening, "_TURN_SECONDS", 0.0)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.ensure_future(others())
    slices = await opened(Opener(LIMIT), a_batch([b"%d" % n for n in range(20_000)]))
    beside.cancel()
    assert [len(each) for each in slices] == [500] * 40
    assert [int(each.value) for records in slices for each in records] == list(range(20_000))
    assert turns >= 40


async def test_much_that_was_opened_is_read_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer of a megabyte may hold hundreds: no more than one batch above a megabyte is kept at a time."""
    values = [[b"%d-" % n + bytes(700_000)] for n in range(6)]
    world = a_world(*(a_batch(each, CODECS["zstd"]) for each in values))
    readers = readers_within(world, 8 << 20)
    sizes: list[int] = []
    add = ViewCache.add

    def note(cache: ViewCache, view: LogSegmentView) -> None:
        sizes.append(view.size_bytes)
        add(cache, view)

    monkeypatch.setattr(ViewCache, "add", note)
    found = await read_all(readers, [0, 1])
    assert sorted(found[0] + found[1]) == [each.decode() for (each,) in values]
    assert len(sizes) == 3
    assert max(sizes) < 1_500_000
    await readers.close()


async def test_records_of_a_large_batch_come_in_batches_of_a_megabyte() -> None:
    """As brokers would have got them: no answer is as large as what a batch unpacks to."""
    world = a_world(a_batch([bytes(100_000)] * 60, CODECS["zstd"]))
    readers = readers_within(world, 8 << 20)
    rows = await fetch(readers, {0: 0, 1: 0}, max_wait_ms=1_000, min_bytes=1)
    assert 0 < max(len(row.records) for row in rows.values()) < 1_300_000
    found = await read_all(readers, [0, 1])
    assert len(found[0] + found[1]) == 60
    await readers.close()


async def test_the_walk_of_a_janitor_goes_on_behind_it() -> None:
    """It is told that not all was given; other batches are opened as ever."""
    walk: Any = LogWalk("orders", None, None, Opener(LIMIT))  # type: ignore[arg-type]  # nothing is read here
    data = a_batch([b"v"] * 3) + bomb("zstd", 3_000_000) + a_batch([b"w"] * 2)
    stretch = Stretch(0, memoryview(data), split(data), 6, 6)
    given: list[Any] = []
    assert [await walk.open(stretch, each, given.extend) for each in stretch.batches] == [True, False, True]
    assert [record.value for record in given] == [b"v"] * 3 + [b"w"] * 2
    assert walk.opened == 5


def test_writers_of_the_dialect_are_refused_what_readers_would_never_get() -> None:
    """As far as the header shows it: how many records there are in a compressed batch."""
    many = a_batch([b""] * 1_000, CODECS["gzip"])
    assert not isinstance(look_records(9, many, 128_000), Unfit)
    assert not isinstance(look_records(9, many), Unfit)
    assert not isinstance(look_records(9, a_batch([b""] * 1_000), 127_000), Unfit)
    refused = look_records(9, many, 127_000)
    assert isinstance(refused, Unfit)
    assert refused.code is Code.RECORD_LIST_TOO_LARGE
    assert "limits.opened_bytes" in refused.message


def _rebuilt(plain: bytes, codec: int) -> bytes:
    """Says of a batch that it is compressed, under a right checksum."""
    import google_crc32c  # noqa: PLC0415 - of this one helper

    data = bytearray(plain)
    data[22] |= codec
    data[17:21] = google_crc32c.value(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)
