"""Where the members of consumer groups stand, as they have reported it, and who waits for whom (KIP-253 7).

A member reports the partitions that it owns, its positions there, and the partitions whose position *of the group* it
wants to know. What it hears back is those, and which of its own partitions others want to know of:

    member a: owns 0 (position 40)              ──> "somebody wants your position of 0" once b has reported
    member b: owns 3, wants the position of 0   ──> "0 stands at 40"

Only reports of one generation belong together: who owns a partition in the next one may begin at an earlier offset.
`Positions` is what a log of reports amounts to, so all who have read the same log answer the same. Generations are told
apart by their numbers, and not by which is higher: a group that was deleted begins again at 1. Positions of its former
members must not count then, so they are taken out of the log before a new member's first report is in it, and who asks
names a member: where that one is known, the others are of its days.

A report is whole: what it does not name, its member does not own and does not ask for. So nobody has to know what was
said before it, and one that comes late, behind a later one of the same member, is passed over. A report and an answer
cost what their own rows cost, however many members there are.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterator, KeysView, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, NamedTuple

UNKNOWN: Final = -1
"""In place of a position that nobody has reported."""
MOST_BYTES: Final = 128 * 1024 * 1024
"""What all reports together may take in memory; beyond it the oldest are forgotten, and held to be unknown."""
MOST_GONE: Final = 10_000
"""Members that have been taken out and are remembered, so that a report of theirs that comes late is not believed."""
_MEMBER_BYTES: Final = 700
_TOPIC_BYTES: Final = 500
_OWNED_BYTES: Final = 250
_WANTED_BYTES: Final = 5
_NOTHING: Final[Mapping[int, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TopicReport:
    """What a member says of one topic.

    Attributes:
        owned: The member's next offset in each of its partitions. `UNKNOWN`: it has not reported one yet.
        wanted: Partitions whose position of the group it wants to know, in ascending order.
    """

    owned: Mapping[int, int]
    wanted: array[int]


@dataclass(frozen=True, slots=True)
class MemberReport:
    """All that a member has to say.

    Attributes:
        generation_id: The group's generation.
        sequence: Higher than that of what its member said before in this generation; -1 of members that do not count.
        topics: Reports by topic.
        said_ms: When it was written, in milliseconds since 1970; 0: it has to be written again, or else a log that is
            compacted could lose it.
    """

    generation_id: int
    sequence: int
    topics: Mapping[str, TopicReport]
    said_ms: int = field(default=0, compare=False)

    @property
    def order(self) -> tuple[int, int]:
        """Rises with what a member says: its id is never given to another one, and its generations only rise."""
        return self.generation_id, self.sequence

    @property
    def size(self) -> int:
        """The bytes that it takes in memory, rather too many than too few."""
        rows = self.topics.values()
        owned, wanted = sum(len(each.owned) for each in rows), sum(len(each.wanted) for each in rows)
        return _MEMBER_BYTES + _TOPIC_BYTES * len(self.topics) + _OWNED_BYTES * owned + _WANTED_BYTES * wanted


class ToldPosition(NamedTuple):
    """What a member is told of a partition."""

    partition: int
    need_position: bool
    """Whether it owns it and another member wants to know where it stands."""
    position: int
    """The group's, or `UNKNOWN`: a member that is needed and reads this of its own partition says it once more."""


class _Topic:
    """A topic in one generation: who owns what, and what is wanted by how many."""

    __slots__ = ("member_count", "owners", "positions", "wanted")

    def __init__(self) -> None:
        self.member_count = 0
        self.owners: dict[int, str] = {}
        self.positions: dict[int, int] = {}
        self.wanted: dict[int, int] = {}

    def take_in(self, member_id: str, said: TopicReport) -> None:
        self.member_count += 1
        for partition, position in said.owned.items():
            self.owners[partition] = member_id
            if position == UNKNOWN:
                self.positions.pop(partition, None)
            else:
                self.positions[partition] = position
        for partition in said.wanted:
            self.wanted[partition] = self.wanted.get(partition, 0) + 1

    def take_out(self, member_id: str, said: TopicReport) -> None:
        self.member_count -= 1
        for partition in said.owned:
            if self.owners.get(partition) == member_id:  # or another one has reported it since
                del self.owners[partition]
                self.positions.pop(partition, None)
        for partition in said.wanted:
            left = self.wanted.pop(partition) - 1
            if left:
                self.wanted[partition] = left


class _Group:
    __slots__ = ("members", "topics")

    def __init__(self) -> None:
        self.members: dict[str, MemberReport] = {}
        self.topics: dict[tuple[int, str], _Topic] = {}
        """By generation and name; of generations in which nobody is any more there is nothing left."""

    def take_in(self, member_id: str, report: MemberReport) -> None:
        self.members[member_id] = report
        for name, said in report.topics.items():
            self.topics.setdefault((report.generation_id, name), _Topic()).take_in(member_id, said)

    def take_out(self, member_id: str) -> MemberReport | None:
        report = self.members.pop(member_id, None)
        if report is not None:
            for name, said in report.topics.items():
                topic = self.topics[report.generation_id, name]
                topic.take_out(member_id, said)
                if not topic.member_count:
                    del self.topics[report.generation_id, name]
        return report


