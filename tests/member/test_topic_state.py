"""What goes on with a managed topic, in the words that operators read: what it waits for, and how long at most."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from kordon.proxy.kafka.group import GroupMember
from kordon.proxy.member.control_state import ControlState
from kordon.proxy.member.membership import Generation
from kordon.proxy.member.topic_state import SETTLED, older_in_words, state_in_words, state_to_come
from kordon.proxy.ordering.changes import Change, OlderOpen, Stage
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.records import BehindRecord, FenceRecord
from kordon.proxy.ordering.takeover import Subscriber, Takeover
from kordon.proxy.ordering.transactions.adds import Announcement
from kordon.proxy.ordering.wishes import Manage, Resize, SetJanitor, Unmanage
from kordon.proxy.topics.managed_topics import ManagedTopic

LAYOUT = Layout.created("orders", UUID(int=7), 3, 24)
FOLLOWING = LAYOUT.next_epoch(6)
FENCE = FenceRecord("f1", "orders", FOLLOWING, LAYOUT.change_to(FOLLOWING).sealed)
RESIZE = {"w1": Resize("orders", 6)}
LEADER = Generation(
    7, "m1", "m1", (GroupMember("m1", "aaaaaaaa-1", "host-1"), GroupMember("m2", "bbbbbbbb-2", "host-2"))
)
CALM = ControlState(
    incarnation="aaaaaaaa-1",
    generation=LEADER,
    lease_seconds_left=17.0,
    serves=True,
    position=41,
    fences={},
    wishes={},
    changes=None,
    now=100.0,
)
UNTIL_MS = 1_795_356_180_000
"""2026-11-22 14:03:00 UTC."""


def words(takeover: Takeover | None = None, **control: Any) -> str:
    topic = ManagedTopic(LAYOUT, UUID(int=8), takeover=takeover)
    return state_in_words(topic, replace(CALM, **control))


def test_a_topic_for_which_nothing_is_left_to_do_is_settled() -> None:
    """Its partitions now, and the most that it can have."""
    assert words() == f"serving 3 of 24, {SETTLED}"
    assert not words(serves=False, lease_seconds_left=0.0).endswith(SETTLED)


@pytest.mark.parametrize(
    ("control", "told"),
    [
        ({"wishes": RESIZE}, "growing 3 -> 6: waits for the controller"),
        ({"wishes": {"w1": Resize("orders", 2)}}, "shrinking 3 -> 2: waits for the controller"),
        (
            {"wishes": RESIZE, "awaited": {"host-2": 11.2, "host-3": 4.0}},
            "growing 3 -> 6: waits for the lease of host-2, at most 12 s more",
        ),
        (
            {"wishes": RESIZE, "awaited": {"": 20.0}},
            "growing 3 -> 6: waits for leases of proxies from before this one, at most 20 s more",
        ),
        ({"fences": {"orders": FENCE}}, "growing 3 -> 6: holds the writes of partitions that change"),
        (
            {"changes": {"orders": Change("orders", 6, Stage.TELLING, told_to={"aaaaaaaa-1"})}},
            "growing 3 -> 6: waits until host-2 knows of it",
        ),
        (
            {"changes": {"orders": Change("orders", 6, Stage.OLDER)}},
            "growing 3 -> 6: waiting for older transactions",
        ),
        (
            {"changes": {"orders": Change("orders", 6, Stage.OLDER, left=frozenset({(0, 7), (1, 7)}))}},
            "growing 3 -> 6: waits for 1 transaction",
        ),
        (
            {"changes": {"orders": Change("orders", 6, Stage.FENCING, acknowledged={"aaaaaaaa-1"})}},
            "growing 3 -> 6: waits until host-2 has stopped writing",
        ),
        (
            {"changes": {"orders": Change("orders", 6, Stage.PAUSING, missed=frozenset({"bbbbbbbb-2"}))}},
            "growing 3 -> 6: tries again, as host-2 has not stopped writing in time",
        ),
        ({"changes": {"orders": Change("orders", 6, Stage.PREPARING)}}, "growing 3 -> 6: preparing"),
        ({"wishes": {"w1": Unmanage("orders")}}, "unmanage is under way: waits for the controller"),
        ({"wishes": {"w1": SetJanitor("orders", on=True)}}, "set janitor is under way: waits for the controller"),
        ({"wishes": {"w1": Resize("other", 6)}}, "serving 3 of 24, settled"),
    ],
)
def test_a_change_says_for_whom_it_waits(control: dict[str, Any], told: str) -> None:
    """On every proxy, by what stands in the layouts; the controller knows most."""
    assert words(**control) == told


@pytest.mark.parametrize(
    ("takeover", "told"),
    [
        (Takeover(None), "waits until every proxy shows 24 partitions"),
        (
            Takeover(UNTIL_MS),
            "ready at 2026-11-22 14:03:00Z at the earliest, when clients have refreshed their metadata",
        ),
        (Takeover(UNTIL_MS, {0: 9}), "looks at what groups have committed"),
        (
            Takeover(UNTIL_MS, {0: 9}, waits_for=("orders-mailer",)),
            "waits for 1 of 5 groups: orders-mailer has 1,204 records to go",
        ),
        (
            Takeover(UNTIL_MS, {0: 9}, waits_for=("a", "b", "c", "orders-mailer")),
            "waits for 4 of 5 groups: orders-mailer has 1,204 records to go, a, b, 1 more",
        ),
        (
            Takeover(UNTIL_MS, {0: 9}, subscribers=(Subscriber("g", "m", ("orders",), None),)),
            "waits until 1 member of g has subscribed again",
        ),
    ],
)
def test_a_takeover_says_when_it_can_be_ready_and_how_far_groups_are(takeover: Takeover, told: str) -> None:
    """A time while clients may have the old view, then the groups with what they have left to read."""
    behind = {"orders": BehindRecord(5, {"orders-mailer": 1204})}
    assert words(takeover, behind=behind) == f"being taken over: {told}"


@pytest.mark.parametrize(
    ("behind", "told"),
    [
        (BehindRecord(1, {"a": 1}), "waits for 1 group: a has 1 record to go"),
        (BehindRecord(2, {"a": 1}), "waits for 1 of 2 groups: a has 1 record to go"),
        (BehindRecord(0, {}), "waits for 1 group: a"),
    ],
)
def test_one_is_no_plural(behind: BehindRecord, told: str) -> None:
    """Where all groups are waited for it is not said twice how many there are."""
    takeover = Takeover(UNTIL_MS, {0: 9}, waits_for=("a",))
    assert words(takeover, behind={"orders": behind}) == f"being taken over: {told}"


def test_a_topic_that_is_to_be_managed_has_a_state_before_it_is() -> None:
    control = replace(CALM, wishes={"w1": Manage("orders", 24)}, awaited={"host-2": 3.5})
    waits = "waits for the lease of host-2, at most 4 s more"
    assert state_to_come("orders", control) == f"coming under management with 24 virtual partitions: {waits}"
    assert state_to_come("other", control) is None


def test_a_change_names_the_transactions_that_it_waits_for() -> None:
    """OLDER-FIRST: three of many, and when the last one ends; an id can be as long as a client likes."""
    names = ("billing", "b" * 5_000, "c", "d", "e")
    waited = tuple(OlderOpen(name, n, frozenset({0}), "Ongoing", 1_000 * n) for n, name in enumerate(names))
    change = Change("orders", 6, Stage.OLDER, waited=waited, left=frozenset((0, n) for n in range(5)))
    told = older_in_words(change, 1_500)
    assert told.startswith("waits for the transactions of bbbb")
    assert told.endswith(", billing, c, 2 more, at most 3 s more")
    assert len(told) < 500
    assert older_in_words(change, 99_000).endswith("at most 0 s more")


def test_another_worker_says_who_names_them() -> None:
    topic = ManagedTopic(LAYOUT, UUID(int=8))
    topic.announce(Announcement(3, {1: 4}))
    control = replace(CALM, wishes=RESIZE)
    says = "growing 3 -> 6: waits for transactions from before, which the controller at host-1 names"
    assert state_in_words(topic, control) == says
    assert "holds the writes" in state_in_words(topic, replace(control, fences={"orders": FENCE}))
