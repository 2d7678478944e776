"""Readers on logs made at random, by a broker in memory: whatever happens, each record is read once and in order."""

import asyncio
import itertools
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from aiokafka.partitioner import murmur2
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import event, given, settings
from hypothesis import strategies as st

from kordon.codecs.fetched import VERSION
from kordon.codecs.messages import request, response
from kordon.codecs.schema import Buffer
from kordon.codecs.split import filler, patch, split
from kordon.proxy import apis
from kordon.proxy.managed.leaders import Leader
from kordon.proxy.managed.readers import Readers
from kordon.proxy.managed.topics import Fence, ManagedTopic, ManagedTopics
from kordon.proxy.ordering.identity import tag
from kordon.proxy.ordering.layout import Layout, Placement
from kordon.proxy.ordering.streams import physical_stream

NAME, FACE_ID = "orders", UUID(int=9)
OUT_OF_RANGE, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 1, 74, 75
LEADER_EPOCH = 4
_OF_EACH = {"partition_max_bytes": 1 << 20, "current_leader_epoch": -1}


def batch(base_offset: int, values: list[str], producer_id: int) -> bytes:
    """A batch as it stands in the log."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, producer_id, 0, 0, 1 << 16)
    for delta, value in enumerate(values):
        builder.append(delta, 1_000, value.encode(), value.encode(), [])
    built = bytearray(builder.build())
    patch(built, split(built)[0], base_offset, LEADER_EPOCH)
    return bytes(built)


@dataclass
class Log:
    """One physical partition."""

    start: int = 0
    end: int = 0
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    """Base offset, next offset, bytes."""

    def append(self, producer_id: int, values: list[str]) -> None:
        """Writes a batch."""
        self.batches.append((self.end, self.end + len(values), batch(self.end, values, producer_id)))
        self.end += len(values)

    def append_marker(self) -> None:
        """Writes a control batch."""
        self.batches.append((self.end, self.end + 1, filler(self.end, self.end + 1, LEADER_EPOCH)))
        self.end += 1

    def read(self, offset: int, most_bytes: int) -> bytes:
        """Reads as brokers do: the first batch whole, then up to a number of bytes, wherever that cuts."""
        data = b"".join(data for _, end, data in self.batches if end > max(offset, self.start))
        first = int.from_bytes(data[8:12], "big") + 12 if data else 0
        return data[: max(first, most_bytes)]


class Broker:
    """Answers Fetch and ListOffsets from memory; it is links, client and leaders at once."""

    closed = False

    def __init__(self, logs: dict[int, Log], most_bytes: int) -> None:
        self.logs = logs
        self.most_bytes = most_bytes

    async def to(self, node_id: int, purpose: str) -> "Broker":
        """Is the connection to itself."""
        return self

    async def of(self, topic: str) -> dict[int, Leader]:
        """Leads everything."""
        return {q: Leader(1, LEADER_EPOCH, (1,), (1,), ()) for q in self.logs}

    def known(self, topic: str) -> dict[int, Leader]:
        """Says the same."""
        return {q: Leader(1, LEADER_EPOCH, (1,), (1,), ()) for q in self.logs}

    def forget(self, topic: str) -> None:
        """Nothing changes."""

    def version(self, api_key: int, wanted: range) -> int:
        """Speaks everything."""
        return wanted[-1]

    async def room(self) -> None:
        """Has room."""

    async def ask(self, api_key: int, version: int, fields: Any, timeout: float | None = None) -> Any:
        """Answers ListOffsets."""
        assert api_key == apis.LIST_OFFSETS
        rows = [
            SimpleRow(
                partition_index=row["partition_index"],
                error_code=0,
                offset=getattr(self.logs[row["partition_index"]], "end" if row["timestamp"] == -1 else "start"),
            )
            for row in fields["topics"][0]["partitions"]
        ]
        return {"topics": [SimpleRow(name=NAME, partitions=rows)]}

    async def send_body(self, api_key: int, version: int, pieces: list[Buffer], timeout: float) -> memoryview:
        """Answers Fetch."""
        assert (api_key, version) == (apis.FETCH, VERSION)
        asked = request(apis.FETCH).parse(version, b"".join(pieces))
        await asyncio.sleep(0)
        rows = [self._read(row) for topic in asked.topics for row in topic.partitions]
        if asked.max_wait_ms and not any(row["records"] or row["error_code"] for row in rows):
            await asyncio.sleep(0.002)
        return memoryview(response(apis.FETCH).build(version, {"responses": [{"topic": NAME, "partitions": rows}]}))

    def _read(self, row: Any) -> dict[str, Any]:
        log = self.logs[row.partition]
        told = {"partition_index": row.partition, "high_watermark": -1, "aborted_transactions": None}
        if not log.start <= row.fetch_offset <= log.end:
            return told | {"error_code": OUT_OF_RANGE, "records": b""}
        records = log.read(row.fetch_offset, self.most_bytes)
        return told | {"high_watermark": log.end, "log_start_offset": log.start, "records": records, "error_code": 0}


class SimpleRow(SimpleNamespace):
    """Fields by name and as attributes, as a Container has them."""

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)


@dataclass
class World:
    """A history: the layouts, what stands in the logs, and what of it each virtual partition is to give."""

    layout: Layout
    logs: dict[int, Log]
    expected: dict[int, list[str]]
    bypass: set[str] = field(default_factory=set)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A topic that has grown and shrunk while many wrote to it, some of them where or when they should not."""
    n, bits = draw(st.integers(1, 3)), draw(st.integers(0, 2))
    v_count = n << bits
    taken_over = draw(st.booleans())
    layout = (Layout.unmanaged if taken_over else Layout.created)(NAME, UUID(int=1), n, v_count)
    world = World(layout, {q: Log() for q in range(v_count)}, {v: [] for v in range(v_count)})
    for step in range(draw(st.integers(1, 6))):
        for number in range(draw(st.integers(0, 12))):
            _write(draw, world, f"{step}-{number}")
        if world.layout.is_managed and draw(st.integers(0, 3)) == 0:
            _shorten(draw, world, f"{step}-shortened")
        elif draw(st.booleans()):
            placement = Placement.OWN if taken_over and world.layout.epoch == 0 else Placement.LINEAR
            u = n if placement is Placement.OWN else draw(st.integers(n, v_count))
            ends = {q: log.end for q, log in world.logs.items()}
            before, world.layout = world.layout, world.layout.changed(world.layout.next_epoch(u, placement), ends)
            _stray(draw, world, before)
    return world


