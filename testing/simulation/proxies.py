"""A proxy of the simulation: the real member and controller, a model of lanes and readers around them."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kordon.proxy.ordering import controller as leading
from kordon.proxy.ordering import member as following
from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.controller import Controller, Producers
from kordon.proxy.ordering.identity import tag
from kordon.proxy.ordering.images import Refusal, sequence_at_home
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.member import Member
from kordon.proxy.ordering.reading import Resident, Tenancy, tenancies
from kordon.proxy.ordering.records import AckRecord, Value
from kordon.testing.simulation.kafka import FENCED, NONE, OUT_OF_ORDER, Batch

if TYPE_CHECKING:
    from kordon.testing.simulation.cluster import Cluster

TOPIC: Final = "orders"
LEASE: Final = 6.0
HOLD: Final = 3.0
RETRIABLE, UNKNOWN = "not leader or follower", "unknown producer id"


@dataclass(frozen=True)
class Written:
    """What a client sends: records of one virtual partition, numbered as the client counts."""

    v: int
    client_id: int
    epoch: int
    base_sequence: int
    values: tuple[object, ...]


@dataclass
class _Pending:
    batch: Written
    answer: Callable[[str], None]
    since: float


@dataclass(frozen=True)
class Portion:
    """What a consumer gets."""

    values: list[object]
    position: int
    """Virtual; where it goes on."""


OUT_OF_RANGE: Final = Portion([], -1)
"""An error: consumers begin anew where the first record is (auto.offset.reset=earliest)."""
_BATCHES_READ: Final = (2, 9)
"""At least and at most, in one portion: so that growths and shrinks overtake consumers."""


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
        self.position = 0
        self.controller: Controller | None = None
        self._writer_epoch = 0
        self._pending: dict[int, deque[_Pending]] = defaultdict(deque)
        self._in_flight: dict[int, int] = defaultdict(int)
        self._awaiting_drain: dict[str, frozenset[int]] = {}
        self._established: set[tuple[int, int, int, int]] = set()
        self._first_under_way: set[tuple[int, int, int, int]] = set()
        self._late: list[tuple[_Pending, int, int]] = []
        self.frozen: dict[int, int] = {}
        self._joining = False
        self._wishes = 0
        self._layout_read: Layout | None = None
        self._tenancies: Mapping[int, Tenancy] = {}

    # --- life

    def start(self) -> None:
        """Joins, and begins its loops."""
        self.world.say(f"{self.name} starts")
        self._join()
        self.world.each(0.5, self._loop(self._heartbeat))
        self.world.each(LEASE / 3, self._loop(self._renew))
        self.world.each(0.1, self._loop(self._tick))
        self.world.each(0.05, self._loop(self._read))

    def kill(self) -> None:
        """Ends at once; what it had sent to brokers may still arrive."""
        self.world.say(f"{self.name} is killed")
        self.alive = False

    def _loop(self, what: Callable[[], None]) -> Callable[[], bool]:
        def turn() -> bool:
            if self.alive and self.world.now >= self.paused_until:
                what()
            return self.alive

        return turn

    def later(self, what: Callable[[], None], most: float = 0.02) -> None:
        """Lets an answer reach this proxy: not while it is paused, and never once it is killed."""

        def arrive() -> None:
            if not self.alive:
                return
            if self.world.now < self.paused_until:
                self.world.after(self.paused_until - self.world.now + 0.001, arrive)
                return
            what()

        self.world.after(self.cluster.delay(self, most), arrive)

    # --- the group

    def _join(self) -> None:
        if self._joining:
            return
        self._joining = True

        def joined(generation: int, members: list[str]) -> None:
            self.later(lambda: self._joined(generation, members))

        self.later_there(lambda: self.cluster.group.join(self.name, joined))

    def later_there(self, what: Callable[[], None]) -> None:
        """Lets a request of this proxy reach the cluster."""
        self.world.after(self.cluster.delay(self, 0.01), what)

    def _joined(self, generation: int, members: list[str]) -> None:
        self._joining = False
        self.generation, self.members = generation, members
        if self.cluster.rules.without != "C3":
            self.member.on_joined()
        self._read_to_end(lambda: self._caught_up(generation))
        self._renew()
        if members[0] == self.name:
            if self.controller is None:
                self._lead()
            else:
                self._do(self.controller.on_members(frozenset(members), self.world.now))
        else:
            self.controller = None

    def _caught_up(self, generation: int) -> None:
        if generation == self.generation:
            self.member.on_caught_up()
            self._judge_late()

    def _heartbeat(self) -> None:
        generation = self.generation

        def there() -> None:
            fine = self.cluster.group.heartbeat(self.name, generation)
            self.later(lambda: None if fine else self._rejoin(generation))

        self.later_there(there)

    def _rejoin(self, generation: int) -> None:
        if generation == self.generation:
            self._join()

    def _renew(self) -> None:
        sent, generation = self.world.now, self.generation

        def there() -> None:
            if self.cluster.group.commit(self.name, generation):
                self.later(lambda: self._renewed(sent))

        self.later_there(there)

    def _renewed(self, sent: float) -> None:
        self.member.on_renewed(sent, LEASE)
        if self._late:
            self._read_to_end(self._judge_late)

    # --- the layouts

    def _read(self) -> None:
        end = len(self.cluster.layouts.records)
        if self.world.now >= self.lags_until:
            self.later(lambda: self._read_up_to(end), 0.01)

    def _read_to_end(self, then: Callable[[], None]) -> None:
        def there() -> None:
            if self.world.now < self.lags_until:
                self.world.after(self.lags_until - self.world.now, there)
                return
            end = len(self.cluster.layouts.records)

            def back() -> None:
                self._read_up_to(end)
                then()

            self.later(back)

        self.later_there(there)

    def _read_up_to(self, end: int) -> None:
        while self.position < end:
            key, value = self.cluster.layouts.records[self.position]
            self.position += 1
            self._on_record(key, value)

    def _on_record(self, key: str, value: Value | None) -> None:
        if isinstance(value, AckRecord) and self.controller is not None:
            self._do(self.controller.on_ack(value.fence, value.incarnation, self.world.now))
        for command in self.member.on_record(key, value):
            match command:
                case following.Hold(fence):
                    self._awaiting_drain[fence.id] = fence.sealed
                    self._look_drained()
                case following.Acknowledge():
                    raise AssertionError("only on_held acknowledges")
                case following.Adopt() | following.Release():
                    self.frozen.clear()
                    self._awaiting_drain.clear()
                case _:
                    pass

    def _look_drained(self) -> None:
        for fence, sealed in list(self._awaiting_drain.items()):
            if any(self._in_flight[q] for q in sealed):
                continue
            del self._awaiting_drain[fence]
            for q in sealed:
                self.frozen[q] = self.cluster.partition(q).end
            for command in self.member.on_held(fence):
                if isinstance(command, following.Acknowledge):
                    ack = command.ack
                    key = f"ack/{ack.fence}/{ack.incarnation}"
                    self.later_there(lambda key=key, ack=ack: self.cluster.layouts.append(key, ack))  # type: ignore[misc]

    # --- leading

    def _lead(self) -> None:
        def there() -> None:
            epoch = self.cluster.layouts.open_writer()

            def back() -> None:
                self._writer_epoch = epoch
                self._read_to_end(self._take_over)

            self.later(back)

        self.later_there(there)

    def _take_over(self) -> None:
        if self.members[:1] != [self.name]:
            return
        self.world.say(f"{self.name} leads")
        controller = self.controller = self.cluster.rules.controller(self.world.now, LEASE, frozenset(self.members))
        for name, record in self.member.topics.items():
            controller.know(record, self.member.images(name))
        for fence in self.member.fences.values():
            self._do(controller.found_fence(fence, self.world.now))

    def _tick(self) -> None:
        for queue in self._pending.values():
            while queue and self.world.now - queue[0].since > HOLD:
                self.cluster.answer(self, queue.popleft().answer, RETRIABLE)
        for v in list(self._pending):
            self._send(v)
        if self.controller is None:
            return
        self._wishes += 1
        self._do(self.controller.on_tick(self.world.now, f"{self.name}-{self._wishes}"))
        target = self.cluster.wanted
        layout = self.member.topics[TOPIC].layout if TOPIC in self.member.topics else None
        if layout is not None and TOPIC not in self.controller.changes and layout.u != target:
            self._do(self.controller.resize(TOPIC, target, self.world.now))

    def _do(self, commands: list[leading.Command]) -> None:
        for command in commands:
            self._perform(command)

    def _perform(self, command: leading.Command) -> None:
        controller, now = self.controller, self.world.now
        if controller is None:
            return
        match command:
            case leading.Prepare(topic, _):
                self.later(lambda: self._tell(controller, lambda: controller.on_prepared(topic, None, self.world.now)))
            case leading.ConfirmMembers(topic):
                self._confirm(controller, topic)
            case leading.Commit(topic, records):
                self._commit(controller, topic, records)
            case leading.ReadCuts(topic, fence, partitions):
                self.later_there(lambda: self._cut(controller, topic, fence, partitions))
            case leading.Finished():
                self.world.say(f"{self.name}: layout is changed at {now:.3f}")
            case leading.Abandoned(_, problem):
                self.world.say(f"{self.name}: gives the change up: {problem}")

    def _tell(self, controller: Controller, what: Callable[[], list[leading.Command]]) -> None:
        if controller is self.controller:
            self._do(what())

    def _confirm(self, controller: Controller, topic: str) -> None:
        generation = self.generation

        def there() -> None:
            fine = self.cluster.group.commit(self.name, generation)
            if fine:
                self.later(lambda: self._tell(controller, lambda: controller.on_confirmed(topic, self.world.now)))

        self.later_there(there)

    def _commit(self, controller: Controller, topic: str, records: tuple[tuple[str, Value | None], ...]) -> None:
        epoch = self._writer_epoch

        def there() -> None:
            if self.cluster.layouts.commit(epoch, records):
                self.world.say(f"{self.name} commits {[key for key, _ in records]}")
                if any(key == f"topic/{TOPIC}" for key, _ in records):
                    self.cluster.nemesis.on_layout()
                self.later(lambda: self._tell(controller, lambda: controller.on_committed(topic, self.world.now)))
            else:
                self.later(self._stand_down)

        self.later_there(there)

    def _stand_down(self) -> None:
        """Another controller has taken over; if it was one of old that woke late, this proxy takes over once more."""
        self.controller = None
        if self.members[:1] == [self.name]:
            self._lead()

    def _cut(self, controller: Controller, topic: str, fence: str, partitions: frozenset[int]) -> None:
        ends = {q: self.cluster.partition(q).end for q in partitions}

        def describe() -> None:
            written = {q: self.cluster.partition(q).producers() for q in partitions}
            self.cluster.world.soon(lambda: compare(written))

        def compare(written: dict[int, dict[int, tuple[int, int]]]) -> None:
            if any(self.cluster.partition(q).end != ends[q] for q in partitions) and self.cluster.rules.compares_ends:
                self._cut(controller, topic, fence, partitions)
                return
            cuts = {q: Producers(ends[q], written[q]) for q in partitions}
            self.later(lambda: self._tell(controller, lambda: controller.on_cuts(topic, fence, cuts, self.world.now)))

        self.cluster.nemesis.on_cut()
        self.cluster.world.soon(describe)

    def arrive(self, what: Callable[[], None]) -> None:
        """Lets what a client sent be read: when this proxy runs again, or never."""
        if self.alive and self.world.now < self.paused_until:
            self.world.after(self.paused_until - self.world.now + 0.001, lambda: self.arrive(what))
        elif self.alive:
            what()

    # --- writing

    def produce(self, batch: Written, answer: Callable[[str], None]) -> None:
        """Takes a client's batch."""
        self._pending[batch.v].append(_Pending(batch, answer, self.world.now))
        self._send(batch.v)

    def _send(self, v: int) -> None:
        queue = self._pending[v]
        while queue and TOPIC in self.member.topics:
            layout = self.member.topics[TOPIC].layout
            stay = layout.chains[v].home
            if stay is None or not self.cluster.rules.may_write(self.member, stay.partition, self.world.now):
                return
            pending = queue[0]
            batch = pending.batch
            written = self.cluster.rules.image(self.member, v).get(batch.client_id)
            last = batch.base_sequence + len(batch.values) - 1
            sequence = sequence_at_home(written, batch.epoch, batch.base_sequence, last)
            if isinstance(sequence, Refusal):
                queue.popleft()
                self.cluster.answer(self, pending.answer, NONE if sequence is Refusal.DUPLICATE else FENCED)
                continue
            identity = (v, stay.move, batch.client_id, batch.epoch)
            if self.cluster.rules.gates_first and identity not in self._established:
                if identity in self._first_under_way:
                    return
                known = self.cluster.partition(stay.partition).producers()
                here = known.get(tag(v, stay.move, batch.client_id))
                if here is not None and here[0] == batch.epoch:
                    self._established.add(identity)
                elif sequence != 0:
                    queue.popleft()
                    self.cluster.answer(self, pending.answer, OUT_OF_ORDER)
                    continue
                else:
                    self._first_under_way.add(identity)
            queue.popleft()
            self._write(pending, stay.partition, stay.move, sequence, identity)

    def _write(self, pending: _Pending, q: int, move: int, sequence: int, identity: tuple[int, int, int, int]) -> None:
        batch = pending.batch
        producer_id = tag(batch.v, move, batch.client_id)
        self._in_flight[q] += 1

        def there() -> None:
            error, _ = self.cluster.partition(q).append(Batch(producer_id, batch.epoch, sequence, batch.values))
            self.later(lambda: self._answered(pending, q, move, error, identity))

        if not self.cluster.nemesis.keeps(self, there):
            self.world.after(self.cluster.delay(self, 0.02, stray=True), there)

    def _answered(self, pending: _Pending, q: int, move: int, error: str, identity: tuple[int, int, int, int]) -> None:
        self._in_flight[q] -= 1
        self._first_under_way.discard(identity)
        if error == NONE:
            self._established.add(identity)
            if self.cluster.rules.may_answer(self.member, self.world.now):
                self._judge(pending, q, move)
            else:
                self._late.append((pending, q, move))
        else:
            self.cluster.answer(self, pending.answer, error)
        self._look_drained()
        self._send(pending.batch.v)

    def _judge_late(self) -> None:
        """Rule C7: a success that came after the lease had ended counts only if the layouts still say so."""
        if not self.member.may_serve(self.world.now):
            return
        late, self._late = self._late, []
        for pending, q, move in late:
            self._judge(pending, q, move)

    def _judge(self, pending: _Pending, q: int, move: int) -> None:
        batch = pending.batch
        stay = self.member.topics[TOPIC].layout.chains[batch.v].home
        last = batch.base_sequence + len(batch.values) - 1
        if not self.cluster.rules.judges or (stay is not None and (stay.partition, stay.move) == (q, move)):
            self.cluster.answer(self, pending.answer, NONE)
            return
        written = self.member.images(TOPIC).get(batch.v, {}).get(batch.client_id)
        there = sequence_at_home(written, batch.epoch, batch.base_sequence, last) is Refusal.DUPLICATE
        self.cluster.answer(self, pending.answer, NONE if there else RETRIABLE)

    # --- reading

    def read(self, v: int, position: int) -> Portion | None:
        """Returns what a consumer gets at a virtual offset; None: nothing now, ask again."""
        serves = self.member.may_serve(self.world.now) and self.world.now >= self.paused_until
        if not self.alive or not serves or TOPIC not in self.member.topics:
            return None
        layout = self.member.topics[TOPIC].layout
        rules = self.cluster.rules
        place = rules.place(layout.chains[v], position)
        if place is None:
            return OUT_OF_RANGE
        stay = place.stay
        log = self.cluster.partition(stay.partition)
        end = stay.end if stay.end is not None else log.end
        if stay.end is None and rules.freezes:
            end = min(end, self.frozen.get(stay.partition, end))
        if place.position > end:  # rule F5: what seems to lie behind the end may stand in a layout not read yet
            return None if rules.asks_again else OUT_OF_RANGE
        if place.position < log.start and not rules.passes_holes:
            return OUT_OF_RANGE
        values, reached = self._portion(layout, v, stay, max(place.position, min(log.start, end)), end)
        return Portion(values, reached + stay.delta)

    def _portion(self, layout: Layout, v: int, stay: Stay, start: int, end: int) -> tuple[list[object], int]:
        """Returns the next few batches of `v` in [start, end) of the log, and up to where they were looked for."""
        if layout is not self._layout_read:
            self._layout_read, self._tenancies = layout, tenancies(layout)
        values: list[object] = []
        left = self.world.random.randint(*_BATCHES_READ)
        for base, batch in self.cluster.partition(stay.partition).between(start, end):
            owner = self._tenancies[stay.partition].owner(batch.producer_id, base, is_control=False)
            if isinstance(owner, Resident) and owner.v == v:
                values += batch.values
                left -= 1
                if not left:
                    return values, base + len(batch.values)
        return values, end
