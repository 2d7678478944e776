"""Writes of a stream: each identity's batches stand in the log once and in order, whatever is lost or refused."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kordon.proxy.ordering import writers
from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.identity import owner_of, tag, untag
from kordon.proxy.ordering.images import Image, ImageParts, WhyNotWritten, Written, carried
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.write_result import Result
from kordon.proxy.ordering.write_sequencer import NO_PRODUCER, Binding, Refuse, Write, WriteSequencer
from kordon.proxy.ordering.writers import MOST_REMEMBERED, WhyUnfit
from kordon.testing.known import known


def is_idle(sequencer: WriteSequencer[Write]) -> bool:
    """Whether nothing waits and nothing is under way."""
    return not (sequencer.waits or sequencer.in_flight)


Step: TypeAlias = Write | Refuse[Write]

HOME = Stay(partition=2, move=1, start=100, end=None, delta=-40)
NEXT_HOME = Stay(partition=5, move=2, start=0, end=None, delta=500)


def a_write(sequence: int = 0, *, producer_id: int = 7, epoch: int = 0, records: int = 1) -> Write:
    return Write(producer_id, epoch, sequence, records, size=100, acks=-1, since=0.0)


def plain() -> Write:
    return a_write(-1, producer_id=NO_PRODUCER, epoch=-1)


def sendable(sequencer: WriteSequencer[Write], image: Image | None = None, home: Stay = HOME) -> list[Write]:
    return [step for step in steps(sequencer, image, home) if isinstance(step, Write)]


def steps(sequencer: WriteSequencer[Write], image: Image | None = None, home: Stay = HOME) -> Iterator[Step]:
    while (step := sequencer.next(home, image or {}, lambda _: True)) is not None:
        yield step


def add(sequencer: WriteSequencer[Write], *writes: Write) -> None:
    for write in writes:
        sequencer.add(write)


def a_sequencer(*writes: Write) -> WriteSequencer[Write]:
    sequencer = WriteSequencer[Write](3)
    add(sequencer, *writes)
    return sequencer


def a_plain_sequencer() -> WriteSequencer[Write]:
    """One that has a producer id, and under it a first batch that is written."""
    opener = plain()
    sequencer = a_sequencer(opener)
    sequencer.identify(900)
    assert sendable(sequencer) == [opener]
    sequencer.answered(opener, Result.WRITTEN)
    return sequencer


def ask(sequencer: WriteSequencer[Write], *known: int) -> None:
    assert sequencer.has_question
    sequencer.begin_question()
    sequencer.learn(HOME.partition, HOME.move, known)


def sequences(writes: list[Write]) -> list[tuple[int, int]]:
    return [(write.bound.epoch, write.bound.sequence) for write in writes if write.bound is not None]


def test_the_first_batch_of_an_identity_goes_alone() -> None:
    """OPENER-ALONE: what follows waits until it is acknowledged; other producers overtake."""
    first, second, other = a_write(0), a_write(1), a_write(0, producer_id=8)
    sequencer = a_sequencer(first, second, other)
    assert sendable(sequencer) == [first, other]
    assert sequencer.answered(first, Result.WRITTEN)
    assert sendable(sequencer) == [second]
    assert second.bound == Binding(2, 1, 7, tag(3, 1, 7), 0, 1, opens=False)


def test_what_follows_a_failed_first_batch_does_not_open_the_segment() -> None:
    """OPENER-ALONE: it is refused as out of order, so that its client sends the first one again before it."""
    sequencer = WriteSequencer[Write](3)
    first, second = a_write(0), a_write(1)
    add(sequencer, first, second)
    assert sendable(sequencer) == [first]
    sequencer.answered(first, Result.REFUSED)
    assert sendable(sequencer) == []
    ask(sequencer)
    assert list(steps(sequencer)) == [Refuse(second, WhyUnfit.GAP)]


def test_an_identity_that_began_elsewhere_is_asked_for() -> None:
    """A worker that has started anew finds it at the broker (OPENER-ALONE)."""
    sequencer = WriteSequencer[Write](3)
    write = a_write(40)
    sequencer.add(write)
    assert sendable(sequencer) == []
    ask(sequencer, 7)
    assert sendable(sequencer) == [write]


def test_an_identity_that_nobody_knows_is_told_so() -> None:
    """OPENER-ALONE: without an image it begins another epoch, with one it sends what is missing."""
    sequencer = WriteSequencer[Write](3)
    lone, gap = a_write(40), a_write(40, producer_id=8)
    add(sequencer, lone, gap)
    image = {8: Written(0, 30)}
    assert list(steps(sequencer, image)) == []
    ask(sequencer)
    assert list(steps(sequencer, image)) == [Refuse(lone, WhyUnfit.UNKNOWN), Refuse(gap, WhyUnfit.GAP)]


def test_an_answer_counts_only_for_what_was_asked_before() -> None:
    """Who came after the question was sent may have written after it was answered."""
    sequencer = WriteSequencer[Write](3)
    sequencer.add(a_write(40))
    assert sendable(sequencer) == []
    sequencer.begin_question()
    late = a_write(10, producer_id=8)
    sequencer.add(late)
    assert sendable(sequencer) == []
    sequencer.learn(HOME.partition, HOME.move, ())
    assert [step.write.producer_id for step in steps(sequencer) if isinstance(step, Refuse)] == [7]
    assert sequencer.has_question
    sequencer.begin_question()
    sequencer.learn(HOME.partition, HOME.move, {8})
    assert sendable(sequencer) == [late]


def test_of_very_many_only_who_was_asked_for_is_remembered() -> None:
    """Each of the others would push out another one, which takes seconds where a partition has 10^5 producers."""
    sequencer = WriteSequencer[Write](3)
    write = a_write(40, producer_id=MOST_REMEMBERED + 5)
    sequencer.add(write)
    assert sendable(sequencer) == []
    ask(sequencer, *range(MOST_REMEMBERED + 10))
    assert sendable(sequencer) == [write]
    other = a_write(40, producer_id=3)
    sequencer.add(other)
    assert sendable(sequencer) == [], "its own question"
    ask(sequencer, 3)
    assert sendable(sequencer) == [other]


def test_without_an_answer_only_what_was_asked_for_is_given_up() -> None:
    """The broker could not be asked: those whose identity is in question are refused, other producers go on."""
    unknown, behind, other = a_write(40), a_write(41), a_write(0, producer_id=8)
    sequencer = a_sequencer(unknown, behind, other)
    assert sendable(sequencer) == [other]
    sequencer.begin_question()
    assert sequencer.give_up_question() == [unknown, behind]
    assert not sequencer.has_question
    sequencer.answered(other, Result.WRITTEN)
    assert is_idle(sequencer)


def test_identities_that_are_forgotten_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a sequencer remembers has a bound, and forgetting costs a question, no more."""
    monkeypatch.setattr(writers, "MOST_REMEMBERED", 2)
    sequencer = WriteSequencer[Write](3)
    for producer_id in (1, 2, 3):
        write = a_write(0, producer_id=producer_id)
        sequencer.add(write)
        assert sendable(sequencer) == [write]
        sequencer.answered(write, Result.WRITTEN)
    forgotten, known = a_write(1, producer_id=1), a_write(1, producer_id=3)
    add(sequencer, forgotten, known)
    assert sendable(sequencer) == [known]
    ask(sequencer, 1)
    assert sendable(sequencer) == [forgotten]


