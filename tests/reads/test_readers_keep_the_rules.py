"""What readers are shown and told while leases, fences, layouts and leaders come and go; with logs in memory."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import UUID

import pytest

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.leaders import Leaders
from kordon.proxy.ordering.identity import tag
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.reads.logs import PartitionLog
from kordon.proxy.reads.partition_fetch import epoch_error
from kordon.proxy.reads.read_control import ReadControl
from kordon.proxy.reads.worker_reads import WorkerReads
from kordon.proxy.topics.managed_topics import Fence, ManagedTopic, ManagedTopics
from kordon.testing.fake_broker import Answer, Asked, led
from kordon.testing.known import known
from kordon.testing.random_logs import FACE_ID, LEADER_EPOCH, NAME, Log, LogBroker, consume, fetch

MOVER = 3
"""A virtual partition that leaves partition 0 for partition 1 when the topic grows to two."""


async def no_layouts() -> None:
    """Finds no layouts that are new."""


class Stage:
    """A worker's readers of a topic of four virtual partitions on one physical one, with a record of each."""

    def __init__(self) -> None:
        self.logs = {q: Log() for q in range(2)}
        for v in range(4):
            self.logs[0].append(tag(v, 0, 3), [f"{v}"])
        self.broker = LogBroker(self.logs, 1 << 20)
        self.leaders = Leaders(self.broker)
        self.topic = ManagedTopic(Layout.created(NAME, UUID(int=1), 1, 4), FACE_ID)
        self.topics = ManagedTopics()
        self.topics.add(self.topic)
        self.serves = True
        self.read_layouts: Callable[[], Awaitable[None]] = no_layouts
        self.readers = WorkerReads(
            self.topics, self.broker, self.leaders, read_layouts_to_end=self._read, may_serve=lambda: self.serves
        )

    async def _read(self) -> None:
        await self.read_layouts()

    def grown(self) -> Layout:
        """The layout in which the topic has two partitions."""
        layout = self.topic.layout
        return layout.changed(layout.next_epoch(2), {q: log.end for q, log in self.logs.items()})

    def adopt(self, layout: Layout) -> None:
        self.topic.adopt(layout, {})
        self.readers.logs.invalidate(NAME)

    async def values(self, v: int, offset: int, **fields: int) -> tuple[list[str], int]:
        """Fetches once; returns values, and the error code."""
        row = (await fetch(self.readers, {v: offset}, **fields))[v]
        values: list[str] = []
        consume(row.records, offset, values)
        return values, row.error_code

    async def close(self) -> None:
        """Ends what is under way."""
        await self.readers.close()
        await self.broker.close()


async def test_nothing_is_shown_without_a_lease() -> None:
    """What stands behind a cut that this worker has not heard of is nobody's to see (LIVE-LEASE)."""
    stage = Stage()
    assert await stage.values(1, 0) == (["1"], 0)
    stage.serves = False
    assert await stage.values(1, 0) == ([], 0)
    stage.logs[0].append(tag(1, 0, 3), ["new"])
    assert await stage.values(1, 4) == ([], 0)
    stage.serves = True
    assert await stage.values(1, 4) == (["new"], 0)
    await stage.close()


@pytest.mark.parametrize("is_frozen", [False, True])
async def test_a_read_of_a_topic_whose_takeover_is_taken_back_ends(is_frozen: bool) -> None:
    """The next takeover would not know of it: it would show records of another layout as those of before."""
    stage = Stage()
    coming = ManagedTopic(Layout.unmanaged(NAME, UUID(int=1), 1, 4), FACE_ID)
    stage.topics.remove(NAME)
    stage.topics.begin(coming)
    coming.raise_fence(Fence("first", frozenset({0})))
    if is_frozen:
        coming.fence = Fence("first", frozenset({0})).frozen({0: 4}, {}, has_served=True)
    waiting = asyncio.ensure_future(fetch(stage.readers, {0: 4}, max_wait_ms=60_000))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    coming.cancel_fence()
    stage.topics.remove(NAME)
    stage.readers.logs.invalidate(NAME)
    stage.logs[0].append(-1, ["of the next layout"])
    row = (await waiting)[0]
    assert (row.error_code, bytes(row.records), row.high_watermark, row.log_start_offset) == (0, b"", 4, 0)
    await stage.close()


