"""Holds histories against what a topic promises. Pure: events in, a verdict out, one pass over each history.

A record is (key, sequence): each key belongs to one producer, which numbers the key's records 0, 1, 2, … as it sends
them. In Jepsen's words for Kafka, the key is our "key" and the sequence is our "offset", because real offsets say
nothing of a key once partitions come and go. Every group is judged by itself:

- **lost-write**: acknowledged, and never processed, though the group processed a later sequence of the key or a
  higher offset of the partition. The same for a record that was not acknowledged and that another group processed.
- **unseen**: acknowledged, and never processed, nor anything behind it.
- **duplicate**: processed at two positions (partition, offset): it stands in the log twice.
- **inconsistent-offsets**: two records at one position, or processed elsewhere than it was acknowledged at.
- **poll-skip**: a member passed over a record within one stint, and the group processed it in another one.
- **nonmonotonic-poll**: processed after a later sequence of its key; or again without leave.
- **nonmonotonic-send**: the log holds two sequences of a key in one partition the other way round.
- **inversion**: the same for two keys of one producer. A producer without idempotence does not promise it, nor one that
  moves what it holds to other partitions; of such a one it is not asked.
- **G1a**: processed, though it was refused, or nobody sent it; **aborted-read** if its transaction was aborted.

A *stint* is the time in which one member owns one partition: from `assigned` to `revoked`. **Leave to deliver again**:
at the beginning of a stint the group's last commit of the partition is looked up (0 without one). In this stint,
records from that offset on may be delivered, in the order of their offsets, whether the group has processed them
before or not. Records up to the highest offset that the group has processed in this partition count as deliveries
again, and need not be later than what was processed of their key; beyond it they are new and must be. An offset below
the commit, or not above the one before in the stint, has no leave. So a consumer that loses its partition without a
commit rewinds, as Kafka allows, and a rewind hides nothing: what is new is judged as ever. A member that goes back by
itself (`sought`) begins another stint, as if the offset that it goes to were the commit.

Callbacks around a key's move are judged by `handovers.py`.

Every breach is counted once, under the first name that fits: what stands twice in the log is a duplicate and not also
out of order, and what the log itself holds in the wrong order is the writes' fault, not the group's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

from kordon.testing.order.findings import WRITES, Account, Anomaly, Example, Findings, Verdict
from kordon.testing.order.handovers import Handovers
from kordon.testing.order.history import (
    Assigned,
    Committed,
    Ended,
    Processed,
    Read,
    Revoked,
    Sought,
    Torn,
    Write,
    all_producers,
    dialect_groups,
    dialect_producers,
    reads,
    writes,
)
from kordon.testing.order.written import ABORTED, REFUSED, SOMEWHERE, UNSENT, Key, Log, Written, place_of, position

_IN_PLACE: Final = 1
_ELSEWHERE: Final = 2
_EMPTY: Final = Log()


def check_folder(folder: Path) -> Verdict:
    """Checks the histories of a run; raises HistoryError."""
    return check_all(folder, writes(folder))


def check_all(folder: Path, written: Iterable[tuple[str, Write]]) -> Verdict:
    """Checks the histories of a run; those of clients that know partitions by other numbers than others, by themselves.

    Args:
        written: Producers' events, with their names, as `writes` returns them.

    Raises:
        HistoryError: One cannot be read.
    """
    dialect, everybody, groups = dialect_producers(folder), all_producers(folder), dialect_groups(folder)
    read = reads(folder)
    of_dialect = {name: events for name, events in read.items() if name in groups}
    of_others = {name: events for name, events in read.items() if name not in groups}
    if not dialect and not groups:
        return check(written, read)
    if not everybody - dialect and not of_others:
        return check(written, read, ordering_keys=dialect)
    events = list(written)
    physical = check(events, of_dialect, ordering_keys=dialect, elsewhere=everybody - dialect)
    return check(events, of_others, elsewhere=dialect).with_other(physical)


def check(
    written: Iterable[tuple[str, Write]],
    read: Mapping[str, Iterable[tuple[str, Read]]],
    ordering_keys: Collection[str] = (),
    elsewhere: Collection[str] = (),
) -> Verdict:
    """Checks a history.

    Args:
        written: Producers' events, with their names, each producer's in its order.
        read: Members' events by group, with their names, in the order of time.
        ordering_keys: Producers that promise an order to each key by itself.
        elsewhere: Producers that were told positions by other numbers than these groups: they count for nothing here.
    """
    findings = Findings()
    all_written = Written(findings, elsewhere)
    for producer, event in written:
        all_written.take(producer, event)
    all_written.seal()
    groups = [Group(name, all_written, findings) for name in read]
    for group in groups:
        for member, happened in read[group.name]:
            group.take(member, happened)
    all_written.check_orders(ordering_keys)
    for group in groups:
        group.finish()
    return Verdict(findings, {WRITES: all_written.account} | {group.name: group.account for group in groups})


class _Partition:
    """What a group has done with a partition."""

    __slots__ = ("committed", "highest")

    def __init__(self) -> None:
        self.committed = 0
        self.highest = -1
        """Offset processed."""


class _Stint:
    """A member's time with a partition."""

    __slots__ = ("began_at", "last", "log", "number", "place")

    def __init__(self, number: int, began_at: int, log: Log) -> None:
        self.number = number
        self.began_at = began_at
        """The group's commit at that time."""
        self.log = log
        self.last = -1
        """Offset processed."""
        self.place = -1
        """In the log: of the first record behind it."""