def test_a_retry_across_a_move_is_a_duplicate() -> None:
    """SEQ-IMAGE: at or below the image it stands in an earlier home; above it goes on from 0; old epochs are fenced."""
    writes = [a_write(8, records=3, epoch=1), a_write(11, epoch=1), a_write(12, epoch=0)]
    sequencer = a_sequencer(*writes)
    refused = [step for step in steps(sequencer, {7: Written(1, 10)}) if isinstance(step, Refuse)]
    assert refused == [Refuse(writes[0], WhyNotWritten.DUPLICATE), Refuse(writes[2], WhyNotWritten.FENCED)]
    assert sequences([writes[1]]) == [(1, 0)]


def test_binding_happens_when_a_write_is_sent() -> None:
    """LATE-BINDING: what waited for the old home goes to the new one, under its identity there."""
    sequencer = WriteSequencer[Write](3)
    first, second = a_write(0), a_write(1)
    sequencer.add(first)
    assert sendable(sequencer) == [first]
    sequencer.add(second)
    sequencer.answered(first, Result.WRITTEN)
    assert sendable(sequencer, {7: Written(0, 0)}, NEXT_HOME) == [second]
    assert second.bound == Binding(5, 2, 7, tag(3, 2, 7), 0, 0, opens=True)


def test_batches_without_identity_get_one() -> None:
    """LENT-IDENTITY: numbered in their order, once a producer id is there."""
    writes = [plain(), plain(), plain()]
    sequencer = a_sequencer(*writes)
    assert sendable(sequencer) == []
    assert sequencer.needs_id
    sequencer.identify(900)
    assert sendable(sequencer) == writes[:1]
    sequencer.answered(writes[0], Result.WRITTEN)
    assert sendable(sequencer) == writes[1:]
    assert sequences(writes) == [(0, 0), (0, 1), (0, 2)]


