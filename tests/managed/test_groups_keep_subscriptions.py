"""Members of KIP-848 groups say once what they subscribe to; topics become something else meanwhile (rule G2)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kordon.codecs.messages import request
from kordon.proxy.apis import CONSUMER_GROUP_HEARTBEAT
from kordon.proxy.managed.groups import ConsumerGroupHeartbeat
from kordon.proxy.managed.subscriptions import Subscriptions
from kordon.proxy.managed.topics import ManagedTopic, ManagedTopics
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.takeover import Subscriber, Takeover

ORDERS, FACE = "orders", "__kordon.orders"


class Group:
    """Members behind a proxy, and what their coordinator has been told."""

    def __init__(self, *managed: str) -> None:
        self.topics = ManagedTopics()
        for topic in managed:
            self.manage(topic)
        self.begin_anew()

    def begin_anew(self) -> None:
        """Goes on with a proxy that knows no member."""
        self._heartbeat = ConsumerGroupHeartbeat(Subscriptions(lambda: frozenset({ORDERS, "other"})))

    def manage(self, topic: str, takeover: Takeover | None = None) -> None:
        """Has a topic managed."""
        managed = ManagedTopic(Layout.created(topic, UUID(int=1), 1, 4), UUID(int=2))
        managed.takeover = takeover
        self.topics.add(managed)

    def sends(self, *names: str, epoch: int = 3, member: str = "m", version: int = 1) -> list[str] | None:
        """Sends a heartbeat, which is silent without names; returns the names that the coordinator gets."""
        fields: dict[str, Any] = {"group_id": "g", "member_id": member, "member_epoch": epoch}
        fields["subscribed_topic_names"] = list(names) or None
        table = request(CONSUMER_GROUP_HEARTBEAT)
        value = table.parse(version, table.build(version, fields))
        changed = self._heartbeat.request(version, value, self.topics)
        assert changed == (value.subscribed_topic_names != fields["subscribed_topic_names"])
        sent = table.parse(version, table.build(version, value)).subscribed_topic_names
        return None if sent is None else list(sent)


def test_a_topic_that_is_made_again_as_the_other_kind_is_subscribed_to_anew() -> None:
    """Once each time; the member itself sends no word."""
    group = Group(ORDERS)
    assert group.sends(ORDERS, "other", epoch=0) == [FACE, "other"]
    assert group.sends() is None
    group.topics.remove(ORDERS)
    assert group.sends() == [ORDERS, "other"]
    assert group.sends() is None
    group.manage(ORDERS)
    assert group.sends() == [FACE, "other"]
    assert group.sends() is None


def test_members_from_before_anything_was_managed_come_over() -> None:
    """What they said then went to the coordinator as it was."""
    group = Group()
    assert group.sends(ORDERS, epoch=0) == [ORDERS]
    group.manage("other")
    assert group.sends() is None
    group.manage(ORDERS)
    assert group.sends() == [FACE]


def test_members_are_told_apart() -> None:
    """Each has its own subscription, and the last one counts."""
    group = Group()
    group.sends(ORDERS, member="one", epoch=0)
    group.sends("other", member="two", epoch=0)
    group.sends("other", member="one")
    group.sends(ORDERS, member="two")
    group.manage(ORDERS)
    assert group.sends(member="one") is None
    assert group.sends(member="two") == [FACE]


def test_members_that_have_left_are_forgotten() -> None:
    """For good (-1), or static ones for a while (-2): they join with their subscription."""
    for epoch in (-1, -2):
        group = Group()
        group.sends(ORDERS, epoch=0)
        assert group.sends(epoch=epoch) is None
        group.manage(ORDERS)
        assert group.sends() is None


@pytest.mark.parametrize("version", [0, 1])
def test_what_the_controller_has_seen_helps_members_that_the_proxy_does_not_know(version: int) -> None:
    """It is said again until the controller sees that it has arrived (rule A2); then nothing more is."""
    group = Group()
    names = (ORDERS, "other")
    group.manage(ORDERS, Takeover(0, subscribers=(Subscriber("g", "m", names, None),)))
    assert group.sends(version=version) == [FACE, "other"]
    assert group.sends(version=version) == [FACE, "other"]
    assert group.sends(member="somebody else", version=version) is None
    group.manage(ORDERS, Takeover(0))
    assert group.sends(version=version) is None


def test_a_proxy_that_knows_nothing_of_a_member_leaves_its_subscription_alone() -> None:
    """There is nothing that it could say for it."""
    group = Group()
    group.sends(ORDERS, epoch=0)
    group.begin_anew()
    group.manage(ORDERS)
    assert group.sends() is None
