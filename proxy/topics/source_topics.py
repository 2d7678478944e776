"""The source topics of a cluster, as one worker knows them: topics without records, on which producers form groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final
from uuid import UUID

from kordon.proxy.ordering.source_records import SourceTopic

MOST_TOPICS: Final = 10_000
"""Of a cluster; each takes some 500 bytes of a worker's memory."""
REASONS: Final = ("records", "no_point", "lower_number")
"""Why a source topic refuses something: it takes no records; a commit is to have a restart point, and not an older one
than the group has."""


class SourceTopics:
    """Finds source topics by name and by id."""

    def __init__(self) -> None:
        self.refused: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        """Partitions of requests that were refused, by reason."""
        self._by_name: dict[str, SourceTopic] = {}
        self._names: dict[UUID, str] = {}
        self._watchers: list[Callable[[bool], None]] = []

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, topic: object) -> bool:
        """Whether a name or an id is that of a source topic."""
        return topic in self._by_name or topic in self._names

    def name_of(self, topic_id: UUID | None) -> str:
        """Returns the name of the source topic with an id; "" if there is none."""
        return self._names.get(topic_id, "") if topic_id is not None else ""

    def named(self, name: str) -> SourceTopic | None:
        """Finds a source topic by its name."""
        return self._by_name.get(name)

    def items(self) -> Iterable[tuple[str, SourceTopic]]:
        """Returns all of them, by name."""
        return self._by_name.items()

    def watch(self, told: Callable[[bool], None]) -> None:
        """Has somebody told whether there is any, now and whenever that may have changed."""
        self._watchers.append(told)
        told(bool(self))

    def know(self, topics: Mapping[str, SourceTopic]) -> None:
        """Takes in all source topics that there are."""
        self._by_name = dict(topics)
        self._names = {topic.topic_id: name for name, topic in topics.items()}
        for told in self._watchers:
            told(bool(self))