def test_a_failure_costs_an_epoch_and_nobody_else_hears_of_it() -> None:
    """LENT-IDENTITY: what was sent behind it is sent again, in order, from sequence 0 of the next epoch."""
    sequencer, writes = a_plain_sequencer(), [plain() for _ in range(4)]
    add(sequencer, *writes[:3])
    assert sendable(sequencer) == writes[:3]
    sequencer.add(writes[3])
    assert sequencer.answered(writes[0], Result.REFUSED)
    assert sendable(sequencer) == [], "not before all is answered"
    assert not sequencer.answered(writes[1], Result.SEQUENCE)
    assert not sequencer.answered(writes[2], Result.SEQUENCE)
    assert sendable(sequencer) == writes[1:]
    assert sequences(writes[1:]) == [(1, 0), (1, 1), (1, 2)]


def test_a_rejected_batch_costs_its_own_client_only() -> None:
    """LENT-IDENTITY: brokers judge a batch before they append it. What was sent behind it takes its sequences."""
    sequencer, writes = a_plain_sequencer(), [plain() for _ in range(5)]
    add(sequencer, *writes[:4])
    assert sendable(sequencer) == writes[:4]
    sequencer.add(writes[4])
    assert sequencer.answered(writes[0], Result.WRITTEN)
    assert sequencer.answered(writes[1], Result.REJECTED)
    assert sendable(sequencer) == [], "not before all is answered"
    assert not sequencer.answered(writes[2], Result.SEQUENCE)
    assert not sequencer.answered(writes[3], Result.SEQUENCE)
    assert sendable(sequencer) == writes[2:]
    assert sequences(writes[2:]) == [(0, 2), (0, 3), (0, 4)]


def test_a_writer_of_nothing_but_rejected_batches_holds_nobody_up() -> None:
    """However many are rejected in front of a write, it is sent again until it is written."""
    sequencer = WriteSequencer[Write](3)
    sequencer.identify(900)
    good, told = plain(), 0
    noisy = [plain() for _ in range(50)]
    add(sequencer, *noisy, good)
    while not is_idle(sequencer):
        under_way, rejected = sendable(sequencer), False
        for write in under_way:
            is_told = sequencer.answered(write, _judged(write is good, rejected))
            rejected, told = rejected or write is not good, told + is_told
            if write is good and is_told:
                assert not rejected or len(under_way) == 1
    assert told == 51
    assert sequences([good]) == [(0, 0)]


def _judged(is_good: bool, is_behind: bool) -> Result:
    if is_good:
        return Result.SEQUENCE if is_behind else Result.WRITTEN
    return Result.REJECTED


@pytest.mark.parametrize("other", [Result.LOST, Result.REFUSED, Result.WRITTEN])
def test_what_may_be_appended_behind_a_rejected_batch_costs_an_epoch(other: Result) -> None:
    """Sequences are used again only where nothing can have taken them."""
    sequencer, writes = a_plain_sequencer(), [plain() for _ in range(3)]
    add(sequencer, *writes)
    assert sendable(sequencer) == writes
    sequencer.answered(writes[0], Result.REJECTED)
    assert sequencer.answered(writes[1], other)
    assert not sequencer.answered(writes[2], Result.SEQUENCE)
    assert sendable(sequencer) == writes[2:]
    assert sequences(writes[2:]) == [(1, 0)]


