"""The rows by which a connection names the partitions of a topic, kept in the bytes in which they came.

Most rows of most requests are those of the request before: only rows that have changed are read. librdkafka begins
each request one partition further on than the one before, so rows that are turned count as the same.
"""

from __future__ import annotations

from typing import Final

from kordon.codecs.fetch_requests import FetchPartition, FetchTopic

_MOST_CHANGED: Final = 32
"""Rows that are searched for one by one; of more, all are read."""


class NamedRows:
    """The rows of one topic, as the last request had them.

    Args:
        topic: The request's topic.

    Attributes:
        rows: Rows by partition, in the order of the first request. Of two rows for one partition the last counts, as
            for brokers.
        begin: The place among the rows with which the last request began.
        changed: The rows that the last request changed, in its order. None: all may have changed.
    """

    __slots__ = ("_data", "_numbers", "_version", "begin", "changed", "rows")

    def __init__(self, topic: FetchTopic) -> None:
        partitions = topic.partitions()
        self._version = topic.version
        self._data = topic.rows.tobytes()
        self._numbers = [row[0] for row in partitions]
        self.rows: dict[int, FetchPartition] = dict(zip(self._numbers, partitions, strict=True))
        self.begin = 0
        self.changed: list[FetchPartition] | None = None

    @property
    def is_kept(self) -> bool:
        """Whether the next request may be compared with it: no partition is named twice.

        What is kept is counted by partitions, of which one could be named thousands of times.
        """
        return len(self.rows) == len(self._numbers)

    def take(self, topic: FetchTopic) -> bool:
        """Takes in how another request names the topic.

        Returns:
            Whether the request names the same partitions as before and few of them with other values. If not, nothing
                is taken in.
        """
        numbers, count = self._numbers, len(self.rows)
        if topic.count != count or not self.is_kept or topic.version != self._version or not count:
            return False
        begin = self._begin(topic.partition(0)[0])
        if begin < 0:
            return False
        stride = topic.stride
        turned = (count - begin) * stride
        data = topic.rows[turned:].tobytes() + topic.rows[:turned].tobytes()
        places = _differing(self._data, data, stride)
        if places is None:
            return False
        found = [topic.partition((place - begin) % count) for place in places]
        if any(row[0] != numbers[place] for place, row in zip(places, found, strict=True)):
            return False
        self._data, self.begin = data, begin
        self.rows.update(zip((row[0] for row in found), found, strict=True))
        behind = sum(place < begin for place in places)
        self.changed = found[behind:] + found[:behind]
        return True

    def _begin(self, partition: int) -> int:
        """Returns the place of the partition with which a request begins; -1: it is neither the last one nor the next.

        There is no search: rows that are otherwise turned are read as a whole once, and begin anew.
        """
        following = (self.begin + 1) % len(self._numbers)
        return next((place for place in (self.begin, following) if self._numbers[place] == partition), -1)


def _differing(before: bytes, after: bytes, stride: int) -> list[int] | None:
    """Returns the places of rows that differ, in order; None: there are too many."""
    if before == after:
        return []
    places: list[int] = []
    spans = [(0, len(after) // stride)]
    while spans:
        first, end = spans.pop()
        at, behind = first * stride, end * stride
        if before[at:behind] == after[at:behind]:
            continue
        if end - first > 1:
            middle = (first + end) // 2
            spans += ((middle, end), (first, middle))
        elif len(places) == _MOST_CHANGED:
            return None
        else:
            places.append(first)
    return places
