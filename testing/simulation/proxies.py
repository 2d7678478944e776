"""A proxy of the simulation: the product's keeper and controller in virtual time, and what serves clients by them."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from unittest.mock import patch

from kordon.proxy.controller.janitor import Tools
from kordon.proxy.controller.leading import Leading
from kordon.proxy.kafka.group import About
from kordon.proxy.member import membership
from kordon.proxy.member.keeper import Keeper
from kordon.proxy.member.membership import Membership
from kordon.proxy.ordering import takeover
from kordon.proxy.ordering.member import Member
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.testing.simulation.admin import Admin
from kordon.testing.simulation.clients import Produce
from kordon.testing.simulation.kafka import Group
from kordon.testing.simulation.layouts import Layouts, Writer
from kordon.testing.simulation.loop import Loop
from kordon.testing.simulation.proxies_group import Coordinator
from kordon.testing.simulation.reading import Portion, Reading
from kordon.testing.simulation.serving import Serving
from kordon.testing.simulation.writing import Writing

if TYPE_CHECKING:
    from kordon.testing.simulation.cluster import Cluster

LEASE_SECONDS: Final = 6.0

_Answer = TypeVar("_Answer")


class Proxy:
    """One process; a killed one comes back as another incarnation.

    Args:
        cluster: What it stands in front of.
        name: Its incarnation.
    """

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.name = name
        self.alive = True
        self.paused_until = 0.0
        self.cut_until = 0.0
        self.lags_until = 0.0
        """Until when it gets no records of the layouts."""
        self.knows_layouts = False
        """Whether it has read them once: no client's request passes before."""
        self.is_ending = False
        """Whether it ends in order."""
        self.loop = Loop(self.world, name, lambda: self.paused_until if self.alive else inf)
        self.topics = ManagedTopics()
        self.layouts = Layouts(self)
        self.writing = Writing(self)
        self.reading = Reading(self)
        self._serving = Serving(self)
        self._keeper = self.loop.run(self._new_keeper)

    def _new_keeper(self) -> Keeper:
        with patch.object(membership, "GroupCoordinator", Coordinator):
            belongs = Membership(
                cast("Any", self),
                About(self.name, self.name, None, "simulated"),
                lambda: self.layouts.position,
                session_ms=round(Group.SESSION * 1000),
                lease_seconds=LEASE_SECONDS,
            )
        keeper = Keeper(
            topics=self.topics,
            layouts=cast("Any", self.layouts),
            membership=belongs,
            admin=cast("Any", Admin(self)),
            writers=self._serving,
            readers=self._serving,
            make_writer=lambda: cast("Any", Writer(self)),
            admit=_admit,
            tools=Tools(cast("Any", None), cast("Any", None), 0, cast("Any", None)),
        )
        keeper.passed = self._serving
        return keeper

    @property
    def member(self) -> Member:
        """Its part in the group."""
        return self._keeper.member

    @property
    def leading(self) -> Leading | None:
        """The controller's role, while it is this proxy's."""
        return self._keeper.leading

    @property
    def topic(self) -> ManagedTopic | None:
        """Managed, or coming to be (TAKEOVER-WAITS)."""
        return self.topics.served(self.cluster.topic)

    @property
    def disturbed_until(self) -> float:
        """Until when it was, or is, paused or cut off."""
        return max(self.paused_until, self.cut_until)

    @property
    def is_running(self) -> bool:
        """Whether it lives and is not paused."""
        return self.alive and self.world.now >= self.paused_until

    @property
    def may_serve(self) -> bool:
        """Whether managed topics are served."""
        return self.is_running and self.member.may_serve(self.world.now)

    @property
    def partition_count(self) -> int | None:
        """How many partitions clients are told of; None: nothing is told of them now."""
        topic = self.topic
        if topic is None:
            return self.cluster.n
        if not takeover.may_be_shown(topic.layout):
            return None
        return sum(chain.home is not None for chain in topic.layout.chains)

    # --- life

    def start(self) -> None:
        """Follows the layouts, joins the group, and begins to write."""
        self.world.say(f"{self.name} starts")
        self.loop.run(self._keeper.start)
        self.loop.start(self._know())
        self.world.each(0.2, self._tick)

    async def _know(self) -> None:
        await self._keeper.know()
        self.knows_layouts = True

    def kill(self) -> None:
        """Ends at once; what it had sent to brokers may still arrive."""
        self.world.say(f"{self.name} is killed")
        self.alive = False

    def leave(self) -> None:
        """Ends in order: serves no more, waits for what it has sent, says that it is gone, leaves the group."""
        self.world.say(f"{self.name} ends in order")
        self.is_ending = True
        self.loop.start(self._leave())

    async def _leave(self) -> None:
        await self._serving.settle()
        await self._keeper.leave()
        self.alive = False

    def pause(self, seconds: float) -> None:
        """Stops it for a while, as SIGSTOP does."""
        self.world.say(f"{self.name} is paused for {seconds} s")
        self.paused_until = max(self.paused_until, self.world.now + seconds)

    def cut_off(self, seconds: float) -> None:
        """Cuts it off from the brokers for a while."""
        self.world.say(f"{self.name} is cut off from the brokers for {seconds} s")
        self.cut_until = max(self.cut_until, self.world.now + seconds)

    def arrive(self, what: Callable[[], object]) -> None:
        """Lets what came here be read, in its order: when this proxy runs again, or never."""
        self.loop.call_soon(what)

    def later(self, what: Callable[[], object]) -> None:
        """Lets an answer reach this proxy."""
        self.world.after(self.cluster.delay(self, 0.02), lambda: self.arrive(what))

    def later_there(self, what: Callable[[], None]) -> None:
        """Lets a request of this proxy reach the cluster."""
        self.world.after(self.cluster.delay(self, 0.01), what)

    def ask(self, there: Callable[[], _Answer], back: Callable[[_Answer], None]) -> None:
        """Lets the cluster answer a request of this proxy."""

        def answer() -> None:
            found = there()
            self.later(lambda: back(found))

        self.later_there(answer)

    async def asked(self, there: Callable[[], _Answer]) -> _Answer:
        """Returns what the cluster answers to a request of this proxy."""
        answer = self.loop.create_future()
        self.ask(there, lambda told: None if answer.done() else answer.set_result(told))
        found: _Answer = await answer
        return found

    def _tick(self) -> bool:
        if self.is_running:
            self.loop.run(self.writing.tick)
        return self.alive

    # --- clients

    def produce(self, request: Produce, answer: Callable[[int], None]) -> None:
        """Takes a client's batch."""
        self.writing.produce(request, answer)

    def read(self, v: int, position: int) -> Portion | None:
        """Returns what a consumer gets at an offset; None: nothing now, ask again."""
        return self.reading.read(v, position) if self.is_running else None

    def lose_lanes(self) -> None:
        """Its connections to brokers break."""
        self.writing.lose_lanes()

    def look_drained(self) -> None:
        """Something that was sent is answered."""
        self._serving.on_answer()

    def read_layouts_now(self) -> bool:
        """Takes in all records that there are; False: they do not come."""
        if self.world.now < max(self.lags_until, self.cut_until):
            return False
        self.loop.run(self.layouts.take_all)
        return True


async def _admit(topic: str) -> None:
    """Lacks no right."""