def _write(draw: st.DrawFn, world: World, name: str) -> None:
    v = draw(st.integers(0, len(world.expected) - 1))
    home = world.layout.chains[v].home
    kind = draw(st.sampled_from(["own", "own", "own", "own", "marker", "bypass", "dialect", "dialect"]))
    values = [f"{v}:{name}:{each}" for each in range(draw(st.integers(1, 3)))]
    if home is None:
        return
    log = world.logs[home.partition]
    if kind == "dialect" and home.tagged:
        _write_to(draw, world, home.partition, name)
    elif kind == "marker":
        log.append_marker()
    elif kind == "own" or not home.tagged:
        log.append(tag(v, home.move, 3) if home.tagged else 3, values)
        world.expected[v] += values
    else:
        log.append(draw(st.sampled_from([-1, 3])), values)
        world.bypass.update(values)


def _write_to(draw: st.DrawFn, world: World, q: int, name: str) -> None:
    """A client of the dialect writes to a physical partition; its records are of those whose keys live there."""
    stream, v_count = physical_stream(q), len(world.expected)
    home = world.layout.chain(stream).home
    assert home is not None
    values: list[str] = []
    for number in range(draw(st.integers(1, 4))):
        v = draw(st.sampled_from(world.layout.residents(q)))
        candidates = (f"{v}:{name}:{number}-{each}" for each in itertools.count())
        value = next(each for each in candidates if (murmur2(each.encode()) & 0x7FFFFFFF) % v_count == v)
        values.append(value)
        inherits = world.layout.epochs[-1].placement is Placement.OWN
        world.expected[q if inherits else v].append(value)
    world.logs[q].append(tag(stream, home.move, 3), values)


