"""When a controller lets a topic have transactions: in which order, and for what it refuses."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

import pytest

from kordon.codecs.error_codes import Code
from kordon.proxy.controller.context import ControllerContext
from kordon.proxy.controller.ledger import WishRefused, settled_in
from kordon.proxy.controller.transacting import Transacting
from kordon.proxy.kafka.ends import TopicsRefused
from kordon.proxy.ordering.announcing import Announcing
from kordon.proxy.ordering.known_topics import KnownTopics
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.layouts_state import LayoutsState
from kordon.proxy.ordering.leftovers import Leftovers
from kordon.proxy.ordering.records import AnnouncementRecord, TopicRecord
from kordon.proxy.ordering.takeover import Takeover
from kordon.proxy.runtime.clock import clock

LAYOUT = Layout.created("orders", UUID(int=1), 1, 4)


class Cluster:
    """The ledger, the cluster and the group: each step is noted."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.numbers: list[int] = []
        """Of announcements."""
        self.topics = {"orders": TopicRecord(LAYOUT, UUID(int=2))}
        self.unverifying_brokers: list[int] = []
        self.compacted = False
        self.lacks_right = False
        self.alone_from = 0.0
        self.announcing = Announcing(KnownTopics(), {})
        self.controller: Any = self
        self.transactions = self
        self.state = LayoutsState("me", Leftovers({}))
        self.refusals = 0
        self.on_layout: Callable[[], None] = lambda: None
        context = ControllerContext(cast("Any", self), cast("Any", self), *cast("Any", (None, None, None)))
        self.transacting = Transacting(context, self.state, self.confirm, cast("Any", self))

    def settled(self, topic: str) -> TopicRecord:
        return settled_in(self.topics, topic)

    async def write(self, records: Any) -> None:
        for key, value in records:
            self.steps.append(f"{'takes away' if value is None else 'writes'} {key}")
            if isinstance(value, AnnouncementRecord):
                assert (value.topic, value.coming) == ("orders", {})
                self.numbers.append(value.number)

    async def renew(self, record: TopicRecord) -> None:
        self.topics["orders"] = record
        self.steps.append("layout" if record.layout.has_transactions else "former layout")
        self.on_layout()

    async def confirm(self) -> bool:
        self.refusals -= 1
        self.steps.append("confirm" if self.refusals < 0 else "refuse")
        return self.refusals < 0

    async def unverifying(self) -> list[int]:
        return self.unverifying_brokers

    async def refuse_lacking(self) -> None:
        if self.lacks_right:
            raise TopicsRefused("transactions", Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no right")

    async def is_compacted(self, topic: str) -> bool:
        return self.compacted

    async def refusal(self, *, match: str) -> None:
        with pytest.raises(WishRefused, match=match):
            await self.transacting.allow("orders")
        assert not self.topics["orders"].layout.has_transactions


async def test_a_topic_has_transactions_when_nobody_serves_it_who_does_not_know_them() -> None:
    """Another wish for the same finds it done."""
    cluster = Cluster()
    cluster.refusals = 1
    await cluster.transacting.allow("orders")
    assert cluster.steps == ["layout", "refuse", "confirm", "writes announcement/orders"]
    assert cluster.topics["orders"].layout == replace(LAYOUT, has_transactions=True)
    await cluster.transacting.allow("orders")
    assert len(cluster.steps) == 4


async def test_a_proxy_of_a_former_version_keeps_transactions_away() -> None:
    """H14: it would take their data for plain ones, and show them before they are committed."""
    cluster = Cluster()
    cluster.state.without_transactions = ("old-1",)
    await cluster.refusal(match="old-1 do not know transactions; upgrade")
    assert cluster.steps == []


async def test_the_first_announcement_is_known_to_whoever_makes_the_next() -> None:
    """DOUBLE-ADD: an AddPartitionsToTxn that was planned by the first one is not answered under the next."""
    cluster = Cluster()
    await cluster.transacting.allow("orders")
    first = cluster.announcing.standing["orders"]
    assert (first.number, first.coming, cluster.announcing.stands("orders")) == (1, {}, False)
    cluster.topics["orders"] = TopicRecord(LAYOUT, UUID(int=2))
    await cluster.transacting.allow("orders")
    assert cluster.numbers == [1, 2]


async def test_a_topic_whose_layout_alone_says_so_is_confirmed_before_it_takes_any() -> None:
    """A controller died between the two records, or the layouts were restored: announcements are in no backup."""
    cluster = Cluster()
    having = cluster.topics["orders"] = TopicRecord(replace(LAYOUT, has_transactions=True), UUID(int=2))
    cluster.state.without_transactions = ("old-1",)
    with pytest.raises(WishRefused, match="old-1"):
        await cluster.transacting.allow("orders")
    assert cluster.steps == []
    cluster.state.without_transactions = ()
    await cluster.transacting.allow("orders")
    assert cluster.steps == ["layout", "confirm", "writes announcement/orders"]
    assert cluster.topics["orders"] == having


async def test_a_former_version_that_joined_meanwhile_is_noticed() -> None:
    """What was written is taken back, so that it serves the topic again."""
    cluster = Cluster()

    def joins() -> None:
        cluster.state.without_transactions = ("old-1",)

    cluster.on_layout = joins
    await cluster.refusal(match="old-1")
    assert cluster.steps == ["layout", "confirm", "former layout"]


async def test_a_member_that_is_missing_is_waited_for() -> None:
    """Nobody knows whether it knows transactions."""
    cluster = Cluster()
    cluster.alone_from = clock() + 3600.0
    waiting = asyncio.ensure_future(cluster.transacting.allow("orders"))
    for _ in range(10):
        await asyncio.sleep(0)
    assert cluster.steps == []
    cluster.alone_from = 0.0
    await waiting
    assert cluster.topics["orders"].layout.has_transactions


async def test_what_cannot_have_transactions_is_refused_with_the_reason() -> None:
    cluster = Cluster()
    cluster.unverifying_brokers = [2, 3]
    await cluster.refusal(match=r"brokers \[2, 3\] do not verify transactions: .*3\.6.*verification\.enable=true")
    cluster.compacted = True
    await cluster.refusal(match="is compacted")
    cluster.compacted, cluster.unverifying_brokers = False, []
    cluster.topics["orders"] = TopicRecord(replace(LAYOUT, janitor=True), UUID(int=2))
    await cluster.refusal(match="is compacted")
    cluster.topics["orders"] = TopicRecord(LAYOUT, UUID(int=2), Takeover(None))
    await cluster.refusal(match="still being taken over")
    cluster.topics["orders"] = TopicRecord(LAYOUT, UUID(int=2))
    cluster.lacks_right = True
    await cluster.refusal(match=r"no right; give Kordon's principal .* all transactional ids: docs/rights\.md")
    assert cluster.steps == []
