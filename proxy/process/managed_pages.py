"""What a worker's admin pages show of managed topics, as it is when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kordon.proxy.member.control_state import state_of
from kordon.proxy.member.layout_member import LayoutMember
from kordon.proxy.member.topic_state import state_in_words, state_to_come, why_not_served
from kordon.proxy.ordering.gate import Gate
from kordon.proxy.own_topics.group_positions import GroupPositions
from kordon.proxy.process.common_faults import CommonFaults
from kordon.proxy.process.explain import Facts, explain_all, explain_topic, sum_up
from kordon.proxy.process.held_groups import held_groups
from kordon.proxy.topics.managed_topics import ManagedTopics


class ManagedPages:
    """The pages about managed topics.

    Args:
        bypassed: The present number of batches of writers that went around Kordon, by topic.
        groups: The positions of groups of the dialect.
        faults: The faults that concern all proxies.
        knows: Returns whether the managed topics are known. Before that no request passes.
    """

    def __init__(
        self,
        topics: ManagedTopics,
        layout_member: LayoutMember,
        bypassed: Mapping[str, int],
        groups: GroupPositions,
        *,
        faults: CommonFaults,
        knows: Callable[[], bool],
    ) -> None:
        self._faults = faults
        self._knows = knows
        self._topics = topics
        self._layout_member = layout_member
        self._bypassed = bypassed
        self._groups = groups

    def all(self) -> Facts:
        """Returns the object of /topics."""
        return explain_all(self._topics, state_of(self._layout_member))

    def topic(self, name: str) -> Facts | None:
        """Returns the object of /topics/NAME; None: no such topic is managed."""
        topic = self._topics.named(name)
        if topic is None:
            return None
        held = held_groups(name, Gate.of(topic.layout), self._groups.positions)
        return explain_topic(topic, state_of(self._layout_member), self._bypassed.get(name, 0), held)

    def state(self, name: str) -> str | None:
        """Returns in words what happens with a topic; None: it is not managed, and nobody wants that."""
        topic = self._topics.named(name)
        if topic is None and not self._layout_member.state.wishes:
            return None
        control = state_of(self._layout_member)
        return state_to_come(name, control) if topic is None else state_in_words(topic, control)

    def sum(self) -> Facts:
        """Returns the section of /status."""
        return sum_up(self._topics, state_of(self._layout_member))

    def unready(self) -> list[str]:
        """Returns why clients should go to other proxies; empty if those serve them no better."""
        if not self._knows():
            detail = f": {self._common}" if self._common else ""
            return [f"the layouts have not been read yet, and until then no request passes{detail}"]
        return [f"managed topics: {why_not}"] if (why_not := self._why_not()) and not self._common else []

    def notes(self) -> list[str]:
        """Returns why no proxy serves managed topics, where that is so."""
        why_not = self._why_not() if self._knows() and self._common else None
        return [f"managed topics: {why_not}; all proxies share the cause: {self._common}"] if why_not else []

    @property
    def is_served(self) -> bool:
        """Whether managed topics are served here, or there are none."""
        return self._knows() and self._why_not() is None

    def _why_not(self) -> str | None:
        return why_not_served(state_of(self._layout_member)) if len(self._topics) else None

    @property
    def _common(self) -> str:
        return self._layout_member.lost or self._faults.found
