"""What a worker's admin pages show of managed topics, as it is when they are asked for."""

from __future__ import annotations

from collections.abc import Mapping

from kordon.proxy.control.keeper import Keeper
from kordon.proxy.control.state import state_of
from kordon.proxy.managed.explain import Facts, explain_all, explain_topic, sum_up, why_not_served
from kordon.proxy.managed.topics import ManagedTopics


class ManagedPages:
    """The pages.

    Args:
        topics: What is managed.
        keeper: What keeps it current.
        bypassed: By topic, batches of writers that went round Kordon; as it stands when it is looked at.
    """

    def __init__(self, topics: ManagedTopics, keeper: Keeper, bypassed: Mapping[str, int]) -> None:
        self._topics = topics
        self._keeper = keeper
        self._bypassed = bypassed

    def all(self) -> Facts:
        """Returns the object of /topics."""
        return explain_all(self._topics, state_of(self._keeper))

    def topic(self, name: str) -> Facts | None:
        """Returns the object of /topics/NAME; None: no such topic is managed."""
        topic = self._topics.named(name)
        if topic is None:
            return None
        return explain_topic(topic, state_of(self._keeper), self._bypassed.get(name, 0))

    def sum(self) -> Facts:
        """Returns the section of /status."""
        return sum_up(self._topics, state_of(self._keeper))

    def unready(self) -> list[str]:
        """Returns why clients of managed topics should not be sent here; empty when all is well, or none is managed."""
        why_not = why_not_served(state_of(self._keeper)) if len(self._topics) else None
        return [f"managed topics: {why_not}"] if why_not is not None else []
