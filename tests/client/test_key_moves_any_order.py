"""Members of a group keep keys' order and hand their state over, in whatever order things happen to them.

A world of logs, layouts and reports in which members read with `KeyMoves`. The application of each member counts the
records of each key, flushes its counts when it is told to, and loads them when it is told to: a count that is not the
number of the key's next record shows that something was read too early, or that state was not handed over.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

import pytest
from aiokafka.structs import TopicPartition

from kordon.client.moves import KeyMoves
from kordon.client.moves_events import (
    Answered,
    Assigned,
    CallAssigned,
    CallFailed,
    CallMaybeRevoked,
    CallReturned,
    Command,
    Event,
    Leaving,
    Left,
    MemberPositions,
    ReportFailed,
    SendReport,
    Stood,
    Ticked,
    TopicGate,
)
from kordon.client.owned import Owned, Withdrawn
from kordon.proxy.ordering.gate import Evidence, Gate
from kordon.proxy.ordering.hashing import linear
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.reading import reading_place
from kordon.proxy.ordering.streams import physical_stream

N, V = 2, 16
pytestmark = pytest.mark.slow
KEYS = 40
TOPIC = "t"


@dataclass
class Member:
    """One that reads, and its application."""

    name: str
    moves: KeyMoves = field(default_factory=lambda: KeyMoves(3.0))
    at: dict[int, int] = field(default_factory=dict[int, int])
    handled: dict[int, int] = field(default_factory=dict[int, int])
    counts: dict[int, int] = field(default_factory=dict[int, int])
    got_from: dict[int, set[int]] = field(default_factory=dict[int, set[int]])
    call: CallMaybeRevoked | CallAssigned | None = None
    call_at: int = 0
    flush_at: dict[int, int] = field(default_factory=dict[int, int])
    flushed: dict[int, list[tuple[int, int]]] = field(
        default_factory=lambda: defaultdict[int, list[tuple[int, int]]](list)
    )
    """By partition, (turn when it was handled, turn when the flush returned)."""
    loaded: dict[int, int] = field(default_factory=dict[int, int])
    """By partition, the turn when the last load that returned was called."""
    report: SendReport | None = None


class World:
    """All there is, and what may happen to it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.trouble = self.random.choice((0.02, 0.04, 0.08))
        self.failing = self.random.choice((0.0, 0.1, 0.4))
        """How many calls and reports fail."""
        self.weights = self.random.choice(((2, 1, 1, 1), (1, 1, 9, 0)))
        """Of changes of the topic, writes, seeks and crashes."""
        self.now = 0.0
        self.layout = Layout.created(TOPIC, UUID(int=1), N, V)
        self.logs: dict[int, list[tuple[int, int]]] = {q: [] for q in range(N)}
        self.written = dict.fromkeys(range(KEYS), 0)
        self.store: dict[int, int] = {}
        self.commits: dict[int, int] = {}
        self.positions: dict[int, int] = {}
        self.wanted: dict[str, set[int]] = {}
        self.members = [Member(f"m{i}") for i in range(3)]
        self.born = 3
        self.calls: list[tuple[str, str, tuple[int, ...]]] = []
        self.read_to: dict[int, int] = {}
        self.turn = 0
        """Rises with each thing that happens."""
        self.holders: dict[int, tuple[Member, int, int]] = {}
        """Who got a key's last record in this generation, of which partition, and in which turn."""
        self.rebalance()

    def home(self, key: int) -> int:
        """Returns where a key's records go now."""
        return linear(key, N, self.layout.u)

    def write(self) -> None:
        for _ in range(self.random.randint(1, 6)):
            key = self.random.randrange(KEYS)
            self.written[key] += 1
            self.logs[self.home(key)].append((key, self.written[key]))

    def resize(self) -> None:
        """The topic grows or shrinks."""
        u = self.random.randint(N, 7)
        following = self.layout.next_epoch(u)
        for q in self.layout.change_to(following).opened:
            self.logs.setdefault(q, [])
        cuts = {q: len(self.logs[q]) for q in self.layout.change_to(following).touched}
        self.layout = self.layout.changed(following, cuts)

    def do(self, member: Member, event: Event) -> None:
        """Tells a member's driver something."""
        self.perform(member, member.moves.handle(event))

    def perform(self, member: Member, commands: list[Command]) -> None:
        """Begins what a driver asks for."""
        for command in commands:
            match command:
                case CallMaybeRevoked() | CallAssigned():
                    assert member.call is None
                    member.call, member.call_at = command, self.turn
                    if isinstance(command, CallMaybeRevoked):
                        member.flush_at = {tp.partition: member.handled[tp.partition] for tp in command.partitions}
                case SendReport():
                    assert member.report is None
                    member.report = command
                case _:
                    pass

    def stood(self, member: Member) -> None:
        """Tells a member's driver where it stands."""
        places = {
            TopicPartition(TOPIC, q): MemberPositions(at, member.handled[q], len(self.logs[q]))
            for q, at in member.at.items()
        }
        self.do(member, Stood(self.now, places))

    def end_call(self, member: Member, *, well: bool) -> None:
        """The application comes back from its callback."""
        call, member.call = member.call, None
        assert call is not None
        partitions = tuple(tp.partition for tp in call.partitions)
        if not well:
            self.do(member, CallFailed(self.now))
            return
        for q in partitions:
            if isinstance(call, CallMaybeRevoked):
                for key in member.got_from.get(q, ()):
                    self.store[key] = max(self.store.get(key, 0), member.counts[key])
                self.commits[q] = member.flush_at[q]
                member.flushed[q].append((member.call_at, self.turn))
            else:
                self.load(member, q)
                member.loaded[q] = member.call_at
        self.do(member, CallReturned(self.now))

    def load(self, member: Member, q: int) -> None:
        """The application loads what was flushed of the keys of a partition."""
        for key in range(KEYS):
            if self.home(key) == q or key in {k for k, _ in self.logs[q]}:
                member.counts[key] = max(self.store.get(key, 0), member.counts.get(key, 0))

    def end_report(self, member: Member, *, arrives: bool, answered: bool) -> None:
        """A report arrives, or not; its answer likewise. Before what comes of it the driver sees where all stands."""
        report, member.report = member.report, None
        assert report is not None
        if arrives:
            for row in report.rows:
                if row.position >= 0:
                    self.positions[row.partition.partition] = row.position
                elif row.partition.partition in member.at:
                    self.positions.pop(row.partition.partition, None)
            self.wanted[member.name] = {row.partition.partition for row in report.rows if row.needed}
        self.stood(member)
        if not (arrives and answered):
            self.do(member, ReportFailed(self.now))
            return
        others = [wanted for name, wanted in self.wanted.items() if name != member.name]
        told = {TopicPartition(TOPIC, q): self.positions.get(q, -1) for q in self.wanted[member.name]}
        needed = {TopicPartition(TOPIC, q) for wanted in others for q in wanted if q in member.at}
        self.do(member, Answered(self.now, told, needed))

    def fetch(self, member: Member, q: int) -> None:
        """A member fetches, and gets what the proxy's gate lets it have."""
        at = member.at.get(q, -1)
        if at < 0 or not member.moves.admits(TopicPartition(TOPIC, q), at):
            return
        if self.layout.epoch != self.assigned.epoch:
            self.rebalance()
            return
        gate = Gate.of(self.layout)
        place = reading_place(self.layout.chain(physical_stream(q)), at, 0)
        if place is None or gate.asks(q, at, Evidence(self.positions)):
            return
        end = len(self.logs[q]) if place.stay.end is None else place.stay.end
        for offset in range(at, min(end, at + self.random.randint(1, 4))):
            self.deliver(member, gate, q, offset)

    def deliver(self, member: Member, gate: Gate, q: int, offset: int) -> None:
        """The application gets a record, and counts."""
        for earlier in gate.asks(q, offset, Evidence(self.read_to)):
            raise AssertionError(f"{member.name} read {q} at {offset} before {earlier} was read far enough")
        key, number = self.logs[q][offset]
        self.turn += 1
        self.judge_hand_over(member, q, key)
        self.holders[key] = member, q, self.turn
        has = member.counts.get(key, 0)
        assert number <= has + 1, f"{member.name} has {has} of key {key} and gets {number} of {q} at {offset}"
        member.counts[key] = max(has, number)
        member.got_from.setdefault(q, set()).add(key)
        member.at[q] = self.read_to[q] = offset + 1

    def judge_hand_over(self, member: Member, q: int, key: int) -> None:
        """Whoever had the key has flushed it, and whoever gets it now was called to load it after that."""
        holder, before, when = self.holders.get(key, (member, q, 0))
        if before == q:
            return
        flushed = min((ended for begun, ended in holder.flushed[before] if begun >= when), default=None)
        assert flushed is not None, f"{holder.name} has not flushed key {key} of {before}; {member.name} gets it of {q}"
        assert member.loaded.get(q, -1) >= flushed, f"{member.name} has not loaded key {key} that was of {before}"

    def go_back(self, member: Member) -> None:
        """An application seeks; the driver has seen where the member stood before."""
        if member.at:
            self.stood(member)
            q = self.random.choice(sorted(member.at))
            member.at[q] = self.random.randint(0, member.at[q])
            member.handled[q] = min(member.handled[q], member.at[q])

    def rebalance(self, crashed: Member | None = None) -> None:
        """All give up what they have, and get something else in a new generation."""
        for member in self.members:
            if member is not crashed:
                self.give_up(member)
        if crashed is not None:
            self.members.remove(crashed)
            self.members.append(Member(f"m{self.born}"))
            self.born += 1
        self.positions, self.wanted, self.holders = {}, {}, {}  # those of former generations do not count
        self.assigned = self.layout
        partitions = sorted(self.logs)
        self.random.shuffle(partitions)
        self.read_to = {q: self.commits.get(q, 0) for q in partitions}
        for i, member in enumerate(self.members):
            mine = partitions[i :: len(self.members)]
            member.at = {q: self.commits.get(q, 0) for q in mine}
            member.handled = dict(member.at)
            member.counts, member.got_from, member.report = {}, {}, None
            member.flushed.clear()
            member.loaded.clear()
            for q in mine:
                self.load(member, q)
            tps = [TopicPartition(TOPIC, q) for q in mine]
            self.do(member, Assigned(self.now, tps, {TOPIC: TopicGate(Gate.of(self.layout))}))

    def give_up(self, member: Member) -> None:
        """A member flushes, as well as it can, and has nothing any more."""
        member.handled = dict(member.at)
        self.stood(member)
        self.do(member, Leaving(self.now))
        while member.call is not None:
            self.end_call(member, well=self.random.random() < 0.8)
        self.do(member, Left(self.now))

    def step(self) -> None:
        self.turn += 1
        member = self.random.choice(self.members)
        what = self.random.random()
        if what < self.trouble:
            happens = (self.resize, self.write, lambda: self.go_back(member), lambda: self.crash(member))
            self.random.choices(happens, self.weights)[0]()
        elif what < 0.15:
            self.write()
        elif what < 0.3 and member.call is not None:
            self.end_call(member, well=self.random.random() > self.failing)
        elif what < 0.5 and member.report is not None:
            well = [self.random.random() > self.failing for _ in range(2)]
            self.end_report(member, arrives=well[0], answered=well[1])
        elif what < 0.6:
            self.now += 0.2
            self.stood(member)
            self.do(member, Ticked(self.now))
        elif what < 0.75:
            member.handled = dict(member.at)
            self.stood(member)
        else:
            for q in sorted(member.at):
                self.fetch(member, q)

    def crash(self, member: Member) -> None:
        """A member dies, and another one comes."""
        if self.random.random() < 0.3:
            self.rebalance(crashed=member)

    def come_to_rest(self) -> None:
        """Lets everything succeed from now on; in the end all must have been read."""
        for _ in range(400):
            self.now += 1.0
            self.turn += 1
            for member in list(self.members):
                member.handled = dict(member.at)
                self.stood(member)
                self.do(member, Ticked(self.now))
                if member.call is not None:
                    self.end_call(member, well=True)
                if member.report is not None:
                    self.end_report(member, arrives=True, answered=True)
                for q in sorted(member.at):
                    self.fetch(member, q)
            if all(at == len(self.logs[q]) for member in self.members for q, at in member.at.items()):
                return
        left = {q: (at, len(self.logs[q])) for member in self.members for q, at in member.at.items()}
        raise AssertionError(f"not all was read, (at, end) by partition: {left}")


