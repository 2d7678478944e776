"""A member: it takes partitions, copies rows in transactions, and gives partitions up; it may die or sleep between."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from kordon.client.sources.tenure import Tenure
from kordon.codecs.source_points import Point
from kordon.testing.sources.cluster import NoAnswer, Refused

if TYPE_CHECKING:
    from kordon.testing.sources.run import World

Step = Iterator[None]
"""Each `yield` is a place where it may die, or sleep."""


class Member:
    """One process."""

    def __init__(self, world: World) -> None:
        self.is_dead = False
        self.asleep = 0
        """For how many turns of others it sleeps."""
        self._world = world
        self._needs_id = True
        self.owner = ""
        self._epoch = -1
        self.generation = -1
        self.tenure: Tenure | None = None

    def live(self) -> Step:
        """Its life."""
        group = self._world.group
        while True:
            group.join(self)
            while self in group.joining:
                yield
            if self not in group.members:
                continue  # it has slept, and was thrown out
            self.generation = group.generation
            try:
                yield from self._take(group.members[self])
                while self.is_member and not group.is_rebalancing:
                    yield from self.copy()
                    yield
                yield from self.give_up()
            except Refused:
                self._lose()

    @property
    def is_member(self) -> bool:
        """Whether the group has not thrown it out."""
        return self in self._world.group.members and self.generation == self._world.group.generation

    def _lose(self) -> None:
        self._needs_id = True
        self.tenure = None

    def _take(self, partitions: Collection[int]) -> Step:
        world = self._world
        if self._needs_id:
            self.owner = world.new_id()
            self._epoch = world.transactions.init(self.owner)
            self._needs_id = False
            yield
        self.tenure = tenure = Tenure(self.owner, partitions)
        settled: Mapping[int, Point] | None = None
        while settled is None:
            strangers = tenure.to_fence(dict(world.group.records))
            yield
            self.confirm()
            for stranger in sorted(strangers):
                yield
                world.fence(stranger)
            yield
            settled = self.read(tenure)
            if not self.is_member:
                raise Refused
            if settled is None and world.group.is_rebalancing:
                return
        claims = tenure.begin(settled)
        yield
        self.write(claims)
        tenure.claimed()
        world.on_begun(self, tenure.partitions)

    def confirm(self) -> None:
        """Asks the group whether it is still a member."""
        self._world.group.check(self, self.generation)

    def read(self, tenure: Tenure) -> Mapping[int, Point] | None:
        """Returns the points; None: a transaction may still change one."""
        pending = {each for open_one in self._world.transactions.open.values() for each in open_one.points}
        return None if pending & tenure.partitions else dict(self._world.group.records)

    def write(self, points: Mapping[int, Point]) -> None:
        """Puts points on record in no transaction."""
        self._world.group.check(self, self.named())
        self._world.group.put(points)

    def named(self) -> int | None:
        """Returns the generation that it names."""
        return self.generation

    def copy(self) -> Step:
        """Copies some rows."""
        tenure, world = self.tenure, self._world
        assert tenure is not None
        texts: dict[int, str] = {}
        for partition in world.drawn(tenure.partitions):
            begin = int(tenure.points[partition] or 0)
            for number in range(begin, begin + world.rng.randint(1, 2)):
                yield
                world.transactions.of(self.owner, self._epoch).rows.append((partition, number))
                texts[partition] = str(number + 1)
        yield
        if not texts or (world.group.is_rebalancing and world.rng.random() < 0.5):
            return
        if world.rng.random() < 0.1:
            world.transactions.abort(self.owner, self._epoch)
            return
        yield from self.commit(tenure, tenure.next_points(texts, 0))

    def commit(self, tenure: Tenure, points: Mapping[int, Point]) -> Step:
        """Commits points with the data."""
        world = self._world
        world.group.check(self, self.named())
        world.transactions.of(self.owner, self._epoch).points = dict(points)
        yield
        try:
            world.end(self.owner, self._epoch)
        except NoAnswer:
            self._needs_id = True
            tenure.lose_track()
            yield from self.give_up()
            raise Refused from None
        tenure.ended(committed=True)

    def end_open(self) -> None:
        """Aborts what is open."""
        self._world.transactions.abort(self.owner, self._epoch)

    def give_up(self) -> Step:
        """Takes its id off the record, if it may, and goes back to where it joins."""
        tenure, self.tenure = self.tenure, None
        if tenure is None:
            return
        if not self.is_member:
            tenure.lose_track()
        yield
        self.end_open()
        released = tenure.release()
        yield
        if released:
            self.write(released)
        self._needs_id = self._needs_id or not tenure.keeps_id
