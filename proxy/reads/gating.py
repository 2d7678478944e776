"""What a worker knows for the gate of ordered delivery (PARENT-FIRST): gates by topic, positions of groups, log starts.

What is known of a group is what its members report in ConsumerGroupPosition; a reader without a group says itself where
it stands. Of whoever says nothing, only what retention has taken counts as read.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakKeyDictionary

from kordon.codecs.bodies import FetchRequest, FetchRequestPosition, FetchRequestTopic
from kordon.proxy.decisions.events import NO_GROUP, ReadingMember
from kordon.proxy.ordering.gate import Evidence, Gate
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.lookups import EARLIEST
from kordon.proxy.own_topics.group_positions import GroupPositions
from kordon.proxy.topics.managed_topics import ManagedTopic

_STARTS_SECONDS: Final = 1.0
"""How old may be what is known of where a log begins, while somebody is held for it."""


@dataclass(slots=True)
class GateTally:
    """The counts of gating. Every number only rises but those that say "now"."""

    holds: Counter[str] = field(default_factory=Counter[str])
    """The partitions of Fetch requests that were held, by topic."""
    held_seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict[str, float](float))
    """The seconds for which they were held in all, by topic."""
    held: int = 0
    """The partitions of requests under way that are held now."""
    refused: Counter[str] = field(default_factory=Counter[str])
    """The partitions of Fetch requests whose clients had another number of undeleted partitions, by topic."""


class Reader:
    """The client of a Fetch request, as far as the gate has to know it.

    Args:
        request: The request. Its tags are KIP-253's group, or the positions of a reader without a group.
        positions: The positions of all groups.
    """

    def __init__(self, request: FetchRequest, positions: GroupPositions) -> None:
        self._group = request.get("group_id", "")
        self._generation = request.get("generation_id", -1)
        self._member = request.get("member_id", "")
        self._positions = positions

    def stands_at(self, topic: str, row: FetchRequestTopic) -> dict[int, int]:
        """Returns the reader's next offsets in a topic: its group's, or without a group those that the row tells."""
        if self._group:
            return dict(self._positions.of(self._group, self._generation, topic, self._member))
        positions: list[FetchRequestPosition] = row.get("positions", [])
        return {each.partition: each.position for each in positions}

    @property
    def group(self) -> ReadingMember:
        """The group and member for which it reads."""
        return ReadingMember(self._group or None, self._generation, self._member or None) if self._group else NO_GROUP

    @property
    def has_group(self) -> bool:
        """Whether its positions may change while the request waits."""
        return bool(self._group)

    async def moved(self, topic: str, known: Mapping[int, int]) -> None:
        """Returns when the group's positions in a topic differ from `known`, which `stands_at` has returned."""
        while self.stands_at(topic, FetchRequestTopic()) == known:
            await self._positions.changed(self._group)


class _Starts:
    """Where the logs of one topic begin, as far as somebody was held for it."""

    def __init__(self, layout: Layout) -> None:
        self.topic_id = layout.topic_id
        self.known: dict[int, int] = {}
        self._asked: dict[int, float] = {}
        """By physical partition, when."""

    def to_ask(self, partitions: Iterable[int]) -> tuple[int, ...]:
        """Returns the partitions whose known start is old, and notes that they are asked now."""
        now = time.monotonic()
        old = tuple(q for q in partitions if now - self._asked.get(q, float("-inf")) >= _STARTS_SECONDS)
        self._asked |= dict.fromkeys(old, now)
        return old


class Gates:
    """The gates of a worker's topics.

    Args:
        positions: The positions of all groups.
        ends_of: Called to ask leaders where physical partitions begin (-2) or end (-1).
    """

    def __init__(
        self, positions: GroupPositions, ends_of: Callable[[str, tuple[int, ...], int], Awaitable[Mapping[int, int]]]
    ) -> None:
        self.positions = positions
        self.tally = GateTally()
        self._ends_of = ends_of
        self._gates: WeakKeyDictionary[ManagedTopic, tuple[Layout, Gate]] = WeakKeyDictionary()
        self._starts: WeakKeyDictionary[ManagedTopic, _Starts] = WeakKeyDictionary()

    def of(self, topic: ManagedTopic) -> Gate:
        """Returns the gate of the layout in force."""
        known = self._gates.get(topic)
        if known is None or known[0] is not topic.layout:
            known = self._gates[topic] = (topic.layout, Gate.of(topic.layout))
        return known[1]

    def evidence(self, topic: ManagedTopic, positions: Mapping[int, int]) -> Evidence:
        """Returns what is known of a reader with these positions."""
        return Evidence(positions, self._starts_of(topic).known)

    def to_learn(self, topic: ManagedTopic, partitions: Iterable[int]) -> Coroutine[None, None, None] | None:
        """Returns what finds out where logs begin; None: that has been done a moment ago."""
        starts = self._starts_of(topic)
        asked = starts.to_ask(partitions)
        return self._learn(topic.name, asked, starts) if asked else None

    async def _learn(self, topic: str, partitions: tuple[int, ...], starts: _Starts) -> None:
        for q, start in (await self._ends_of(topic, partitions, EARLIEST)).items():
            starts.known[q] = max(start, starts.known.get(q, 0))

    def _starts_of(self, topic: ManagedTopic) -> _Starts:
        known = self._starts.get(topic)
        if known is None or known.topic_id != topic.layout.topic_id:
            known = self._starts[topic] = _Starts(topic.layout)
        return known
