"""What brokers do: a coordinator of transactions, one of the group, and a topic's log."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kordon.codecs.source_points import Point

if TYPE_CHECKING:
    from kordon.testing.sources.members import Member

Row = tuple[int, int]
"""A source partition, and the number of a row in it."""


class Refused(Exception):  # noqa: N818  what a broker answers
    """A coordinator takes a request of this kind from this member no more."""


class NoAnswer(Exception):  # noqa: N818  what does not come
    """A request was served, or not, and its answer is lost."""


@dataclass(eq=False)
class Transaction:
    """One that is open."""

    owner: str
    turns: int = 0
    """For which it has been open."""
    rows: list[Row] = field(default_factory=list[Row])
    points: dict[int, Point] = field(default_factory=dict[int, Point])
    """That are pending in the group."""


@dataclass
class Transactions:
    """Of all ids."""

    group: Group
    epochs: dict[str, int] = field(default_factory=dict[str, int])
    open: dict[str, Transaction] = field(default_factory=dict[str, Transaction])
    committed: list[Row] = field(default_factory=list[Row])
    """What readers get, in the order in which it was committed."""

    def init(self, owner: str) -> int:
        """Ends what is open, and gives the next epoch: nobody with an earlier one is believed any more."""
        self.open.pop(owner, None)
        self.epochs[owner] = self.epochs.get(owner, -1) + 1
        return self.epochs[owner]

    def age(self, most_turns: int) -> None:
        """Ends those that have been open for too long."""
        for each in list(self.open.values()):
            each.turns += 1
            if each.turns > most_turns:
                self.init(each.owner)

    def of(self, owner: str, epoch: int) -> Transaction:
        """Returns the open transaction, begun if need be."""
        if self.epochs[owner] != epoch:
            raise Refused
        return self.open.setdefault(owner, Transaction(owner))

    def commit(self, owner: str, epoch: int) -> None:
        """Commits data and points."""
        if self.epochs[owner] != epoch:
            raise Refused
        ended = self.open.pop(owner, None)
        if ended is not None:
            self.committed += ended.rows
            self.group.put(ended.points)

    def abort(self, owner: str, epoch: int) -> None:
        """Drops data and points."""
        if self.epochs[owner] != epoch:
            raise Refused
        self.open.pop(owner, None)


@dataclass
class Group:
    """The group and its commits."""

    generation: int = 0
    members: dict[Member, frozenset[int]] = field(default_factory=dict["Member", frozenset[int]])
    """Those of this generation, and what each has."""
    joining: dict[Member, None] = field(default_factory=dict["Member", None])
    """Who wait for the next one, in the order in which they came."""
    is_rebalancing: bool = False
    records: dict[int, Point] = field(default_factory=dict[int, Point])
    numbers: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    """By partition, the numbers of the points that were put on record."""

    def join(self, member: Member) -> None:
        """Has a member wait for the next generation."""
        self.joining[member] = None
        self.is_rebalancing = True

    def throw_out(self, gone: Collection[Member]) -> None:
        """Has members not be members."""
        for member in gone:
            self.joining.pop(member, None)
            if self.members.pop(member, None) is not None:
                self.is_rebalancing = True

    def settle(self, partitions: int) -> None:
        """Forms the next generation when all that are left wait for it."""
        if not self.joining or not self.members.keys() <= self.joining.keys():
            return
        order = list(self.joining)
        self.generation += 1
        self.members = {each: frozenset(range(at, partitions, len(order))) for at, each in enumerate(order)}
        self.joining, self.is_rebalancing = {}, False

    def check(self, member: Member, generation: int | None) -> None:
        """Refuses whoever is no member of this generation; None: it was not named, and is not looked at."""
        if generation is not None and (member not in self.members or generation != self.generation):
            raise Refused

    def put(self, points: Mapping[int, Point]) -> None:
        """Has points be on record."""
        for partition, point in points.items():
            told = self.numbers.setdefault(partition, [])
            if not told or point.number != told[-1] or self.records[partition].text != point.text:
                told.append(point.number)
            self.records[partition] = point
