"""How a proxy of the simulation writes: the real lines, and a model of the lanes behind them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final, NamedTuple

from kordon.codecs.error_codes import Code
from kordon.codecs.produce import Outcome
from kordon.proxy.handlers import produce
from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.identity import owner_of, untag
from kordon.proxy.ordering.line import Line, Refuse, Result, Write
from kordon.proxy.ordering.streams import Stream, is_physical, shown_partition
from kordon.proxy.ordering.under_way import Fate, KeptAnswers, UnderWay
from kordon.proxy.writes.lanes import HOLD_SECONDS, MOST_KEPT, WAIT_SECONDS
from kordon.proxy.writes.write_outcomes import ProduceCounts, refused, result_of, told
from kordon.testing.simulation.clients import Produce
from kordon.testing.simulation.kafka import Batch
from kordon.testing.simulation.world import Pipe

if TYPE_CHECKING:
    from kordon.testing.simulation.proxies import Proxy

_PASSED: Final = None
"""The pipe that clients' own requests pass by; the others are those of streams."""


class _Ticket(NamedTuple):
    request: Produce
    answer: Callable[[int], None]


class Writing:
    """All that one proxy writes.

    Args:
        proxy: Whose.
    """

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._world = proxy.world
        self._cluster = proxy.cluster
        self._lines: dict[Stream, Line] = {}
        self._held_since: dict[Stream, float] = {}
        self._asking: set[tuple[Stream, str]] = set()
        self._under_way: dict[Write, int] = {}
        """Sent and unanswered, with their physical partitions."""
        self.under_way = UnderWay()
        """The same, counted."""
        self.passed = 0
        """Writes to a topic that is not managed yet, sent and unanswered."""
        self._kept = KeptAnswers[tuple[Write, Outcome | None]](MOST_KEPT, WAIT_SECONDS)
        self._to_brokers: dict[Stream | None, Pipe] = defaultdict(lambda: Pipe(self._world))
        self._from_brokers: dict[Stream | None, Pipe] = defaultdict(lambda: Pipe(self._world))
        self._counts = ProduceCounts()

    def produce(self, request: Produce, answer: Callable[[int], None]) -> None:
        """Takes a client's batch."""
        topic = self._proxy.topic
        if topic is None:
            self._pass(request, answer)
            return
        if is_physical(request.v) and not topic.layout.chain(request.v).stays:
            code = produce.refusal(Code.INVALID_PARTITION_METADATA, topic.layout, request.layout_epoch)
            self._cluster.answer(self._proxy, answer, code)
            return
        write = Write(
            request.client_id,
            request.epoch,
            request.base_sequence,
            len(request.records),
            size=1,
            acks=-1,
            since=self._world.now,
            payload=_Ticket(request, answer),
            undeleted_partition_count=request.count,
            layout_epoch=request.layout_epoch,
        )
        self._line(request.v).add(write)
        self.go_on(request.v)

    def go_on(self, v: Stream) -> None:
        """Sends what may be sent of a stream."""
        topic, line = self._proxy.topic, self._line(v)
        may_serve = self._proxy.member.may_serve(self._world.now)
        home = topic.open_home(v, may_serve=may_serve) if topic is not None else None
        while topic is not None and isinstance(home, Stay):
            step = line.next(home, topic.images.get(v, {}), lambda _: True, topic.layout.count_in_force)
            if step is None:
                break
            self._held_since.pop(v, None)
            if isinstance(step, Refuse):
                self._tell(step.write, refused(topic.layout, v, step.why, self._counts))
            else:
                self._send(step)
        if line.needs_id:
            self._want_id(v)
        if line.has_question:
            self._want_writers(v)

    def go_on_with_all(self) -> None:
        """The layout, a fence or the lease has changed."""
        for v in self._lines:
            self.go_on(v)

    def tick(self) -> None:
        """Gives up what was held for too long (SHORT-FENCE)."""
        for v, line in self._lines.items():
            if not line.waits:  # there is nothing to go on with
                self._held_since.pop(v, None)
                continue
            self.go_on(v)
            if not line.waits:
                self._held_since.pop(v, None)
            elif self._world.now - self._held_since.setdefault(v, self._world.now) > HOLD_SECONDS:
                self._give_up(v)
        for write, _ in self._kept.overdue(self._world.now):
            self._conclude(write, None, Result.LOST)

    def give_up_all(self) -> None:
        """The topic is an ordinary one again."""
        for v in self._lines:
            self._give_up(v)

    def judge_kept(self) -> None:
        """Judges successes that came while there was no lease: the layouts have been read since (LATE-ANSWER)."""
        if self._proxy.member.may_serve(self._world.now):
            for write, outcome in self._kept.release():
                self._conclude(write, outcome, result_of(outcome))

    def lose_lanes(self) -> None:
        """Connections to brokers break: no answer comes any more, though what was sent may land.

        Those that clients' own requests pass by are none of them: these keep their order.
        """
        for pipes in (self._to_brokers, self._from_brokers):
            for number in pipes.keys() - {_PASSED}:
                del pipes[number]
        for write in list(self._under_way):
            self._answered(write, None)

    def _line(self, v: Stream) -> Line:
        if v not in self._lines:
            self._lines[v] = Line(v)
        return self._lines[v]

    def _pass(self, request: Produce, answer: Callable[[int], None]) -> None:
        """Lets a write to an ordinary topic go by as it is."""
        q = shown_partition(request.v)
        if q >= self._cluster.n or not self._proxy.knows_layouts:
            self._cluster.answer(self._proxy, answer, Code.UNKNOWN_TOPIC_OR_PARTITION)
            return
        self.passed += 1
        batch = Batch(request.client_id, request.epoch, request.base_sequence, request.records)

        def there() -> None:
            code, _ = self._cluster.partition(q).append(batch)
            self._from_brokers[_PASSED].send(self._delay(), lambda: self._proxy.arrive(lambda: back(code)))

        def back(code: Code) -> None:
            self.passed -= 1
            self._cluster.answer(self._proxy, answer, code)
            self._proxy.look_drained()

        self._to_brokers[_PASSED].send(self._delay(), there)

    def _send(self, write: Write) -> None:
        bound, ticket = write.bound, write.payload
        assert bound is not None
        request: Produce = ticket.request
        self._under_way[write] = bound.partition
        self.under_way.sent((self._cluster.topic, bound.partition))
        batch = Batch(bound.producer_id, bound.epoch, bound.sequence, request.records)
        v = request.v
        answers = self._from_brokers[v]

        def there() -> None:
            code, base_offset = self._cluster.partition(bound.partition).append(batch)
            outcome = Outcome(v, code, base_offset)
            answers.send(self._delay(), lambda: self._proxy.arrive(lambda: self._answered(write, outcome)))

        if not self._cluster.nemesis.keeps(self._proxy, bound.partition, there):
            self._to_brokers[v].send(self._delay(stray=True), there)

    def _delay(self, *, stray: bool = False) -> float:
        return self._cluster.delay(self._proxy, 0.02, stray=stray)

    def _answered(self, write: Write, outcome: Outcome | None) -> None:
        partition = self._under_way.pop(write, None)
        if partition is None:
            return  # given up with its lane
        result = result_of(outcome)
        is_written = result is Result.WRITTEN
        written_to = outcome.base_offset + write.records if outcome is not None and is_written else 0
        self.under_way.answered((self._cluster.topic, partition), written_to)
        now = self._world.now
        may_serve = self._proxy.member.may_serve(now)
        match self._kept.take((write, outcome), is_written=is_written, may_serve=may_serve, now=now):
            case Fate.TELL:
                self._conclude(write, outcome, result)
            case Fate.LOSE:
                self._conclude(write, None, Result.LOST)
            case Fate.KEEP:
                pass
        self._proxy.look_drained()

    def _conclude(self, write: Write, outcome: Outcome | None, result: Result) -> None:
        topic, v = self._proxy.topic, write.payload.request.v
        assert topic is not None, "it was written"
        if self._line(v).answered(write, result):
            self._tell(write, told(topic.layout, v, write, outcome, self._counts))
        self.go_on(v)

    def _tell(self, write: Write, outcome: Outcome) -> None:
        self._cluster.answer(self._proxy, write.payload.answer, outcome.error_code)

    def _give_up(self, v: Stream) -> None:
        self._held_since.pop(v, None)
        for write in self._line(v).give_up():
            self._tell(write, Outcome(shown_partition(v), Code.NOT_LEADER_OR_FOLLOWER))

    def _want_id(self, v: Stream) -> None:
        """Asks for a producer id (LENT-IDENTITY)."""
        place = v, "id"
        if place not in self._asking:
            self._asking.add(place)
            self._proxy.ask(self._cluster.new_producer_id, lambda producer_id: self._identify(v, producer_id))

    def _identify(self, v: Stream, producer_id: int) -> None:
        self._asking.discard((v, "id"))
        if self._line(v).needs_id:
            self._line(v).identify(producer_id)
        self.go_on(v)

    def _want_writers(self, v: Stream) -> None:
        """Asks which identities have begun (OPENER-ALONE)."""
        topic = self._proxy.topic
        home = topic.layout.chain(v).home if topic is not None else None
        place = v, "writers"
        if place not in self._asking and home is not None:
            self._asking.add(place)
            self._line(v).begin_question()
            self._proxy.ask(
                self._cluster.partition(home.partition).producers, lambda found: self._learn(v, home, found)
            )

    def _learn(self, v: Stream, home: Stay, found: Collection[int]) -> None:
        self._asking.discard((v, "writers"))
        identities = [identity for identity in map(untag, found) if identity is not None]
        begun = {each.client_id for each in identities if each.owner == owner_of(v, home.move)}
        self._line(v).learn(home.partition, home.move, begun)
        self.go_on(v)
