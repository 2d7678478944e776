"""When a member tells its group how far it has read, and what it says: one report at a time, so that they keep order.

What may have been told, because its answer was lost, counts as told until a later report is answered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kordon.client.moves_events import ReportRow, SendReport
from kordon.client.owned import Owned


class PositionReports:
    """A member's reports, from assignment to assignment.

    Args:
        heartbeat_seconds: The time between two reports that say the same.
        hurry_seconds: The same while something of the member is held, or others may wait for it.
    """

    def __init__(self, heartbeat_seconds: float, hurry_seconds: float) -> None:
        self._heartbeat = heartbeat_seconds
        self._hurry = hurry_seconds
        self._under_way: SendReport | None = None
        self._said: tuple[ReportRow, ...] | None = None
        """By the last report; None where nobody knows whether it arrived."""
        self._sequence = 0
        self._is_first = True
        self._reported_at = 0.0
        self._not_before = 0.0
        """What failed is not tried again at once."""

    def begin(self, now: float) -> None:
        """Begins with another assignment: its first report is due at once."""
        self._is_first, self._reported_at, self._not_before = True, now, now

    def forget(self) -> None:
        """Forgets what was said and what is under way: it is of an assignment that has ended."""
        self._under_way = self._said = None

    def failed(self, now: float) -> None:
        """Notes that the report in flight may or may not have arrived."""
        self._under_way = self._said = None
        self._not_before = now + self._hurry

    def answered(self) -> SendReport | None:
        """Returns the report that an answer is to; None: it is of an assignment that has ended."""
        report, self._under_way = self._under_way, None
        return report

    def got_lost(self) -> None:
        """Notes that the group has lost the last report, so that it is sent again."""
        self._said = None

    def due_at(self, owned: Iterable[Owned], seen_at: float) -> float:
        """Returns when to look again: when a report is due, or when the answer to one is late."""
        if self._under_way is not None:
            return seen_at + self._heartbeat
        is_hurried = any(each.asks or each.is_behind_a_cut or each.has_news for each in owned)
        return max(self._reported_at + (self._hurry if is_hurried else self._heartbeat), self._not_before)

    def next(self, owned: Collection[Owned], now: float) -> SendReport | None:
        """Returns the report to send now, if any.

        Reports are whole: what one does not name, the member neither owns nor asks for.
        """
        if self._under_way is not None or not owned or now < self._not_before:
            return None
        if not (self._is_first or self.due_at(owned, now) <= now or any(each.has_news for each in owned)):
            return None
        rows = {each.tp: ReportRow(each.tp, position=each.tell()) for each in owned}
        for tp in {asked for each in owned for asked in each.asks}:
            rows[tp] = ReportRow(tp, needed=True, position=rows[tp].position if tp in rows else -1)
        self._is_first, self._reported_at = False, now
        said = tuple(rows[tp] for tp in sorted(rows))
        if said != self._said:
            self._said, self._sequence = said, self._sequence + 1
        self._under_way = SendReport(said, self._sequence)
        return self._under_way
