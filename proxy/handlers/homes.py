"""Virtual partitions in admin requests that brokers answer: the physical partitions on which they live."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TypeVar

from kordon.codecs.row import Row
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics

_Row = TypeVar("_Row", bound=Row)


def at_home(name: str, partitions: list[int], topics: ManagedTopics) -> list[int]:
    """Returns the homes of a managed topic's virtual partitions in their place, each once."""
    topic = topics.named(name)
    return partitions if topic is None else sorted({_home(topic, v) for v in partitions})


def _home(topic: ManagedTopic, v: int) -> int:
    """Returns where a virtual partition lives; one that does not exist is the broker's to know nothing of."""
    home = topic.layout.homes[v] if 0 <= v < topic.layout.v_count else None
    return v if home is None else home


def spread(rows: Iterable[_Row], index: str, virtual: Iterable[int], topic: ManagedTopic) -> list[_Row]:
    """Gives what was said of physical partitions to the virtual ones that live there; `index` has their number."""
    residents: defaultdict[int, list[int]] = defaultdict(list)
    for v in virtual:
        residents[_home(topic, v)].append(v)
    found: list[_Row] = []
    for row in rows:
        for v in residents.get(row.get(index, -1), ()):
            found.append(row.copy())
            found[-1][index] = v
    return found
