"""Brokers that stop verifying transactions: a finding of each topic that has any, until they verify again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast
from uuid import UUID

import pytest

from kordon.codecs.error_codes import Code
from kordon.proxy.controller.context import ControllerContext
from kordon.proxy.controller.verifying import Verifying
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.ends import TopicsRefused
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.records import FindingRecord, TopicRecord


def record(name: str, number: int, *, has_transactions: bool) -> TopicRecord:
    """A managed topic."""
    layout = Layout.created(name, UUID(int=number), 1, 4)
    return TopicRecord(replace(layout, has_transactions=has_transactions), UUID(int=100 + number))


class Cluster:
    """The ledger and the brokers."""

    def __init__(self) -> None:
        self.topics = {
            "orders": record("orders", 1, has_transactions=True),
            "plain": record("plain", 2, has_transactions=False),
        }
        self.brokers: list[int] = []
        self.asked = 0
        self.failure: Exception | None = None
        self.found: list[tuple[str, str | None]] = []
        self.verifying = Verifying(
            ControllerContext(cast("Any", self), cast("Any", self), *cast("Any", (None, None, None)))
        )

    async def unverifying(self) -> list[int]:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        return self.brokers

    async def write_finding(self, finding: FindingRecord) -> None:
        assert finding.kind == "transactions_unverified"
        self.found.append((f"finding/{finding.topic}", finding.text))

    async def write(self, records: Any) -> None:
        self.found += records


async def test_a_broker_that_stops_verifying_is_a_finding_until_it_verifies_again() -> None:
    """Of each topic with transactions, once; its text names the brokers and the cure."""
    cluster = Cluster()
    await cluster.verifying.look()
    cluster.brokers = [2, 3]
    for _ in range(2):
        await cluster.verifying.look()
    ((key, text),) = cluster.found
    assert key == "finding/orders"
    assert text is not None
    assert "brokers 2, 3 do not verify" in text
    assert "transaction.partition.verification.enable=true" in text
    cluster.brokers = []
    for _ in range(2):
        await cluster.verifying.look()
    assert cluster.found[1:] == [("finding/orders", None)]


async def test_a_topic_that_was_made_again_is_told_of_again() -> None:
    """It is another one."""
    cluster = Cluster()
    cluster.brokers = [1]
    await cluster.verifying.look()
    cluster.topics["orders"] = record("orders", 3, has_transactions=True)
    await cluster.verifying.look()
    assert len(cluster.found) == 2


async def test_nobody_is_asked_where_no_topic_has_transactions() -> None:
    """It costs nothing there."""
    cluster = Cluster()
    del cluster.topics["orders"]
    await cluster.verifying.look()
    assert cluster.asked == 0


@pytest.mark.parametrize(
    "failure", [UpstreamUnavailable("no answer"), TopicsRefused("configs of broker 1", Code.NONE, "no right")]
)
async def test_what_cannot_be_asked_is_asked_again(failure: Exception) -> None:
    """Nothing is said meanwhile, and nothing taken back."""
    cluster = Cluster()
    cluster.brokers = [1]
    await cluster.verifying.look()
    cluster.failure, cluster.brokers = failure, []
    await cluster.verifying.look()
    assert len(cluster.found) == 1
    cluster.failure = None
    await cluster.verifying.look()
    assert cluster.found[1:] == [("finding/orders", None)]
