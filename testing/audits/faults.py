"""Kordon with one promise broken, so that tests see whether the audit finds it.

Each fault replaces one function of the product, or the few that keep one promise together, in the process it is put
into. `faulty_proxy.py` does so and then runs the usual `kordon`; nothing in the product knows of it: no option and no
variable leads here. A record written round the proxy needs no fault: any client of the brokers can do it.
"""

# What is replaced is mostly private: a fault has to be where a mistake would be.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final

from kordon.codecs.bodies import OffsetCommitRequest, OffsetCommitResponse, SyncGroupRequest
from kordon.codecs.decision import Decision, Kind
from kordon.codecs.error_codes import Code
from kordon.proxy.controller.change_steps import ChangeSteps
from kordon.proxy.core.interception import Ask, Translate
from kordon.proxy.decisions.backlog import Backlog
from kordon.proxy.decisions.journal import Journal
from kordon.proxy.decisions.runs import Client
from kordon.proxy.handlers import individual_offset_commit, source_assignments, source_commits
from kordon.proxy.handlers.api_handler import Handled, HeldRequest
from kordon.proxy.handlers.caught_up import CaughtUp
from kordon.proxy.member.member_notes import MemberNotes
from kordon.proxy.ordering import claims, images, write_sequencer, writers
from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.changes import ReadCuts
from kordon.proxy.ordering.claims import Place
from kordon.proxy.ordering.images import WhyNotWritten
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.records import AckRecord, FenceRecord
from kordon.proxy.ordering.streams import Stream
from kordon.proxy.ordering.transactions.beliefs import Beliefs, ProducerClaim
from kordon.proxy.ordering.transactions.events import Batch
from kordon.proxy.ordering.transactions.outcome import Outcome
from kordon.proxy.ordering.write_sequencer import Write
from kordon.proxy.reads import gated_fetching, kept_views
from kordon.proxy.reads.log_transactions import LogTransactions
from kordon.proxy.topics.managed_topics import ManagedTopic, Why
from kordon.proxy.topics.views import VirtualView
from kordon.proxy.writes.stream_queue import StreamQueue
from kordon.proxy.writes.transactions import Transactions
from kordon.proxy.writes.write_dispatcher import WriteDispatcher

_LOOK_SECONDS: Final = 0.01

_put: Final = setattr
"""By name, as type checkers let nobody assign to a method."""


class Fault(StrEnum):
    """What is broken; named by the finding that it should give."""

    STALE_COUNT = "stale-count"
    """A dialect client's write is admitted by a number of partitions that has changed (COUNT-FENCE)."""
    EARLY_CHILD = "early-child"
    """A reader is given records of a partition before those that their keys had elsewhere (PARENT-FIRST)."""
    WRITE_AFTER_FENCE = "write-after-fence"
    """A worker acknowledges a fence and goes on writing to what it holds, once (FENCE-BARRIER, STILL-CUT)."""
    DOUBLED_SEQUENCE = "doubled-sequence"
    """What a client sends again after its stream has moved is written once more (SEQ-IMAGE)."""
    SKIPPED_RANGE = "skipped-range"
    """A reader is not given one of a stream's batches, once."""
    UNCOMMITTED_RANGE = "uncommitted-range"
    """read_committed readers are given what was aborted; or they are led past what is not decided yet (NO-SKIP)."""
    MISPLACED_KEY = "misplaced-key"
    """What clients write to virtual partition 0 is put into 1, and the other way round, always (KEY-HOME)."""
    UNWITNESSED = "unwitnessed"
    """Data of transactions are written without a witness (TXN-WITNESS)."""
    HIDDEN_WRITE = "hidden-write"
    """Witnesses are written once something else is (TXN-WITNESS)."""
    PUSHED_AHEAD = "pushed-ahead"
    """Coordinators get the end of what a group has done behind gaps (NEVER-AHEAD, IC-ALGEBRA)."""
    PUSHED_BACK = "pushed-back"
    """Coordinators get what a member says, whatever others have done (IC-ALGEBRA)."""
    CLAIMED_AFTER_END = "claimed-after-end"
    """Commits of incarnations that have ended are taken (IC-ALGEBRA)."""
    TWO_OWNERS = "two-owners"
    """What a leader gives to one member of a group on a source topic, all others get, too (SOURCE-OWNER)."""
    POINT_FELL = "point-fell"
    """Restart points are taken, whatever the group has (POINT-KEPT, SOURCE-OWNER)."""
    FORMER_OWNER = "former-owner"
    """Restart points in transactions reach coordinators without member and generation (SOURCE-OWNER)."""
    TOLD_AHEAD = "told-ahead"
    """Who reads on for a group is told the end of partitions that the group has not read (HAND-OVER)."""
    DROPPED_DECISION = "dropped-decision"
    """A decision is not on record, once: to admit, or of the kind that is named."""


