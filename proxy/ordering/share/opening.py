"""Where a share group begins of which the log says nothing: the log may have said it, and have been lost.

`share.auto.offset.reset` is right for a group that has read nothing yet. A group that has read, and begins at `latest`,
skips what was left. The log alone cannot tell the two apart, since nobody else knows where a group stands. So each
partition of the log has an *opening*: a record that names the share groups that there were before it. Whoever finds
none asks the brokers for their groups, and writes it before any group begins.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Opening:
    """A record that opens a partition of the log: it is the first, also of a log that was lost and is made again."""

    older: frozenset[str]
    """Share groups that there were, of those whose records belong into the partition."""


class Openings:
    """The openings of one partition of the log, as far as they were read."""

    def __init__(self) -> None:
        self.is_open = False
        """Whether groups may begin; otherwise an opening has to be written."""
        self._older: set[str] = set()

    def apply(self, opening: Opening) -> None:
        """Takes in a record. All of them count, so two workers may write one each."""
        self.is_open = True
        self._older |= opening.older

    def begins_at_earliest(self, group_id: str) -> bool:
        """Whether a group without a start begins at its earliest record, whatever it has configured (OLD-GROUP)."""
        return group_id in self._older
