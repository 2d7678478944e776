"""What stands announced of each topic, and whether a controller has announced it (DOUBLE-ADD)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from kordon.proxy.ordering.known_topics import KnownTopics
from kordon.proxy.ordering.records import LARGEST_NUMBER, AnnouncementRecord

_MOST_MADE: Final = 8
"""Of a topic: so many may be on their way back from the log to whoever has written them."""


class StandingAnnouncements:
    """The announcements of one controller, and the last ones of those before it.

    Args:
        known: The managed topics.

    Attributes:
        standing: The last announcement of each topic, a withdrawal included.
    """

    def __init__(self, known: KnownTopics) -> None:
        self.standing: dict[str, AnnouncementRecord] = {}
        self._known = known
        self._made: dict[str, deque[AnnouncementRecord]] = {}

    def inherit(self, announced: Iterable[AnnouncementRecord]) -> None:
        """Continues with what former controllers have announced."""
        for each in announced:
            self.put(each)

    def put(self, record: AnnouncementRecord) -> AnnouncementRecord:
        """Takes what is about to be written as standing; returns it."""
        self.standing[record.topic] = record
        self._made.setdefault(record.topic, deque(maxlen=_MOST_MADE)).append(record)
        return record

    def behind(self, topic: str, new_id: str, coming: Mapping[int, int]) -> AnnouncementRecord:
        """Makes a topic's next announcement, whose number no other one has had that a worker may still go by."""
        before, made = self.standing.get(topic), self._made.get(topic, ())
        number = 1 if before is None else _number_behind(before.number)
        while any(each.number == number for each in made):
            number = _number_behind(number)
        return self.put(AnnouncementRecord(new_id, topic, number, coming))

    def is_others(self, record: AnnouncementRecord) -> bool:
        """Whether an announcement that was read is of nobody who may announce something.

        It stands then, as workers go by it: the next one has another number, and if nobody wants it, it is withdrawn.
        """
        if record.topic not in self._known.records:
            return False
        made = self._made.get(record.topic)
        is_own = made is not None and record in made
        if not is_own:
            self.standing[record.topic] = replace(record, ends=None)  # nobody has been told, and nobody waited for
        elif made is not None and record == made[-1]:
            self.standing[record.topic] = record
        return not is_own

    def taken_away(self, topic: str) -> AnnouncementRecord | None:
        """Returns what is to be written again where a tombstone was read; None: the topic was let go.

        A worker that starts behind a tombstone would not know what is announced.
        """
        return self.standing.get(topic) if topic in self._known.records else None

    def forget(self, topic: str) -> None:
        """Forgets a topic that is let go."""
        self.standing.pop(topic, None)
        self._made.pop(topic, None)


def _number_behind(number: int) -> int:
    return number + 1 if number < LARGEST_NUMBER else 1
