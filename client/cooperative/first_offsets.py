"""Where a group begins that has committed nothing: a member decides that once. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Generic, TypeVar

P = TypeVar("P", bound=Hashable)
"""What names a partition; that of a topic made again is another one."""


class FirstOffsets(Generic[P]):
    """What `auto_offset_reset` has first said of a member's partitions (FIRST-STAYS).

    A commit of that may be refused, or its answer may be lost, and it may be taken all the same. If the member went by
    a later end of the log then (`latest`), both commits could be taken, and what came between would be skipped.
    """

    def __init__(self) -> None:
        self._kept: dict[P, int] = {}

    def of(self, partition: P, resolved: int) -> int:
        """Returns where a partition begins.

        Args:
            partition: One without a commit.
            resolved: Where `auto_offset_reset` says now that it begins.
        """
        return self._kept.setdefault(partition, resolved)

    def keep_only(self, partitions: Collection[P]) -> None:
        """Forgets all others: they are another member's, or have a commit."""
        self._kept = {each: offset for each, offset in self._kept.items() if each in partitions}