async def test_what_another_worker_has_told_is_found_before_it_is_called_out_of_range() -> None:
    """A reader comes with an offset of a layout that this worker has not read (NO-FALSE-END)."""
    stage = Stage()
    layout = stage.grown()
    home = known(layout.chains[MOVER].home)
    for value in ("new", "newer"):
        stage.logs[1].append(tag(MOVER, home.move, 3), [value])
    reads: list[str] = []

    async def read() -> None:
        reads.append("layouts")
        if len(reads) == 1:
            raise UpstreamUnavailable("the layouts cannot be read")
        if len(reads) == 2:
            stage.adopt(layout)

    stage.read_layouts = read
    offset = home.virtual_start + 1
    assert await stage.values(MOVER, offset, max_wait_ms=20_000) == ([], Code.UNKNOWN_LEADER_EPOCH)
    assert await stage.values(MOVER, offset, max_wait_ms=20_000) == (["newer"], 0)
    assert reads == ["layouts"] * 2
    assert await stage.values(MOVER, offset + 2, max_wait_ms=20_000) == ([], Code.OFFSET_OUT_OF_RANGE)
    assert reads == ["layouts"] * 3
    await stage.close()


async def test_no_offset_is_out_of_range_of_a_topic_that_is_let_go_meanwhile() -> None:
    """Its successor may have it, of which this request knows nothing: its client asks again, and is not reset."""
    stage = Stage()
    layout = stage.grown()
    home = known(layout.chains[MOVER].home)

    async def read() -> None:
        stage.topics.remove(NAME)
        stage.topics.add(ManagedTopic(layout, FACE_ID))

    stage.read_layouts = read
    assert await stage.values(MOVER, home.virtual_start + 1, max_wait_ms=20_000) == ([], 0)
    await stage.close()


async def test_a_reader_that_waits_for_more_goes_on_under_the_layout_that_comes() -> None:
    """What it has got so far may be all there is in that segment; by the former layout it would wait for nothing."""
    stage = Stage()
    waiting = asyncio.ensure_future(stage.values(MOVER, 0, min_bytes=1 << 19, max_wait_ms=60_000))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    stage.adopt(stage.grown())
    async with asyncio.timeout(20):
        assert await waiting == (["3"], 0)
    await stage.close()


async def test_what_a_new_leader_lacks_is_not_shown_from_memory() -> None:
    """Its log may have got shorter, and gone on with other records."""
    stage = Stage()
    await stage.leaders.of(NAME)
    assert await stage.values(MOVER, 3) == (["3"], 0)
    log = stage.logs[0]
    log.batches, log.end = log.batches[:3], 3
    log.append(tag(MOVER, 0, 4), ["other"])
    stage.broker.topics[NAME] = led(stage.logs, epoch=LEADER_EPOCH + 1)
    await stage.leaders.renew(NAME)
    assert await stage.values(MOVER, 3) == (["other"], 0)
    await stage.close()


async def test_deleted_records_are_not_shown_and_the_floor_is_told_as_the_start() -> None:
    """Of a virtual partition whose floor was raised; its neighbours have all of theirs (OWN-FLOOR)."""
    stage = Stage()
    await fetch(stage.readers, {1: 4, 2: 4})
    stage.adopt(replace(stage.topic.layout, floors={1: 3, 2: 5}))
    rows = await fetch(stage.readers, {0: 0, 1: 2, 2: 4})
    assert [rows[v].error_code for v in (0, 1, 2)] == [0, Code.OFFSET_OUT_OF_RANGE, Code.OFFSET_OUT_OF_RANGE]
    assert (await fetch(stage.readers, {1: 3}))[1].log_start_offset == 3
    assert (await fetch(stage.readers, {0: 0}))[0].log_start_offset == 0
    await stage.close()


async def test_who_has_room_for_nothing_gets_one_batch_all_the_same() -> None:
    """As brokers do it: a reader whose batches are larger than its room would stand still for ever."""
    stage = Stage()
    assert await stage.values(1, 0, max_bytes=0, max_wait_ms=20_000) == (["1"], 0)
    await stage.close()


