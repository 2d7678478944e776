"""Brokers that stop verifying transactions: a finding of each topic that has any, until they verify again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

import pytest

from kordon.codecs.error_codes import Code
from kordon.proxy.controller.context import ControllerContext
from kordon.proxy.controller.controller_notes import ControllerNotes
from kordon.proxy.controller.ledger import Ledger
from kordon.proxy.controller.verifying import Verifying
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.decisions.journal import NoJournal
from kordon.proxy.kafka.batches import NewRecord
from kordon.proxy.kafka.ends import TopicsRefused
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.records import FindingRecord, TopicRecord
from kordon.proxy.ordering.standing_findings import StandingFindings

KEY = "finding/orders/transactions_unverified"


def record(name: str, number: int, *, has_transactions: bool) -> TopicRecord:
    """A managed topic."""
    layout = Layout.created(name, UUID(int=number), 1, 4)
    return TopicRecord(replace(layout, has_transactions=has_transactions), UUID(int=100 + number))


class Cluster:
    """The brokers, and the ledger of a controller."""

    def __init__(self, findings: StandingFindings | None = None) -> None:
        self.brokers: list[int] = []
        self.asked = 0
        self.failure: Exception | None = None
        self.written: list[tuple[str, str | None]] = []
        """By key, the texts of findings; None: it was taken back."""
        self.ledger = Ledger(cast("Any", self), ControllerNotes(NoJournal(), frozenset), findings or StandingFindings())
        self.ledger.take((record("orders", 1, has_transactions=True), record("plain", 2, has_transactions=False)))
        self.verifying = Verifying(ControllerContext(self.ledger, cast("Any", self), *cast("Any", (None, None, None))))

    async def unverifying(self) -> list[int]:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        return self.brokers

    async def commit(self, entries: Sequence[NewRecord]) -> list[int]:
        """Is the writer of the layouts."""
        self.written += [(each.key, json.loads(each.value)["text"] if each.value else None) for each in entries]
        return [0] * len(entries)


async def test_a_broker_that_stops_verifying_is_a_finding_until_it_verifies_again() -> None:
    """Of each topic with transactions, once; its text names the brokers and the cure."""
    cluster = Cluster()
    await cluster.verifying.look()
    cluster.brokers = [2, 3]
    for _ in range(2):
        await cluster.verifying.look()
    ((key, text),) = cluster.written
    assert key == KEY
    assert text is not None
    assert "brokers 2, 3 do not verify" in text
    assert "transaction.partition.verification.enable=true" in text
    cluster.brokers = []
    for _ in range(2):
        await cluster.verifying.look()
    assert cluster.written[1:] == [(KEY, None)]


async def test_another_finding_of_the_topic_stays() -> None:
    """Records were lost, too."""
    cluster = Cluster()
    await cluster.ledger.write_finding(FindingRecord("records_lost", "orders", "lost", 5))
    cluster.brokers = [1]
    await cluster.verifying.look()
    cluster.brokers = []
    await cluster.verifying.look()
    assert [key for key, _ in cluster.written] == ["finding/orders/records_lost", KEY, KEY]
    assert [each.kind for each in cluster.ledger.findings] == ["records_lost"]


@pytest.mark.parametrize("key", ["finding/orders", KEY])
async def test_the_next_controller_takes_back_what_the_one_before_has_found(key: str) -> None:
    """Also if that one was of a version with one key for all kinds. While it is so, it is not told again."""
    former = Cluster()
    former.brokers = [1]
    await former.verifying.look()
    (finding,) = former.ledger.findings
    standing = StandingFindings()
    standing.take(key, finding)
    cluster = Cluster(standing)
    cluster.brokers = [1]
    await cluster.verifying.look()
    assert not cluster.written
    cluster.brokers = []
    await cluster.verifying.look()
    assert cluster.written == [(key, None)]


async def test_a_topic_that_has_no_transactions_any_more_has_no_finding_of_them() -> None:
    """It was let go, or made again. Nobody is asked where no topic has any."""
    cluster = Cluster()
    cluster.brokers = [1]
    await cluster.verifying.look()
    cluster.ledger.take((record("orders", 3, has_transactions=False),))
    await cluster.verifying.look()
    assert cluster.written[1:] == [(KEY, None)]
    assert cluster.asked == 1


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
    assert len(cluster.written) == 1
    cluster.failure = None
    await cluster.verifying.look()
    assert cluster.written[1:] == [(KEY, None)]
