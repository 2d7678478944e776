"""A member of a dialect group: the SDK's own keeper of keys' moves, and a model of all around it.

Callbacks take their time, fail or never answer; so do reports.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from aiokafka.structs import TopicPartition

from kordon.client.moves import KeyMoves
from kordon.client.moves_events import (
    Answered,
    CallAssigned,
    CallFailed,
    CallMaybeRevoked,
    CallReturned,
    Event,
    Left,
    MemberPositions,
    ReportFailed,
    Resume,
    Stood,
    Ticked,
    TopicGate,
    Withhold,
)
from kordon.client.moves_events import Assigned as GotPartitions
from kordon.client.moves_events import SendReport as Told
from kordon.proxy.ordering.gate import Gate
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.positions import MemberReport, ToldPosition, TopicReport
from kordon.testing.order.history import Assigned, KeyAssigned, KeyMaybeRevoked, Revoked
from kordon.testing.simulation.coordinator import Given
from kordon.testing.simulation.gating import Fetched

if TYPE_CHECKING:
    from kordon.testing.simulation.groups import DialectGroup

TIMEOUT_SECONDS: Final = 2.0
"""For any answer, and for callbacks: beyond it they have failed."""
_TURN_SECONDS: Final = 0.25
_HEARTBEAT_SECONDS: Final = 0.5
_HURRY_SECONDS: Final = 0.2
_COMMIT_SECONDS: Final = 1.0
_METADATA_SECONDS: Final = 3.0


@dataclass(eq=False)
class Owned:
    """A partition during one generation."""

    position: int
    """Where it is read on; what was delivered before is handled."""
    stretch: int = 0
    """Counts seeks: what was asked for before one is dropped."""
    asked_at: float | None = None
    """When the Fetch was sent that is under way."""
    high_watermark: int = -1


class Member:
    """One member, from joining to its end.

    Args:
        group: Which.
        name: No other member has it, ever.
    """

    def __init__(self, group: DialectGroup, name: str) -> None:
        self.group = group
        self.name = name
        self.alive = True
        self.paused_until = 0.0
        self.is_slow = group.random.random() < 0.2
        self.generation = -1
        self.owned: dict[int, Owned] = {}
        self._term = 0
        """Counts what it has been: answers and callbacks of an earlier term are dropped."""
        self._is_joining = False
        self._leads = False
        self._assigned_by = -1
        """The layout epoch by which the group's partitions were shared out."""
        self._layout = group.layout()
        """The newest that it knows."""
        self._moves = KeyMoves(_HEARTBEAT_SECONDS, _HURRY_SECONDS)
        self._join()
        for seconds, what in (
            (_TURN_SECONDS, self._turn),
            (_HEARTBEAT_SECONDS, self._heartbeat),
            (_COMMIT_SECONDS, self._commit),
            (_METADATA_SECONDS, self._refresh),
        ):
            group.each(seconds, self._loop(what))

    # --- life

    def kill(self) -> None:
        """Ends at once."""
        self.group.world.say(f"{self.name} is killed")
        self.alive = False

    def pause(self, seconds: float) -> None:
        """Stops it for a while: the group goes on without it, and it does not know."""
        self.group.world.say(f"{self.name} is paused for {seconds} s")
        self.paused_until = self.group.world.now + seconds

    def seek(self, q: int, offset: int) -> None:
        """Goes back: what it delivers again is meant to be."""
        owned = self.owned[q]
        self.group.world.say(f"{self.name} goes back from {owned.position} to {offset} of {q}")
        self.group.went_back(self.generation, q, owned.position)
        owned.position = offset
        owned.stretch += 1
        owned.asked_at = None
        self._look()

    def _loop(self, what: Callable[[], None]) -> Callable[[], bool]:
        def turn() -> bool:
            if self._runs:
                what()
            return self.alive and not self.group.over

        return turn

    @property
    def _runs(self) -> bool:
        return self.alive and self.group.world.now >= self.paused_until

    def _back(self, what: Callable[[], None]) -> Callable[[], None]:
        """Lets something happen at this member: if it is still what it is now, and as soon as it runs."""
        return self._in_this_term()(what)

    def _in_this_term(self) -> Callable[[Callable[[], None]], Callable[[], None]]:
        return partial(partial, self._arrive, self._term)

    def _arrive(self, term: int, what: Callable[[], None]) -> None:
        if self.alive and not self._runs:
            self.group.world.at(self.paused_until, partial(self._arrive, term, what))
        elif self.alive and term == self._term:
            what()

    # --- the group

    def _join(self) -> None:
        """Gives up what it has, and joins."""
        if self._is_joining:
            return
        if self.owned:
            if self.group.random.random() < 0.7:
                self._commit()
            self.group.tell(self.name, Revoked(0, tuple(self.owned), lost=False))
        self._term += 1
        self._is_joining = True
        self._moves.handle(Left(self.group.world.now))
        self.owned, self._leads = {}, False
        back = self._in_this_term()

        def answer(generation: int, members: list[str]) -> None:
            self.group.after(back(lambda: self._joined(generation, members)))

        self.group.after(lambda: self.group.coordinator.join(self.name, answer))
        self.group.after(self._back(self._again), 10.0)

    def _again(self) -> None:
        """Nothing came of joining: the coordinator may have forgotten it."""
        if self._is_joining:
            self._is_joining = False
            self._join()

    def _joined(self, generation: int, members: list[str]) -> None:
        self.generation = generation
        self._leads = members[0] == self.name
        if self._leads:
            epoch, assignment = self._epoch, assign(self._layout, members, self.group.random.randrange(8))
            self.group.after(lambda: self.group.coordinator.assign(generation, assignment, epoch))
        self._sync()

    def _sync(self) -> None:
        """Asks for its partitions until the leader has given them out."""
        back, generation = self._in_this_term(), self.generation

        def there() -> None:
            found = self.group.coordinator.assigned(self.name, generation)
            self.group.after(back(lambda: self._sync() if found is None else self._own(found)), 0.2)

        self.group.after(there)

    def _own(self, given: Given) -> None:
        """Begins with its partitions, as soon as their segments are known (PartitionLeaderEpochsForPartitions)."""
        self._learn()
        told = self.group.layout()
        if (
            told is None
            or self._layout is None
            or told.epoch < self._layout.epoch
            or self._layout.epoch < given.layout_epoch
        ):
            self.group.after(self._back(lambda: self._own(given)), _HURRY_SECONDS)
            return
        self._is_joining = False
        self._assigned_by = given.layout_epoch
        self.owned = {q: Owned(given.offsets.get(q, 0)) for q in sorted(given.partitions)}
        self.group.tell(self.name, Assigned(0, tuple(self.owned)))
        topics = {self.group.topic: TopicGate(Gate.of(told))}
        self._do(GotPartitions(self.group.world.now, [self._partition(q) for q in self.owned], topics))
        self._look()

    def _partition(self, q: int) -> TopicPartition:
        return TopicPartition(self.group.topic, q)

    def _heartbeat(self) -> None:
        """Is heard, also while it waits for the others or for its leader; joins again when it is told to."""
        generation, again = self.generation, self._back(self._join)

        def there() -> None:
            if not self.group.coordinator.heartbeat(self.name, generation) and not self._is_joining:
                self.group.after(again)

        self.group.after(there)

    def _commit(self) -> None:
        offsets = {q: owned.position for q, owned in self.owned.items()}
        generation = self.generation
        if offsets:
            self.group.after(lambda: self.group.coordinator.commit(self.name, generation, offsets))

    @property
    def _epoch(self) -> int:
        return -1 if self._layout is None else self._layout.epoch

    def _learn(self) -> None:
        """Asks for Metadata; a proxy that is behind the others does not take back what was known."""
        told = self.group.layout()
        if told is not None and told.epoch > self._epoch:
            self._layout = told

    def _refresh(self) -> None:
        """Joins again if there is a newer layout than the one by which partitions were shared out."""
        self._learn()
        if self._epoch > self._assigned_by and not self._is_joining:
            self._join()

    # --- reading

    def _turn(self) -> None:
        self._look()
        if self.is_slow and self.group.is_troubled and self.group.random.random() < 0.7:
            return
        for q, owned in self.owned.items():
            late = owned.asked_at is not None and self.group.world.now - owned.asked_at > TIMEOUT_SECONDS
            may = self._moves.admits(self._partition(q), owned.position)
            if (owned.asked_at is None or late) and may and self._layout is not None:
                self._fetch(q, owned, self._layout.u)

    def _fetch(self, q: int, owned: Owned, count: int) -> None:
        at = owned.asked_at = self.group.world.now
        stretch, position, generation = owned.stretch, owned.position, self.generation

        def back(found: Fetched | None) -> None:
            if owned.asked_at == at and owned.stretch == stretch:
                owned.asked_at = None
                if found is not None:
                    self._fetched(q, owned, found)

        self.group.ask(
            lambda gating: gating.fetch(self.name, q, position, count, generation), self._in_this_term(), back
        )

    def _fetched(self, q: int, owned: Owned, found: Fetched) -> None:
        if found.is_old:
            self._refresh()
            return
        if not self._moves.admits(self._partition(q), owned.position):
            return  # it is held again
        if found.records:
            self.group.deliver(self, q, found.records)
        owned.position = max(found.position, owned.position)
        owned.high_watermark = found.high_watermark
        self._look()

    # --- the keeper of keys' moves

    def _look(self) -> None:
        """Tells it where all stand, and what time it is."""
        now = self.group.world.now
        places = {
            self._partition(q): MemberPositions(owned.position, owned.position, owned.high_watermark)
            for q, owned in self.owned.items()
        }
        self._do(Stood(now, places))
        due = self._moves.next_tick()
        if due is not None and due <= now:
            self._do(Ticked(now))

    def _do(self, event: Event) -> None:
        for command in self._moves.handle(event):
            match command:
                case CallMaybeRevoked(partitions):
                    self._flush([each.partition for each in partitions])
                case CallAssigned(partitions):
                    self.group.tell(self.name, KeyAssigned(0, tuple(each.partition for each in partitions)))
                    self._call(lambda: None)
                case Told():
                    self._report(command)
                case Resume() | Withhold():
                    pass

    def _flush(self, partitions: list[int]) -> None:
        """Is called in `on_partition_key_maybe_revoked`: all that was delivered by then is flushed."""
        at = tuple((q, self.owned[q].position) for q in partitions)
        self._call(lambda: self.group.tell(self.name, KeyMaybeRevoked(0, at)))

    def _call(self, returned: Callable[[], None]) -> None:
        """Calls the application: most of the time it is quick."""
        chance = self.group.random.random() if self.group.is_troubled else 1.0
        seconds = TIMEOUT_SECONDS if chance < 0.03 else self.group.random.uniform(0.0, 0.2)

        def done() -> None:
            if chance <= 0.1:
                self._do(CallFailed(self.group.world.now))
            else:
                returned()
                self._do(CallReturned(self.group.world.now))

        self.group.world.after(seconds, self._back(done))

    def _report(self, told: Told) -> None:
        """Sends ConsumerGroupPosition; what is not answered in time has failed, and may arrive all the same."""
        owned = {row.partition.partition: row.position for row in told.rows if row.partition.partition in self.owned}
        wanted = array("i", sorted(row.partition.partition for row in told.rows if row.needed))
        report = MemberReport(self.generation, told.sequence, {self.group.topic: TopicReport(owned, wanted)})
        is_answered = False

        def back(answer: dict[str, list[ToldPosition]] | None) -> None:
            nonlocal is_answered
            if is_answered:
                return
            is_answered = True
            now = self.group.world.now
            if answer is None:
                self._do(ReportFailed(now))
                return
            rows = answer.get(self.group.topic, ())
            positions = {self._partition(row.partition): row.position for row in rows if row.partition in wanted}
            needed = {self._partition(row.partition) for row in rows if row.need_position}
            self._do(Answered(now, positions, needed))

        self.group.ask_to_report(self.name, report, self._in_this_term(), back)
        self.group.world.after(TIMEOUT_SECONDS, self._back(lambda: back(None)))


def assign(layout: Layout | None, members: list[str], turn: int) -> dict[str, frozenset[int]]:
    """Gives out undeleted and retired partitions, each list by itself (KIP-253 6).

    Args:
        layout: The newest that the leader knows.
        members: Of the group.
        turn: Who begins.
    """
    if layout is None:
        return {}
    partitions = sorted({segment.id.partition for segment in layout.segments})
    lists = [q for q in partitions if q < layout.u], [q for q in partitions if q >= layout.u]
    found: dict[str, set[int]] = {member: set() for member in members}
    for each in lists:
        for place, q in enumerate(each, turn):
            found[members[place % len(members)]].add(q)
    return {member: frozenset(given) for member, given in found.items()}
