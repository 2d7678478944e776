"""What producers say of their records: which were acknowledged and where they stand.

A record is known by a number, its id: the index of its key and the sequence. Memory is some 35 bytes a record.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection
from typing import Final

from kordon.testing.order.findings import WRITES, Account, Anomaly, Example, Findings
from kordon.testing.order.history import UNKNOWN_OFFSET, Acknowledged, Failed, RolledBack, Write

SOMEWHERE: Final = -1
"""Acknowledged, but it was not said at which offset."""
MAYBE: Final = -2
"""Not acknowledged; it may have been written nevertheless."""
REFUSED: Final = -3
UNSENT: Final = -4
ABORTED: Final = -5
"""Of a transaction that was aborted."""
GAP: Final = 0x80
_OFFSET_BITS: Final = 48
_NO_RECORD: Final = 2**64 - 1


def position(partition: int, offset: int) -> int:
    return partition << _OFFSET_BITS | offset


def place_of(at: int) -> tuple[int, int]:
    return at >> _OFFSET_BITS, at & (1 << _OFFSET_BITS) - 1


class Key:
    """One key's records."""

    __slots__ = ("gaps", "index", "name", "positions", "producer")

    def __init__(self, name: str, index: int, producer: str) -> None:
        self.name = name
        self.index = index
        self.producer = producer
        self.positions = array("q")
        """By sequence: its position, or SOMEWHERE, MAYBE, REFUSED, UNSENT, ABORTED."""
        self.gaps = bytearray()
        """By sequence: GAP if it was not sent, else 0. Producers of many lives have far more of them than records."""

    def record_id(self, sequence: int) -> int:
        return self.index << 32 | sequence

    def standing(self, sequence: int) -> int:
        """Returns the position of a record, or what is known instead."""
        return self.positions[sequence] if 0 <= sequence < len(self.positions) else UNSENT

    def put(self, sequence: int, standing: int) -> None:
        missing = sequence + 1 - len(self.positions)
        if missing > 0:
            self.positions.extend([UNSENT] * missing)
            self.gaps.extend([GAP] * missing)
        self.positions[sequence] = standing
        self.gaps[sequence] = 0


class Log:
    """The records of a partition whose offsets were acknowledged, sorted by `seal`."""

    __slots__ = ("ids", "offsets")

    def __init__(self) -> None:
        self.offsets = array("Q")
        self.ids = array("Q")

    def seal(self) -> None:
        """Sorts it, when all is in."""
        order = sorted(range(len(self.offsets)), key=self.offsets.__getitem__)
        self.offsets = array("Q", (self.offsets[i] for i in order))
        self.ids = array("Q", (self.ids[i] for i in order))

    def at(self, offset: int) -> int | None:
        """Returns the id of the record that was acknowledged at an offset."""
        place = bisect_left(self.offsets, offset)
        return self.ids[place] if place < len(self.offsets) and self.offsets[place] == offset else None


