"""What somebody is told who only asks whether a wish could come true (validate_only): what a controller would say."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from kordon.codecs.error_codes import Code
from kordon.proxy.controller.compaction import Compaction
from kordon.proxy.controller.obstacles import Obstacles
from kordon.proxy.controller.takeovers import Takeovers
from kordon.proxy.controller.wish_checks import WishChecks
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.ends import Ends, Snapshot, TopicsRefused
from kordon.proxy.kafka.transaction_coordinators import OpenTransaction
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.takeover import Takeover
from kordon.proxy.ordering.wishes import LeaveOut, Manage, Resize, Unmanage, Wish
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics

FACE = UUID(int=2)


class Cluster:
    """Stands for the brokers: of `plain` there are 2 partitions, of `orders`, which is managed, 4."""

    def __init__(self) -> None:
        self.partitions = {"plain": 2, "orders": 4}
        self.configs: dict[str, str | None] = {}
        self.ends = self
        self.transactions = self
        self.open_transactions: list[OpenTransaction] | Exception = []
        self.groups = None
        self.records = 0
        self.in_transaction = False
        self.down: set[int] = set()
        self.lacks = ""
        self.no_more = ""
        self.changes: list[object] = []
        layout = Layout.created("orders", UUID(int=1), 2, 8)
        change = layout.next_epoch(4)
        self.managed = ManagedTopic(layout.changed(change, dict.fromkeys(layout.change_to(change).touched, 0)), FACE)
        self.topics = ManagedTopics()
        self.topics.add(self.managed)
        self.wishes: list[Wish] = []

    async def open(self) -> list[OpenTransaction]:
        if isinstance(self.open_transactions, Exception):
            raise self.open_transactions
        return self.open_transactions

    async def leaders(self, topic: str) -> dict[int, int]:
        return dict.fromkeys(range(self.partitions.get(topic, 0)), 1)

    async def topic_configs(self, topic: str) -> dict[str, str | None]:
        return self.configs

    async def log_starts(self, topic: str, partitions: set[int]) -> dict[int, int]:
        return dict.fromkeys(partitions, 5)

    async def ends_of(self, topic: str, partitions: set[int]) -> dict[int, Ends]:
        if left := sorted(set(partitions) & self.down):
            raise UpstreamUnavailable(f"{topic}-{left[0]} has no leader")
        return {q: Ends(5 + self.records, 5 + self.records, 0) for q in partitions}

    async def snapshots(self, topic: str, partitions: set[int]) -> dict[int, Snapshot]:
        producers = [SimpleNamespace(in_transaction=self.in_transaction)]
        return {q: Snapshot(5, cast("Any", producers), Ends(5, 5, 0)) for q in partitions}

    async def create_partitions(self, topic: str, count: int, *, only_checked: bool = False) -> None:
        if not only_checked:
            self.changes.append((topic, count))
        if self.no_more and count > self.partitions[topic]:
            raise TopicsRefused(topic, Code.INVALID_REPLICATION_FACTOR, self.no_more)

    async def set_topic_configs(self, *change: object) -> None:
        self.changes.append(change)

    async def refuse_lacking(self, topic: str) -> None:
        if self.lacks:
            raise TopicsRefused(topic, Code.TOPIC_AUTHORIZATION_FAILED, self.lacks)

    async def says(self, wish: Wish) -> tuple[int, str]:
        """The error code and the reason that come of a check; nothing has changed."""
        admin = cast("Any", self)
        takeovers = Takeovers(admin, cast("Any", None))
        checks = WishChecks(
            self.topics,
            admin,
            refuse_lacking=self.refuse_lacking,
            obstacles=Obstacles(admin, Compaction(admin, 1_000), takeovers),
            wishes=lambda: self.wishes,
        )
        outcome = await checks.check(wish)
        assert self.changes == []
        return outcome.error_code, outcome.message


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


MANAGE = Manage("plain", 8)


@pytest.mark.parametrize(
    "wish", [MANAGE, Resize("orders", 8), Resize("orders", 2), Unmanage("orders"), LeaveOut("orders", ("old",))]
)
async def test_what_can_come_true_is_no_refusal(cluster: Cluster, wish: Wish) -> None:
    """And nothing is asked of the cluster that changes anything."""
    assert await cluster.says(wish) == (Code.NONE, "")


async def test_a_topic_that_cannot_be_managed_is_refused(cluster: Cluster) -> None:
    """For what it lacks, for its configs, for its number of partitions, for an open transaction."""
    assert (await cluster.says(Manage("nothing", 8)))[0] == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert (await cluster.says(Manage("plain", 7)))[0] == Code.INVALID_PARTITIONS
    cluster.configs = {"cleanup.policy": "compact,delete"}
    assert (await cluster.says(MANAGE))[0] == Code.INVALID_CONFIG
    assert (await cluster.says(Manage("plain", 8, janitor=True)))[0] == Code.NONE
    cluster.configs, cluster.in_transaction = {}, True
    with pytest.raises(TopicsRefused, match="open transaction"):
        await cluster.says(MANAGE)


async def test_rights_that_kordon_lacks_are_named(cluster: Cluster) -> None:
    """By what the controller would say, also where Kordon may not even see the topic."""
    cluster.lacks = "Kordon lacks Alter"
    for wish in (MANAGE, Manage("hidden", 8)):
        with pytest.raises(TopicsRefused, match="Kordon lacks Alter"):
            await cluster.says(wish)


async def test_a_change_of_a_topic_with_which_something_goes_on_is_refused(cluster: Cluster) -> None:
    """A takeover, or a change to another number; one to the same number is waited for."""
    cluster.wishes = [Resize("orders", 8), Resize("payments", 3), Unmanage("orders")]
    assert await cluster.says(Resize("orders", 8)) == (Code.NONE, "")
    assert await cluster.says(Resize("orders", 3)) == (
        Code.REASSIGNMENT_IN_PROGRESS,
        "orders is on its way to 8 partitions; ask again when it has come there",
    )
    cluster.managed.takeover = Takeover(None)
    for wish in (Resize("orders", 8), Unmanage("orders")):
        code, why = await cluster.says(wish)
        assert (code, "still being taken over" in why) == (Code.REASSIGNMENT_IN_PROGRESS, True)


async def test_a_change_needs_the_leaders_of_what_it_touches(cluster: Cluster) -> None:
    """A broker that is down refuses a change of its partitions, and not one of others."""
    cluster.down = {3}
    with pytest.raises(UpstreamUnavailable, match="orders-3 has no leader"):
        await cluster.says(Resize("orders", 3))
    cluster.down = {1}
    assert await cluster.says(Resize("orders", 5)) == (Code.NONE, "")
    with pytest.raises(UpstreamUnavailable, match="orders-1 has no leader"):
        await cluster.says(Resize("orders", 6))


async def test_partitions_that_brokers_would_not_make_are_refused(cluster: Cluster) -> None:
    """As where too few of them are up for its replicas; those that are there already need none."""
    cluster.no_more = "1 broker is up, and 3 replicas are wanted"
    with pytest.raises(TopicsRefused, match="1 broker is up"):
        await cluster.says(Resize("orders", 8))
    assert await cluster.says(Resize("orders", 2)) == (Code.NONE, "")


async def test_only_an_empty_topic_is_let_go(cluster: Cluster) -> None:
    """Or one whose virtual partitions are the partitions of their numbers, whatever it holds."""
    cluster.records = 1
    code, why = await cluster.says(Unmanage("orders"))
    assert (code, why.endswith("Records are on the brokers' partitions 0, 1, 2, 3")) == (Code.INVALID_REQUEST, True)
    cluster.topics.add(ManagedTopic(Layout.created("alone", UUID(int=3), 2, 2), FACE))
    assert await cluster.says(Unmanage("alone")) == (Code.NONE, "")
    assert (await cluster.says(Unmanage("plain")))[0] == Code.UNKNOWN_TOPIC_OR_PARTITION


def transaction(topic: str, number: int = 0) -> OpenTransaction:
    return OpenTransaction(f"billing-{number}", 7, "Ongoing", 0, 60_000, {topic: frozenset({0})})


async def test_a_topic_that_a_transaction_names_is_not_managed(cluster: Cluster) -> None:
    """H6: nothing of it is in the log yet. The ids are named, some of many."""
    cluster.open_transactions = [transaction("plain", number) for number in range(7)]
    code, reason = await cluster.says(MANAGE)
    assert code == Code.INVALID_TXN_STATE
    assert "billing-0, billing-1, billing-2, billing-3, billing-4 and 2 more" in reason
    assert "Admin.fenceProducers" in reason
    cluster.open_transactions = [transaction("another")]
    assert (await cluster.says(MANAGE))[0] == Code.NONE


async def test_a_kordon_that_may_not_see_transactions_manages_topics(cluster: Cluster) -> None:
    """Such a transaction is refused when it writes; brokers before Kafka 3.0 tell of none."""
    cluster.open_transactions = TopicsRefused("transactions", Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no right")
    assert (await cluster.says(MANAGE))[0] == Code.NONE


async def test_a_topic_with_transactions_is_let_go_only_while_it_is_empty(cluster: Cluster) -> None:
    """T13: ordinary consumers would read what was aborted. Each virtual partition may be the one of its number."""
    plain = replace(Layout.created("orders", UUID(int=1), 2, 2), has_transactions=True)
    assert plain.residence.is_plain
    cluster.managed.layout = plain
    assert (await cluster.says(Unmanage("orders")))[0] == Code.NONE
    cluster.records = 1
    code, reason = await cluster.says(Unmanage("orders"))
    assert code == Code.INVALID_REQUEST
    assert "orders has transactions" in reason
    cluster.managed.layout = replace(plain, has_transactions=False)
    assert (await cluster.says(Unmanage("orders")))[0] == Code.NONE
