"""When clients are sent to other proxies because of managed topics, and when nobody would serve them better."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.member.findings import Findings
from kordon.proxy.member.membership import Generation
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.layouts_state import LayoutsState
from kordon.proxy.ordering.leftovers import Leftovers
from kordon.proxy.process.common_faults import CommonFaults
from kordon.proxy.process.managed_pages import ManagedPages
from kordon.proxy.runtime.clock import clock
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.testing.fake_broker import Answer, Asked, FakeBroker

GROUP = "kordon"


class Cluster(FakeBroker):
    """Answers what common faults ask for."""

    def __init__(self) -> None:
        super().__init__(handlers={apis.METADATA: self._layouts, apis.FIND_COORDINATOR: self._group})
        self.layouts: int = Code.NONE
        self.leader = 1
        self.coordinator: int = Code.NONE

    def _layouts(self, asked: Asked) -> Answer:
        (topic,) = asked.body.topics
        row = {"partition_index": 0, "leader_id": self.leader, "replica_nodes": [], "isr_nodes": []}
        partitions = [row] * (self.layouts == Code.NONE)
        topics = [{"name": topic.name, "error_code": self.layouts, "partitions": partitions}]
        return {"brokers": [], "controller_id": 1, "topics": topics}

    def _group(self, asked: Asked) -> Answer:
        assert asked.body.key == GROUP
        return {"error_code": self.coordinator, "node_id": 1, "host": "", "port": 1}


class Kordon:
    """The pages of a worker, and what they show."""

    def __init__(self) -> None:
        self.topics = ManagedTopics()
        self.cluster = Cluster()
        self.state = LayoutsState("me", Leftovers({}))
        self.member = self.state.member
        leadership: Any = SimpleNamespace(role=None)
        self.knows = True
        self.faults = CommonFaults(Brokers(self.cluster), GROUP)
        self.layout_member = SimpleNamespace(
            state=self.state,
            lease=SimpleNamespace(generation=Generation(1, "a", "a", ())),
            may_serve=lambda: self.member.may_serve(clock()),
            position=7,
            findings=Findings(self.topics, self.state, leadership),
            leadership=leadership,
            lost="",
        )
        self.pages = ManagedPages(
            self.topics,
            cast("Any", self.layout_member),
            {},
            cast("Any", None),
            faults=self.faults,
            knows=lambda: self.knows,
        )

    def manage(self) -> None:
        self.topics.add(ManagedTopic(Layout.created("orders", UUID(int=1), 3, 12), UUID(int=2)))

    async def look(self) -> None:
        self.faults.found = await self.faults.look()


def test_no_client_is_sent_where_the_layouts_are_not_known() -> None:
    """Whatever is managed: no request passes until that is known. It was told to be ready, and closed them all."""
    kordon = Kordon()
    kordon.knows = False
    (reason,) = kordon.pages.unready()
    assert "layouts have not been read" in reason
    assert not kordon.pages.is_served
    kordon.knows = True
    assert kordon.pages.unready() == []


def test_a_lease_of_its_own_that_is_lost_sends_clients_elsewhere() -> None:
    """Until it is renewed, and the layouts are read again."""
    kordon = Kordon()
    kordon.manage()
    (reason,) = kordon.pages.unready()
    assert "lease has ended" in reason
    kordon.member.on_renewed(clock(), 20.0, clock())
    assert kordon.pages.unready() == ["managed topics: the layouts are not read to their end yet"]
    kordon.member.on_caught_up(kordon.member.on_joined())
    assert kordon.pages.unready() == kordon.pages.notes() == []


@pytest.mark.parametrize(
    ("layouts", "leader", "coordinator", "says"),
    [
        (Code.UNKNOWN_TOPIC_OR_PARTITION, -1, Code.NONE, "there is no __kordon.layouts"),
        (Code.NONE, -1, Code.NONE, "has no leader"),
        (Code.NONE, 1, Code.COORDINATOR_NOT_AVAILABLE, "has no coordinator (COORDINATOR_NOT_AVAILABLE)"),
    ],
)
async def test_what_all_proxies_meet_is_noted(layouts: int, leader: int, coordinator: int, says: str) -> None:
    """Ordinary topics would be cut off for nothing: no other proxy serves the managed ones."""
    kordon = Kordon()
    kordon.manage()
    kordon.cluster.layouts, kordon.cluster.leader, kordon.cluster.coordinator = layouts, leader, coordinator
    await kordon.look()
    assert kordon.pages.unready() == []
    (note,) = kordon.pages.notes()
    assert says in note
    kordon.knows = False  # a proxy that has just started serves nothing at all, and others do
    (reason,) = kordon.pages.unready()
    assert says in reason
    assert kordon.pages.notes() == []


async def test_brokers_that_do_not_answer_are_this_proxys_affair() -> None:
    """Its way to them may be what is broken."""
    kordon = Kordon()
    kordon.manage()
    kordon.cluster.is_away = True
    await kordon.look()
    assert len(kordon.pages.unready()) == 1


async def test_layouts_that_are_lost_are_lost_to_all() -> None:
    """With what cures it."""
    kordon = Kordon()
    kordon.manage()
    kordon.layout_member.lost = "__kordon.layouts was deleted"
    assert kordon.pages.unready() == []
    (note,) = kordon.pages.notes()
    assert "restore them, then restart" in note


async def test_the_cluster_is_asked_only_while_something_is_unserved() -> None:
    """What is served needs no question, and what was wrong is forgotten."""
    kordon = Kordon()
    kordon.cluster.leader = -1
    kordon.faults.found = "something"
    looking = asyncio.ensure_future(kordon.faults.run(lambda: kordon.pages.is_served))
    await asyncio.sleep(0)
    assert kordon.faults.found == ""
    looking.cancel()
