"""Physical partitions in memory behind a broker in memory, and histories made at random, for tests of readers."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from aiokafka.partitioner import murmur2
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import strategies as st

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import request, response
from kordon.codecs.split import filler, patch, split
from kordon.proxy.decisions.journal import NO_JOURNAL, Journal
from kordon.proxy.decisions.runs import Client
from kordon.proxy.kafka.leaders import Leaders
from kordon.proxy.kafka.opening import Opener
from kordon.proxy.ordering.identity import tag
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.placements import Placement
from kordon.proxy.ordering.streams import physical_stream
from kordon.proxy.reads.fetch_handler import FetchHandler
from kordon.proxy.reads.worker_reads import WorkerReads
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.testing.fake_broker import Answer, Asked, FakeBroker, led
from kordon.testing.messages.as_read import as_read

NAME, FACE_ID = "orders", UUID(int=9)
OUT_OF_RANGE = 1
LEADER_EPOCH = 4
_OF_EACH = {"partition_max_bytes": 1 << 20, "current_leader_epoch": -1}


def batch(values: list[str], producer_id: int) -> bytes:
    """A batch as its producer sends it."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, producer_id, 0, 0, 1 << 16)
    for delta, value in enumerate(values):
        builder.append(delta, 1_000, value.encode(), value.encode(), [])
    return bytes(builder.build())


@dataclass
class Log:
    """One physical partition."""

    start: int = 0
    end: int = 0
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    """Base offset, next offset, bytes."""

    @property
    def values(self) -> list[str]:
        """Those of all records."""
        return [value for _, _, raw in self.batches for value in _values(raw)]

    def append(self, producer_id: int, values: list[str]) -> None:
        self.write(batch(values, producer_id))

    def write(self, raw: bytes) -> int:
        """Writes a batch as it came from a client; returns its offset."""
        built, base_offset = bytearray(raw), self.end
        span = split(built)[0]
        patch(built, span, base_offset, LEADER_EPOCH)
        self.end += span.next_offset - span.base_offset
        self.batches.append((base_offset, self.end, bytes(built)))
        return base_offset

    def append_marker(self) -> None:
        self.batches.append((self.end, self.end + 1, filler(self.end, self.end + 1, LEADER_EPOCH)))
        self.end += 1

    def read(self, offset: int, most_bytes: int) -> bytes:
        """Reads as brokers do: the first batch whole, then up to a number of bytes, wherever that cuts."""
        data = b"".join(data for _, end, data in self.batches if end > max(offset, self.start))
        first = int.from_bytes(data[8:12], "big") + 12 if data else 0
        return data[: max(first, most_bytes)]


class LogBroker(FakeBroker):
    """Answers Fetch and ListOffsets for `orders` from memory."""

    def __init__(self, logs: dict[int, Log], most_bytes: int) -> None:
        super().__init__(handlers={apis.LIST_OFFSETS: self._list_offsets, apis.FETCH: self._fetch})
        self.topics[NAME] = led(logs, epoch=LEADER_EPOCH)
        self.logs = logs
        self.most_bytes = most_bytes

    def _list_offsets(self, asked: Asked) -> Answer:
        rows = [
            {
                "partition_index": row.partition_index,
                "error_code": 0,
                "offset": getattr(self.logs[row.partition_index], "end" if row.timestamp == -1 else "start"),
            }
            for row in asked.body.topics[0].partitions
        ]
        return {"topics": [{"name": NAME, "partitions": rows}]}

    async def _fetch(self, asked: Asked) -> Answer:
        await asyncio.sleep(0)
        rows = [self._read(row) for topic in asked.body.topics for row in topic.partitions]
        if asked.body.max_wait_ms and not any(row["records"] or row["error_code"] for row in rows):
            await asyncio.sleep(0.002)
        return {"responses": [{"topic": NAME, "partitions": rows}]}

    def _read(self, row: Any) -> dict[str, Any]:
        log = self.logs[row.partition]
        told = {"partition_index": row.partition, "high_watermark": -1, "aborted_transactions": None}
        if not log.start <= row.fetch_offset <= log.end:
            return told | {"error_code": OUT_OF_RANGE, "records": b""}
        records = log.read(row.fetch_offset, self.most_bytes)
        return told | {"high_watermark": log.end, "log_start_offset": log.start, "records": records, "error_code": 0}


@dataclass
class World:
    """A history: the layouts, what stands in the logs, and what of it each virtual partition is to give."""

    layout: Layout
    logs: dict[int, Log]
    expected: dict[int, list[str]]
    bypass: set[str] = field(default_factory=set)

    def given_as(self, v: int) -> list[str]:
        """Whose readers get what is written to a virtual partition now (TAKEOVER-SHARES)."""
        is_shared = self.layout.epochs[-1].placement is Placement.SHARED
        return self.expected[v % self.layout.n if is_shared else v]


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
            begins = taken_over and world.layout.epoch == 0
            placement = draw(st.sampled_from([Placement.OWN, Placement.SHARED])) if begins else Placement.LINEAR
            u = n if begins else draw(st.integers(n, v_count))
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
        world.given_as(v).extend(values)
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
        v = draw(st.sampled_from(world.layout.residence.residents(q)))
        candidates = (f"{v}:{name}:{number}-{each}" for each in itertools.count())
        value = next(each for each in candidates if (murmur2(each.encode()) & 0x7FFFFFFF) % v_count == v)
        values.append(value)
        inherits = world.layout.epochs[-1].placement is not Placement.LINEAR
        world.expected[q if inherits else v].append(value)
    world.logs[q].append(tag(stream, home.move, 3), values)