def _shorten(draw: st.DrawFn, world: World, name: str) -> None:
    """A log loses its end; some write to it before that is found, and then the layout goes on behind (rule C10)."""
    q = draw(st.sampled_from(sorted(world.logs)))
    log, bound = world.logs[q], world.layout.last_bounds.get(q)
    told, lost_from = log.end, draw(st.sampled_from([0, *(base for base, _, _ in log.batches)]))
    lost = {value for base, _, raw in log.batches if base >= lost_from for value in _values(raw)}
    log.batches = [each for each in log.batches if each[0] < lost_from]
    log.end = lost_from
    world.bypass -= lost
    world.expected = {v: [each for each in values if each not in lost] for v, values in world.expected.items()}
    for v in world.layout.residents(q) if draw(st.booleans()) else ():
        home = world.layout.chains[v].home
        assert home is not None
        value = f"{v}:{name}"
        if home.holds(log.end):
            world.expected[v].append(value)
        log.append(tag(v, home.move, 3), [value])  # below its segment it is never acknowledged
    if bound is not None and lost_from < bound.offset:
        following = world.layout.next_epoch(world.layout.u, world.layout.epochs[-1].placement, {q: lost_from})
        world.layout = world.layout.changed(following, {p: each.end for p, each in world.logs.items()}, told={q: told})


def _values(raw: bytes) -> list[str]:
    batch = MemoryRecords(raw).next_batch()
    assert batch is not None
    return [] if batch.is_control_batch else [record.value.decode() for record in batch]


def _stray(draw: st.DrawFn, world: World, before: Layout) -> None:
    for v, chain in enumerate(before.chains):
        old, now = chain.home, world.layout.chains[v].home
        has_left = old is not None and now is not None and (now.partition, now.move) != (old.partition, old.move)
        if old is not None and has_left and old.tagged and draw(st.booleans()):
            world.logs[old.partition].append(tag(v, old.move, 3), [f"stray of {v}"])
    for q, segment in before.open_segments.items():
        if world.layout.open_segments.get(q) != segment and before.is_managed and draw(st.booleans()):
            world.logs[q].append(tag(physical_stream(q), segment.id.epoch, 3), [f"stray of {q} as such"])


def readers_of(world: World, most_bytes: int, cache_bytes: int) -> tuple[Readers, ManagedTopic]:
    """Makes a worker's readers in front of a broker in memory."""
    topics = ManagedTopics()
    topic = ManagedTopic(world.layout, FACE_ID)
    topics.add(topic)
    broker: Any = Broker(world.logs, most_bytes)
    return Readers(topics, broker, broker, cache_bytes=cache_bytes), topic


async def fetch(readers: Readers, offsets: dict[int, int], **fields: Any) -> dict[int, Any]:
    """Fetches through the bytes of a version, by topic id unless it is told another one."""
    told: dict[str, Any] = {"max_wait_ms": 3, "min_bytes": 1, "max_bytes": 1 << 20, "rack_id": ""} | fields
    version = told.pop("version", 13)
    each = {name: told.pop(name, value) for name, value in _OF_EACH.items()}
    rows = [{"partition": v, "fetch_offset": at} | each for v, at in offsets.items()]
    topic = {"topic": NAME, "topic_id": FACE_ID, "partitions": rows}
    body = request(apis.FETCH).build(version, told | {"topics": [topic]})
    answer = await readers.serve(version, request(apis.FETCH).parse(version, body))
    parsed = response(apis.FETCH).parse(version, response(apis.FETCH).build(version, answer))
    return {row.partition_index: row for row in parsed.responses[0].partitions}


async def read_all(readers: Readers, vs: list[int], **fields: Any) -> dict[int, list[str]]:
    """Reads as one consumer does until no partition has any lag."""
    found: dict[int, list[str]] = {v: [] for v in vs}
    at = dict.fromkeys(vs, 0)
    lagging = set(vs)
    async with asyncio.timeout(30):
        while lagging:
            for v, row in (await fetch(readers, at, **fields)).items():
                assert row.error_code == 0
                before = at[v]
                at[v] = _consume(row.records, at[v], found[v])
                assert row.high_watermark >= at[v]
                if row.high_watermark > at[v]:
                    lagging.add(v)
                elif before == at[v]:
                    lagging.discard(v)
    return found


def _consume(records: bytes, at: int, values: list[str]) -> int:
    """Takes in what a Fetch brought; offsets must not fall, and batches not overlap."""
    reader = MemoryRecords(bytes(records))
    while reader.has_next():
        each = reader.next_batch()
        assert each.validate_crc()
        assert each.next_offset > at
        for record in each:
            if not each.is_control_batch and record.offset >= at:
                assert record.offset < each.next_offset
                values.append(record.value.decode())
        at = each.next_offset
    return at


