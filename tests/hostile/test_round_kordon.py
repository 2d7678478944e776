"""Those who go round Kordon to the brokers: aliens in the proxies' group, and others who use its transactional id."""

import asyncio
import json
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.group import About, GroupCoordinator, GroupRefused, Joined
from kordon.proxy.ordering.placements import Epoch
from kordon.proxy.ordering.records import AnnouncementRecord, FenceRecord, dump, load
from kordon.proxy.own_topics.layouts_writer import LayoutsWriter
from kordon.testing.cluster import Cluster
from kordon.testing.cluster_links import links_to
from kordon.testing.managed_clients import Sender, create_managed, read_to_ends, resize
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.short_leases import LEASE_SECONDS, PROGRAM
from kordon.testing.waiting import until, wait_until

pytestmark = pytest.mark.broker

SESSION_MS = 10_000
FENCINGS = 5


@dataclass(frozen=True)
class Alien(About):
    """Tells the group what no proxy tells."""

    metadata: bytes = b""

    def build(self) -> bytes:
        return self.metadata


async def belong(coordinator: GroupCoordinator, alien: Alien, joined: asyncio.Event) -> None:
    """Joins, and heartbeats for ever; it never synchronises, and joins again when it is told to."""
    member: Joined | None = None
    while True:
        try:
            if member is None:
                member = await coordinator.join(alien, SESSION_MS)
                joined.set()
            await coordinator.beat(member)
        except (GroupRefused, UpstreamUnavailable):
            member = None
        await asyncio.sleep(0.3)


def members(proxy: ProxyProcess) -> list[int]:
    """How many belonged to the group each time that a proxy joined it."""
    return [line["members"] for line in proxy.events("group_joined")]


async def test_nobody_waits_for_an_alien_and_no_proxy_ends_by_it(unled_cluster: Cluster) -> None:
    """A topic grows while two aliens are in the group for good, one of whom says 200 KB that cannot be read."""
    async with links_to(unled_cluster) as links:
        brokers = Brokers(links)
        with ProxyProcess.start(unled_cluster.bootstrap("PLAINTEXT")) as proxy:
            admin = await asyncio.to_thread(create_managed, proxy.bootstrap, "besieged")
            running: list[asyncio.Task[None]] = []
            for metadata in (b"", b"[" * 200_000):
                coordinator, joined = GroupCoordinator(brokers, f"alien {len(running)}"), asyncio.Event()
                alien = Alien("", "", None, "", metadata=metadata)
                running.append(asyncio.get_running_loop().create_task(belong(coordinator, alien, joined)))
                await joined.wait()
            await asyncio.to_thread(resize(admin, "besieged", 6).result, 60)
            assert not any(task.done() for task in running)
            alien_members = partial(proxy.metric, "kordon_managed_alien_members")
            await until("both are counted", lambda: alien_members() == len(running))
            for task in running:
                task.cancel()
            assert max(line["count"] for line in proxy.events("alien_member")) == len(running)
            await until("it serves", lambda: proxy.metric("kordon_managed_serving") == 1)
            assert proxy.events("task_failed") == []


