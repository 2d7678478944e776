"""A model of what Kordon relies on in Kafka: logs that de-duplicate, a group with generations, a log of layouts."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from kordon.codecs.error_codes import Code
from kordon.codecs.look import Buffer
from kordon.codecs.records import CURRENT_MAGIC, HEADER_BYTES, LOG_OVERHEAD
from kordon.proxy.kafka import batches
from kordon.proxy.kafka.batches import NewRecord
from kordon.proxy.ordering.records import Unreadable, Value, load
from kordon.proxy.ordering.write_sequencer import NO_PRODUCER
from kordon.testing.simulation.world import World

NODES: Final = (1, 2)
"""The brokers."""
CONTROLLERS_ID: Final = 7
"""The producer id of controllers' transactions."""
REMEMBERED_SECONDS: Final = 30.0
"""For how long a producer that is silent is known (producer.id.expiration.ms)."""
_REMEMBERED: Final = 5
"""Batches per producer and partition that a broker knows again."""

load_once: Final = lru_cache(maxsize=2**14)(load)
"""Reads a record as the product does, and once for all proxies: they share what they have read of a layout."""


def read(entry: NewRecord) -> Value | None:
    """Returns what a record of the layouts says, as those that Kordon writes can be read; None: it is a tombstone."""
    value = None if entry.value is None else load_once(entry.key, entry.value)
    assert not isinstance(value, Unreadable), value
    return value


class Record(NamedTuple):
    """One record: the `number`-th that a client has written of a key."""

    client_id: int
    key: int
    number: int


_HEADER: Final = Struct(">qiibIhiqqqhii")
_RECORD: Final = Struct(">iii")


class Batch(NamedTuple):
    """Records of one producer, one of them per sequence."""

    producer_id: int
    """-1: without idempotence."""
    epoch: int
    base_sequence: int
    records: tuple[Record, ...]

    @property
    def last_sequence(self) -> int:
        """Of its last record."""
        return self.base_sequence + len(self.records) - 1


def batch_bytes(batch: Batch, base_offset: int = 0) -> bytes:
    """Writes a batch as it goes over the wire; its records have a format of their own, which nobody opens."""
    records = b"".join(_RECORD.pack(*record) for record in batch.records)
    length, count = HEADER_BYTES - LOG_OVERHEAD + len(records), len(batch.records)
    who = batch.producer_id, batch.epoch, batch.base_sequence
    return _HEADER.pack(base_offset, length, -1, CURRENT_MAGIC, 0, 0, count - 1, -1, -1, *who, count) + records


def read_records(data: Buffer) -> tuple[Record, ...]:
    """Reads the records of a batch."""
    return tuple(map(Record._make, _RECORD.iter_unpack(memoryview(data)[HEADER_BYTES:])))


@dataclass
class _Writer:
    epoch: int
    last_sequence: int
    batches: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    """Its last ones, by first and last sequence, with their offsets."""