@settings(max_examples=80)
@given(worlds(), st.integers(1, 2_000), st.sampled_from([0, 500, 1 << 20]), st.integers(1, 3_000), st.integers(1, 3))
def test_every_record_is_read_once_and_in_order(
    world: World, most_bytes: int, cache_bytes: int, partition_max_bytes: int, consumers: int
) -> None:
    """Through moves, strays, markers, bypass and foreign batches, with any sizes of reads, answers and cache."""

    async def play() -> list[dict[int, list[str]]]:
        readers, _ = readers_of(world, most_bytes, cache_bytes)
        born = [v for v, chain in enumerate(world.layout.chains) if chain.stays]
        groups = [born[number::consumers] for number in range(consumers) if born[number::consumers]]
        try:
            return await asyncio.gather(
                *(read_all(readers, vs, partition_max_bytes=partition_max_bytes) for vs in [*groups, *groups])
            )
        finally:
            await readers.close()

    parts = asyncio.run(play())
    event(f"moves: {max(len(chain.stays) for chain in world.layout.chains)}")
    for half in (parts[: len(parts) // 2], parts[len(parts) // 2 :]):
        found = {v: values for part in half for v, values in part.items()}
        for v, values in found.items():
            assert [value for value in values if value not in world.bypass] == world.expected[v]
        shared = [value for values in found.values() for value in values if value in world.bypass]
        assert sorted(shared) == sorted(world.bypass)


@settings(max_examples=30)
@given(worlds(), st.data())
def test_holes_are_passed_and_the_rest_is_read(world: World, data: st.DataObject) -> None:
    """Whatever retention takes, from any partitions, readers from offset 0 come to the end, and get what is left."""
    for log in world.logs.values():
        starts = [0, *(base for base, _, _ in log.batches), log.end]
        log.start = data.draw(st.sampled_from(starts))
        log.batches = [each for each in log.batches if each[1] > log.start]
    left = {
        record.value.decode()
        for log in world.logs.values()
        for _, _, raw in log.batches
        for record in MemoryRecords(raw).next_batch()
        if record.value is not None
    }

    async def play() -> dict[int, list[str]]:
        readers, _ = readers_of(world, 300, 1 << 20)
        try:
            return await read_all(readers, [v for v, chain in enumerate(world.layout.chains) if chain.stays])
        finally:
            await readers.close()

    for v, values in asyncio.run(play()).items():
        own = [value for value in values if value not in world.bypass]
        assert own == [value for value in world.expected[v] if value in left]


def grown(v_count: int = 4) -> World:
    """One physical partition with records of all virtual ones."""
    layout = Layout.created(NAME, UUID(int=1), 1, v_count)
    world = World(layout, {q: Log() for q in range(v_count)}, {v: [] for v in range(v_count)})
    for v in range(v_count):
        world.logs[0].append(tag(v, 0, 3), [f"{v}"])
        world.expected[v] = [f"{v}"]
    return world


async def test_reader_goes_on_in_a_layout_that_is_adopted_while_it_waits() -> None:
    """It waits at the old home's end, and gets the first record of the new one."""
    world = grown()
    readers, topic = readers_of(world, 1 << 20, 1 << 20)
    mover = 3
    await fetch(readers, {mover: 4})
    waiting = asyncio.ensure_future(fetch(readers, {mover: 4}, max_wait_ms=20_000))
    await asyncio.sleep(0.01)
    layout = world.layout.changed(world.layout.next_epoch(4), {q: log.end for q, log in world.logs.items()})
    home = layout.chains[mover].home
    assert home is not None
    world.logs[home.partition].append(tag(mover, home.move, 3), ["new"])
    topic.adopt(layout, {})
    readers.invalidate(NAME)
    async with asyncio.timeout(5):
        row = (await waiting)[mover]
    values: list[str] = []
    assert _consume(row.records, 4, values) == 5
    assert values == ["new"]
    await readers.close()


@pytest.mark.parametrize("same_topic", [True, False])
async def test_what_a_layout_does_not_change_is_not_read_again(*, same_topic: bool) -> None:
    """2 grows to 3: partition 0 splits and is read anew, partition 1 is still in the cache; not so of another topic."""
    layout = Layout.created(NAME, UUID(int=1), 2, 4)
    world = World(layout, {q: Log() for q in range(3)}, {})
    for v, q in enumerate(layout.homes):
        assert q is not None
        world.logs[q].append(tag(v, 0, 3), [f"{v}"])
    readers, topic = readers_of(world, 1 << 20, 1 << 20)
    everything = {v: [f"{v}"] for v in range(4)}
    assert await read_all(readers, [0, 1, 2, 3]) == everything
    before = readers.tally.pulled_bytes

    grown = layout.changed(layout.next_epoch(3), {q: log.end for q, log in world.logs.items()})
    topic.adopt(grown if same_topic else replace(grown, topic_id=UUID(int=2)), {})
    readers.invalidate(NAME)
    assert await read_all(readers, [0, 1, 2, 3]) == everything
    assert (readers.tally.pulled_bytes - before) * 2 == before * (1 if same_topic else 2)
    await readers.close()


async def test_withheld_partition_is_there_and_empty() -> None:
    """What is written to v >= N while a topic is taken over is not shown yet (rule A2)."""
    world = grown()
    layout = Layout(NAME, UUID(int=1), 1, 4, world.layout.epochs, world.layout.segments, withheld=True)
    readers, _ = readers_of(World(layout, world.logs, world.expected), 1 << 20, 1 << 20)
    rows = await fetch(readers, {0: 0, 1: 0})
    values: list[str] = []
    assert _consume(rows[0].records, 0, values) == 4
    assert values == ["0"]
    assert (rows[1].error_code, rows[1].high_watermark, rows[1].records) == (0, 0, b"")
    await readers.close()


async def test_withheld_partition_is_given_where_delivery_need_not_be_ordered() -> None:
    """enable.ordered.delivery=false: nobody waits for what a key was in before (KIP-253)."""
    world = grown()
    layout = replace(world.layout, withheld=True, ordered_delivery=False)
    readers, _ = readers_of(World(layout, world.logs, world.expected), 1 << 20, 1 << 20)
    rows = await fetch(readers, {1: 0})
    values: list[str] = []
    assert _consume(rows[1].records, 0, values) == 4
    assert values == ["1"]
    await readers.close()


async def test_unknown_virtual_partition_is_answered_with_others() -> None:
    """Each requested partition is in the answer, those that are not there with their error."""
    readers, _ = readers_of(grown(), 1 << 20, 1 << 20)
    rows = await fetch(readers, {0: 0, 4: 0, -1: 0})
    assert {v: row.error_code for v, row in rows.items()} == {0: 0, 4: 3, -1: 3}
    await readers.close()


async def test_sealed_partition_gives_no_filler_and_nothing_behind_its_mark() -> None:
    """From the fence to the next layout nobody is moved on (rules F3, C5)."""
    world = grown()
    readers, topic = readers_of(world, 1 << 20, 1 << 20)
    topic.raise_fence(Fence("f", frozenset({0})))
    assert await readers.freeze(NAME, frozenset({0})) == {0: 4}
    world.logs[0].append(tag(0, 0, 3), ["behind"])
    rows = await fetch(readers, {0: 1, 1: 2, 3: 0})
    assert (rows[0].records, rows[1].records) == (b"", b"")
    values: list[str] = []
    assert _consume(rows[3].records, 0, values) == 4
    assert values == ["3"]
    rows = await fetch(readers, {0: 1})
    assert (rows[0].records, rows[0].high_watermark) == (b"", 1)  # all that it may see it has: no lag
    await readers.close()


async def test_one_batch_goes_out_however_little_was_asked_for() -> None:
    """A client with a limit below one batch still gets on."""
    readers, _ = readers_of(grown(), 1, 0)
    rows = await fetch(readers, {1: 0}, max_bytes=1, partition_max_bytes=1)
    values: list[str] = []
    assert _consume(rows[1].records, 0, values) == 2
    assert values == ["1"]
    await readers.close()


async def test_request_waits_for_its_min_bytes() -> None:
    """Less than that is answered when max_wait_ms has passed, and not before."""
    readers, _ = readers_of(grown(), 1 << 20, 1 << 20)
    loop = asyncio.get_running_loop()
    before = loop.time()
    rows = await fetch(readers, {1: 0}, min_bytes=100_000, max_wait_ms=100)
    assert loop.time() - before >= 0.1
    values: list[str] = []
    assert _consume(rows[1].records, 0, values) == 4
    assert values == ["1"]
    await readers.close()


@pytest.mark.parametrize("version", [4, 5, 7, 11, 12, 13, 16, 18])
async def test_reader_that_has_all_is_told_so_in_every_version(version: int) -> None:
    """It is at the end, nothing is looked up for it again, and its lag is 0 whatever the version has of fields."""
    readers, _ = readers_of(grown(), 1 << 20, 1 << 20)
    ends = dict.fromkeys(range(4), 4)
    await fetch(readers, ends, version=version)
    looks = (readers.tally.hits, readers.tally.misses)
    for _ in range(2):
        rows = await fetch(readers, ends, version=version)
        assert set(rows) == set(ends)
        for row in rows.values():
            assert (row.error_code, row.high_watermark, row.last_stable_offset) == (0, 4, 4)
            assert (row.records, row.aborted_transactions) == (b"", None)
            assert row.get("log_start_offset", 0) == 0
    assert (readers.tally.hits, readers.tally.misses) == looks
    await readers.close()


async def test_readers_at_the_end_get_what_comes_at_once() -> None:
    """All wait at the end of one log; who is written to has the record, the others have no lag."""
    world = grown()
    readers, _ = readers_of(world, 1 << 20, 1 << 20)
    ends = dict.fromkeys(range(4), 4)
    await fetch(readers, ends)
    waiting = asyncio.ensure_future(fetch(readers, ends, max_wait_ms=20_000))
    await asyncio.sleep(0.01)
    world.logs[0].append(tag(2, 0, 3), ["new"])
    async with asyncio.timeout(5):
        rows = await waiting
    values: list[str] = []
    assert _consume(rows[2].records, 4, values) == 5
    assert values == ["new"]
    assert {v: (rows[v].records, rows[v].high_watermark) for v in (0, 1, 3)} == dict.fromkeys((0, 1, 3), (b"", 4))
    await readers.close()


async def test_readers_at_the_end_are_told_where_the_log_begins_now() -> None:
    """Retention goes on while they wait."""
    world = grown()
    readers, _ = readers_of(world, 1 << 20, 1 << 20)
    assert (await fetch(readers, {0: 4}))[0].log_start_offset == 0
    world.logs[0].start = 2
    async with asyncio.timeout(10):
        while (await fetch(readers, {0: 4}, max_wait_ms=20))[0].log_start_offset != 2:
            pass
    await readers.close()


async def test_readers_at_the_end_hear_of_another_leader_epoch() -> None:
    """Who believes in an epoch that is over, or not known, is told so though there is nothing to read (KIP-320)."""
    readers, _ = readers_of(grown(), 1 << 20, 1 << 20)
    await fetch(readers, {0: 4})
    codes = {
        epoch: (await fetch(readers, {0: 4}, current_leader_epoch=epoch))[0].error_code
        for epoch in (LEADER_EPOCH - 1, LEADER_EPOCH, LEADER_EPOCH + 1)
    }
    assert list(codes.values()) == [FENCED_LEADER_EPOCH, 0, UNKNOWN_LEADER_EPOCH]
    await readers.close()


async def test_a_fence_reaches_who_waits_at_the_end() -> None:
    """A record that comes behind it is not shown."""
    world = grown()
    readers, topic = readers_of(world, 1 << 20, 1 << 20)
    await fetch(readers, {0: 4})
    waiting = asyncio.ensure_future(fetch(readers, {0: 4}, max_wait_ms=200))
    await asyncio.sleep(0.01)
    topic.raise_fence(Fence("f", frozenset({0})))
    assert await readers.freeze(NAME, frozenset({0})) == {0: 4}
    world.logs[0].append(tag(0, 0, 3), ["behind"])
    row = (await waiting)[0]
    assert (row.records, row.high_watermark) == (b"", 4)
    await readers.close()


async def test_who_waits_at_the_end_of_a_log_that_gets_shorter_is_out_of_range() -> None:
    """The end is looked at again and again, also where nothing comes."""
    world = grown()
    readers, _ = readers_of(world, 1 << 20, 1 << 20)
    await fetch(readers, {0: 4})
    world.logs[0].batches, world.logs[0].end = world.logs[0].batches[:2], 2
    async with asyncio.timeout(5):
        while (row := (await fetch(readers, {0: 4}, max_wait_ms=50))[0]).error_code == 0:
            assert row.records == b""
    assert row.error_code == OUT_OF_RANGE
    await readers.close()
