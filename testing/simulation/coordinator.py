"""A model of a consumers' group on its coordinator: generations, an assignment that the leader makes, commits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from kordon.testing.simulation.kafka import Group
from kordon.testing.simulation.world import World


class Given(NamedTuple):
    """What a member gets to know when a group is made anew."""

    partitions: frozenset[int]
    layout_epoch: int
    """By which they were shared out."""
    offsets: dict[int, int]
    """The group's commits."""


class ConsumerGroup:
    """One group; all that members ask is answered at once, the way there and back is theirs.

    Args:
        world: Time.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._group = Group(world)
        self._assignments: dict[int, tuple[Mapping[str, frozenset[int]], int]] = {}
        self.offsets: dict[int, int] = {}
        """Committed, by partition."""

    @property
    def generation(self) -> int:
        """The present one; a group that was deleted begins again at 0."""
        return self._group.generation

    @property
    def members(self) -> list[str]:
        """Of the present generation, the leader first."""
        return list(self._group.members)

    def join(self, member: str, answer: Callable[[int, list[str]], None]) -> None:
        """Joins, or joins again; answered with generation and members (leader first) when the rebalance ends."""
        self._group.join(member, answer)

    def leave(self, member: str) -> None:
        """Leaves in order."""
        self._group.leave(member)

    def heartbeat(self, member: str, generation: int) -> bool:
        """Returns whether a member of this generation may go on; else it has to join again."""
        return self._group.heartbeat(member, generation) is True

    def assign(self, generation: int, assignment: Mapping[str, frozenset[int]], layout_epoch: int) -> None:
        """Takes the leader's assignment, and by which layout it was made (SyncGroup)."""
        if generation == self.generation:
            self._assignments[generation] = assignment, layout_epoch

    def assigned(self, member: str, generation: int) -> Given | None:
        """Returns what a member is given; None: nothing now."""
        found = self._assignments.get(generation) if generation == self.generation else None
        return None if found is None else Given(found[0].get(member, frozenset()), found[1], dict(self.offsets))

    def commit(self, member: str, generation: int, offsets: Mapping[int, int]) -> None:
        """Takes an OffsetCommit: only from members of the present generation."""
        if self._group.commit(member, generation):
            self.offsets.update(offsets)

    def reset(self, offsets: Mapping[int, int]) -> None:
        """An operator sets commits (kafka-consumer-groups --reset-offsets); members of before commit no more."""
        generation = self._group.generation
        self._group = Group(self._world)
        self._group.generation = generation + 1
        self.offsets.update(offsets)

    def delete(self) -> None:
        """An operator deletes the group, with its commits; its generations begin anew."""
        self._group = Group(self._world)
        self._assignments.clear()
        self.offsets.clear()
