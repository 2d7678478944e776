"""Plays one seed, and holds the outcome against what a group of source producers is promised.

doubled      a row is committed once
skipped      ... and in the order of its source partition, without a gap
numbers      each restart point has the number after the last one's
held         when a partition's new owner begins, nothing of that partition is in a transaction that is still open
killed       nobody's transactions are ended who is a member and has given up what it had
stuck        in calm every partition goes on
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from random import Random
from typing import Final

from kordon.testing.sources.cluster import Group, NoAnswer, Transactions
from kordon.testing.sources.members import Member, Step

PARTITIONS: Final = 3
_MOST_MEMBERS: Final = 4
_TURNS: Final = 900
_CALM_TURNS: Final = 1200
_SESSION: Final = 40
"""Turns after which a silent member is thrown out."""
_TRANSACTION: Final = 3 * _SESSION
"""Turns after which a transaction is aborted, where members may not end each other's."""


class World:
    """All that there is in a run.

    Args:
        seed: A seed replays.
    """

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)  # noqa: S311 - a seed replays
        self.group = Group()
        self.transactions = Transactions(self.group)
        self.broken: list[str] = []
        self.deaths = 0
        self.may_fence = self.rng.random() < 0.6
        """Whether members have the right to end each other's transactions; without it readers may have to wait."""
        self._is_calm = False
        self._ids = 0
        self._lives: dict[Member, Step] = {}
        self._silent: dict[Member, int] = {}

    def new_id(self) -> str:
        """Returns one that nobody has."""
        self._ids += 1
        return f"{self._ids:032x}"

    def drawn(self, partitions: Collection[int]) -> list[int]:
        """Returns some of them."""
        return [each for each in sorted(partitions) if self.rng.random() < 0.7]

    def fence(self, owner: str) -> None:
        """Ends an owner's transactions, as far as that is allowed."""
        if not self.may_fence:
            return
        self.transactions.init(owner)
        for member in self.group.members:
            if not member.is_dead and member.is_member and member.owner == owner and member.tenure is not None:
                self.broken.append(f"killed: {owner[-3:]} is a member, and its transactions are ended")

    def end(self, owner: str, epoch: int) -> None:
        """Commits; the answer may be lost, and the request, too."""
        chance = 1.0 if self._is_calm else self.rng.random()
        if chance > 0.04:
            self.transactions.commit(owner, epoch)
        if chance < 0.08:
            raise NoAnswer

    def on_begun(self, member: Member, partitions: Collection[int]) -> None:
        """A member may write now."""
        if not self.may_fence:
            return
        for each in self.transactions.open.values():
            left = sorted({partition for partition, _ in each.rows} & set(partitions))
            if left and each.owner != member.owner:
                self.broken.append(f"held: {each.owner[-3:]} has rows of {left} in an open transaction")

    def play(self) -> list[str]:
        """Returns which promises were broken."""
        for _ in range(_TURNS):
            self._go_wrong()
            self._turn()
        self._is_calm = True
        while len(self._alive) < 2:
            self._add()
        before = self._progress()
        for _ in range(_CALM_TURNS):
            self._turn()
        self._judge()
        if not all(now > then for now, then in zip(self._progress(), before, strict=True)):
            self.broken.append("stuck: in calm not every partition goes on")
        return self.broken

    @property
    def _alive(self) -> list[Member]:
        return [each for each in self._lives if not each.is_dead]

    def _add(self) -> None:
        member = Member(self)
        self._lives[member] = member.live()
        self._silent[member] = 0

    def _go_wrong(self) -> None:
        chance, alive = self.rng.random(), self._alive
        if len(alive) < _MOST_MEMBERS and chance < 0.03:
            self._add()
        elif alive and chance < 0.045:
            self.rng.choice(alive).is_dead = True
            self.deaths += 1
        elif alive and chance < 0.06:
            self.rng.choice(alive).asleep = self.rng.randint(1, 3 * _SESSION)

    def _turn(self) -> None:
        for member in list(self._lives):
            if member.is_dead or member.asleep:
                member.asleep = max(0, member.asleep - 1)
                self._silent[member] += 1
                continue
            self._silent[member] = 0
            if self.rng.random() < 0.6:
                next(self._lives[member])
        self._coordinate()

    def _coordinate(self) -> None:
        self.group.throw_out([each for each, turns in self._silent.items() if turns > _SESSION])
        self.group.settle(PARTITIONS)
        if not self.may_fence:
            self.transactions.age(_TRANSACTION)

    def _progress(self) -> list[int]:
        return [sum(partition == each for partition, _ in self.transactions.committed) for each in range(PARTITIONS)]

    def _judge(self) -> None:
        for partition in range(PARTITIONS):
            rows = [number for each, number in self.transactions.committed if each == partition]
            if len(set(rows)) < len(rows):
                self.broken.append(f"doubled: {sorted({each for each in rows if rows.count(each) > 1})[:5]}")
            elif rows != list(range(len(rows))):
                self.broken.append(f"skipped: {rows[:10]}")
            numbers = self.group.numbers.get(partition, [])
            if any(after - before != 1 for before, after in pairwise(numbers)):
                self.broken.append(f"numbers: {numbers[:10]}")


def play(seed: int) -> list[str]:
    """Plays one seed; returns which promises were broken."""
    return World(seed).play()