def _shorten(draw: st.DrawFn, world: World, name: str) -> None:
    """A log loses its end; some write to it before that is found, and then the layout goes on behind (BEYOND-LOSS)."""
    q = draw(st.sampled_from(sorted(world.logs)))
    log, bound = world.logs[q], world.layout.last_bounds.get(q)
    told, lost_from = log.end, draw(st.sampled_from([0, *(base for base, _, _ in log.batches)]))
    lost = {value for base, _, raw in log.batches if base >= lost_from for value in _values(raw)}
    log.batches = [each for each in log.batches if each[0] < lost_from]
    log.end = lost_from
    world.bypass -= lost
    world.expected = {v: [each for each in values if each not in lost] for v, values in world.expected.items()}
    for v in world.layout.residence.residents(q) if draw(st.booleans()) else ():
        home = world.layout.chains[v].home
        assert home is not None
        value = f"{v}:{name}"
        if home.holds(log.end):
            world.given_as(v).append(value)
        log.append(tag(v, home.move, 3), [value])  # below its segment it is never acknowledged
    if bound is not None and lost_from < bound.offset:
        following = world.layout.next_epoch(world.layout.u, world.layout.epochs[-1].placement, {q: lost_from})
        world.layout = world.layout.changed(following, {p: each.end for p, each in world.logs.items()}, told={q: told})


def _values(raw: bytes) -> list[str]:
    batch: Any = MemoryRecords(raw).next_batch()
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


def grown_world() -> World:
    """1 -> 2: two records in 0 before, one behind; one in the child."""
    layout = Layout.created(NAME, UUID(int=1), 1, 2)
    world = World(layout, {0: Log(), 1: Log()}, {})
    world.logs[0].append(tag(0, 0, 3), ["0 before"])
    world.logs[0].append(tag(1, 0, 3), ["1 before"])
    world.layout = layout.changed(layout.next_epoch(2), {0: 2, 1: 0})
    world.logs[0].append(tag(0, 0, 3), ["0 after"])
    world.logs[1].append(tag(1, 1, 3), ["1 after"])
    return world


def readers_of(
    world: World, most_bytes: int, cache_bytes: int, journal: Journal = NO_JOURNAL, opener: Opener | None = None
) -> tuple[WorkerReads, ManagedTopic]:
    """Makes a worker's readers in front of a broker in memory."""
    topics = ManagedTopics()
    topic = ManagedTopic(world.layout, FACE_ID)
    topics.add(topic)
    broker = LogBroker(world.logs, most_bytes)
    reads = WorkerReads(topics, broker, Leaders(broker), cache_bytes=cache_bytes, journal=journal, opener=opener)
    return reads, topic


async def fetch(readers: WorkerReads, offsets: dict[int, int], **fields: Any) -> dict[int, Any]:
    """Fetches through the bytes of a version, by topic id unless it is told another one, as `client`."""
    told: dict[str, Any] = {"max_wait_ms": 3, "min_bytes": 1, "max_bytes": 1 << 20, "rack_id": ""} | fields
    client = told.pop("client", None) or Client(1)
    version = told.pop("version", 13)
    each = {name: told.pop(name, value) for name, value in _OF_EACH.items()}
    rows = [{"partition": v, "fetch_offset": at} | each for v, at in offsets.items()]
    topic = {"topic": NAME, "topic_id": FACE_ID, "partitions": rows}
    body = request(apis.FETCH).build(version, told | {"topics": [topic]})
    answer = await FetchHandler(readers).serve(version, request(apis.FETCH).parse(version, body), client)
    parsed = as_read(response(apis.FETCH), version, answer)
    return {row.partition_index: row for row in parsed.responses[0].partitions}


async def is_asked_again(row: Any) -> bool:
    """Whether a row says to ask again, as it does where a busy machine has not learnt an end in time; else it is good.

    Raises:
        AssertionError: It has another error.
    """
    if row.error_code == Code.NOT_LEADER_OR_FOLLOWER:
        await asyncio.sleep(0)
        return True
    assert row.error_code == Code.NONE
    return False


async def read_all(readers: WorkerReads, vs: list[int], **fields: Any) -> dict[int, list[str]]:
    """Reads as one consumer does until no partition has any lag."""
    found: dict[int, list[str]] = {v: [] for v in vs}
    at = dict.fromkeys(vs, 0)
    lagging = set(vs)
    async with asyncio.timeout(60):
        while lagging:
            for v, row in (await fetch(readers, at, **fields)).items():
                if await is_asked_again(row):
                    lagging.add(v)
                    continue
                before = at[v]
                at[v] = consume(row.records, at[v], found[v])
                assert row.high_watermark >= at[v]
                if row.high_watermark > at[v]:
                    lagging.add(v)
                elif before == at[v]:
                    lagging.discard(v)
    return found


def read_from(row: Any, at: int = 0) -> tuple[list[str], int]:
    """Returns the values in a row of an answer, and where a consumer that stood at an offset stands behind them."""
    values: list[str] = []
    behind = consume(row.records, at, values)
    return values, behind


def consume(records: bytes, at: int, values: list[str]) -> int:
    """Takes in what a Fetch brought; offsets must not fall, and batches not overlap."""
    reader = MemoryRecords(bytes(records))
    while reader.has_next():
        each: Any = reader.next_batch()
        assert each.validate_crc()
        assert each.next_offset > at
        for record in each:
            if not each.is_control_batch and record.offset >= at:
                assert record.offset < each.next_offset
                values.append(record.value.decode())
        at = each.next_offset
    return at
