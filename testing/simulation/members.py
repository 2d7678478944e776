"""A member of a dialect group: it does what the SDK's consumer does. Callbacks take time, fail or never answer."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kordon.proxy.ordering.positions import Report, Row, TopicReport
from kordon.testing.order.history import Assigned, KeyAssigned, KeyMaybeRevoked, Revoked
from kordon.testing.simulation.gating import Fetched

if TYPE_CHECKING:
    from kordon.testing.simulation.groups import DialectGroup

TIMEOUT_SECONDS: Final = 2.0
"""For any answer, and for callbacks: beyond it they have failed."""
_TURN_SECONDS: Final = 0.15
_HEARTBEAT_SECONDS: Final = 0.5
_REPORT_SECONDS: Final = 0.3
_COMMIT_SECONDS: Final = 1.0
_METADATA_SECONDS: Final = 3.0


@dataclass(eq=False)
class Owned:
    """A partition during one generation."""

    position: int
    """Where it is read on."""
    flushed: int
    """Up to where `maybe_revoked` has returned, or nothing was delivered since."""
    stretch: int = 0
    """Counts seeks: what was asked for before one is dropped."""
    asked_at: float | None = None
    """When the Fetch was sent that is under way."""
    loaded: int = -1
    """Layout epoch of the segment for which `assigned` has returned; -1: of none."""
    is_loading: bool = False
    is_flushing: bool = False
    is_at_end: bool = False
    segment: int = -1
    """Layout epoch of the segment that it stands in."""
    asks: tuple[int, ...] = ()
    told: tuple[int, int] | None = None
    """Position and segment of the last report; None: none in this generation."""

    @property
    def telling(self) -> tuple[int, int]:
        """What a report says of it now: position and segment."""
        if self.told is not None and not self.is_worth_telling:
            return self.told
        return self.flushed, self.segment if self.flushed == self.position else -1

    @property
    def is_worth_telling(self) -> bool:
        """KIP-253 7's condition: it may open a gate; and a rewind, which may have to close one."""
        if self.told is None:
            return True
        position, segment = self.told
        return self.segment > segment or self.position < position or (self.is_at_end and self.position > position)


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
        self._assigned_from: tuple[int, frozenset[int]] | None = None
        """The counts from which it made the group's assignment, as its leader."""
        self._counts = group.counts()
        self._sequence = 0
        """Of its last report."""
        self._reporting_since: float | None = None
        self._join()
        for seconds, what in (
            (_TURN_SECONDS, self._turn),
            (_HEARTBEAT_SECONDS, self._heartbeat),
            (_REPORT_SECONDS, self._tell),
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
        owned.position = owned.flushed = offset
        owned.stretch += 1
        owned.asked_at, owned.is_at_end, owned.segment = None, False, -1

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
        term = self._term

        def later(what: Callable[[], None]) -> Callable[[], None]:
            def arrive() -> None:
                if self.alive and not self._runs:
                    self.group.world.at(self.paused_until, arrive)
                elif self.alive and term == self._term:
                    what()

            return arrive

        return later

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
        self._is_joining, self._reporting_since = True, None
        self.owned, self._assigned_from = {}, None
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
        if members[0] == self.name:
            self._assigned_from = self._counts
            assignment = assign(self._counts, members, self.group.random.randrange(8))
            self.group.after(lambda: self.group.coordinator.assign(generation, assignment))
        self._sync()

    def _sync(self) -> None:
        """Asks for its partitions until the leader has given them out."""
        back, generation = self._in_this_term(), self.generation

        def there() -> None:
            found = self.group.coordinator.assigned(self.name, generation)
            self.group.after(back(lambda: self._sync() if found is None else self._own(*found)), 0.2)

        self.group.after(there)

    def _own(self, partitions: frozenset[int], commits: dict[int, int]) -> None:
        self._is_joining = False
        starts = {q: commits.get(q, 0) for q in sorted(partitions)}
        self.owned = {q: Owned(start, start) for q, start in starts.items()}
        self.group.tell(self.name, Assigned(0, tuple(self.owned)))
        self._tell()

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

    def _refresh(self) -> None:
        """Sees how many partitions there are, and joins again if that is not what its partitions were given by."""
        counts = self.group.counts()
        if counts is not None and counts != self._counts:
            self._counts = counts
        leads_by_others = self._assigned_from is not None and self._assigned_from != self._counts
        if leads_by_others and not self._is_joining:
            self._join()

    # --- reading

    def _turn(self) -> None:
        if self.is_slow and self.group.is_troubled and self.group.random.random() < 0.7:
            return
        for q, owned in self.owned.items():
            late = owned.asked_at is not None and self.group.world.now - owned.asked_at > TIMEOUT_SECONDS
            if (owned.asked_at is None or late) and not owned.is_loading:
                self._fetch(q, owned)

    def _fetch(self, q: int, owned: Owned) -> None:
        if self._counts is None:
            return
        at = owned.asked_at = self.group.world.now
        stretch, position, generation, count = owned.stretch, owned.position, self.generation, self._counts[0]

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
            before = self._counts
            self._refresh()
            if self._counts != before and not self._is_joining:
                self._join()
            return
        owned.asks, owned.is_at_end = found.asks, found.is_at_end
        segment = found.segment
        if segment is None or found.asks:
            return
        if found.records and segment.id.epoch != owned.loaded and segment.predecessors:
            self._load(q, owned, segment.id.epoch)
            return
        if found.records:
            self.group.deliver(self, q, found.records)
        owned.position = max(found.position, owned.position)
        owned.segment = segment.id.epoch

    def _load(self, q: int, owned: Owned, epoch: int) -> None:
        """Awaits `on_partition_key_assigned` before the first record of a segment whose keys were elsewhere."""
        owned.is_loading = True
        self.group.tell(self.name, KeyAssigned(0, (q,)))

        def done(fine: bool) -> None:
            owned.is_loading = False
            if fine:
                owned.loaded = epoch

        self._call(done)

    # --- positions

    def _tell(self) -> None:
        """Flushes what is worth telling, and reports what is flushed."""
        for q, owned in self.owned.items():
            if owned.is_worth_telling and owned.position > owned.flushed and not owned.is_flushing:
                self._flush(q, owned)
        late = self._reporting_since is not None and self.group.world.now - self._reporting_since > TIMEOUT_SECONDS
        if self.owned and not self._is_joining and (self._reporting_since is None or late):
            self._report()

    def _flush(self, q: int, owned: Owned) -> None:
        """Awaits `on_partition_key_maybe_revoked` for what was delivered so far."""
        owned.is_flushing = True
        position, stretch = owned.position, owned.stretch

        def done(fine: bool) -> None:
            owned.is_flushing = False
            if fine and owned.stretch == stretch:
                owned.flushed = position
                self.group.tell(self.name, KeyMaybeRevoked(0, ((q, position),)))

        self._call(done)

    def _call(self, done: Callable[[bool], None]) -> None:
        """Calls back the application: most of the time it is quick."""
        chance = self.group.random.random() if self.group.is_troubled else 1.0
        seconds = TIMEOUT_SECONDS if chance < 0.03 else self.group.random.uniform(0.0, 0.2)
        self.group.world.after(seconds, self._back(lambda: done(chance > 0.1)))

    def _report(self) -> None:
        """Says all that it owns and wants; a position moves on only where that is worth telling."""
        now = self._reporting_since = self.group.world.now
        told = {q: owned.telling for q, owned in self.owned.items()}
        rows = {q: each[0] for q, each in told.items()}
        wanted = sorted({asked for owned in self.owned.values() for asked in owned.asks})
        self._sequence += 1
        report = Report(self.generation, self._sequence, {self.group.topic: TopicReport(rows, array("i", wanted))})

        def back(answer: dict[str, list[Row]] | None) -> None:
            if self._reporting_since != now:
                return
            self._reporting_since = None
            if answer is None:
                return  # its heartbeat tells it what to do
            for q, each in told.items():
                self.owned[q].told = each

        self.group.ask_to_report(self.name, report, self._in_this_term(), back)


def assign(counts: tuple[int, frozenset[int]] | None, members: list[str], turn: int) -> dict[str, frozenset[int]]:
    """Gives out undeleted and retired partitions, each list by itself (KIP-253 6).

    Args:
        counts: undeleted_partition_count, and all partitions that there are.
        members: Of the group.
        turn: Who begins.
    """
    if counts is None:
        return {}
    u, partitions = counts
    lists = [q for q in sorted(partitions) if q < u], [q for q in sorted(partitions) if q >= u]
    found: dict[str, set[int]] = {member: set() for member in members}
    for each in lists:
        for place, q in enumerate(each, turn):
            found[members[place % len(members)]].add(q)
    return {member: frozenset(given) for member, given in found.items()}
