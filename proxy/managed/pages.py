"""What a worker's admin pages show of managed topics, as it is when they are asked for."""

from __future__ import annotations

from collections.abc import Mapping

from kordon.proxy.control.group_positions import GroupPositions
from kordon.proxy.control.keeper import Keeper
from kordon.proxy.control.state import state_of
from kordon.proxy.managed.explain import Facts, explain_all, explain_topic, sum_up, why_not_served
from kordon.proxy.managed.held_groups import held_groups
from kordon.proxy.managed.topics import ManagedTopics
from kordon.proxy.ordering.gate import Gate


class ManagedPages:
    """The pages.

    Args:
        topics: What is managed.
        keeper: What keeps it current.
        bypassed: By topic, batches of writers that went round Kordon; as it stands when it is looked at.
        groups: Where groups of the dialect stand.
    """

    def __init__(
        self, topics: ManagedTopics, keeper: Keeper, bypassed: Mapping[str, int], groups: GroupPositions
    ) -> None:
        self._topics = topics
        self._keeper = keeper
        self._bypassed = bypassed
        self._groups = groups

    def all(self) -> Facts:
        """Returns the object of /topics."""
        return explain_all(self._topics, state_of(self._keeper))

    def topic(self, name: str) -> Facts | None:
        """Returns the object of /topics/NAME; None: no such topic is managed."""
        topic = self._topics.named(name)
        if topic is None:
            return None
        held = held_groups(name, Gate.of(topic.layout), self._groups.positions)
        return explain_topic(topic, state_of(self._keeper), self._bypassed.get(name, 0), held)

    def sum(self) -> Facts:
        """Returns the section of /status."""
        return sum_up(self._topics, state_of(self._keeper))

    def unready(self) -> list[str]:
        """Returns why clients of managed topics should not be sent here; empty when all is well, or none is managed."""
        why_not = why_not_served(state_of(self._keeper)) if len(self._topics) else None
        return [f"managed topics: {why_not}"] if why_not is not None else []