def inject(fault: Fault, of: str = "") -> None:
    """Breaks a promise in this process.

    Args:
        of: The kind of the decision that is dropped, `admit` by default; the number of the fence that does not hold,
            1 by default; `undecided` if readers of committed records are led past what is.
    """
    if fault is Fault.DROPPED_DECISION:
        _dropped_decision(Kind(of or Kind.ADMIT))
    elif fault is Fault.WRITE_AFTER_FENCE:
        _LateWrite(int(of or 1)).put()
    elif fault is Fault.UNCOMMITTED_RANGE:
        _misjudged(*((Outcome.UNDECIDED, Outcome.ABORTED) if of else (Outcome.ABORTED, Outcome.COMMITTED)))
    else:
        _FAULTS[fault]()


def _stale_count() -> None:
    kept = write_sequencer._is_outdated

    def is_outdated(write: Write, home: Stay, count: int | None) -> bool:
        return home.end is not None and kept(write, home, count)  # nobody can write to what is retired

    _put(write_sequencer, "_is_outdated", is_outdated)


def _early_child() -> None:
    gate = gated_fetching.PartitionGate
    judge = gate._asks

    def asks(self: Any, *place: Any) -> bool:
        judge(self, *place)  # what it rests upon stays on record as it is
        return False

    _put(gate, "_asks", asks)


def _doubled_sequence() -> None:
    kept = images.sequence_at_home

    def sequence_at_home(*asked: Any) -> int | WhyNotWritten:
        verdict = kept(*asked)
        return 0 if verdict is WhyNotWritten.DUPLICATE else verdict

    _put(writers, "sequence_at_home", sequence_at_home)


def _skipped_range() -> None:
    kept = kept_views._take_from
    skipped: list[Any] = []

    def take_from(view: Any, entries: Any, taken: kept_views.ReadSoFar, *more: Any) -> None:
        had = len(taken.entries)
        kept(view, entries, taken, *more)
        if not skipped and len(taken.entries) > had + 2:  # from the middle, so that the range stays as it was
            skipped.append(taken.entries.pop(had + 1))
            taken.size_bytes -= len(skipped[0].data)

    _put(kept_views, "_take_from", take_from)


def _misjudged(outcome: Outcome, taken_for: Outcome) -> None:
    kept = LogTransactions.decide

    def decide(transactions: LogTransactions, batch: Batch) -> Outcome:
        found = kept(transactions, batch)
        return taken_for if found is outcome else found

    _put(LogTransactions, "decide", decide)


def _misplaced_key() -> None:
    kept = VirtualView.find

    def find(view: VirtualView, layout: Layout, number: int) -> Stream | Code:
        return kept(view, layout, 1 - number if number in {0, 1} else number)

    _put(VirtualView, "find", find)


def _told_ahead() -> None:
    async def end_if_read(told: CaughtUp, topic: ManagedTopic, v: int, _: int, ends: Mapping[int, int]) -> int | None:
        home = topic.layout.chains[v].stays[-1]
        end = told._shown(topic, home.partition, ends)
        return end + home.delta if end is not None else None

    _put(CaughtUp, "end_if_read", end_if_read)


def _believe(*_: object) -> bool:
    return True


def _unwitnessed() -> None:
    async def leave_closed(*_: object) -> int:
        return Code.NONE

    _put(Beliefs, "is_open", _believe)
    _put(Transactions, "open", leave_closed)


def _hidden_write() -> None:
    kept, admit = Transactions.open, Journal.admitted
    written: set[str] = set()

    async def open_later(transactions: Transactions, topic: ManagedTopic, partition: int, claim: ProducerClaim) -> int:
        return await kept(transactions, topic, partition, claim) if topic.name in written else Code.NONE

    def admitted(journal: Journal, client: Client, topic: ManagedTopic, *what: Any) -> None:
        admit(journal, client, topic, *what)
        written.add(topic.name)

    _put(Beliefs, "is_open", _believe)
    _put(Transactions, "open", open_later)
    _put(Journal, "admitted", admitted)


def _pushed_ahead() -> None:
    def push(place: Place, stable: int) -> int:
        return max(place.done.ranges.end, place.done.stable, stable)

    _put(claims, "to_push", push)


def _pushed_back() -> None:
    def push(place: Place, stable: int) -> int:
        return stable

    _put(claims, "to_push", push)


def _claimed_after_end() -> None:
    _put(individual_offset_commit._Commit, "_is_newest", _believe)


def _two_owners() -> None:
    kept = source_assignments.SyncedOwners.decide

    def decide(handler: source_assignments.SyncedOwners, held: HeldRequest) -> Handled:
        asked: SyncGroupRequest = held.read()
        for row in asked.assignments:
            row.assignment = asked.assignments[0].assignment
        held.body = memoryview(bytearray(held.build(asked)))
        handled = kept(handler, held)
        return replace(handled, body=bytes(held.body)) if isinstance(handled, Translate) else handled

    _put(source_assignments.SyncedOwners, "decide", decide)


def _point_fell() -> None:
    async def compare(*_: object) -> None:
        """Refuses nothing."""

    _put(source_commits._SourceCommit, "_compare", compare)


