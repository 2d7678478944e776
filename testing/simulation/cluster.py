"""A simulated cluster with its proxies and clients, and what goes wrong in it.

Two kinds of worlds: the topic is managed from the beginning, and grows and shrinks all the time; or it has records,
producers and a group of before, and is taken over first (PAST-STAYS, TAKEOVER-WAITS).
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cached_property
from math import nextafter
from typing import Final
from unittest.mock import patch
from uuid import UUID

from kordon.proxy.controller import ahead
from kordon.proxy.kafka.batches import NewRecord
from kordon.proxy.kafka.group import GroupMember
from kordon.proxy.member import record_intake
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.records import TopicRecord, Value, dump
from kordon.testing.simulation import promises
from kordon.testing.simulation.admin import FACE_ID
from kordon.testing.simulation.clients import Consumer, IdempotentProducer, PlainProducer, Producer
from kordon.testing.simulation.dialect_clients import DialectProducer
from kordon.testing.simulation.groups import DialectGroup
from kordon.testing.simulation.kafka import NODES, Group, LayoutsLog, Partition, Record, load_once
from kordon.testing.simulation.logs import told_in
from kordon.testing.simulation.loop import clocks_of
from kordon.testing.simulation.nemesis import Nemesis
from kordon.testing.simulation.operators import Operator
from kordon.testing.simulation.proxies import Proxy
from kordon.testing.simulation.reading import Views
from kordon.testing.simulation.rules import without as taken_out
from kordon.testing.simulation.world import World

N, V = 2, 8
TROUBLE_SECONDS: Final = 60.0
"""How long things go wrong."""
HEAL_SECONDS: Final = 150.0
"""By when all that was asked for must have come true once nothing goes wrong any more."""
ARRIVAL_SECONDS: Final = 10.0
"""By when all that was under way then has arrived."""
DRAIN_SECONDS: Final = 60.0
"""By when a dialect group has read all there is."""
_TAKEN_OVER_SHARE: Final = 0.3
"""Of the seeds, in which the topic has data."""
_WISH_SECONDS: Final = (2.0, 8.0)
"""From when to when somebody may begin to want that topic managed: so early that it is while things go wrong."""
_NEMESIS_SHARE: Final = 0.65
"""Of the others, in which what goes wrong is arranged; else it happens by chance."""
_MOST_BESIDE_NEMESIS: Final = 0.1
"""What else is late there is so little that fences come to their end: or nothing would come of what is arranged."""
_NEMESIS_SECONDS: Final = 7.0
_ELECTION_SHARE: Final = 0.5
"""Of the changes, behind which a partition has no leader at once: just when segments are opened (OPENER-ALONE)."""
_LATE_SHARE: Final = 0.5
"""Of the layouts of a topic with data, which one proxy reads later than all others."""
_LATE_SECONDS: Final = 1.5
_LOOK_SECONDS: Final = 0.1
"""Between two looks whether all that was asked for has come true."""
_LEAST_SECONDS: Final = 0.0005
"""Of a message's way."""
_MANY_EVERY: Final = 2
"""Of so many seeds, one has a topic with very many producers."""
_BUSY_SECONDS: Final = 0.1
"""Between two batches of a producer while something happens, or has just happened."""
_CALM_SECONDS: Final = 0.4
"""The same at other times, when more of them would show no more."""
_LONGEST_BEFORE_SECONDS: Final = 1.0
"""How long a proxy is away at most while the topic is an ordinary one, so that the group does not give it up: such
topics are served without a lease, and whoever is away longer goes round Kordon (docs/failures.md)."""


