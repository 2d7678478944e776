"""A journal whose decisions a test reads."""

from __future__ import annotations

from kordon.codecs.decision import Decision, Entry, Kind
from kordon.proxy.decisions.backlog import Backlog
from kordon.proxy.decisions.journal import Journal


class Noted:
    """Keeps what is noted, as it would be written."""

    def __init__(self) -> None:
        self._backlog = Backlog("here", "me", 2**30, lambda: 0)
        self.journal = Journal(self._backlog, 3_600_000, lambda: 0)

    @property
    def entries(self) -> list[Entry]:
        """All that was noted, in its order; open runs are not."""
        return [Entry.load(value) for value in self._backlog.next(2**30, 2**62)]

    def of(self, *kinds: Kind) -> list[Decision]:
        """Returns the decisions of some kinds; all where none is named."""
        return [each.decision for each in self.entries if not kinds or each.decision.kind in kinds]

    @property
    def kinds(self) -> list[Kind]:
        return [each.decision.kind for each in self.entries]
