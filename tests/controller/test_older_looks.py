"""How a controller looks for older transactions: whom it asks, and what it tells operators."""

from typing import Any, cast
from uuid import UUID

import structlog

from kordon.codecs.producers import ProducerRow, ProducerRows
from kordon.proxy.controller.older_looks import OlderLooks
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.ends import Ends, Snapshot
from kordon.proxy.kafka.transaction_coordinators import OpenTransaction
from kordon.proxy.ordering.changes import AskEnds, AskOpen, Change, OlderOpen, Stage
from kordon.proxy.ordering.controller import Controller
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.records import TopicRecord
from kordon.proxy.ordering.transactions.older_transactions import OpenAt

BILLING = OpenTransaction("billing", 7, "Ongoing", 5, 60_000, {"orders": frozenset({0}), "payments": frozenset({4})})
ELSEWHERE = OpenTransaction("other", 8, "Ongoing", 5, 60_000, {"payments": frozenset({4})})


class Cluster:
    """Leaders and coordinators."""

    def __init__(self) -> None:
        self.ends = self
        self.transactions = self
        self.rows = [ProducerRow(7, 0, 0, 0, 0, 49), ProducerRow(8, 0, 0, 0, 0, 60), ProducerRow(9, 0, 0, 0, 0, -1)]
        self.asked: list[frozenset[int]] = []
        self.is_away = False
        self.looks = OlderLooks(cast("Any", self))

    async def ends_of(self, topic: str, partitions: frozenset[int]) -> dict[int, Ends]:
        if self.is_away:
            raise UpstreamUnavailable("away")
        return {q: Ends(50 + q, 50, 1) for q in partitions}

    async def snapshots(self, topic: str, partitions: Any) -> dict[int, Snapshot]:
        if self.is_away:
            raise UpstreamUnavailable("away")
        return {q: Snapshot(70, ProducerRows.of(self.rows), Ends(70, 70, 1)) for q in partitions}

    async def open(self, producer_ids: set[int]) -> list[OpenTransaction]:
        self.asked.append(frozenset(producer_ids))
        return [BILLING, ELSEWHERE]


def asked(producer_ids: frozenset[int] = frozenset()) -> AskOpen:
    return AskOpen("orders", "a1", {0: 50}, producer_ids)


async def test_log_ends_are_told_and_not_what_is_replicated() -> None:
    """A witness that is not replicated yet began before."""
    assert await Cluster().looks.ends(AskEnds("orders", "a1", frozenset({0, 2}))) == {0: 50, 2: 52}


async def test_coordinators_are_asked_for_producers_that_may_be_older() -> None:
    """Those that are waited for already are among them, whatever leaders say now."""
    cluster = Cluster()
    older = OlderOpen("billing", 7, frozenset({0}), "Ongoing", 60_005)
    assert await cluster.looks.open(asked(frozenset({3}))) == ([OpenAt(0, 7, 49), OpenAt(0, 8, 60)], [older])
    assert cluster.asked == [frozenset({3, 7})]


async def test_coordinators_are_not_asked_if_nobody_is_older() -> None:
    cluster = Cluster()
    cluster.rows = cluster.rows[1:]
    assert await cluster.looks.open(asked()) == ([OpenAt(0, 8, 60)], [])
    assert cluster.asked == []


async def test_a_look_that_fails_is_told_once() -> None:
    """It is repeated every second."""
    cluster = Cluster()
    cluster.is_away = True
    with structlog.testing.capture_logs() as lines:
        for _ in range(3):
            assert await cluster.looks.open(asked()) is None
        assert await cluster.looks.ends(AskEnds("orders", "a1", frozenset({0}))) is None
    assert [each["event"] for each in lines] == ["older_transactions_unread"]
    cluster.is_away = False
    await cluster.looks.open(asked())
    cluster.is_away = True
    with structlog.testing.capture_logs() as lines:
        await cluster.looks.open(asked())
    assert len(lines) == 1


def test_what_is_waited_for_and_what_hangs_is_told_once() -> None:
    cluster = Cluster()
    controller = Controller(frozenset({"a"}), 0.0)
    controller.known.know(TopicRecord(Layout.created("orders", UUID(int=1), 3, 12), UUID(int=2)), {})
    change = controller.changes["orders"] = Change("orders", 4, Stage.OLDER)
    change.waited = tuple(OlderOpen(f"t{n}", n, frozenset({0}), "Ongoing", 60_000) for n in range(7))
    change.left = frozenset((0, n) for n in range(7))
    change.doubted = {(0, 99): 1.0}
    with structlog.testing.capture_logs() as lines:
        for _ in range(2):
            cluster.looks.tell(controller, "orders")
        change.waited = change.waited[1:]
        cluster.looks.tell(controller, "orders")
    waits, hangs = lines
    assert (waits["transactional_ids"], waits["count"]) == (["t0", "t1", "t2", "t3", "t4"], 7)
    assert "Admin.fenceProducers" in waits["cure"]
    assert (hangs["event"], hangs["partition"], hangs["producer_id"]) == ("transaction_hangs", 0, 99)