class Cluster:
    """Everything.

    Args:
        world: Time and chance.
        has_dialect_writers: Whether clients of the dialect write beside all others.
        delivers: The topic has data, and no record waits while it is taken over (TAKEOVER-SHARES).
    """

    topic: Final = "orders"
    n: Final = N
    v_count: Final = V
    trouble_seconds: Final = TROUBLE_SECONDS

    def __init__(self, world: World, *, has_dialect_writers: bool = False, delivers: bool = False) -> None:
        self.world, self.delivers = world, delivers
        self.failures: list[str] = []
        """Broken promises."""
        self.errors: list[str] = []
        """Exceptions that the product has caught at an outermost edge, as nobody has reckoned with them."""
        self.over = False
        self.settled = False
        """Whether everything that was asked for has come true."""
        self.comes_back = has_dialect_writers
        """Whether an arranged change is soon taken back: what it made of the old count is to be true then, too."""
        self.wanted = N
        self.is_taken_over = world.chance(_TAKEN_OVER_SHARE) or delivers
        """Whether the topic has data of before."""
        self.is_wished = False
        """Whether somebody wants it managed."""
        self.layouts = LayoutsLog()
        self.views = Views()
        self._busy_until = 0.0
        if not self.is_taken_over:
            created = Layout.created(self.topic, UUID(int=1), N, V)
            record = TopicRecord(created, FACE_ID)
            self.layouts.append([NewRecord(f"topic/{self.topic}", dump(record))])
        self.group = Group(world)
        self.about: dict[str, GroupMember] = {}
        """What proxies have told of themselves, by incarnation."""
        self.physical = N
        """How many partitions the topic has at the brokers."""
        self.committed: dict[int, int] = {}
        """By the consumers' group."""
        self.delivered: list[Record] = []
        """To the group, in this order."""
        self._partitions: dict[int, Partition] = defaultdict(Partition)
        self._proxy_count = 0
        self._last_id = 10
        calm = world.random.choice([0, 1, 4, 12])  # every few seeds something else prevails
        self._moods = ["kill", "restart", "pause", "cut", "lanes", "election", "overtake", *["resize"] * (1 + calm)]
        self.trouble_share = world.random.choice([0.0, 0.1, 1.0])
        """How much is very late."""
        self.nemesis = Nemesis(self)
        self.operator = Operator(self)
        self.ended: list[Proxy] = []
        """Proxies that have others in their place."""
        self.fences = promises.FenceWatch(self)
        self.proxies = [self.new_proxy() for _ in range(3)]
        self.all_producers: list[Producer] = [
            IdempotentProducer(self, self.new_producer_id()),
            IdempotentProducer(self, self.new_producer_id()),
            PlainProducer(self, self.new_producer_id()),
        ]
        if has_dialect_writers:
            self.all_producers += [DialectProducer(self, self.new_producer_id()) for _ in range(2)]
        self.consumers = [Consumer(self, v) for v in range(V)]
        self.dialect_group = None if self.is_taken_over else DialectGroup(self, world.seed)
        """Where the topic is managed from the beginning: what was written before is in no order with what follows."""

    @property
    def wrong(self) -> list[str]:
        """All that should not have happened."""
        return [*self.failures, *self.errors]

    @property
    def is_troubled(self) -> bool:
        """Whether things go wrong, and clients begin something new."""
        return self.world.now < TROUBLE_SECONDS

    @property
    def partition_count(self) -> int:
        """How many partitions clients see in the beginning."""
        return N if self.is_taken_over else V

    @property
    def layout(self) -> Layout:
        """The last one that was committed; before, the one that the topic has had all along."""
        record = self.layouts.newest.get(f"topic/{self.topic}")
        return record.layout if isinstance(record, TopicRecord) else self._unmanaged

    @cached_property
    def _unmanaged(self) -> Layout:
        return Layout.unmanaged(self.topic, UUID(int=1), N, V)

    def look(self) -> bool:
        """Looks whether all that was asked for has come true; returns whether it is to be looked again."""
        topics = [proxy.topic for proxy in self.proxies]
        self.settled = all(each.is_done for each in self.all_producers) and all(
            topic is not None and topic.layout.u == self.wanted and topic.takeover is None and topic.fence is None
            for topic in topics
        )
        return not self.settled

    def pace(self) -> float:
        """Returns how long a producer waits until its next batch."""
        return _BUSY_SECONDS if self.world.now < self._busy_until else _CALM_SECONDS

    def be_busy(self, seconds: float) -> None:
        """Has producers write as much as they can for a while."""
        self._busy_until = max(self._busy_until, self.world.now + seconds)

    def partition(self, q: int) -> Partition:
        """Returns a physical partition."""
        return self._partitions[q]

    def new_producer_id(self) -> int:
        """Returns one that nobody has (InitProducerId)."""
        self._last_id += 1
        return self._last_id

    def new_proxy(self) -> Proxy:
        """Starts a process."""
        self._proxy_count += 1
        proxy = Proxy(self, f"proxy-{self._proxy_count}")
        proxy.start()
        return proxy

    def some_proxy(self) -> Proxy:
        """Picks one that lives."""
        return self.proxies[self.world.between(0, len(self.proxies) - 1)]

    @property
    def written_through(self) -> list[Proxy]:
        """The proxies that live and have a producer."""
        return [each.through for each in self.all_producers if each.through is not None] or self.proxies

    def replace(self, producer: Producer) -> None:
        """Begins another producer where one has failed."""
        self.world.say(f"producer {producer.client_id} has failed")
        self.all_producers.append(IdempotentProducer(self, self.new_producer_id()))

    def delay(self, proxy: Proxy, most: float, *, stray: bool = False) -> float:
        """Returns how long something takes on its way; some of it, while things go wrong, very long."""
        world = self.world
        way = _LEAST_SECONDS + (most - _LEAST_SECONDS) * world.random.random()
        seconds = max(0.0, proxy.cut_until - world.now) + way
        if world.now < TROUBLE_SECONDS and world.chance(self.trouble_share * (0.02 if stray else 0.003)):
            seconds += self.world.random.choice([0.3, 2.0, 8.0] if stray else [0.3, 2.0])
        return seconds

    def answer(self, proxy: Proxy, answer: Callable[[int], None], code: int) -> None:
        """Lets an answer reach its client."""
        self.world.after(self.delay(proxy, 0.01), lambda: answer(code) if proxy.alive else None)

    def fail(self, what: str) -> None:
        """Notes a broken promise."""
        self.failures.append(f"{self.world.now:.3f}: {what}")

    def on_commit(self, writer: Proxy, records: tuple[tuple[str, Value | None], ...]) -> None:
        """A controller's transaction is durable."""
        self.fences.on_commit(writer, records)
        self.be_busy(1.0)
        if self.is_troubled and all(key.startswith("image/") for key, _ in records):
            for proxy in self.proxies:  # clients come by other ways, whose lines go by images again (STILL-CUT)
                proxy.lose_lanes()
        if any(key == f"topic/{self.topic}" for key, _ in records):
            self.nemesis.on_layout()
            if self.is_taken_over and self.is_troubled and self.world.chance(_LATE_SHARE):
                self.world.random.choice(self.proxies).lags_until = self.world.now + _LATE_SECONDS
            if self.is_troubled and self.world.chance(_ELECTION_SHARE):
                self._elect(self.world.random.randrange(V))

    def wish(self) -> None:
        """Somebody wants the topic managed."""
        self.world.say("the topic is to be managed")
        self.be_busy(2.0)
        self.is_wished = True

    def change_mind(self, to_seal: Collection[int] = ()) -> None:
        """Another number of partitions is wanted; one that seals as many of some partitions as any other does."""
        layout, counts = self.layout, [u for u in range(N, V + 1) if u != self.wanted]
        if to_seal:
            sealed = {u: len(layout.change_to(layout.next_epoch(u)).sealed.intersection(to_seal)) for u in counts}
            counts = [u for u in counts if sealed[u] == max(sealed.values())]
        self.wanted = self.world.random.choice(counts)
        self.world.say(f"{self.wanted} partitions are wanted")
        self.be_busy(2.0)

    def change_for_a_while(self, seconds: float, to_seal: Collection[int]) -> None:
        """Another number of partitions is wanted, as above; where changes are taken back, only so long."""
        before = self.layout.u
        self.change_mind(to_seal)

        def back() -> None:
            self.world.say(f"{before} partitions are wanted again")
            self.wanted = before

        if self.comes_back:
            self.world.after(seconds, back)

    def kill(self, proxy: Proxy) -> None:
        """Ends a process, and starts another in its place."""
        proxy.kill()
        self._replace(proxy)

    def restart(self, proxy: Proxy) -> None:
        """Ends a process in order, as a rolling upgrade does, and starts another in its place."""
        proxy.leave()
        self._replace(proxy)

    def _replace(self, proxy: Proxy) -> None:
        self.ended.append(proxy)
        self.proxies = [each for each in self.proxies if each is not proxy] + [self.new_proxy()]

    def trouble(self) -> bool:
        """Something happens: a kill, a pause, a change of mind about the number of partitions."""
        proxy = self.some_proxy()
        if not self.layout.is_managed and self.world.now < proxy.disturbed_until + _LONGEST_BEFORE_SECONDS:
            return self.is_troubled  # it has had no time to be heard of, and would be away for longer
        self.be_busy(1.0)
        match self.world.random.choice(self._moods):
            case "kill":
                self.kill(proxy)
            case "restart":
                self.restart(proxy)
            case "pause":
                proxy.pause(self._while())
            case "cut":
                proxy.cut_off(self._while())
            case "lanes":
                self.world.say(f"{proxy.name} loses its lanes")
                proxy.lose_lanes()
            case "election":
                self._elect(self.world.random.randrange(V))
            case "overtake":
                self.world.say("the next layout is late")
                self.nemesis.overtake()
            case _:
                self.change_mind()
        return self.is_troubled

    def _while(self) -> float:
        seconds = self.world.random.choice([0.5, 2.0, 5.0, 9.0])
        return seconds if self.layout.is_managed else min(seconds, _LONGEST_BEFORE_SECONDS)

    def _elect(self, q: int) -> None:
        """A physical partition has no leader for a moment."""
        self.world.say(f"partition {q} has no leader")
        log = self.partition(q)
        log.has_leader = False

        def elected() -> None:
            log.has_leader = True
            log.node_id = self.world.random.choice(NODES)
            log.leader_epoch += 1

        self.world.after(self.world.random.choice([0.05, 0.1, 0.3]), elected)


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Leaves garbage in cycles for later: most that a cluster makes lives as long as the cluster."""
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_enabled:
            gc.enable()


@contextmanager
def _many(seed: int) -> Iterator[None]:
    """Has the topic of some clusters have very many producers; what proxies read is read once for all of them.

    Layouts keep what was derived from them, so nothing is left of clusters before, which may have lacked a rule.
    """
    load_once.cache_clear()
    few = 0 if seed % _MANY_EVERY == _MANY_EVERY - 1 else ahead.FEW_PRODUCERS
    with patch.object(ahead, "FEW_PRODUCERS", few), patch.object(record_intake, "load", load_once):
        yield


def _come_to_an_end(cluster: Cluster) -> None:
    """Lets everything arrive and all be read, and looks whether the promises hold."""
    world, group = cluster.world, cluster.dialect_group
    cluster.nemesis.release()
    for proxy in cluster.proxies:
        proxy.paused_until = 0.0
    world.run(world.now + ARRIVAL_SECONDS, cluster.failures.__len__)
    if group is not None:
        world.run(world.now + DRAIN_SECONDS, lambda: group.is_drained or cluster.failures)
    if not cluster.failures:
        for consumer in cluster.consumers:
            consumer.finish()
        promises.check(cluster)
        promises.check_rewind(cluster)


def run(
    seed: int,
    without: str = "",
    *,
    has_dialect_writers: bool = False,
    delivers: bool = False,
    heal_seconds: float = HEAL_SECONDS,
) -> Cluster:
    """Lets a cluster live through one seed.

    Args:
        seed: Decides everything.
        without: A rule that is taken out, of `rules.PLACES`.
        has_dialect_writers: Whether clients of the dialect write beside all others.
        delivers: The topic has data, and no record waits while it is taken over.
        heal_seconds: Of virtual time, until which it must have settled.

    Returns:
        The cluster; `wrong` is empty if every promise held. It ends where one is broken.
    """
    world = World(seed)
    errors: list[str] = []
    with taken_out(without), _nothing_collected(), clocks_of(world), told_in(world, errors.append), _many(seed):
        cluster = Cluster(world, has_dialect_writers=has_dialect_writers, delivers=delivers)
        cluster.errors = errors
        if cluster.is_taken_over:
            world.after(world.random.uniform(*_WISH_SECONDS), cluster.wish)
        if not cluster.is_taken_over and world.chance(_NEMESIS_SHARE):
            cluster.trouble_share = min(cluster.trouble_share, _MOST_BESIDE_NEMESIS)
            world.each(_NEMESIS_SECONDS, cluster.nemesis.strike)
        else:
            world.each(3.0, cluster.trouble)
        world.run(nextafter(TROUBLE_SECONDS, 0.0), cluster.failures.__len__)  # it does not settle before
        world.each(_LOOK_SECONDS, cluster.look)
        world.run(heal_seconds, lambda: cluster.settled or cluster.failures)
        if not (cluster.settled or cluster.failures):
            cluster.fail("not everything that was asked for came true")
        if not cluster.failures:  # else it is known what became of it
            _come_to_an_end(cluster)
        cluster.over = True
        for proxy in (*cluster.ended, *cluster.proxies):
            proxy.loop.end()
        world.end()
        return cluster
