"""The witnesses and markers of one physical log, by producer. They decide outcomes.

The index knows a range of offsets without a gap. The range loses its front to retention and to the bound, and its end
to elections. What is forgotten can be read again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence

from kordon.proxy.ordering.transactions.events import Event


class EventIndex:
    """Kept for each physical partition that transactions are read from.

    Args:
        start: The offset from which the log is read.
        leader_epoch: The epoch of the leader from which it is read.
        most: Events kept at most. Beyond it the oldest are forgotten, and `start` rises.
    """

    def __init__(self, start: int, leader_epoch: int = 0, most: int = 100_000) -> None:
        self.start = start
        """Every event at this offset or above, and below `end`, is known."""
        self.end = start
        """The offset up to which the log has been read."""
        self.leader_epoch = leader_epoch
        """The epoch of the leader whose log it is."""
        self._most = most
        self._order: deque[Event] = deque()
        self._by_producer: dict[int, list[Event]] = {}

    def __len__(self) -> int:
        return len(self._order)

    def take(self, event: Event) -> None:
        """Takes in the next event of the log.

        Raises:
            ValueError: Its offset has been read before.
        """
        if event.offset < self.end:
            raise ValueError(f"{event} lies below {self.end}, up to where the log has been read")
        self._order.append(event)
        self._by_producer.setdefault(event.producer_id, []).append(event)
        self.end = event.offset + 1
        if len(self._order) > self._most:
            self.trim_front(self._order[0].offset + 1)

    def read_to(self, end: int) -> None:
        """Notes that there is no further event below an offset."""
        self.end = max(self.end, end)

    def knows_behind(self, offset: int) -> bool:
        """Whether no event behind an offset has been forgotten. If not, the log is read again from there."""
        return self.start <= offset + 1

    def behind(self, offset: int, producer_id: int) -> Sequence[Event]:
        """Returns a producer's events behind an offset, in their order.

        Raises:
            LookupError: Some may have been forgotten (`knows_behind`).
        """
        if not self.knows_behind(offset):
            raise LookupError(f"events are known from {self.start} on, not behind {offset}")
        events = self._by_producer.get(producer_id, [])
        return events[bisect_right(events, offset, key=_offset) :]

    def following(self, offset: int, producer_id: int) -> Iterator[Event]:
        """Yields what `behind` returns, without a copy of it; the index must not change meanwhile.

        Raises:
            LookupError: As for `behind`, before anything is yielded.
        """
        if not self.knows_behind(offset):
            raise LookupError(f"events are known from {self.start} on, not behind {offset}")
        events = self._by_producer.get(producer_id, [])
        return (events[at] for at in range(bisect_right(events, offset, key=_offset), len(events)))

    def absorb(self, following: EventIndex) -> None:
        """Continues with what another index knows, which begins at or before the end of this one.

        Raises:
            ValueError: The index begins after it, or belongs to another leader's log.
        """
        if following.start > self.end or following.leader_epoch != self.leader_epoch:
            raise ValueError(f"what is known from {following.start} on does not follow {self.end}")
        begin = self.end
        for event in following._order:
            if event.offset >= begin:
                self.take(event)
        self.read_to(following.end)

    def before(self, offset: int, producer_id: int) -> Sequence[Event]:
        """Returns a producer's events before an offset that are known, in their order."""
        events = self._by_producer.get(producer_id, [])
        return events[: bisect_right(events, offset - 1, key=_offset)]

    def trim_front(self, start: int) -> None:
        """Forgets what lies before an offset, because retention took it or nobody reads there any more."""
        self.start, self.end = max(self.start, start), max(self.end, start)
        while self._order and self._order[0].offset < start:
            event = self._order.popleft()
            del self._by_producer[event.producer_id][0]
            self._drop_if_empty(event.producer_id)

    def adopt(self, leader_epoch: int, end: int) -> None:
        """Continues with the log of another leader.

        Args:
            leader_epoch: The new leader epoch.
            end: The offset up to which that log is the same. What was read from there on is dropped.
        """
        self.leader_epoch = leader_epoch
        self.start, self.end = min(self.start, end), min(self.end, end)
        while self._order and self._order[-1].offset >= end:
            event = self._order.pop()
            del self._by_producer[event.producer_id][-1]
            self._drop_if_empty(event.producer_id)

    def _drop_if_empty(self, producer_id: int) -> None:
        if not self._by_producer[producer_id]:
            del self._by_producer[producer_id]


def _offset(event: Event) -> int:
    return event.offset
