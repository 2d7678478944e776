"""AddPartitionsToTxn of virtual partitions while their homes may change (DOUBLE-ADD).

    plan ──> the coordinator takes it ──> leaders are asked ──> witnesses ──> answer, if the plan still holds

Before a change that moves virtual partitions is fenced, it is *announced*: its proposed homes exist by then. From then
on AddPartitionsToTxn of a virtual partition means its present home and the coming one, so both have a witness whichever
the data go to. Transactions from before the announcement have one in the old home alone; the fence waits for them
(`older_transactions.py`). A worker acknowledges an announcement as soon as it knows it: what it planned before is
planned again instead of being answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Announcement:
    """A change to come, or that none is to come any more."""

    number: int
    """Rises with each announcement of a topic; the withdrawal of one is the next one. It may begin with 1 again, where
    layouts were restored without what was announced."""
    coming: Mapping[int, int] = field(default_factory=dict[int, int])
    """By virtual partition that moves, its coming home. A fence that moves none announces nothing."""

    def left(self, homes: Mapping[int, int]) -> frozenset[int]:
        """Returns the physical partitions that something leaves; on these, the fence waits for older transactions.

        Args:
            homes: The present home, by virtual partition.
        """
        return frozenset(homes[v] for v, q in self.coming.items() if homes[v] != q)


class Plan(NamedTuple):
    """What an AddPartitionsToTxn of virtual partitions means at one time."""

    partitions: frozenset[int]
    """The physical partitions that the coordinator is asked to add, and that need a witness."""
    layout_epoch: int
    announcement: Announcement
    """The latest announcement."""


class Course(Enum):
    """How an AddPartitionsToTxn continues."""

    GO_ON = "go on"
    AGAIN = "again"
    """Plan again, and do all of it again: it adds to what the coordinator and leaders have taken."""
    LATER = "later"
    """Answer CONCURRENT_TRANSACTIONS, after which clients ask again."""


def plan(vs: Iterable[int], homes: Mapping[int, int], layout_epoch: int, announcement: Announcement) -> Plan:
    """Plans an AddPartitionsToTxn.

    Args:
        vs: The virtual partitions that the client names.
        homes: The home in the present layout, by virtual partition.
        layout_epoch: The epoch of that layout.
        announcement: The latest announcement.
    """
    named = tuple(vs)
    coming = coming_homes(named, announcement)
    return Plan(frozenset(homes[v] for v in named) | coming, layout_epoch, announcement)


def coming_homes(vs: Iterable[int], announcement: Announcement) -> frozenset[int]:
    """Returns the physical partitions that virtual partitions are about to move to."""
    return frozenset(announcement.coming[v] for v in vs if v in announcement.coming)


def course(planned: Plan, layout_epoch: int, announcement: Announcement, *, has_lease: bool) -> Course:
    """Returns how an AddPartitionsToTxn goes on. Asked before the coordinator is asked, and before the client is told.

    Args:
        layout_epoch: The epoch of the present layout.
        announcement: The latest announcement.
        has_lease: Whether the worker has a lease. A lease that ended meanwhile and began again does no harm: the worker
            has read the layouts since (READ-BEFORE-SERVE).
    """
    if not has_lease:
        return Course.LATER
    return Course.GO_ON if is_fresh(planned, layout_epoch, announcement) else Course.AGAIN


def is_fresh(planned: Plan, layout_epoch: int, announcement: Announcement) -> bool:
    """Whether a plan made now would be the same. The number of an announcement alone does not say what is coming."""
    return planned.layout_epoch == layout_epoch and planned.announcement == announcement
