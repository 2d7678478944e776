"""One share group and virtual partition, as one worker serves it: what its members are given, and what they make of it.

The decisions are those of `ordering/share/`. This reads what is written back, and writes no more than that.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from kordon.codecs.error_codes import Code
from kordon.codecs.ranges import NONE, Ranges
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.ordering.claims import MOST_INCARNATION, NO_INCARNATION, NO_OFFSET, Done, PlaceKey, Start
from kordon.proxy.ordering.share import acknowledging, acquiring
from kordon.proxy.ordering.share.acknowledging import AcknowledgementBatch, JudgedAcknowledgements, ShareAcknowledgeType
from kordon.proxy.ordering.share.acquiring import GivenRecord, Terms, Wish
from kordon.proxy.ordering.share.locks import NO_TURN, LockOutcome
from kordon.proxy.ordering.share.state import Said, ShareState
from kordon.proxy.ordering.share.window import ShareWindow, WindowRecord
from kordon.proxy.own_topics.share_bell import Bell
from kordon.proxy.runtime.clock import clock

MARGIN_SECONDS: Final = 2.0
"""By which workers keep a lock longer than members are told: its answer is on its way for a while."""
SEND_WITHIN_SECONDS: Final = 1.0
"""From when a lock was written; later its records are not given away, since the lock runs."""
LOOK_AT_ONCE: Final = 500
"""Records (max.poll.records of Java)."""
MOST_AHEAD: Final = 10_000
"""Records that are looked at from the first on that is not done. A key that is blocked for so long holds others up."""
LEAST_AHEAD: Final = 100
"""Records that are looked at although the worker keeps all that it may. Without any a partition could finish none, and
nothing would ever become free."""
OUTCOMES: Final = ("given", "missed", "accepted", "released", "rejected", "renewed", "archived", "refused")
"""What becomes of records: a member is given one, or another worker was faster; what its member makes of it; it was
given as often as may be, and is done with. Of what is refused the rows of requests are counted."""
_OF_KINDS: Final = ("", "accepted", "released", "rejected", "renewed")
_IDLE_SECONDS: Final = 60.0


class LogOfPlaces(Protocol):
    """The log of groups' records (`share_log.py::ShareLog`)."""

    life: int
    """Rises whenever all is forgotten."""
    read_to: int
    """All records before this offset are known."""

    @property
    def is_full(self) -> bool:
        """Whether no more records are to be looked at than it takes to finish some."""
        ...

    @property
    def outcomes(self) -> Counter[str]:
        """What becomes of records (`OUTCOMES`)."""
        ...

    def state_of(self, place: PlaceKey) -> ShareState:
        """Returns what is known of a group and partition; it must not be changed."""
        ...

    async def read_to_end(self) -> None:
        """Returns when all is read that stood in the log; raises `UpstreamUnavailable`."""
        ...

    async def write(self, place: PlaceKey, said: Sequence[Said]) -> list[str]:
        """Writes records, reads them back and returns their keys; raises `UpstreamUnavailable`."""
        ...

    def take_out(self, keys: Sequence[str]) -> None:
        """Has records taken out later on which nothing rests any more."""
        ...


class LookAhead(NamedTuple):
    """What a worker has to look at before it gives records away."""

    begin: int
    """An offset as clients see it."""
    most: int
    """Records, at most; 0: it has seen enough."""


@dataclass(frozen=True, slots=True)
class Acquired:
    """What a member is given."""

    records: Sequence[GivenRecord] = ()
    """The records in order."""
    send_before: float = 0.0
    """By the clock of leases (`runtime/clock.py`): an answer that is not on its way by then has none of them."""


@dataclass(frozen=True, slots=True)
class ShareProgress:
    """How far a group is."""

    stable: int
    """All before it is done; -1: the group has not begun."""
    in_hand: int
    """Records that members have, as far as this worker has read."""