class Written:
    """All producers' records.

    Args:
        elsewhere: Producers whose records' positions are told by other numbers.
    """

    def __init__(self, findings: Findings, elsewhere: Collection[str] = ()) -> None:
        self.findings = findings
        self._elsewhere = elsewhere
        self.account = Account()
        self.keys: dict[str, Key] = {}
        self.by_index: list[Key] = []
        self.logs: dict[int, Log] = {}
        self.found: dict[int, int] = {}
        """Position → id, of records whose position only consumers know."""
        self.unacknowledged: set[int] = set()
        """Those of them that were not acknowledged."""
        self.all_ended = True
        """Each producer wrote its last line, so what no line tells of was not sent."""
        self._orders: dict[str, array[int]] = {}
        self._open: set[str] = set()

    def take(self, producer: str, event: Write) -> None:
        match event:
            case Acknowledged():
                self._acknowledged(producer, event)
            case Failed():
                self._open.add(producer)
                self.account.failed += 1
                key = self._sent(producer, event)
                key.put(event.sequence, REFUSED if event.refused else MAYBE)
            case RolledBack():
                self._open.add(producer)
                self._sent(producer, event).put(event.sequence, ABORTED)
            case _:
                self._open.discard(producer)

    def _acknowledged(self, producer: str, event: Acknowledged) -> None:
        self._open.add(producer)
        self.account.records += 1
        key = self._sent(producer, event)
        if event.offset == UNKNOWN_OFFSET or producer in self._elsewhere:
            key.put(event.sequence, SOMEWHERE)
            return
        key.put(event.sequence, position(event.partition, event.offset))
        log = self.logs.get(event.partition)
        if log is None:
            log = self.logs[event.partition] = Log()
        log.offsets.append(event.offset)
        log.ids.append(key.record_id(event.sequence))

    def _sent(self, producer: str, event: Acknowledged | Failed | RolledBack) -> Key:
        key = self.keys.get(event.key)
        if key is None:
            key = self.keys[event.key] = Key(event.key, len(self.keys), producer)
            self.by_index.append(key)
        order = self._orders.setdefault(producer, array("Q"))
        if event.number >= len(order):
            order.extend([_NO_RECORD] * (event.number + 1 - len(order)))
        order[event.number] = key.record_id(event.sequence)
        return key

    def record(self, record_id: int) -> tuple[Key, int]:
        return self.by_index[record_id >> 32], record_id & 0xFFFFFFFF

    def seal(self) -> None:
        """Ends the taking in: what consumers did can be held against it from now on."""
        self.all_ended = not self._open
        for partition, log in self.logs.items():
            log.seal()
            for place in range(1, len(log.offsets)):
                if log.offsets[place] == log.offsets[place - 1]:
                    self._tell_two(partition, log.offsets[place], log.ids[place - 1], log.ids[place])

    def taken_by(self, partition: int, offset: int) -> int | None:
        """Returns the id of the record that is known to stand at an offset."""
        log = self.logs.get(partition)
        acknowledged = log.at(offset) if log is not None else None
        return acknowledged if acknowledged is not None else self.found.get(position(partition, offset))

    def find(self, key: Key, sequence: int, at: int) -> None:
        """Notes where a record stands of which only a consumer can tell."""
        if key.positions[sequence] == MAYBE:
            self.unacknowledged.add(key.record_id(sequence))
        self.found[at] = key.record_id(sequence)
        key.positions[sequence] = at

    def check_orders(self, ordering_keys: Collection[str] = ()) -> None:
        """Looks whether partitions hold each producer's records in the order in which it sent them.

        Args:
            ordering_keys: Producers of which that is asked for each key by itself.
        """
        for producer, order in self._orders.items():
            if producer in self._elsewhere:
                continue
            keys_alone = producer in ordering_keys
            ends: dict[int, int] = {}
            key_ends: dict[tuple[int, int], int] = {}
            for record_id in order:
                if record_id != _NO_RECORD:
                    self._check_place(record_id, ends, key_ends, keys_alone=keys_alone)

    def _check_place(
        self, record_id: int, ends: dict[int, int], key_ends: dict[tuple[int, int], int], *, keys_alone: bool
    ) -> None:
        key, sequence = self.record(record_id)
        at = key.positions[sequence]
        if at < 0:
            return
        partition, offset = place_of(at)
        key_end = key_ends.get((key.index, partition), -1)
        end = ends.get(partition, -1)
        key_ends[key.index, partition] = max(key_end, offset)
        ends[partition] = max(end, offset)
        if offset < key_end:
            told = f"stands before offset {key_end}, where an earlier sequence of its key stands"
            self._tell(Anomaly.NONMONOTONIC_SEND, record_id, at, told)
        elif offset < end and not keys_alone:
            told = f"stands before offset {end}, where a record stands that its producer sent earlier"
            self._tell(Anomaly.INVERSION, record_id, at, told)

    def _tell_two(self, partition: int, offset: int, one: int, other: int) -> None:
        other_key, other_sequence = self.record(other)
        told = f"acknowledged at the same offset as {other_key.name} {other_sequence}"
        self._tell(Anomaly.INCONSISTENT_OFFSETS, one, position(partition, offset), told)

    def _tell(self, anomaly: Anomaly, record_id: int, at: int, told: str) -> None:
        key, sequence = self.record(record_id)
        self.findings.add(anomaly, WRITES, Example(key.name, sequence, *place_of(at), None, told))
