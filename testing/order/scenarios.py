"""Plans that tests, demo and README share, so that the same work meets bare Kafka and Kordon."""

from __future__ import annotations

from collections.abc import Sequence

from kordon.testing.order.run import Plan


def growth_under_backlog(
    bootstraps: Sequence[str], topic: str, *, resize_to: Sequence[int] = (6,), seconds: float = 12
) -> Plan:
    """Returns a plan in which readers are behind when the topic is resized.

    Six members at 250 records a second read what three producers write at 600 each, so that every group has seconds of
    work left in the old partitions when records come to the new ones. Kafka has no notion of which to read first.
    """
    return Plan(bootstraps, topic, seconds=seconds, resize_to=resize_to, consume_rate=250, churn_seconds=0)


def coming_and_going(
    bootstraps: Sequence[str], topic: str, *, resize_to: Sequence[int] = (), seconds: float = 12
) -> Plan:
    """Returns a plan in which members leave every few seconds, half of them without a commit, and others join."""
    return Plan(bootstraps, topic, seconds=seconds, resize_to=resize_to, churn_seconds=4)