async def test_where_nothing_of_a_partition_stands_is_found_by_reading() -> None:
    """Also by a worker that has read nothing of that log yet, and over a move; a record between is found (OWN-END)."""
    stage = Stage()
    stage.adopt(stage.grown())
    home = known(stage.topic.layout.chains[MOVER].home)
    stage.logs[1].append(tag(1, 1, 3), ["another's"])
    stage.logs[1].append(tag(MOVER, home.move, 3), ["new"])
    new = home.virtual_start + 1
    nothing = {
        stretch: await ReadControl(stage.readers).nothing_between(NAME, MOVER, *stretch)
        for stretch in ((0, 3), (0, 4), (4, new), (0, new), (4, new + 1))
    }
    assert nothing == {(0, 3): True, (0, 4): False, (4, new): True, (0, new): False, (4, new + 1): False}
    assert not await ReadControl(stage.readers).nothing_between("nobody manages it", MOVER, 0, 1)
    await stage.close()


async def test_leader_epochs_rise_with_each_move() -> None:
    """A reader that has not heard of a move is told so, though the partition has the same leader (RISING-EPOCH)."""
    stage = Stage()
    stage.adopt(stage.grown())
    await stage.leaders.of(NAME)
    codes = {
        move: (await stage.values(MOVER, 4, current_leader_epoch=move << 15 | LEADER_EPOCH))[1] for move in range(3)
    }
    assert codes == {0: Code.FENCED_LEADER_EPOCH, 1: 0, 2: Code.UNKNOWN_LEADER_EPOCH}
    await stage.close()


async def test_while_a_leader_is_not_known_only_moves_are_compared() -> None:
    """A worker that has just begun knows of no election; whoever has heard of one is not refused for that."""
    stage = Stage()
    stage.adopt(stage.grown())
    home = known(stage.topic.layout.chains[MOVER].home)
    errors = {
        move: epoch_error(stage.readers, stage.topic, home, move << 15 | LEADER_EPOCH) for move in range(home.move + 2)
    }
    assert errors == {0: Code.FENCED_LEADER_EPOCH, 1: Code.NONE, 2: Code.UNKNOWN_LEADER_EPOCH}
    await stage.close()


async def test_who_has_all_there_is_has_no_lag_though_others_records_stand_behind() -> None:
    """The end that it is told is where it stands then; a group that has read all would show lag for ever (OWN-END)."""
    stage = Stage()
    row = (await fetch(stage.readers, {0: 0}))[0]
    assert consume(row.records, 0, []) == row.high_watermark == 4
    row = (await fetch(stage.readers, {0: 1}, max_wait_ms=0))[0]
    assert (consume(row.records, 1, []), row.high_watermark) == (4, 4)
    await stage.close()


async def test_a_fence_shows_what_was_shown_before_though_a_leader_says_that_it_ends_earlier() -> None:
    """One that was deposed may not know yet; an end that falls is lost data to its reader (FROZEN-READS)."""
    stage = Stage()
    assert await stage.values(MOVER, 0) == (["3"], 0)

    def deposed(asked: Asked) -> Answer:
        return {"topics": [{"name": NAME, "partitions": [{"partition_index": 0, "error_code": 0, "offset": 2}]}]}

    stage.topic.raise_fence(Fence("f1", frozenset({0})))
    stage.broker.hook(apis.LIST_OFFSETS, deposed)
    freezing = asyncio.ensure_future(ReadControl(stage.readers).freeze(NAME, frozenset({0})))
    await asyncio.sleep(0)
    stage.logs[0].append(tag(0, 0, 3), ["behind"])
    assert await stage.values(0, 4) == ([], 0), "not while the end is asked for either"
    fence = known(stage.topic.fence)
    for each in (fence, fence.frozen(await freezing, {}, has_served=True)):
        stage.topic.fence = each
        assert await stage.values(MOVER, 0) == (["3"], 0)
        assert await stage.values(0, 4) == ([], 0)
    await stage.close()


async def test_no_log_is_waited_at_that_a_fence_seals(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes there is for nobody to see until the next layout; others are waited at as ever."""
    stage = Stage()
    stage.adopt(stage.grown())
    ends = {0: 4, MOVER: 4}
    await fetch(stage.readers, ends)
    waits = Counter[int]()
    coming = PartitionLog.coming

    def counted(log: PartitionLog, offset: int) -> asyncio.Task[int]:
        waits[log.partition] += 1
        return coming(log, offset)

    monkeypatch.setattr(PartitionLog, "coming", counted)
    await fetch(stage.readers, ends)
    before = waits.copy()
    assert before.keys() == {0, 1}
    stage.topic.raise_fence(Fence("f1", frozenset({0}), {0: 4}))
    await fetch(stage.readers, ends)
    assert waits[0] == before[0]
    assert waits[1] > before[1]
    await stage.close()