class SharePartition:
    """One virtual partition of one share group.

    Args:
        place: The group, the topic's id as the coordinator knows it, and the partition as clients see it.
    """

    def __init__(self, log: LogOfPlaces, place: PlaceKey) -> None:
        self.place: Final = place
        self.window = ShareWindow(0)
        self._window_of = NO_INCARNATION
        """The incarnation whose records are in the window."""
        self.free = Bell()
        """Rings when records may be given that could not be before."""
        self._under_way: set[int] = set()
        """The offsets of locks that are being written. Nobody else may ask for these meanwhile."""
        self._log = log
        self._used_at = clock()
        self.blocked = 0
        """Records that were given as often as may be and hold up others, as it was seen last."""

    def is_in_use(self) -> bool:
        """Whether somebody has asked for records within a minute, or is being given some."""
        return bool(self._under_way) or clock() - self._used_at < _IDLE_SECONDS

    def is_waited_for(self) -> bool:
        """Whether it has members, and finishes records after an open offset."""
        return self.is_in_use() and self.state.is_open

    @property
    def state(self) -> ShareState:
        """What this worker has read; it must not be changed."""
        return self._log.state_of(self.place)

    @property
    def has_begun(self) -> bool:
        """Whether it is known where the group stands; otherwise `begin` comes first."""
        return self.state.incarnation != NO_INCARNATION

    def progress(self) -> ShareProgress:
        """Returns how far the group is, as far as this worker has read."""
        state = self.state
        stable = state.done.stable if state.incarnation else NO_OFFSET
        return ShareProgress(stable, sum(not held.is_over for _, held in state.locks))

    async def begin(self, offset: int) -> bool:
        """Has the group begin at an offset, whatever it has done so far; returns whether it does.

        Another worker may have had it begin elsewhere meanwhile (ONE-START). For a group without a beginning that is
        as good: `has_begun` holds afterwards.

        Raises:
            UpstreamUnavailable: The outcome is unknown.
        """
        seen = self.state.place.seen()
        start = Start(1 + secrets.randbelow(MOST_INCARNATION), seen.incarnation, Done(offset), seen.ended)
        [key] = await self._write([start])
        self._tidy(key, self.state.place.offset_of(key))
        return self.state.incarnation == start.name

    async def pass_over(self, offset: int) -> None:
        """Marks all records before an offset as done: they were deleted, and can be given to no member.

        Raises:
            UpstreamUnavailable: The outcome is unknown.
        """
        state = self.state
        if state.done.stable < offset:
            gone = Ranges([(max(0, state.done.stable), offset)])
            await self._write([LockOutcome(state.incarnation, NO_TURN, gone, NONE)])

    async def acknowledge(
        self, session: str, batches: Sequence[AcknowledgementBatch], terms: Terms, *, may_renew: bool = False
    ) -> Code:
        """Takes what a member makes of records, and returns when that stands in the log.

        Args:
            session: The member's session, as in `acquire`.
            may_renew: Whether the request says that it renews.

        Returns:
            All count (NONE), or none: INVALID_REQUEST or INVALID_RECORD_STATE (`acknowledging.py`).

        Raises:
            UpstreamUnavailable: The acknowledgements may or may not count.
        """
        judged = self._judge(session, batches, may_renew=may_renew)
        if not judged.is_sure:
            await self._log.read_to_end()
            judged = self._judge(session, batches, may_renew=may_renew)
        code = judged.code or await self._say(judged, terms)
        self._count(code, batches)
        return code

    def _count(self, code: Code, batches: Sequence[AcknowledgementBatch]) -> None:
        outcomes = self._log.outcomes
        if code:
            outcomes["refused"] += 1
            return
        for first, last, kinds in batches:
            for kind in kinds:
                if kind:
                    outcomes[_OF_KINDS[kind]] += last - first + 1 if len(kinds) == 1 else 1

    def _judge(
        self, session: str, batches: Sequence[AcknowledgementBatch], *, may_renew: bool
    ) -> JudgedAcknowledgements:
        return acknowledging.acknowledge(self.state, self.window, session, batches, may_renew=may_renew)

    async def _say(self, judged: JudgedAcknowledgements, terms: Terms) -> Code:
        """Writes what was judged; returns whether it counts when it is read back (READ-BACK)."""
        state, read_to = self.state, self._log.read_to
        done = Done(NO_OFFSET)
        for each in judged.outcomes:
            done = done.joined(Done(NO_OFFSET, each.done))
        renewal = state.place.to_write(state.incarnation, done) if judged.outcomes else None
        starts = [renewal] if isinstance(renewal, Start) else []
        keys = await self._write([*judged.outcomes, *judged.renewals, *starts])
        is_told = acknowledging.stands(self.state, judged, keys)
        self._log.take_out(self.state.outlived(clock() - _kept_seconds(terms)))
        if starts:
            self._tidy(keys[-1], read_to)
        return Code.NONE if is_told else Code.INVALID_RECORD_STATE

    def _tidy(self, start_key: str, read_to: int) -> None:
        """Removes the records that a start covers (COVER-BEHIND)."""
        self._log.take_out(self.state.place.outlived(start_key, read_to))

    async def release(self, session: str, terms: Terms) -> None:
        """Gives back all that a member's session has in hand; it counts as given.

        Raises:
            UpstreamUnavailable: The outcome is unknown. The locks expire.
        """
        offsets = sorted(each for each, held in self.state.locks if acknowledging.has_in_hand(held, session))
        kinds = (ShareAcknowledgeType.RELEASE,)
        for some in _pieces(offsets, acknowledging.MOST_OFFSETS):
            await self.acknowledge(session, [AcknowledgementBatch(each, each, kinds) for each in some], terms)

    def ahead(self) -> LookAhead:
        """Returns what has to be looked at next (ALL-SEEN); `look` takes it."""
        self._used_at = clock()
        state, window = self.state, self.window
        begin = max(0, state.done.stable)
        if self._window_of != state.incarnation or window.begin > begin or window.end < begin:
            window = self.window = ShareWindow(begin)
            self._window_of = state.incarnation
        window.drop_before(begin)
        most = LEAST_AHEAD if self._log.is_full else MOST_AHEAD
        return LookAhead(window.end, max(0, min(LOOK_AT_ONCE, most - len(window))))

    def look(self, begin: int, end: int, records: Iterable[WindowRecord]) -> None:
        """Takes in the records between two offsets.

        Args:
            begin: The offset that `ahead` returned. Records that another call has looked at since are skipped.
            end: All before it has been looked at: where no record stands there, none ever will.
            records: The records in order, without those of transactions that the group may not see.
        """
        window = self.window
        if begin <= window.end < end and begin >= window.begin:
            window.look(end, [each for each in records if each.offset >= window.end])

    async def acquire(self, wish: Wish, terms: Terms) -> Acquired:
        """Gives a member records of those that were looked at; none, if there is nothing that it may have now.

        Args:
            wish: `member` is a name of its share session that no other one has had, of 64 bytes at most.
            terms: `lock_seconds` is what members are told.

        Raises:
            UpstreamUnavailable: Nothing is given. Locks may be written all the same, and expire.
        """
        began, state = clock(), self.state
        if self._window_of != state.incarnation:
            return Acquired()
        kept = terms._replace(lock_seconds=_kept_seconds(terms))
        wanted = acquiring.acquire(state, self.window, kept, wish, began, under_way=self._under_way)
        self.blocked = wanted.blocked
        said: list[Said] = [*wanted.outcomes, *wanted.locks]
        if not said:
            return Acquired()
        offsets = {each for lock in wanted.locks for begin, end in lock.offsets for each in range(begin, end)}
        self._under_way |= offsets
        try:
            keys = await self._write(said)
        finally:
            self._under_way -= offsets
        records = acquiring.given(self.state, self.window, keys[len(wanted.outcomes) :])
        outcomes, send_before = self._log.outcomes, began + SEND_WITHIN_SECONDS
        outcomes["archived"] += sum(len(each.ended) for each in wanted.outcomes)
        outcomes["missed"] += len(offsets) - len(records)
        if clock() > send_before:
            self.not_sent(wish.member, records)
            return Acquired()
        outcomes["given"] += len(records)
        return Acquired(records, send_before)

    def not_sent(self, session: str, records: Iterable[GivenRecord]) -> None:
        """Notes that a member was not given what it was to have: it is free again, and the try does not count.

        Without that, a worker that is slow for minutes would archive records that nobody has seen.
        """
        self.state.void(session, [each.offset for each in records])

    async def _write(self, said: Sequence[Said]) -> list[str]:
        """Writes records, and reads them back; raises UpstreamUnavailable if the log was lost meanwhile."""
        life = self._log.life
        keys = await self._log.write(self.place, said) if said else []
        if self._log.life != life:
            raise UpstreamUnavailable("the log of share groups was read anew meanwhile")
        return keys


def _kept_seconds(terms: Terms) -> float:
    return terms.lock_seconds + MARGIN_SECONDS


def _pieces(offsets: Sequence[int], size: int) -> Iterable[Sequence[int]]:
    return (offsets[begin : begin + size] for begin in range(0, len(offsets), size))