def test_a_move_in_the_midst_of_a_rejection_costs_an_epoch() -> None:
    """In another home sequences begin at 0."""
    sequencer, writes = a_plain_sequencer(), [plain(), plain()]
    add(sequencer, *writes)
    assert sendable(sequencer) == writes
    sequencer.answered(writes[0], Result.REJECTED)
    assert sendable(sequencer, home=NEXT_HOME) == []
    assert not sequencer.answered(writes[1], Result.SEQUENCE)
    assert sendable(sequencer, home=NEXT_HOME) == writes[1:]
    assert sequences(writes[1:]) == [(1, 0)]


def test_a_batch_that_brokers_take_under_no_epoch_is_told_so_in_the_end() -> None:
    """A sequence error that comes again under each new epoch is no failure that passes."""
    write = plain()
    sequencer = a_sequencer(write)
    sequencer.identify(900)
    for _ in range(4):
        assert sendable(sequencer) == [write]
        assert not sequencer.answered(write, Result.SEQUENCE)
    assert sendable(sequencer) == [write]
    assert sequencer.answered(write, Result.SEQUENCE)
    assert is_idle(sequencer)


def test_the_oldest_is_what_has_waited_longest_wherever_it_waits() -> None:
    """In the sequencer, for a producer id, or behind an opener; what is under way does not wait."""
    sequencer = WriteSequencer[Write](3)
    assert sequencer.oldest is None
    writes = [plain(), plain(), a_write(0), a_write(1), a_write(2)]
    for second, write in enumerate(writes):
        write.since = float(second)
        sequencer.add(write)
    assert sequencer.oldest == 0
    assert sendable(sequencer) == writes[2:3]
    assert sequencer.oldest == 0
    sequencer.identify(900)
    assert sendable(sequencer) == writes[:1]
    assert sequencer.oldest == 1
    sequencer.answered(writes[0], Result.WRITTEN)
    assert sendable(sequencer) == writes[1:2]
    assert sequencer.oldest == 3


def test_a_producer_id_whose_epochs_are_used_up_is_replaced() -> None:
    """Epochs end at 32767."""
    sequencer = WriteSequencer[Write](3)
    sequencer.identify(900)
    for _ in range(2**15):
        write = plain()
        sequencer.add(write)
        assert sendable(sequencer) == [write]
        sequencer.answered(write, Result.REFUSED)
    assert sequencer.spent_id == 900
    last = plain()
    sequencer.add(last)
    assert sendable(sequencer) == []
    assert sequencer.needs_id
    sequencer.identify(901)
    assert sendable(sequencer) == [last]


def test_giving_up_takes_all_that_is_not_under_way() -> None:
    """SHORT-FENCE: a virtual partition that was held for too long refuses everything behind, too."""
    writes = [a_write(0), a_write(1), plain(), a_write(0, producer_id=8)]
    sequencer = a_sequencer(*writes)
    assert sendable(sequencer) == [writes[0], writes[3]]
    assert set(sequencer.give_up()) == {writes[1], writes[2]}
    assert not is_idle(sequencer)
    sequencer.answered(writes[0], Result.WRITTEN)
    sequencer.answered(writes[3], Result.WRITTEN)
    assert is_idle(sequencer)


def test_what_its_client_has_left_is_not_sent() -> None:
    """LATE-BINDING: an unsent write dies with its connection, parked or not."""
    writes = [a_write(0), a_write(1), a_write(2)]
    sequencer = a_sequencer(*writes)
    assert sendable(sequencer) == writes[:1]
    for write in writes:
        write.abandoned = True
    sequencer.answered(writes[0], Result.WRITTEN)
    assert sendable(sequencer) == []
    assert is_idle(sequencer)


# From here on: a small cluster with clients, workers and a broker, moved about by chance.

V_COUNT = 4
WINDOW = 5


@dataclass
class Batch:
    """A batch in the log."""

    offset: int
    producer_id: int
    epoch: int
    sequence: int
    value: tuple[int, int]
    """Client and its number."""


