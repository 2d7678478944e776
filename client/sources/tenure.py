"""What one member of a group may do with its source partitions, from an assignment to the next. Pure: no I/O, no clock.

    READING ──> begin: own id on record ──> WRITING ──> transactions ──> release: own id off the record ──> OVER
       │                  │                    │
       └──────────────────┴────────────────────┴── anything unknown: nothing is released, and the id is not used again

Whoever gets a partition fences the transactional id that stands on record of it (`to_fence`). A member that is alive
and has given the partition up has taken its id off (`release`), so only the ids of the dead and of those that the group
has thrown out are fenced. docs/rules.md says what breaks without each step.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from enum import Enum, auto

from kordon.codecs.source_points import Point


class TenureStage(Enum):
    """How far a tenure has come."""

    READING = auto()
    """The points are not known yet."""
    CLAIMING = auto()
    """The owner's id is being put on record."""
    WRITING = auto()
    """Transactions may begin."""
    OVER = auto()
    """The partitions are given up."""


class NotOwned(LookupError):  # noqa: N818  says what is not so
    """A source partition is not this member's; `args[0]` is its number."""


class Tenure:
    """The source partitions of one assignment.

    Args:
        owner: The id that stands for this member in commits; empty if the producer has no transactions that could be
            open.
        partitions: The assigned partitions.
    """

    def __init__(self, owner: str, partitions: Collection[int]) -> None:
        self._owner = owner
        self._partitions = frozenset(partitions)
        self._points: dict[int, Point] = {}
        self._pending: dict[int, Point] | None = None
        self._stage = TenureStage.READING
        self._is_known = True

    @property
    def stage(self) -> TenureStage:
        """How far it has come."""
        return self._stage

    @property
    def partitions(self) -> frozenset[int]:
        """The assigned ones."""
        return self._partitions

    @property
    def points(self) -> dict[int, str | None]:
        """The last committed restart point of each partition; None: none was ever committed."""
        return {partition: point.text for partition, point in sorted(self._points.items())}

    def to_fence(self, records: Mapping[int, Point]) -> set[str]:
        """Returns the committed transactional ids whose transactions may still be open (DEAD-FENCED).

        Args:
            records: The committed restart points by partition, settled or not.
        """
        return {records[each].owner for each in self._partitions & records.keys()} - {self._owner, ""}

    def begin(self, settled: Mapping[int, Point]) -> dict[int, Point]:
        """Takes the settled points over.

        Returns:
            What is to be put on record before a transaction begins (OWNER-ON-RECORD): this member's id.
        """
        self._points = {each: replace(settled.get(each, Point()), owner=self._owner) for each in self._partitions}
        self._stage = TenureStage.CLAIMING
        return {each: point for each, point in self._points.items() if settled.get(each, Point()) != point}

    def claimed(self) -> None:
        """Notes that the ids are committed."""
        self._stage = TenureStage.WRITING

    def next_points(self, texts: Mapping[int, str], now_ms: int) -> dict[int, Point]:
        """Returns what is committed next: each number is one more than the last committed (POINT-NUMBER).

        Raises:
            NotOwned: One of the partitions is not this member's.
        """
        for each in texts:
            if self._stage is not TenureStage.WRITING or each not in self._points:
                raise NotOwned(each)
        self._pending = {
            each: Point(self._points[each].number + 1, text, self._owner, now_ms) for each, text in texts.items()
        }
        return self._pending

    def ended(self, *, committed: bool) -> None:
        """Notes that what `next_points` has returned is committed, or that none of it ever will be."""
        if committed and self._pending is not None:
            self._points.update(self._pending)
        self._pending = None

    def lose_track(self) -> None:
        """Notes that nobody here knows what is on record, or that the group has thrown this member out."""
        self._is_known = False

    def release(self) -> dict[int, Point]:
        """Ends the assignment.

        Returns:
            What is to be put on record so that nobody fences this member (ID-ONCE): empty where it may not write, since
            what it knows may be older than what is on record.
        """
        may_write = self._stage is TenureStage.WRITING and self._is_known and self._pending is None
        self._is_known = self._is_known and (may_write or not self._points)
        self._stage = TenureStage.OVER
        if not may_write:
            return {}
        return {each: replace(point, owner="") for each, point in self._points.items() if point.owner}

    @property
    def keeps_id(self) -> bool:
        """Whether the next tenure may use the same id, once what `release` has returned is on record."""
        return self._stage is TenureStage.OVER and self._is_known
