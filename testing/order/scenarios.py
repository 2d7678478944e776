"""Plans that tests, demo and README share, so that the same work meets bare Kafka and Kordon."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kordon.testing.order.run import Action, Plan


def growth_under_backlog(
    bootstraps: Sequence[str], topic: str, *, resize_to: Sequence[int] = (6,), seconds: float = 12
) -> Plan:
    """Returns a plan in which readers are behind when the topic is resized.

    Six members at 250 records a second read what three producers write at 600 each, so that every group has seconds of
    work left in the old partitions when records come to the new ones. Kafka has no notion of which to read first.
    """
    return Plan(
        bootstraps, topic, seconds=seconds, resize_to=resize_to, consume_rate=250, churn_seconds=0, least_backlog=1_200
    )


def coming_and_going(bootstraps: Sequence[str], topic: str) -> Plan:
    """Returns a plan in which members leave every few seconds, half of them without a commit, and others join."""
    plan = Plan(bootstraps, topic, seconds=12, churn_seconds=4)
    return replace(plan, least_records=int(plan.seconds * plan.rate * len(plan.producers) / 2) + 1)


def dialect_in_trouble(
    bootstraps: Sequence[str],
    topic: str,
    *,
    resize_to: Sequence[int] = (6, 3),
    seconds: float = 12,
    actions: Sequence[Action] = (),
    beside: bool = False,
) -> Plan:
    """Returns a plan of the SDK's clients: members come and go, are killed, go back, are slow, and do not answer.

    Args:
        bootstraps: Of Kordons; each client begins at one of them by chance.
        actions: What happens besides, such as kills of proxies.
        beside: Clients without the SDK work on the same topic, in other groups.
    """
    return Plan(
        bootstraps, topic, seconds=seconds, resize_to=resize_to, actions=actions, members=3, rate=400, churn_seconds=4,
        producers=["dialect", "librdkafka"] if beside else ["dialect"],
        groups=["dialect-group", "librdkafka-group"] if beside else ["dialect-group"],
        killed_percent=40, rewind_seconds=2, silent_percent=15, slow_percent=25,
    )  # fmt: skip