@dataclass
class Log:
    """A physical partition as a broker keeps it."""

    batches: list[Batch] = field(default_factory=list[Batch])
    cache: dict[int, tuple[int, deque[Batch]]] = field(default_factory=dict[int, "tuple[int, deque[Batch]]"])

    @property
    def end(self) -> int:
        return len(self.batches)

    def append(self, bound: Binding, value: tuple[int, int]) -> int | Result:
        """Returns the offset, or why not."""
        known = self.cache.get(bound.producer_id)
        if known is not None:
            epoch, last = known
            if bound.epoch < epoch:
                return Result.SEQUENCE
            if bound.epoch > epoch:
                if bound.sequence:
                    return Result.SEQUENCE
                known = None
            else:
                for batch in last:
                    if batch.sequence == bound.sequence:
                        return batch.offset
                if bound.sequence != last[-1].sequence + 1:
                    return Result.SEQUENCE
        batch = Batch(self.end, bound.producer_id, bound.epoch, bound.sequence, value)
        self.batches.append(batch)
        window = known[1] if known else deque[Batch](maxlen=WINDOW)
        window.append(batch)
        self.cache[bound.producer_id] = bound.epoch, window
        return batch.offset


@dataclass(eq=False)
class Client:
    """A producer on one virtual partition: up to five batches are under way, and it retries in order."""

    number: int
    v: int
    producer_id: int
    worker: int = 0
    acked: set[int] = field(default_factory=set[int])
    under_way: dict[int, Write] = field(default_factory=dict[int, Write])
    is_noisy: bool = False
    """Whether every second of its batches is one that brokers reject."""

    def rejects(self, number: int) -> bool:
        """Whether brokers reject one of its batches."""
        return self.is_noisy and number % 2 == 1

    def wants(self, count: int) -> int | None:
        """The number of the batch to send next: the first of the window that is neither acknowledged nor under way."""
        oldest = next((n for n in range(count) if n not in self.acked), count)
        window = range(oldest, min(oldest + WINDOW, count))
        return next((n for n in window if n not in self.acked and n not in self.under_way), None)