class Group:
    """One group's deliveries."""

    def __init__(self, name: str, written: Written, findings: Findings) -> None:
        self.name = name
        self.account = Account()
        self._written = written
        self._findings = findings
        self._partitions: dict[int, _Partition] = {}
        self._stints: dict[tuple[str, int], _Stint] = {}
        self._done = [bytearray(key.gaps) for key in written.by_index]
        """By key and sequence: how it was processed."""
        self._highest = [-1] * len(written.by_index)
        """Sequence processed, by key."""
        self._passed_over: dict[tuple[int, int], tuple[int, str]] = {}
        """(stint, record) → position, member."""
        self._handovers = Handovers(name, self.account)
        self._moved: list[tuple[int, Example]] = []
        """Deliveries elsewhere than at the record's known position."""

    def take(self, member: str, event: Read) -> None:
        """Takes in an event of a member; events come in the order of time."""
        self._handovers.take(member, event)
        self.account.torn += isinstance(event, Torn)
        match event:
            case Processed():
                self._processed(member, event)
            case Assigned():
                for partition in event.partitions:
                    self._begin(member, partition)
            case Revoked():
                for partition in event.partitions:
                    self._stints.pop((member, partition), None)
            case Committed():
                self.account.commits += 1
                for partition, offset in event.offsets:
                    self._partition(partition).committed = offset
            case Sought():
                self._sought(member, event)
            case Ended():
                self._stints = {who: stint for who, stint in self._stints.items() if who[0] != member}
            case _:
                pass

    def _sought(self, member: str, event: Sought) -> None:
        # it may commit from there on, and be killed before it can say so
        partition = self._partition(event.partition)
        partition.committed = min(partition.committed, event.offset)
        self._begin(member, event.partition).began_at = event.offset

    def _partition(self, partition: int) -> _Partition:
        found = self._partitions.get(partition)
        if found is None:
            found = self._partitions[partition] = _Partition()
        return found

    def _begin(self, member: str, partition: int) -> _Stint:
        self.account.stints += 1
        log = self._written.logs.get(partition, _EMPTY)
        stint = _Stint(self.account.stints, self._partition(partition).committed, log)
        self._stints[member, partition] = stint
        return stint

    def _processed(self, member: str, event: Processed) -> None:
        stint = self._stints.get((member, event.partition)) or self._begin(member, event.partition)
        key = self._written.keys.get(event.key)
        standing = key.standing(event.sequence) if key is not None else UNSENT
        if key is None or standing in (ABORTED, REFUSED, UNSENT):
            self._from_nowhere(member, event, standing)
        elif self._in_place(member, key, standing, event):
            self._judge_order(member, stint, key, event)
        self._pass_over(member, stint, event)
        stint.last = max(stint.last, event.offset)
        partition = self._partition(event.partition)
        partition.highest = max(partition.highest, event.offset)

    def _from_nowhere(self, member: str, event: Processed, standing: int) -> None:
        if standing == REFUSED:
            self._tell(Anomaly.G1A, member, event, "was refused")
        elif standing == ABORTED:
            self._tell(Anomaly.ABORTED_READ, member, event, "its transaction was aborted")
        elif self._written.all_ended:
            self._tell(Anomaly.G1A, member, event, "was never sent")

    def _in_place(self, member: str, key: Key, standing: int, event: Processed) -> bool:
        """Looks whether the record may stand there; counts it as processed."""
        at = position(event.partition, event.offset)
        done = self._done[key.index]
        if standing == at:
            self.account.records += not done[event.sequence]
            done[event.sequence] |= _IN_PLACE
            return True
        taken_by = self._written.taken_by(event.partition, event.offset)
        if taken_by is None and standing < 0:
            self._written.find(key, event.sequence, at)
            return self._in_place(member, key, at, event)
        self.account.records += not done[event.sequence]
        done[event.sequence] |= _ELSEWHERE
        if taken_by is not None:
            other, sequence = self._written.record(taken_by)
            self._tell(Anomaly.INCONSISTENT_OFFSETS, member, event, f"{other.name} {sequence} stands there")
        else:
            partition, offset = place_of(standing)
            example = self._example(member, event, f"stands at {partition}:{offset} too")
            self._moved.append((key.record_id(event.sequence), example))
        return False

    def _judge_order(self, member: str, stint: _Stint, key: Key, event: Processed) -> None:
        highest = self._highest[key.index]
        if event.offset <= stint.last:
            self._tell(Anomaly.NONMONOTONIC_POLL, member, event, f"after offset {stint.last} of the same stint")
        elif event.offset < stint.began_at:
            told = f"again, though the group had committed {stint.began_at}"
            self._tell(Anomaly.NONMONOTONIC_POLL, member, event, told)
        elif event.offset <= self._partition(event.partition).highest:
            self.account.again += 1
        elif event.sequence <= highest:
            self._judge_late(member, key, highest, event)
        self._highest[key.index] = max(highest, event.sequence)

    def _judge_late(self, member: str, key: Key, highest: int, event: Processed) -> None:
        """Tells of a record that comes late, but if it stands late in its partition: then the log is at fault."""
        partition, offset = place_of(key.positions[highest])
        if partition != event.partition:
            told = f"after sequence {highest}, which stands at {partition}:{offset}"
            self._tell(Anomaly.NONMONOTONIC_POLL, member, event, told)

    def _pass_over(self, member: str, stint: _Stint, event: Processed) -> None:
        """Notes the records between this one and the one before in the stint."""
        offsets, ids = stint.log.offsets, stint.log.ids
        if stint.place < 0:
            stint.place = bisect_right(offsets, event.offset)
            return
        if event.offset <= stint.last:
            key = self._written.keys.get(event.key)
            if key is not None:
                self._passed_over.pop((stint.number, key.record_id(event.sequence)), None)
            return
        place, end = stint.place, len(offsets)
        while place < end and offsets[place] < event.offset:
            self._passed_over[stint.number, ids[place]] = (position(event.partition, offsets[place]), member)
            place += 1
        if place < end and offsets[place] == event.offset:
            place += 1
        stint.place = place

    def finish(self) -> None:
        """Ends the taking in, and judges what is missing."""
        self._handovers.finish(self._findings)
        for record_id, example in self._moved:
            key, sequence = self._written.record(record_id)
            twice = self._done[key.index][sequence] & _IN_PLACE
            anomaly = Anomaly.DUPLICATE if twice else Anomaly.INCONSISTENT_OFFSETS
            self._findings.add(anomaly, self.name, example)
        for (_, record_id), (at, member) in self._passed_over.items():
            key, sequence = self._written.record(record_id)
            if self._done[key.index][sequence] & _IN_PLACE:
                self._add(Anomaly.POLL_SKIP, key, sequence, at, f"{member} passed over it")
        for key in self._written.by_index:
            self._judge_missing(key, self._done[key.index])

    def _judge_missing(self, key: Key, done: bytearray) -> None:
        sequence = done.find(0)
        while sequence >= 0:
            standing = key.positions[sequence]
            if standing >= 0 or standing == SOMEWHERE:
                self._missing(key, sequence, standing)
            sequence = done.find(0, sequence + 1)

    def _missing(self, key: Key, sequence: int, standing: int) -> None:
        partition, offset = place_of(standing) if standing >= 0 else (-1, -1)
        if sequence < self._highest[key.index] or offset < self._partition(partition).highest:
            self._add(Anomaly.LOST_WRITE, key, sequence, standing, "never processed, though what is behind it was")
        elif key.record_id(sequence) not in self._written.unacknowledged:
            self._add(Anomaly.UNSEEN, key, sequence, standing, "never processed")

    def _add(self, anomaly: Anomaly, key: Key, sequence: int, standing: int, told: str) -> None:
        partition, offset = place_of(standing) if standing >= 0 else (None, None)
        self._findings.add(anomaly, self.name, Example(key.name, sequence, partition, offset, None, told))

    def _example(self, member: str, event: Processed, told: str) -> Example:
        sentence = f"{member}: {told}"
        return Example(event.key, event.sequence, event.partition, event.offset, event.time_us, sentence)

    def _tell(self, anomaly: Anomaly, member: str, event: Processed, told: str) -> None:
        self._findings.add(anomaly, self.name, self._example(member, event, told))
