"""Members of KIP-848 groups say once what they subscribe to; topics become something else meanwhile (FACE-NAMES)."""

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from kordon.codecs.apis import CONSUMER_GROUP_HEARTBEAT
from kordon.codecs.messages import request, response
from kordon.proxy.handlers.subscriptions import MOST_BYTES_OF_ONE, Subscriptions
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.takeover import Subscriber, Takeover
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.testing.messages.as_read import as_read

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
        self.subscriptions = Subscriptions(lambda: frozenset({ORDERS, "other"}), most_bytes=4_000_000)

    def manage(self, topic: str, takeover: Takeover | None = None) -> None:
        managed = ManagedTopic(Layout.created(topic, UUID(int=1), 1, 4), UUID(int=2))
        managed.takeover = takeover
        self.topics.add(managed)

    def sends(
        self, *names: str, epoch: int = 3, member: str = "m", version: int = 1, error: int = 0
    ) -> list[str] | None:
        """Sends a heartbeat, which is silent without names; returns the names that the coordinator gets.

        Args:
            names: The topics that it subscribes to.
            epoch: The member's.
            member: Its id.
            version: Of the request.
            error: With which the coordinator answers.
        """
        fields: dict[str, Any] = {"group_id": "g", "member_id": member, "member_epoch": epoch}
        fields["subscribed_topic_names"] = list(names) or None
        table = request(CONSUMER_GROUP_HEARTBEAT)
        value = as_read(table, version, fields)
        reply = self.subscriptions.look(value, self.topics)
        changed = reply is not None and reply.changed
        assert changed == (value.subscribed_topic_names != fields["subscribed_topic_names"])
        if reply is not None:
            told = {"error_code": error, "member_id": None if error else member or "given"}
            reply(as_read(response(CONSUMER_GROUP_HEARTBEAT), version, told))
        sent = as_read(table, version, value).subscribed_topic_names
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
    """It is said again until the controller sees that it has arrived (TAKEOVER-WAITS); then nothing more is."""
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


GROUP_AUTHORIZATION_FAILED = 30


def test_what_the_coordinator_refuses_is_not_remembered() -> None:
    """Nor does anybody have another member forgotten who may not speak for it."""
    group = Group()
    group.sends(ORDERS, epoch=0, member="nobody", error=GROUP_AUTHORIZATION_FAILED)
    assert group.subscriptions.remembered_bytes == 0
    group.sends(ORDERS, epoch=0)
    group.sends(epoch=-1, error=GROUP_AUTHORIZATION_FAILED)
    group.sends("other", error=GROUP_AUTHORIZATION_FAILED)
    group.manage(ORDERS)
    assert group.sends() == [FACE]


def test_a_member_that_gets_its_id_from_the_coordinator_is_remembered_by_it() -> None:
    """Clients older than Kafka 4.0 join without one."""
    group = Group()
    group.sends(ORDERS, epoch=0, member="", version=0)
    group.manage(ORDERS)
    assert group.sends(member="given", version=0) == [FACE]


def test_what_is_remembered_is_bounded_in_bytes() -> None:
    """Those that joined longest ago make room; what was forgotten is counted."""
    group, many = Group(), [f"{number:04}{'x' * 200}" for number in range(1_000)]
    before = tracemalloc_of(lambda: None)
    grown = tracemalloc_of(lambda: [group.sends(*many, epoch=0, member=f"m{number}") for number in range(60)])
    assert 3_000_000 < group.subscriptions.remembered_bytes <= 4_000_000
    assert grown - before < 6_000_000
    assert group.subscriptions.forgotten >= 40
    group.sends(ORDERS, epoch=0, member="last")
    group.manage(ORDERS)
    assert group.sends(member="last") == [FACE]
    for number in range(60):
        group.sends(epoch=-1, member=f"m{number}")
    group.sends(epoch=-1, member="last")
    assert group.subscriptions.remembered_bytes == 0


def test_a_member_that_says_too_much_is_not_remembered() -> None:
    """It would make others forgotten; it says all again when it joins anew."""
    group, many = Group(), [f"{number:05}{'x' * 200}" for number in range(MOST_BYTES_OF_ONE // 200)]
    group.sends(ORDERS, epoch=0)
    group.sends(*many)
    assert (group.subscriptions.remembered_bytes, group.subscriptions.forgotten) == (0, 1)


def tracemalloc_of(work: Callable[[], object]) -> int:
    """Returns the bytes that are kept of what some work allocates."""
    gc.collect()
    tracemalloc.start()
    try:
        work()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
