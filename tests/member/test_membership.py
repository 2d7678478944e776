"""The proxies' group and the lease on a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias
from uuid import uuid4

import pytest

from kordon.codecs.error_codes import Code
from kordon.proxy.kafka.group import About, GroupCoordinator, GroupRefused
from kordon.proxy.kafka.topics_admin import TopicsAdmin
from kordon.proxy.member.membership import Generation, Membership, new_incarnation
from kordon.proxy.runtime.clock import clock
from kordon.testing.waiting import until

if TYPE_CHECKING:
    from kordon.proxy.kafka.brokers import Brokers

    NewWorker: TypeAlias = Callable[[], Awaitable[Brokers]]

pytestmark = pytest.mark.broker

SESSION_MS = 6_000


class Proxy:
    """A proxy, as far as it is a member."""

    def __init__(self, brokers: Brokers, place: Place, host: str) -> None:
        self.generations: list[Generation] = []
        self.lost = 0
        self.renewals: list[float] = []
        about = About(new_incarnation(), host, None, "test")
        self.membership = Membership(
            brokers, about, lambda: 0, group=place.group, session_ms=place.session_ms, topic=place.topic
        )
        self.running = asyncio.get_running_loop().create_task(self.membership.run(self))

    def on_generation(self, generation: Generation) -> None:
        self.generations.append(generation)

    def on_renewed(self, sent: float) -> None:
        self.renewals.append(sent)

    def on_lost(self) -> None:
        self.lost += 1

    @property
    def hosts(self) -> set[str]:
        return {member.host for member in self.generations[-1].members} if self.generations else set()

    @property
    def leads(self) -> bool:
        return bool(self.generations) and self.generations[-1].leads


class Place:
    """A group of proxies and the topic that they commit for."""

    def __init__(self, new_worker: NewWorker) -> None:
        self.group = f"proxies-{uuid4().hex[:8]}"
        self.topic = f"{self.group}-layouts"
        self.session_ms = SESSION_MS
        self._new_worker = new_worker

    async def proxy(self, host: str) -> Proxy:
        """Starts a proxy that joins the group."""
        return Proxy(await self._new_worker(), self, host)

    async def coordinator(self) -> GroupCoordinator:
        """Makes a member that does only what it is told."""
        return GroupCoordinator(await self._new_worker(), "group", self.group)


@pytest.fixture
async def place(brokers: Brokers, new_worker: NewWorker) -> Place:
    """A group and a topic that no other test uses."""
    made = Place(new_worker)
    admin = TopicsAdmin(brokers)
    await admin.create_topic(made.topic, partitions=1, replicas=1, configs={})
    await admin.wait_for_leaders(made.topic, partitions=1)
    return made


@asynccontextmanager
async def proxies(place: Place, *hosts: str) -> AsyncIterator[list[Proxy]]:
    made = [await place.proxy(host) for host in hosts]
    try:
        await until("all know each other", lambda: all(proxy.hosts == set(hosts) for proxy in made))
        yield made
    finally:
        await asyncio.gather(*(proxy.membership.stop() for proxy in made))
        await asyncio.gather(*(proxy.running for proxy in made), return_exceptions=True)


async def test_proxies_know_each_other_and_agree_on_one_controller(place: Place) -> None:
    """All see the same generation with the same members, and one of them leads."""
    async with proxies(place, "a", "b", "c") as (a, b, c):
        await until("one generation", lambda: len({each.generations[-1].number for each in (a, b, c)}) == 1)
        assert set(a.generations[-1].members) == set(b.generations[-1].members) == set(c.generations[-1].members)
        assert [proxy.leads for proxy in (a, b, c)].count(True) == 1
        incarnations = {member.incarnation for member in a.generations[-1].members}
        assert incarnations == {proxy.membership.incarnation for proxy in (a, b, c)}
        assert a.generations[-1].longest_lease_seconds == a.membership.lease.seconds


async def test_another_proxy_leads_when_the_controller_leaves(place: Place) -> None:
    """One that stops says so: nobody waits for the end of its session, and the one that stays is told of it."""
    place.session_ms = 600_000  # it ends after this test
    async with proxies(place, "a", "b") as both:
        leader, other = sorted(both, key=lambda proxy: not proxy.leads)
        await leader.membership.stop()
        await until("the other leads", lambda: other.leads and len(other.hosts) == 1)
        assert not other.lost


async def test_one_that_stops_while_it_joins_is_not_waited_for(place: Place) -> None:
    """A member that does not answer holds up the generation, and who has asked to be in it leaves before it comes."""
    place.session_ms = 600_000  # it ends after this test
    silent = await place.coordinator()
    await silent.join(About(new_incarnation(), "silent", None, "test"), 600_000)
    joining = await place.proxy("joining")
    await until("it has asked", lambda: joining.membership.is_known)
    await joining.membership.stop()
    assert not joining.generations
    again = await silent.join(About(new_incarnation(), "silent", None, "test"), 600_000)
    assert [member.host for member in again.members] == ["silent"]
    await silent.leave()


async def test_a_lease_lives_while_the_proxy_is_a_member(place: Place) -> None:
    """It is renewed as soon as the proxy has joined, also in each generation to come, counted from the sending."""
    async with proxies(place, "a") as (a,):
        await until("a lease", a.membership.lease.alive)
        assert a.renewals[-1] <= clock()
        assert a.membership.lease.expires == a.renewals[-1] + a.membership.lease.seconds
        renewed = len(a.renewals)
        b = await place.proxy("b")
        await until("both, and a new lease", lambda: a.hosts == {"a", "b"} and len(a.renewals) > renewed)
        await b.membership.stop()


async def test_being_a_member_is_no_lease(new_worker: NewWorker) -> None:
    """Where no commit is accepted, here for want of the topic, heartbeats and rebalances give none (LIVE-LEASE)."""
    async with proxies(Place(new_worker), "a", "b") as (a, b):
        assert not await a.membership.confirm()
        assert not a.membership.lease.alive()
        assert not b.membership.lease.alive()


async def test_a_proxy_that_was_paused_cannot_renew_its_lease(place: Place) -> None:
    """Once the group has gone on without it, a late commit is refused, whatever generation it claims."""
    paused = await place.coordinator()
    old = await paused.join(About("paused", "paused", None, "test"), SESSION_MS)
    await paused.sync(old)
    await paused.commit(old, place.topic, 0, "paused")  # as long as it is a member
    async with proxies(place, "a") as (a,):
        assert [member.host for member in a.generations[-1].members] == ["a"]
        with pytest.raises(GroupRefused) as refusal:
            await paused.commit(old, place.topic, 0, "paused")
        assert refusal.value.code == Code.UNKNOWN_MEMBER_ID
        assert await a.membership.confirm()
    paused.close()


async def test_a_commit_of_a_former_generation_is_refused(place: Place) -> None:
    """A member that is in the present generation cannot renew by the one before."""
    one = await place.coordinator()
    old = await one.join(About("one", "one", None, "test"), SESSION_MS)
    await one.sync(old)
    new = await one.join(About("one", "renamed", None, "test"), SESSION_MS)  # of the leader, this begins another
    await one.sync(new)
    assert new.generation > old.generation
    with pytest.raises(GroupRefused) as refusal:
        await one.commit(old, place.topic, 0, "one")
    assert refusal.value.code == Code.ILLEGAL_GENERATION
    await one.commit(new, place.topic, 0, "one")
    await one.leave()
    one.close()


async def test_a_proxy_that_the_group_has_given_up_joins_again_as_another_member(place: Place) -> None:
    """It is told that it was lost, and that it is back; its incarnation stays."""
    async with proxies(place, "a") as (a,):
        before = a.generations[-1]
        remover = await place.coordinator()
        remover.member_id = before.member_id
        await remover.leave()
        remover.close()
        await until("another generation", lambda: a.lost == 1 and a.generations[-1].number > before.number)
        assert a.generations[-1].member_id != before.member_id
        assert a.generations[-1].members[0].incarnation == a.membership.incarnation
