"""What is on its way to another layout, how long it takes already, and what it waits for: for metrics.

Only the controller knows, so that each topic is told of once in a cluster. A topic has one row at a time, and only
while something is under way with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kordon.proxy.member.control_state import ControlState
from kordon.proxy.ordering.takeover import TakeoverStep, next_step
from kordon.proxy.topics.managed_topics import ManagedTopic

NOT_BEGUN: Final = "beginning"
"""The stage of what somebody wants of a topic while no change of it has begun."""


def seconds_by_stage(
    topics: Iterable[ManagedTopic], control: ControlState, now_ms: int
) -> dict[tuple[str, ...], float]:
    """Returns by topic and stage how many seconds each change, takeover or wish has been under way.

    A change counts from its first attempt, a takeover from its present step. Both are empty on other workers than the
    controller.

    Args:
        now_ms: The wall clock, in milliseconds since 1970.
    """
    if control.changes is None:
        return {}
    waits: dict[str, tuple[str, float]] = {}
    for topic in topics:
        if topic.takeover is not None:
            waits[topic.name] = _of_takeover(topic, now_ms)
    for name, since in control.wished_since.items():
        waits[name] = NOT_BEGUN, control.now - since
    for name, change in control.changes.items():
        begun = min(change.begun, control.wished_since.get(name, change.begun))
        waits[name] = change.stage.value, control.now - begun
    return {(name, stage): max(seconds, 0.0) for name, (stage, seconds) in waits.items()}


def waited_for(topics: Iterable[ManagedTopic]) -> Mapping[str, int]:
    """Returns by topic that is being taken over how many groups its takeover waits for."""
    return {
        topic.name: len({*topic.takeover.waits_for, *(each.group for each in topic.takeover.subscribers)})
        for topic in topics
        if topic.takeover is not None
    }


def _of_takeover(topic: ManagedTopic, now_ms: int) -> tuple[str, float]:
    takeover = topic.takeover
    assert takeover is not None, "the topic is being taken over"
    step = next_step(topic.layout, takeover, now_ms)
    since_ms = topic.known_since_ms if takeover.until_ms is None else takeover.until_ms
    if step is TakeoverStep.WAIT:
        since_ms -= takeover.transition_ms
    return step.value, (now_ms - since_ms) / 1000
