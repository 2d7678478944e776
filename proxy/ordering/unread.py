"""The records of the layouts that could not be read, and which topics are not served for want of them."""

from __future__ import annotations

from collections import Counter
from typing import Final

from kordon.proxy.ordering.records import KINDS, OTHER, Unreadable, Value, kind_of, topic_of

_LAYOUT: Final = "topic"


class Unread:
    """What stands in the layouts and could not be read, by topic; a later record of the same key takes its place."""

    def __init__(self) -> None:
        self.counted: Counter[str] = Counter()
        """Records so far, by the kind of their keys."""
        self._by_topic: dict[str, dict[str, Unreadable]] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self._by_topic

    def clear(self) -> None:
        """Forgets all, as the log is read again from its beginning."""
        self._by_topic.clear()

    def take(self, key: str, value: Value | Unreadable | None) -> None:
        """Takes in what a record amounts to; None is a tombstone, or what can be passed over."""
        topic = topic_of(key)
        if isinstance(value, Unreadable):
            self.counted[kind_of(key) if kind_of(key) in KINDS else OTHER] += 1
        if topic is None:
            return
        if isinstance(value, Unreadable):
            self._by_topic.setdefault(topic, {})[key] = value
        elif topic in self._by_topic:
            self._by_topic[topic].pop(key, None)
            if not self._by_topic[topic]:
                del self._by_topic[topic]

    def why_unserved(self, topic: str, *, is_managed: bool = True) -> str | None:
        """Says why a topic must not be served; None if it may.

        Args:
            topic: The topic's name.
            is_managed: Whether a layout of it has been read. Where none has, only an unreadable one counts: it may
                well be managed. Whatever else there is of an ordinary topic concerns nobody.
        """
        found = self._by_topic.get(topic, {}).values()
        counts = [each for each in found if is_managed or kind_of(each.key) == _LAYOUT]
        if not counts:
            return None
        more = f" (and {len(counts) - 1} more)" if len(counts) > 1 else ""
        return f"the record {counts[0].key} of __kordon.layouts cannot be read: {counts[0].why}{more}"