class World:
    """Two workers, a broker, clients; one step at a time, by chance."""

    def __init__(self, seed: int, *, faults: bool) -> None:
        self.random = Random(seed)
        self.faults = faults
        self.count = self.random.randint(5, 25)
        self.layout = Layout.created("orders", UUID(int=1), 1, V_COUNT)
        self.images: dict[int, ImageParts] = {}
        self.logs = [Log() for _ in range(V_COUNT)]
        self.ids = iter(range(1000, 2000))
        self.sequencers = [[WriteSequencer[Write](v) for v in range(V_COUNT)] for _ in range(2)]
        self.meant: dict[Write, tuple[Client, int]] = {}
        """By write, its client and its number."""
        self.wires: dict[tuple[int, int], deque[Write]] = {}
        """By (worker, v), what is on its way to the broker."""
        self.limbo: list[tuple[Binding, tuple[int, int]]] = []
        """What was lost for its sender, and may land or not."""
        self.clients = [
            Client(n, self.random.randrange(V_COUNT), NO_PRODUCER if n % 3 == 2 else n, self.random.randrange(2))
            for n in range(6)
        ]
        plain = [client for client in self.clients if client.producer_id == NO_PRODUCER]
        self.clients.append(Client(6, plain[0].v, NO_PRODUCER, plain[0].worker, is_noisy=True))

    def run(self) -> None:
        """Goes on until all is acknowledged."""
        actions = [self.send] * 8 + [self.pump] * 8 + [self.deliver] * 8 + [self.ask] * 2 + [self.move]
        if self.faults:
            actions += [self.lose, self.land, self.restart, self.leave]
        for _ in range(30_000):
            self.random.choice(actions)()
            if all(len(client.acked) == self.count for client in self.clients):
                return
        raise AssertionError("it does not come to an end")

    def send(self) -> None:
        """A client sends its next batch."""
        client = self.random.choice(self.clients)
        number = client.wants(self.count)
        if number is None:
            return
        idempotent = client.producer_id != NO_PRODUCER
        write = a_write(number if idempotent else -1, producer_id=client.producer_id)
        self.meant[write] = (client, number)
        client.under_way[number] = write
        self.sequencers[client.worker][client.v].add(write)

    def pump(self) -> None:
        """A worker takes the next write of a sequencer."""
        worker, v = self.random.randrange(2), self.random.randrange(V_COUNT)
        sequencer = self.sequencers[worker][v]
        home = known(self.layout.chains[v].home)
        step = sequencer.next(home, self.images.get(v, {}), lambda _: True)
        if sequencer.needs_id:
            sequencer.identify(next(self.ids))
        match step:
            case Write():
                self.wires.setdefault((worker, v), deque()).append(step)
            case Refuse(write, why):
                self.settle(write, why)
            case None:
                pass

    def ask(self) -> None:
        """A worker asks which identities have begun."""
        sequencer = self.random.choice(self.random.choice(self.sequencers))
        home = self.layout.chain(sequencer.stream).home
        if not sequencer.has_question or home is None:
            return
        sequencer.begin_question()
        found = [untag(producer_id) for producer_id in self.logs[home.partition].cache]
        owner = owner_of(sequencer.stream, home.move)
        begun = {i.client_id for i in found if i is not None and i.owner == owner}
        sequencer.learn(home.partition, home.move, begun)

    def deliver(self) -> None:
        """The broker takes the next one of a connection, and answers."""
        wires = [key for key, wire in self.wires.items() if wire]
        if not wires:
            return
        worker, v = self.random.choice(wires)
        write = self.wires[worker, v].popleft()
        assert write.bound is not None
        client, number = self.meant[write]
        chance = self.random.random()
        if self.faults and chance < 0.05:
            outcome: int | Result = Result.REFUSED
        else:
            outcome = self.append(write.bound, client, number)
            if self.faults and chance < 0.1 and isinstance(outcome, int):
                outcome = Result.REFUSED  # appended, but not copied
        self.answer(worker, write, outcome)

    def append(self, bound: Binding, client: Client, number: int) -> int | Result:
        """A batch reaches the broker, which looks at it first, and then at its sequence."""
        if client.rejects(number):
            return Result.REJECTED
        return self.logs[bound.partition].append(bound, (client.number, number))

    def answer(self, worker: int, write: Write, outcome: int | Result) -> None:
        """An answer reaches a worker."""
        assert write.bound is not None
        result = Result.WRITTEN if isinstance(outcome, int) else outcome
        sequencer = self.sequencers[worker][self.meant[write][0].v]
        if sequencer.answered(write, result):
            self.settle(write, outcome)

    def settle(self, write: Write, outcome: int | Result | WhyNotWritten | WhyUnfit) -> None:
        """An answer reaches a client."""
        client, number = self.meant[write]
        if write.abandoned:
            return
        assert client.under_way.pop(number) is write
        if isinstance(outcome, int) or outcome is WhyNotWritten.DUPLICATE:
            client.acked.add(number)
            return
        if outcome is Result.REJECTED:
            assert client.rejects(number), "nobody hears of what was wrong with another's batch"
            client.acked.add(number)
            return
        idempotent = client.producer_id != NO_PRODUCER
        assert idempotent or self.faults, "nothing but what is wrong with a batch itself is told of it"
        if not idempotent:
            assert outcome in (Result.REFUSED, Result.LOST), "errors of identities are not for clients without one"
        elif outcome in (Result.SEQUENCE, WhyUnfit.GAP):
            assert any(n not in client.acked for n in range(number)), "the batch was next: it is fatal for librdkafka"
        else:
            assert outcome in (Result.REFUSED, Result.LOST)

    def move(self) -> None:
        """A fence: drained, or what is under way is lost; then cuts, images, the next layout."""
        if self.random.random() < 0.8:
            return
        following = self.layout.next_epoch(self.random.randint(1, V_COUNT))
        sealed = self.layout.change_to(following).sealed
        for (worker, v), wire in list(self.wires.items()):
            home = self.layout.chains[v].home
            if home is None or home.partition not in sealed:
                continue
            if self.faults and self.random.random() < 0.3:
                self.lose_wire(worker, v)
            while wire:
                write = wire.popleft()
                assert write.bound is not None
                client, number = self.meant[write]
                self.answer(worker, write, self.append(write.bound, client, number))
        touched = sealed | self.layout.change_to(following).opened
        cuts = {q: self.logs[q].end for q in touched}
        images: dict[int, ImageParts] = {}
        for v in self.layout.change_to(following).movers:
            home = known(self.layout.chains[v].home)
            here: dict[int, Written] = {}
            for producer_id, (epoch, last) in self.logs[home.partition].cache.items():
                identity = untag(producer_id)
                if identity is not None and (identity.v, identity.move) == (v, home.move):
                    here[identity.client_id] = Written(epoch, last[-1].sequence)
            images[v] = carried(self.images.get(v, ImageParts()), here, cut_ms=0, forgotten_ms=0)
        self.layout = self.layout.changed(following, cuts)
        self.images |= images

    def lose(self) -> None:
        """A connection to the broker breaks."""
        if self.wires and self.random.random() < 0.3:
            self.lose_wire(*self.random.choice(list(self.wires)))

    def lose_wire(self, worker: int, v: int) -> None:
        """A connection to the broker breaks; what was on it may land later."""
        wire = self.wires[worker, v]
        while wire:
            write = wire.popleft()
            assert write.bound is not None
            client, number = self.meant[write]
            if not client.rejects(number):
                self.limbo.append((write.bound, (client.number, number)))
            self.answer(worker, write, Result.LOST)

    def land(self) -> None:
        """What was lost reaches the broker after all, in its order, or does not."""
        if self.limbo:
            bound, value = self.limbo.pop(0)
            if self.random.random() < 0.7:
                self.logs[bound.partition].append(bound, value)

    def restart(self) -> None:
        """A worker is killed: all that it knew is gone, its clients come back to another one."""
        if self.random.random() < 0.9:
            return
        worker = self.random.randrange(2)
        for (owner, v), wire in self.wires.items():
            if owner == worker:
                for write in wire:
                    assert write.bound is not None
                    client, number = self.meant[write]
                    if not client.rejects(number):
                        self.limbo.append((write.bound, (client.number, number)))
                wire.clear()
                assert v < V_COUNT
        self.sequencers[worker] = [WriteSequencer[Write](v) for v in range(V_COUNT)]
        for client in self.clients:
            if client.worker == worker:
                self.reconnect(client)

    def leave(self) -> None:
        if self.random.random() < 0.3:
            self.reconnect(self.random.choice(self.clients))

    def reconnect(self, client: Client) -> None:
        """A client comes anew, maybe to the other worker."""
        for write in client.under_way.values():
            write.abandoned = True
        client.under_way.clear()
        client.worker = self.random.randrange(2)

    def read(self, v: int) -> list[tuple[int, int]]:
        """Reads a virtual partition along its chain, as consumers do."""
        found: list[tuple[int, int]] = []
        for stay in self.layout.chains[v].stays:
            end = self.logs[stay.partition].end if stay.end is None else stay.end
            for batch in self.logs[stay.partition].batches[stay.start : end]:
                identity = known(untag(batch.producer_id))
                if (identity.v, identity.move) == (v, stay.move):
                    found.append(batch.value)
        return found


def check(world: World) -> None:
    for client in world.clients:
        found = [number for owner, number in world.read(client.v) if owner == client.number]
        expected = [number for number in range(world.count) if not client.rejects(number)]
        if client.producer_id != NO_PRODUCER or not world.faults:
            assert found == expected
        else:
            assert set(found) == set(expected), "nothing acknowledged is lost"


@pytest.mark.parametrize("faults", [False, True])
@given(seed=st.integers(0, 2**32))
def test_each_batch_stands_once_and_in_order(faults: bool, seed: int) -> None:
    """Idempotent clients always; without idempotence where nothing goes wrong, else nothing acknowledged is lost."""
    world = World(seed, faults=faults)
    world.run()
    check(world)


@pytest.mark.deep
def test_each_batch_stands_once_and_in_order_for_long() -> None:
    """The same, for twenty thousand worlds."""
    for seed in range(20_000):
        world = World(seed, faults=bool(seed % 4))
        world.run()
        check(world)