class Partition:
    """A physical partition's log."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, Batch]] = []
        """With their base offsets."""
        self.start = 0
        self.end = 0
        self.has_leader = True
        self.node_id = NODES[0]
        """Who leads, or has led last."""
        self.leader_epoch = 0
        self._bases: list[int] = []
        self._writers: dict[int, _Writer] = {}

    def append(self, batch: Batch) -> tuple[Code, int]:
        """Takes a batch as brokers do; returns an error and the base offset."""
        if not self.has_leader:
            return Code.NOT_LEADER_OR_FOLLOWER, -1
        if batch.producer_id == NO_PRODUCER:
            return Code.NONE, self._write(batch)
        writer = self._writers.get(batch.producer_id)
        if writer is not None and batch.epoch < writer.epoch:
            return Code.INVALID_PRODUCER_EPOCH, -1
        if writer is not None and batch.epoch == writer.epoch:
            if (known := writer.batches.get((batch.base_sequence, batch.last_sequence))) is not None:
                return Code.NONE, known
            if batch.base_sequence != writer.last_sequence + 1:
                return Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        elif writer is not None and batch.base_sequence != 0:
            return Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        if writer is None or writer.epoch != batch.epoch:
            writer = self._writers[batch.producer_id] = _Writer(batch.epoch, -1)
        offset = self._write(batch)
        writer.last_sequence = batch.last_sequence
        writer.batches[batch.base_sequence, batch.last_sequence] = offset
        if len(writer.batches) > _REMEMBERED:
            del writer.batches[next(iter(writer.batches))]
        return Code.NONE, offset

    def _write(self, batch: Batch) -> int:
        offset = self.end
        self.batches.append((offset, batch))
        self._bases.append(offset)
        self.end += len(batch.records)
        return offset

    def between(self, start: int, end: int) -> list[tuple[int, Batch]]:
        """Returns the batches of [start, end) that retention has left, with their base offsets."""
        return self.batches[bisect_left(self._bases, max(start, self.start)) : bisect_left(self._bases, end)]

    def producers(self) -> dict[int, tuple[int, int]]:
        """Returns epoch and last sequence by producer id (DescribeProducers)."""
        return {pid: (writer.epoch, writer.last_sequence) for pid, writer in self._writers.items()}


class LayoutsLog:
    """The layouts topic."""

    def __init__(self) -> None:
        self.records: list[batches.Record] = []
        self.newest: dict[str, Value | None] = {}
        """By key, the last record."""
        self._writer_epoch = 0
        self._waiting: list[Callable[[], None]] = []

    def append(self, entries: Sequence[NewRecord], producer_id: int = NO_PRODUCER) -> list[int]:
        """Writes records; returns their offsets."""
        first = len(self.records)
        for entry in entries:
            self.records.append(batches.Record(entry.key, entry.value, len(self.records), producer_id))
            self.newest[entry.key] = read(entry)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each()
        return list(range(first, len(self.records)))

    def when_written(self, what: Callable[[], None]) -> None:
        """Lets something happen when the next record is written, once."""
        self._waiting.append(what)

    def open_writer(self) -> int:
        """Fences all former controllers (InitProducerId)."""
        self._writer_epoch += 1
        return self._writer_epoch

    def commit(self, writer_epoch: int, entries: Sequence[NewRecord]) -> list[int] | None:
        """Writes one transaction; None: another controller has taken over."""
        return self.append(entries, CONTROLLERS_ID) if writer_epoch == self._writer_epoch else None


class Group:
    """The proxies' group on its coordinator.

    A change of members begins a rebalance; whoever does not join again until its end is out. Commits are
    taken under the present generation, which a rebalance replaces when it ends.
    """

    SESSION: Final = 3.0
    REBALANCE: Final = 1.5

    def __init__(self, world: World) -> None:
        self._world = world
        self.generation = 0
        self.members: list[str] = []
        self._heard: dict[str, float] = {}
        self._joining: dict[str, Callable[[int, list[str]], None]] = {}
        self._rebalancing = False

    def join(self, incarnation: str, answer: Callable[[int, list[str]], None]) -> None:
        """Joins, or joins again; answered with generation and members (leader first) when the rebalance ends."""
        self._joining[incarnation] = answer
        self._heard[incarnation] = self._world.now
        if not self._rebalancing:
            self._begin()
        if set(self.members) <= set(self._joining):
            self._end(self.generation)

    def leave(self, incarnation: str) -> None:
        """Leaves in order."""
        if incarnation in self.members:
            self.members.remove(incarnation)
            self._begin()

    def heartbeat(self, incarnation: str, generation: int) -> bool | None:
        """Answers True: fine; False: join again; None: unknown member or generation, join again as well."""
        self._expire()
        if incarnation not in self.members or generation != self.generation:
            return None
        self._heard[incarnation] = self._world.now
        return not self._rebalancing

    def commit(self, incarnation: str, generation: int) -> bool:
        """Takes an OffsetCommit: only from members of the present generation."""
        self._expire()
        return incarnation in self.members and generation == self.generation

    def _expire(self) -> None:
        silent = [each for each in self.members if self._world.now - self._heard[each] > self.SESSION]
        for each in silent:
            self._world.say(f"group: {each} expires")
            self.members.remove(each)
        if silent:
            self._begin()

    def _begin(self) -> None:
        if self._rebalancing:
            return
        self._rebalancing = True
        generation = self.generation
        self._world.after(self.REBALANCE, lambda: self._end(generation))

    def _end(self, generation: int) -> None:
        if not self._rebalancing or generation != self.generation:
            return
        self._rebalancing = False
        self.generation += 1
        leader = next((each for each in self.members if each in self._joining), None)
        rest = [each for each in self._joining if each != leader]
        self.members = [leader, *rest] if leader is not None else rest
        joined, self._joining = self._joining, {}
        self._world.say(f"group: generation {self.generation}: {self.members}")
        for answer in joined.values():
            answer(self.generation, list(self.members))
