"""A proxy of the simulation: the product's layout member and controller in virtual time, and what serves clients."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from unittest.mock import patch

from kordon.proxy.controller.controller_role import ControllerRole
from kordon.proxy.controller.leading_worker import LeadingWorker
from kordon.proxy.controller.takeovers import Takeovers
from kordon.proxy.controller.topic_janitor import JanitorTools
from kordon.proxy.decisions.journal import NO_JOURNAL
from kordon.proxy.kafka.group import About
from kordon.proxy.member import membership
from kordon.proxy.member.layout_member import LayoutMember
from kordon.proxy.member.membership import Membership
from kordon.proxy.member.served import ServedParts
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
        self._layout_member = self.loop.run(self._new_layout_member)

    def _new_layout_member(self) -> LayoutMember:
        with patch.object(membership, "GroupCoordinator", Coordinator):
            belongs = Membership(
                cast("Any", self),
                About(self.name, self.name, None, "simulated"),
                lambda: self.layouts.position,
                session_ms=round(Group.SESSION * 1000),
                lease_seconds=LEASE_SECONDS,
            )
        return LayoutMember(
            topics=self.topics,
            layouts=cast("Any", self.layouts),
            membership=belongs,
            served=ServedParts(self.writing.dispatcher, self._serving, lambda: self._serving),
            make_role=self._make_role,
            admit=_admit,
            journal=NO_JOURNAL,
        )

    def _make_role(self, worker: LeadingWorker) -> ControllerRole:
        admin = cast("Any", Admin(self))
        nothing = cast("Any", None)
        return ControllerRole(
            worker,
            admin=admin,
            writer=cast("Any", Writer(self)),
            admit=_admit,
            takeovers=Takeovers(admin, self._serving.nothing_between),
            tools=JanitorTools(nothing, nothing, nothing, nothing, 0),
            journal=NO_JOURNAL,
        )

    @property
    def member(self) -> Member:
        """Its part in the group."""
        return self._layout_member.state.member

    @property
    def leading(self) -> ControllerRole | None:
        """The controller's role, while it is this proxy's."""
        return self._layout_member.leadership.role

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
        self.loop.run(self._layout_member.start)
        self.loop.start(self._know())

    async def _know(self) -> None:
        await self._layout_member.know()
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
        await self._layout_member.leave()
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
