"""A proxy of the simulation: the real member of the group around which writing, reading and leading go on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from kordon.proxy.managed.topics import Fence, ManagedTopic
from kordon.proxy.ordering import member as following
from kordon.proxy.ordering import takeover
from kordon.proxy.ordering.images import Image
from kordon.proxy.ordering.member import Member
from kordon.proxy.ordering.presence import Presence
from kordon.proxy.ordering.records import AckRecord, FenceRecord, GoneRecord, TopicRecord, Value
from kordon.proxy.ordering.under_way import Drain
from kordon.testing.simulation.clients import Produce
from kordon.testing.simulation.leading import LEASE_SECONDS, Leading
from kordon.testing.simulation.reading import Portion, Reading
from kordon.testing.simulation.writing import Writing

if TYPE_CHECKING:
    from kordon.testing.simulation.cluster import Cluster

_Answer = TypeVar("_Answer")


@dataclass
class _Holding:
    """A fence that this proxy has heard of, and has not acknowledged."""

    fence: FenceRecord
    drain: Drain
    has_asked: bool = False
    """Whether it has asked where logs end."""
    ends: Mapping[int, int] | None = None


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
        self.member = Member(name)
        self.alive = True
        self.paused_until = 0.0
        self.cut_until = 0.0
        self.lags_until = 0.0
        """Until when it gets no records of the layouts."""
        self.generation = 0
        self.members: list[str] = []
        self.presence = Presence()
        self.leading: Leading | None = None
        self.topic: ManagedTopic | None = None
        """Managed, or coming to be (TAKEOVER-WAITS)."""
        self.knows_layouts = False
        """Whether it has read them once: no client's request passes before."""
        self._position = 0
        self._joining = False
        self.is_ending = False
        """Whether it ends in order."""
        self._unread: deque[Callable[[], None]] = deque()
        """What came while it was paused."""
        self._holding: _Holding | None = None
        self._writing = Writing(self)
        self.reading = Reading(self)

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
        if self.topic is None:
            return self.cluster.n
        if not takeover.may_be_shown(self.topic.layout):
            return None
        return sum(chain.home is not None for chain in self.topic.layout.chains)

    # --- life

    def start(self) -> None:
        """Reads the layouts, joins, and begins its loops."""
        self.world.say(f"{self.name} starts")
        self._read_to_end(self._know)
        self._join()
        self.world.each(0.5, self._loop(self._heartbeat))
        self.world.each(LEASE_SECONDS / 3, self._loop(self._renew))
        self.world.each(0.1, self._loop(self._tick))
        self.world.each(0.05, self._loop(self._follow))

    def kill(self) -> None:
        """Ends at once; what it had sent to brokers may still arrive."""
        self.world.say(f"{self.name} is killed")
        self.alive = False

    def leave(self) -> None:
        """Ends in order: serves no more, waits for what it has sent, says that it is gone, leaves the group."""
        self.world.say(f"{self.name} ends in order")
        self.is_ending = True
        self.leading = None
        self.world.each(0.05, self._loop(self._end_if_drained))

    def _end_if_drained(self) -> None:
        self.member.lease_expires = 0.0
        if not len(self._writing.under_way) and not self._writing.passed:
            self.later_there(self._end)

    def _end(self) -> None:
        if not self.alive:
            return
        self.cluster.layouts.append(f"gone/{self.name}", GoneRecord(self.name))
        self.cluster.group.leave(self.name)
        self.alive = False

    def pause(self, seconds: float) -> None:
        """Stops it for a while, as SIGSTOP does."""
        self.world.say(f"{self.name} is paused for {seconds} s")
        self.paused_until = max(self.paused_until, self.world.now + seconds)

    def cut_off(self, seconds: float) -> None:
        """Cuts it off from the brokers for a while."""
        self.world.say(f"{self.name} is cut off from the brokers for {seconds} s")
        self.cut_until = max(self.cut_until, self.world.now + seconds)

    def arrive(self, what: Callable[[], None]) -> None:
        """Lets what came here be read, in its order: when this proxy runs again, or never."""
        self._unread.append(what)
        if len(self._unread) == 1:
            self._read_unread()

    def _read_unread(self) -> None:
        if self.alive and self.world.now < self.paused_until:
            self.world.at(self.paused_until, self._read_unread)
            return
        while self.alive and self._unread:
            self._unread[0]()
            self._unread.popleft()

    def later(self, what: Callable[[], None]) -> None:
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

    def _loop(self, what: Callable[[], None]) -> Callable[[], bool]:
        def turn() -> bool:
            if self.alive and world.now >= self.paused_until:
                what()
            return self.alive

        world = self.world
        return turn

    def _tick(self) -> None:
        self._writing.tick()
        if self.leading is not None:
            self.leading.tick()

    # --- clients

    def produce(self, request: Produce, answer: Callable[[int], None]) -> None:
        """Takes a client's batch."""
        self._writing.produce(request, answer)

    def read(self, v: int, position: int) -> Portion | None:
        """Returns what a consumer gets at an offset; None: nothing now, ask again."""
        return self.reading.read(v, position) if self.is_running else None

    def lose_lanes(self) -> None:
        """Its connections to brokers break."""
        self._writing.lose_lanes()

    # --- the group

    def _join(self) -> None:
        if self._joining or self.is_ending:
            return
        self._joining = True

        def joined(generation: int, members: list[str]) -> None:
            self.later(lambda: self._joined(generation, members))

        self.later_there(lambda: self.cluster.group.join(self.name, joined))

    def _joined(self, generation: int, members: list[str]) -> None:
        self._joining = False
        self.generation, self.members = generation, members
        self.presence.joined(generation, members, LEASE_SECONDS, self.world.now)
        self._catch_up(self.member.on_joined())
        self._renew()
        if members[0] != self.name:
            self.leading = None
        elif self.leading is None:
            self._lead()
        else:
            self.leading.on_members(frozenset(members))

    def _catch_up(self, reading: int) -> None:
        """Reads the layouts to an end taken from now on, which the member waits for (READ-BEFORE-SERVE)."""
        self._read_to_end(lambda: self._caught_up(reading))

    def _caught_up(self, reading: int) -> None:
        if self.member.on_caught_up(reading):
            self._writing.judge_kept()
            self._writing.go_on_with_all()

    def _heartbeat(self) -> None:
        generation = self.generation
        self.ask(
            lambda: self.cluster.group.heartbeat(self.name, generation),
            lambda fine: None if fine or generation != self.generation else self._join(),
        )

    def _renew(self) -> None:
        """Renews the lease (LIVE-LEASE)."""
        if self.is_ending:
            return
        sent, generation = self.world.now, self.generation
        self.ask(
            lambda: self.cluster.group.commit(self.name, generation),
            lambda fine: self._renewed(sent) if fine else None,
        )

    def _renewed(self, sent: float) -> None:
        if self.is_ending:
            return
        reading = self.member.on_renewed(sent, LEASE_SECONDS, self.world.now)
        if reading is not None:
            self._catch_up(reading)

    # --- leading

    def _lead(self) -> None:
        self.ask(self.cluster.layouts.open_writer, lambda epoch: self._read_to_end(lambda: self._take_over(epoch)))

    def _take_over(self, writer_epoch: int) -> None:
        if self.members[:1] == [self.name]:
            self.world.say(f"{self.name} leads")
            self.leading = Leading(self, writer_epoch)

    def stand_down(self) -> None:
        """Another controller has taken over; if it was one of old that woke late, this proxy takes over once more."""
        self.leading = None
        if self.members[:1] == [self.name]:
            self._lead()

    # --- the layouts

    def read_layouts_now(self) -> bool:
        """Takes in all records that there are; False: they do not come."""
        if self.world.now < max(self.lags_until, self.cut_until):
            return False
        self._read_up_to(len(self.cluster.layouts.records))
        return True

    def _follow(self) -> None:
        end = len(self.cluster.layouts.records)
        if end > self._position and self.world.now >= self.lags_until:
            self.later(lambda: self._read_up_to(end))

    def _read_to_end(self, then: Callable[[], None]) -> None:
        def there() -> None:
            if self.world.now < self.lags_until:
                self.world.at(self.lags_until, there)
                return
            end = len(self.cluster.layouts.records)

            def back() -> None:
                self._read_up_to(end)
                then()

            self.later(back)

        self.later_there(there)

    def _know(self) -> None:
        self.knows_layouts = True

    def _read_up_to(self, end: int) -> None:
        while self._position < end:
            key, value = self.cluster.layouts.records[self._position]
            self._position += 1
            self._on_record(key, value)

    def _on_record(self, key: str, value: Value | None) -> None:
        if isinstance(value, AckRecord) and self.leading is not None:
            self.leading.on_ack(value.fence, value.incarnation)
        if isinstance(value, GoneRecord):
            self.presence.left(value.incarnation)
            if self.leading is not None:
                self.leading.on_members(frozenset(self.members))
        self._perform(self.member.on_record(key, value))

    def take_layout(self, records: tuple[tuple[str, Value | None], ...]) -> None:
        """Takes in a layout that its controller has written."""
        self._perform([command for _, command in self.member.on_own_layout(records)])

    def _perform(self, commands: list[following.Command]) -> None:
        for command in commands:
            match command:
                case following.Hold():
                    self._hold(command)
                case following.Adopt(record, images):
                    self._adopt(record, images)
                case following.Release():
                    self._release()
                case following.Acknowledge(ack):
                    self._acknowledge(ack)
                case following.Forget():
                    raise AssertionError("no topic is let go here")

    def _hold(self, hold: following.Hold) -> None:
        fence = hold.fence
        if self.topic is None and fence.taking_over is not None:
            self.topic = ManagedTopic(fence.taking_over.layout, fence.taking_over.face_id)
        if self.topic is not None:
            self.topic.raise_fence(Fence(fence.id, fence.sealed))
        self._end_holding()
        drain = self._writing.under_way.drain((self.cluster.topic, q) for q in hold.drained)
        self._holding = _Holding(fence, drain)
        self.look_drained()

    def _adopt(self, record: TopicRecord, images: Mapping[int, Image]) -> None:
        self._end_holding()
        if self.topic is None:
            self.topic = ManagedTopic(record.layout, record.face_id, images)
        elif self.topic.goes_on_as(record):
            return
        else:
            self.topic.adopt(record.layout, images)
        self.topic.takeover = record.takeover
        self._writing.go_on_with_all()

    def _release(self) -> None:
        self._end_holding()
        if self.topic is None:
            return
        self.topic.cancel_fence()
        if self.topic.layout.is_managed:
            self._writing.go_on_with_all()
        else:
            self._writing.give_up_all()
            self.topic = None

    def look_drained(self) -> None:
        """Acknowledges a fence once nothing is under way behind it, and reading is frozen (FROZEN-READS)."""
        holding = self._holding
        if holding is None or (holding.fence.taking_over is not None and self._writing.passed):
            return
        if self.topic is None or self.topic.fence is None:
            self._end_holding()
            self._perform(self.member.on_held(holding.fence.id))
        elif not holding.has_asked:
            holding.has_asked = True
            self.topic.fence = self.topic.fence.freezing(self.reading.shown)
            self.ask(lambda: self.reading.ends(holding.fence.sealed), lambda ends: self._frozen(holding, ends))
        elif holding.ends is not None and holding.drain.is_over:
            self._end_holding()
            landed = {q: offset for (_, q), offset in holding.drain.landed.items()}
            self.topic.fence = self.topic.fence.frozen(holding.ends, landed)
            self._perform(self.member.on_held(holding.fence.id))

    def _frozen(self, holding: _Holding, ends: Mapping[int, int]) -> None:
        if self._holding is holding and self.topic is not None and self.topic.fence is not None:
            holding.ends = ends
            self.topic.fence = self.topic.fence.freezing(ends)
            self.look_drained()

    def _end_holding(self) -> None:
        if self._holding is not None:
            self._writing.under_way.end(self._holding.drain)
            self._holding = None

    def _acknowledge(self, ack: AckRecord) -> None:
        if self.leading is not None and self.leading.controller.raised(ack.fence):
            self.leading.on_ack(ack.fence, ack.incarnation)
            return
        self.later_there(lambda: self.cluster.layouts.append(f"ack/{ack.fence}/{ack.incarnation}", ack))