def live_through(seeds: range) -> None:
    """Lets things happen in some worlds, one after the other, and then come to rest.

    Raises:
        AssertionError: A promise was broken; it names the seed.
    """
    for seed in seeds:
        world = World(seed)
        try:
            for _ in range(400):
                world.step()
            world.come_to_rest()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("first_seed", range(0, 100, 25))
def test_members_hand_keys_over_in_order(first_seed: int) -> None:
    """Over growths, rewinds, crashes, lost answers and failing callbacks no key is read early, or forgotten."""
    live_through(range(first_seed, first_seed + 25))


def test_looking_only_where_something_has_changed_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who looks at all partitions upon whatever happens does and knows the same: nothing is overlooked."""

    def told() -> list[tuple[list[Command], str]]:
        said: list[tuple[list[Command], str]] = []
        handle = KeyMoves.handle

        def handle_and_note(moves: KeyMoves, event: Event) -> list[Command]:
            commands = handle(moves, event)
            said.append((commands, repr(moves._owned)))
            return commands

        with monkeypatch.context() as patch:
            patch.setattr(KeyMoves, "handle", handle_and_note)
            live_through(range(10))
        return said

    once = told()
    monkeypatch.setattr(KeyMoves, "_is_to_look", property(lambda _: True, lambda *_: None), raising=False)
    assert told() == once


def _tells_what_is_not_flushed(patch: pytest.MonkeyPatch) -> None:
    stand = Owned.stand

    def tell_at_once(owned: Owned, place: MemberPositions) -> None:
        stand(owned, place)
        owned.safe = owned.handled

    patch.setattr(Owned, "stand", tell_at_once)


def _reads_without_a_load(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Owned, "_is_entered_freely", lambda *_: True)


def _takes_a_failed_flush_for_a_flush(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Owned, "call_failed", lambda owned, _: owned.flushed() if owned.loading is None else owned.loaded())


def _reads_on_though_others_have_gone_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Withdrawn, "missing", lambda *_: ())


def _withdraws_without_a_flush(patch: pytest.MonkeyPatch) -> None:
    is_due = Owned.is_due
    patch.setattr(Owned, "is_due", lambda owned, gate: owned.withdraws_to is None and is_due(owned, gate))
    patch.setattr(
        Owned, "_telling", property(lambda owned: owned.safe if owned.withdraws_to is None else owned.withdraws_to)
    )


@pytest.mark.parametrize(
    "mistake",
    [
        _tells_what_is_not_flushed,
        _reads_without_a_load,
        _takes_a_failed_flush_for_a_flush,
        _reads_on_though_others_have_gone_on,
        _withdraws_without_a_flush,
    ],
)
def test_a_rule_that_is_taken_out_is_noticed(
    mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In some of the worlds in which all goes well else."""
    mistake(monkeypatch)
    with pytest.raises(AssertionError):
        live_through(range(100))