class Positions:
    """What all groups have reported, as a log of their reports says.

    Args:
        most_bytes: The most memory that they may take.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.bytes = 0
        """What they take, as it is reckoned."""
        self.forgotten = 0
        """How many members' reports were dropped for want of room."""
        self._most_bytes = most_bytes
        self._groups: dict[str, _Group] = {}
        self._ages: OrderedDict[tuple[str, str], None] = OrderedDict()
        """All members by group, the one that has been silent for longest first."""
        self._gone: OrderedDict[tuple[str, str], int] = OrderedDict()
        """By group and member that was taken out, the last generation in which it had reported."""

    def __iter__(self) -> Iterator[str]:
        """Iterates over the groups."""
        return iter(self._groups)

    def __len__(self) -> int:
        """Returns how many groups there are."""
        return len(self._groups)

    @property
    def member_count(self) -> int:
        """How many members have reported, of all groups."""
        return len(self._ages)

    def apply(self, group_id: str, member_id: str, report: MemberReport | None) -> None:
        """Takes in the next record of the log.

        Args:
            report: All that it has said; None: it is no member any more, and never will be again.
        """
        key = (group_id, member_id)
        former = self._take_out(key)
        if report is None:
            if former is not None:
                self._remember_gone(key, former.generation_id)
            return
        if former is not None and report.order < former.order:
            report = replace(former, said_ms=0)  # the one that came late stands behind it now
        if report.generation_id > self._gone.get(key, report.generation_id - 1):
            self._take_in(key, report)

    def members(self, group_id: str) -> KeysView[str]:
        """Returns who has reported."""
        group = self._groups.get(group_id)
        return group.members.keys() if group is not None else _NOBODY

    def said(self, group_id: str, member_id: str) -> MemberReport | None:
        """Returns all that a member has said in its last generation; None: it is not known."""
        group = self._groups.get(group_id)
        return group.members.get(member_id) if group is not None else None

    def of(self, group_id: str, generation_id: int, topic: str) -> Mapping[int, int]:
        """Returns the positions by partition that members have reported in a generation; a view."""
        group = self._groups.get(group_id)
        found = group.topics.get((generation_id, topic)) if group is not None else None
        return MappingProxyType(found.positions) if found is not None else _NOTHING

    def of_member(self, group_id: str, generation_id: int, topic: str, member_id: str) -> Mapping[int, int]:
        """Returns the same as evidence for a member: nothing, where it has not reported in that generation itself.

        The others' reports may be of an earlier life of the group then, before it was deleted and made again.
        """
        report = self.said(group_id, member_id)
        if report is None or report.generation_id != generation_id:
            return _NOTHING
        return self.of(group_id, generation_id, topic)

    def answer(self, group_id: str, member_id: str) -> dict[str, list[ToldPosition]]:
        """Returns by topic what a member is to be told: what it wants to know, and what others want to know of it."""
        group = self._groups.get(group_id)
        report = group.members.get(member_id) if group is not None else None
        if group is None or report is None:
            return {}
        told = {name: _rows(group.topics[report.generation_id, name], said) for name, said in report.topics.items()}
        return {name: rows for name, rows in told.items() if rows}

    def _take_in(self, key: tuple[str, str], report: MemberReport) -> None:
        group_id, member_id = key
        self._groups.setdefault(group_id, _Group()).take_in(member_id, report)
        self._ages[key] = None
        self.bytes += report.size
        while self.bytes > self._most_bytes:
            self._take_out(next(iter(self._ages)))
            self.forgotten += 1

    def _take_out(self, key: tuple[str, str]) -> MemberReport | None:
        group_id, member_id = key
        group = self._groups.get(group_id)
        report = group.take_out(member_id) if group is not None else None
        if group is not None and report is not None:
            self.bytes -= report.size
            del self._ages[key]
            if not group.members:
                del self._groups[group_id]
        return report

    def _remember_gone(self, key: tuple[str, str], generation_id: int) -> None:
        self._gone[key] = generation_id
        self._gone.move_to_end(key)
        if len(self._gone) > MOST_GONE:
            self._gone.popitem(last=False)


_NOBODY: Final[KeysView[str]] = dict[str, MemberReport]().keys()


def _rows(topic: _Topic, said: TopicReport) -> list[ToldPosition]:
    wanted = set(said.wanted)
    needed = {partition for partition in said.owned if topic.wanted.get(partition, 0) > (partition in wanted)}
    return [
        ToldPosition(partition, partition in needed, topic.positions.get(partition, UNKNOWN))
        for partition in sorted(wanted | needed)
    ]