def _former_owner() -> None:
    kept = source_commits._SourceCommit._commit

    async def commit(taken: Any, ask: Ask) -> OffsetCommitResponse | None:
        asked: OffsetCommitRequest = taken._held.read()
        asked.generation_id_or_member_epoch, asked.member_id = -1, ""
        taken._held.body = memoryview(bytearray(taken._held.build(asked)))
        return await kept(taken, ask)

    _put(source_commits._SourceCommit, "_commit", commit)


def _dropped_decision(of: Kind) -> None:
    """The queue is full for one decision of a kind, whichever way it comes."""
    dropped: list[Kind] = []

    def drop(name: str) -> None:
        kept = getattr(Backlog, name)

        def take(self: Backlog, decision: Decision | Kind, *more: Any) -> None:
            kind = decision.kind if isinstance(decision, Decision) else decision
            most_bytes = self._most_bytes
            if kind is of and not dropped:
                dropped.append(kind)
                self._most_bytes = 0
            kept(self, decision, *more)
            self._most_bytes = most_bytes

        _put(Backlog, name, take)

    for name in ("add", "add_later"):
        if hasattr(Backlog, name):
            drop(name)


class _LateWrite:
    """A fence that does not hold until something was written behind its acknowledgement, by one worker that leads.

    The cut is read after that: the write stands where it belongs, only not when. If that takes so long that the attempt
    is given up, the fence of the next one does not hold either.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.fences_before = number - 1
        """Which hold anything, and are kept."""
        self.fence = ""
        """The attempt whose fence does not hold."""
        self.topic: str | None = None
        """Whose fence does not hold …"""
        self.partitions: frozenset[int] = frozenset()
        """… and what it holds."""
        self.written = False
        self._drain = WriteDispatcher.drain
        self._home = StreamQueue.home
        self._note = MemberNotes.acknowledged
        self._admit = Journal.admitted
        self._read_cuts = ChangeSteps._cuts
        self._dispatcher: WriteDispatcher | None = None

    def _heard(self, fence: FenceRecord) -> None:
        self.fences_before = max(self.number - 1 - fence.following.number, 0)
        is_meant = fence.following.number == self.number and self.topic in (None, fence.topic)
        if is_meant and fence.id != self.fence:
            self.fence, self.topic, self.partitions, self.written = fence.id, fence.topic, fence.sealed, False

    def put(self) -> None:
        """Replaces what keeps the promise."""
        late = self

        async def drain(dispatcher: WriteDispatcher, topic: str, partitions: frozenset[int]) -> dict[int, int]:
            late._dispatcher = dispatcher
            is_kept = late.written or late.fences_before > 0
            return await late._drain(dispatcher, topic, partitions) if is_kept else dict.fromkeys(partitions, 0)

        def find_home(queue: StreamQueue, *, may_serve: bool) -> Stay | Why:
            home = queue.topic.layout.chain(queue.stream).home
            is_meant = not late.written and queue.topic.layout.epoch >= late.number - 1
            is_broken = is_meant and home is not None and queue.topic.is_sealed(home.partition)
            return home if is_broken and home is not None else late._home(queue, may_serve=may_serve)

        def acknowledged(notes: MemberNotes, ack: AckRecord, offset: int) -> None:
            held = [fence for fence, _ in notes._fences.values() if fence.id == ack.fence and fence.sealed]
            late._note(notes, ack, offset)
            for fence in held[:1]:
                late._heard(fence)

        def admitted(journal: Journal, client: Client, topic: ManagedTopic, *what: Any) -> None:
            write: Write = what[1]
            late._admit(journal, client, topic, *what)
            is_meant = topic.name == late.topic and write.bound is not None and write.bound.partition in late.partitions
            late.written = late.written or is_meant

        async def cuts(steps: ChangeSteps, command: ReadCuts) -> Any:
            topic = command.topic
            while topic == late.topic and not late.written:  # noqa: ASYNC110  no loop is there yet when this is made
                await asyncio.sleep(_LOOK_SECONDS)
            if late._dispatcher is not None and topic == late.topic:
                await late._drain(late._dispatcher, topic, late.partitions)
            return await late._read_cuts(steps, command)

        _put(WriteDispatcher, "drain", drain)
        _put(StreamQueue, "home", find_home)
        _put(MemberNotes, "acknowledged", acknowledged)
        _put(Journal, "admitted", admitted)
        _put(ChangeSteps, "_cuts", cuts)


_FAULTS: Final[dict[Fault, Callable[[], None]]] = {
    Fault.STALE_COUNT: _stale_count,
    Fault.EARLY_CHILD: _early_child,
    Fault.DOUBLED_SEQUENCE: _doubled_sequence,
    Fault.SKIPPED_RANGE: _skipped_range,
    Fault.TOLD_AHEAD: _told_ahead,
    Fault.MISPLACED_KEY: _misplaced_key,
    Fault.UNWITNESSED: _unwitnessed,
    Fault.HIDDEN_WRITE: _hidden_write,
    Fault.PUSHED_AHEAD: _pushed_ahead,
    Fault.PUSHED_BACK: _pushed_back,
    Fault.CLAIMED_AFTER_END: _claimed_after_end,
    Fault.TWO_OWNERS: _two_owners,
    Fault.POINT_FELL: _point_fell,
    Fault.FORMER_OWNER: _former_owner,
}
