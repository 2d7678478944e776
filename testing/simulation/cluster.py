"""A simulated cluster with its proxies and clients, what goes wrong in it, and what must hold whatever does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from kordon.proxy.ordering.chain import Chain
from kordon.proxy.ordering.controller import Controller
from kordon.proxy.ordering.identity import MOVES, untag
from kordon.proxy.ordering.images import Image
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.member import Member
from kordon.proxy.ordering.reading import ReadingPlace, first_readable, reading_place
from kordon.proxy.ordering.records import TopicRecord
from kordon.testing.simulation.kafka import NONE, Group, LayoutsLog, Partition
from kordon.testing.simulation.nemesis import Nemesis
from kordon.testing.simulation.proxies import TOPIC, Proxy, Written
from kordon.testing.simulation.world import World

N, V = 2, 8
TROUBLE_SECONDS: Final = 60.0
"""How long things go wrong."""
HEAL_SECONDS: Final = 160.0
"""By when all that was asked for must have come true once nothing goes wrong any more."""
_NEMESIS_SHARE: Final = 0.5
"""Of the seeds, in which what goes wrong is arranged; in the others it happens by chance."""
_NEMESIS_SECONDS: Final = 7.0
_NOTHING: Final = Partition()


class RunawayController(Controller):
    """A controller that does not wait for the leases of those that are missing (rule C2 taken out)."""

    def on_members(self, members: frozenset[str], now: float, gone: frozenset[str] = frozenset()) -> list:  # type: ignore[type-arg]
        """Forgets who was there."""
        return super().on_members(members, now, self._members | gone)


@dataclass
class Rules:
    """The rules that proxies keep; a test takes one out and sees the simulation fail."""

    without: str = ""

    def controller(self, now: float, lease: float, members: frozenset[str]) -> Controller:
        """Makes a controller."""
        if self.without == "C2":
            return RunawayController(now - lease, lease, members)
        return Controller(now, lease, members)

    def may_write(self, member: Member, q: int, now: float) -> bool:
        """C1: only under a lease; C3: only after reading; never behind a fence."""
        if self.without == "C1":
            now = min(now, member.lease_expires - 0.001)
        if self.without == "fence":
            return member.may_serve(now)
        return member.may_write(TOPIC, q, now)

    def may_answer(self, member: Member, now: float) -> bool:
        """C7: a success is passed on only under a lease."""
        return self.without in ("C1", "C7") or member.may_serve(now)

    @property
    def judges(self) -> bool:
        """C7: whether a success that came late is held against the layouts."""
        return self.without != "C7"

    @property
    def gates_first(self) -> bool:
        """I4."""
        return self.without != "I4"

    @property
    def compares_ends(self) -> bool:
        """C6: a cut is read again if somebody wrote meanwhile."""
        return self.without != "C6"

    @property
    def passes_holes(self) -> bool:
        """F4: what retention took from the middle of a chain is passed over."""
        return self.without != "F4"

    @property
    def asks_again(self) -> bool:
        """F5: what seems out of range is looked up in the layouts first."""
        return self.without != "F5"

    def place(self, chain: Chain, position: int) -> ReadingPlace | None:
        """Predecessors (design §3): no segment is delivered from before those that held its keys earlier."""
        home = chain.home
        if self.without == "predecessors" and home is not None:
            position = max(position, home.virtual_start)
        return reading_place(chain, position, 0)

    @property
    def freezes(self) -> bool:
        """C5."""
        return self.without != "C5"

    def image(self, member: Member, v: int) -> Image:
        """I3."""
        return {} if self.without == "I3" else member.images(TOPIC).get(v, {})


@dataclass
class _Sent:
    batch: Written
    acknowledged: bool = False


class Producer:
    """An idempotent client: up to five batches in flight per virtual partition, retried in order."""

    def __init__(self, cluster: Cluster, client_id: int) -> None:
        self.cluster = cluster
        self.client_id = client_id
        self.sent: dict[int, list[_Sent]] = defaultdict(list)
        self.acknowledged: list[object] = []
        self._patience = cluster.world.random.choice([(4.0, 10.0), (20.0, 30.0)])
        self._through: Proxy | None = None
        self._attempt: dict[int, int] = defaultdict(int)

    def turn(self) -> bool:
        """Sends something new."""
        v = self.cluster.world.random.randrange(V)
        batches = self.sent[v]
        if all(each.acknowledged for each in batches[:-4]):  # no more than five stand behind the first that is unsure
            first = batches[-1].batch.base_sequence + len(batches[-1].batch.values) if batches else 0
            count = self.cluster.world.random.randint(1, 3)
            values = tuple((self.client_id, v, first + i) for i in range(count))
            batches.append(_Sent(Written(v, self.client_id, 0, first, values)))
            self._send(batches[-1], self._attempt[v])
        return self.cluster.world.now < TROUBLE_SECONDS

    @property
    def is_done(self) -> bool:
        """Whether all is acknowledged."""
        return all(each.acknowledged for batches in self.sent.values() for each in batches)

    def _send(self, sent: _Sent, attempt: int) -> None:
        proxy = self._connection()
        v = sent.batch.v
        answered = False

        def answer(error: str) -> None:
            nonlocal answered
            if answered or attempt != self._attempt[v]:
                return
            answered = True
            if error == NONE:
                if not sent.acknowledged:
                    sent.acknowledged = True
                    self.acknowledged += sent.batch.values
            else:
                self._again(v)

        def late() -> None:
            if not answered and not sent.acknowledged and attempt == self._attempt[v]:
                self._through = None
                self._again(v)

        self.cluster.world.after(
            self.cluster.delay(proxy, 0.01), lambda: proxy.arrive(lambda: proxy.produce(sent.batch, answer))
        )
        self.cluster.world.after(self.cluster.world.random.uniform(*self._patience), late)

    def _again(self, v: int) -> None:
        """Sends all that is not acknowledged once more, in order, on whichever connection there is."""
        self._attempt[v] += 1
        attempt = self._attempt[v]
        if self.cluster.world.chance(0.3):
            self._through = None

        def resend() -> None:
            if attempt == self._attempt[v]:
                for each in self.sent[v]:
                    if not each.acknowledged:
                        self._send(each, attempt)

        self.cluster.world.after(self.cluster.world.random.uniform(0.05, 0.3), resend)

    def _connection(self) -> Proxy:
        if self._through is None or not self._through.alive:
            self._through = self.cluster.some_proxy()
        return self._through


class Consumer:
    """Reads one virtual partition from its beginning, through whichever proxy."""

    def __init__(self, cluster: Cluster, v: int) -> None:
        self.cluster = cluster
        self.v = v
        self.position = 0
        self.got: list[object] = []

    def turn(self) -> bool:
        """Reads on."""
        portion = self.cluster.some_proxy().read(self.v, self.position)
        if portion is not None:
            if portion.position < self.position:
                self.cluster.fail(f"the position of {self.v} fell from {self.position} to {portion.position}")
            self.got += portion.values
            self.position = max(portion.position, 0)
        return not self.cluster.over


@dataclass
class Cluster:
    """Everything.

    Attributes:
        world: Time and chance.
        rules: Which are kept.
    """

    world: World
    rules: Rules = field(default_factory=Rules)
    failures: list[str] = field(default_factory=list)
    wanted: int = N
    over: bool = False
    trouble_seconds: float = TROUBLE_SECONDS
    settled: bool = False
    """Whether everything that was asked for has come true."""

    def __post_init__(self) -> None:
        self.layouts = LayoutsLog()
        self.group = Group(self.world)
        self._partitions: dict[int, Partition] = defaultdict(Partition)
        layout = Layout.created(TOPIC, UUID(int=1), N, V)
        self.layouts.append(f"topic/{TOPIC}", TopicRecord(layout, UUID(int=2)))
        self._count = 0
        calm = self.world.random.choice([0, 1, 4, 12])  # every few seeds something else prevails
        self.moods = ["kill", "pause", "cut", *["resize"] * (1 + calm)]
        self.nemesis = Nemesis(self)
        self.trouble_share = self.world.random.choice([0.0, 0.1, 1.0])
        self.proxies = [self.new_proxy() for _ in range(3)]
        self.producers = [Producer(self, client_id) for client_id in (11, 12, 13)]
        self.consumers = [Consumer(self, v) for v in range(V)]

    def partition(self, q: int) -> Partition:
        """Returns a physical partition."""
        return self._partitions[q]

    def new_proxy(self) -> Proxy:
        """Starts a process."""
        self._count += 1
        proxy = Proxy(self, f"proxy-{self._count}")
        proxy.start()
        return proxy

    def some_proxy(self) -> Proxy:
        """Picks one that lives."""
        return self.world.random.choice(self.proxies)

    def delay(self, proxy: Proxy, most: float, *, stray: bool = False) -> float:
        """Returns how long something takes on its way; some of it, while things go wrong, very long."""
        seconds = max(0.0, proxy.cut_until - self.world.now) + self.world.random.uniform(0.0005, most)
        if self.world.now < TROUBLE_SECONDS and self.world.chance(self.trouble_share * (0.02 if stray else 0.003)):
            seconds += self.world.random.choice([0.3, 2.0, 8.0] if stray else [0.3, 2.0])
        return seconds

    def answer(self, proxy: Proxy, answer: Callable[[str], None], error: str) -> None:
        """Lets an answer reach its client."""
        self.world.after(self.delay(proxy, 0.01), lambda: answer(error) if proxy.alive else None)

    def fail(self, what: str) -> None:
        """Notes a broken promise."""
        self.failures.append(f"{self.world.now:.3f}: {what}")

    def trouble(self) -> bool:
        """Something happens: a kill, a pause, a change of mind about the number of partitions."""
        place = self.world.random.randrange(len(self.proxies))
        match self.world.random.choice(self.moods):
            case "kill":
                self.kill(self.proxies[place])
            case "pause":
                seconds = self.world.random.choice([0.5, 2.0, 5.0, 9.0])
                self.proxies[place].paused_until = self.world.now + seconds
                self.world.say(f"{self.proxies[place].name} is paused for {seconds} s")
            case "cut":
                seconds = self.world.random.choice([0.5, 2.0, 5.0, 9.0])
                self.proxies[place].cut_until = self.world.now + seconds
                self.world.say(f"{self.proxies[place].name} is cut off from the brokers for {seconds} s")
            case _:
                self.change_mind()
        return self.world.now < TROUBLE_SECONDS

    def kill(self, proxy: Proxy) -> None:
        """Ends a process, and starts another in its place."""
        proxy.kill()
        self.proxies = [each for each in self.proxies if each is not proxy] + [self.new_proxy()]

    def change_mind(self) -> None:
        """Another number of partitions is wanted."""
        self.wanted = self.world.random.choice([u for u in range(N, V + 1) if u != self.wanted])
        self.world.say(f"{self.wanted} partitions are wanted")

    @property
    def is_settled(self) -> bool:
        """Whether all that was asked for has come true."""
        if self.world.now < TROUBLE_SECONDS or not all(each.is_done for each in self.producers):
            return False
        sizes = {proxy.member.topics[TOPIC].layout.u for proxy in self.proxies if TOPIC in proxy.member.topics}
        fences = any(proxy.member.fences for proxy in self.proxies)
        return sizes == {self.wanted} and not fences

    def check(self) -> None:
        """Holds what happened against promises 1 and 2 (design §10)."""
        if not self.settled:
            self.fail("not everything that was asked for came true")
        acknowledged: dict[int, list[object]] = defaultdict(list)
        for producer in self.producers:
            for v, batches in producer.sent.items():
                acknowledged[v] += [value for each in batches if each.acknowledged for value in each.batch.values]
        for v in range(V):
            self._check_log(f"log of {v}", _log_of(v, self.layout, self._partitions), acknowledged[v])
            self._check_log(f"consumer of {v}", self.consumers[v].got, acknowledged[v])

    @property
    def story_end(self) -> list[str]:
        """What happened last."""
        return self.world.story[-40:]

    @property
    def layout(self) -> Layout:
        """The last one that was committed."""
        records = [value for key, value in self.layouts.records if key == f"topic/{TOPIC}"]
        last = records[-1]
        assert isinstance(last, TopicRecord)
        return last.layout

    def rewind(self) -> None:
        """Reads all once more from the beginning, when retention has taken the heads of some logs (rule F4)."""
        for q, log in self._partitions.items():
            bases = [base for base, _ in log.batches]
            if q >= N and bases:
                log.start = self.world.random.choice(bases)
        log_starts = {q: log.start for q, log in self._partitions.items()}
        proxy = self.proxies[0]
        for v, chain in enumerate(self.layout.chains):
            left = _log_of(v, self.layout, self._partitions)
            got, position = list[object](), first_readable(chain, 0, log_starts)
            while (portion := proxy.read(v, position)) is not None and portion.position > position:
                got += portion.values
                position = portion.position
            if got != left:
                self.fail(f"who begins {v} anew gets {len(got)} of {len(left)} records")

    def _check_log(self, where: str, values: list[object], acknowledged: list[object]) -> None:
        if len(values) != len(set(values)):
            self.fail(f"{where}: doubled: {[each for each in set(values) if values.count(each) > 1][:5]}")
        if missing := set(acknowledged) - set(values):
            self.fail(f"{where}: lost: {sorted(map(str, missing))[:5]}")
        for producer in self.producers:
            numbers = [each[2] for each in values if each[0] == producer.client_id]  # type: ignore[index]
            if numbers != sorted(numbers):
                self.fail(f"{where}: out of order for {producer.client_id}: {numbers[:40]}")


def _log_of(v: int, layout: Layout, partitions: Mapping[int, Partition]) -> list[object]:
    """Reads the whole chain of a virtual partition."""
    values: list[object] = []
    for stay in layout.chains[v].stays:
        log = partitions.get(stay.partition, _NOTHING)
        for _, batch in log.between(stay.start, log.end if stay.end is None else stay.end):
            who = untag(batch.producer_id)
            if who is not None and (who.v, who.move) == (v, stay.move % MOVES):
                values += batch.values
    return values


def run(seed: int, without: str = "") -> Cluster:
    """Lets a cluster live through one seed.

    Args:
        seed: Decides everything.
        without: A rule that is taken out.

    Returns:
        The cluster; `failures` is empty if every promise held.
    """
    world = World(seed)
    cluster = Cluster(world, Rules(without))
    for producer in cluster.producers:
        world.each(0.04, producer.turn)
    for consumer in cluster.consumers:
        world.each(0.2, consumer.turn)
    if world.chance(_NEMESIS_SHARE):
        world.each(_NEMESIS_SECONDS, cluster.nemesis.strike)
    else:
        world.each(3.0, cluster.trouble)
    world.run(HEAL_SECONDS, lambda: cluster.is_settled or bool(cluster.failures))
    cluster.settled = cluster.is_settled
    cluster.nemesis.release()
    for proxy in cluster.proxies:
        proxy.paused_until = 0.0
    world.run(world.now + 10.0)
    cluster.over = True
    cluster.check()
    cluster.rewind()
    return cluster