def test_nobody_else_says_that_a_proxy_has_gone(unled_cluster: Cluster) -> None:
    """All proxies discard the record and tell of it; the lease of the proxy it names is waited for (MISSING-WAITED)."""
    bootstrap = unled_cluster.bootstrap("PLAINTEXT")
    with (
        ProxyProcess.start(bootstrap, program=PROGRAM) as one,
        ProxyProcess.start(bootstrap, program=PROGRAM) as another,
    ):
        create_managed(one.bootstrap, "forged")
        for proxy in (one, another):  # by joining each has said which word it will have ended by
            wait_until("both belong", lambda proxy=proxy: members(proxy)[-1:] == [2])  # type: ignore[misc]
        leader, other = (one, another) if one.leads() else (another, one)
        incarnation = other.topics()["control"]["incarnation"]
        key = f"gone/{incarnation}"
        producer = Producer({"bootstrap.servers": bootstrap})
        producer.produce("__kordon.layouts", json.dumps({"incarnation": incarnation}), key)
        assert producer.flush(60) == 0
        for proxy in (leader, other):
            wait_until("it tells of it", lambda proxy=proxy: proxy.events("forged_record") != [])  # type: ignore[misc]
            assert [line["key"] for line in proxy.events("forged_record")] == [key]
            assert proxy.metric("kordon_layouts_unreadable_records_total", kind="gone") == 1
        admin = AdminClient({"bootstrap.servers": leader.bootstrap})
        other.kill()
        resize(admin, "forged", 6).result(90)
        left = next(line for line in reversed(leader.events("group_joined")) if line["members"] == 1)
        (changed,) = leader.events("layout_changed")
        waited = datetime.fromisoformat(changed["timestamp"]) - datetime.fromisoformat(left["timestamp"])
        assert waited.total_seconds() > LEASE_SECONDS - 1


def announced(bootstrap: str, topic: str) -> list[dict[int, int]]:
    """What was announced of a topic, in its order."""
    records = read_to_ends({"bootstrap.servers": bootstrap}, "__kordon.layouts")
    told = [
        load(f"announcement/{topic}", each.value() or b"")
        for each in records
        if each.key() == f"announcement/{topic}".encode()
    ]
    return [dict(each.coming) for each in told if isinstance(each, AnnouncementRecord)]


def test_a_fence_that_somebody_else_writes_is_lifted(unled_cluster: Cluster) -> None:
    """The controller tells of it, and writes go on under the layout in force; an announcement is withdrawn likewise."""
    bootstrap = unled_cluster.bootstrap("PLAINTEXT")
    with ProxyProcess.start(bootstrap) as one, ProxyProcess.start(bootstrap) as another:
        create_managed(one.bootstrap, "held")
        leader, other = (one, another) if one.leads() else (another, one)
        producer = Producer({"bootstrap.servers": bootstrap})
        fence = FenceRecord("forged", "held", Epoch(1, 6), frozenset(range(3)))
        producer.produce("__kordon.layouts", dump(fence), "fence/held")
        announcement = AnnouncementRecord("forged", "held", 1, {0: 1})
        producer.produce("__kordon.layouts", dump(announcement), "announcement/held")
        assert producer.flush(60) == 0
        wait_until("both are told of", lambda: len(leader.events("forged_record")) == 2)
        sender = Sender.sent_for(0.5, other.bootstrap, "held")
        sender.assert_read_by(other.bootstrap)
        wait_until("it is withdrawn", lambda: announced(bootstrap, "held") == [{0: 1}, {}])
        assert {line["key"] for line in leader.events("forged_record")} == {"announcement/held", "fence/held"}
        assert leader.metric("kordon_layouts_unreadable_records_total", kind="fence") == 1
        assert leader.events("layout_changed") == []
        assert other.events("forged_record") == []


async def test_a_controller_that_somebody_fences_takes_its_place_again(unled_cluster: Cluster) -> None:
    """It waits for no lease anew: it knows who holds one. Each time it waited for all that it had no news of."""
    async with links_to(unled_cluster) as links:
        brokers = Brokers(links)
        with ProxyProcess.start(unled_cluster.bootstrap("PLAINTEXT")) as proxy:
            admin = await asyncio.to_thread(create_managed, proxy.bootstrap, "fenced-off")
            for partitions in range(4, 4 + FENCINGS):
                writer = LayoutsWriter(brokers)
                await writer.open()
                await writer.close()
                await asyncio.to_thread(resize(admin, "fenced-off", partitions).result, 60)
            assert len(proxy.events("controller_fenced")) == FENCINGS
            waits = [line["waits_seconds"] for line in proxy.events("controller_began")]
            assert len(waits) == FENCINGS + 1
            assert waits == sorted(waits, reverse=True)  # what is left of one lease at most, and never more again
