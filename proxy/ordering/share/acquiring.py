"""Which records a member may be given now, and which of them it is given once their locks were read back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from kordon.codecs.ranges import NONE, Ranges
from kordon.proxy.ordering.claims import Done
from kordon.proxy.ordering.share.locks import MOST_TURNS, NO_TURN, Held, Lock, LockOutcome, Locks
from kordon.proxy.ordering.share.state import ShareState
from kordon.proxy.ordering.share.window import ShareWindow

_MOST_PASSED: Final = 200
"""Records that are done and were passed over one by one."""


class Terms(NamedTuple):
    """What a group is promised."""

    lock_seconds: float
    """After which others may have what a member has in hand, from when a worker has read of it."""
    most_tries: int = 5
    """How often a record is given (share.delivery.count.limit)."""
    most_in_hand: int = 2_000
    """Records, of all members (share.partition.max.record.locks)."""
    archives: bool = True
    """Whether a record that was given so often is done with. Otherwise its key waits for an operator."""


class Wanted(NamedTuple):
    """What a worker writes before it gives anything away."""

    locks: Sequence[Lock] = ()
    outcomes: Sequence[LockOutcome] = ()
    """The outcomes of records that were given too often, and of offsets that no record has."""
    blocked: int = 0
    """Records that have been given too often and hold up their keys, as far as it has looked."""


class GivenRecord(NamedTuple):
    """A record that a member is given."""

    offset: int
    tries: int


class Wish(NamedTuple):
    """What a member asks for."""

    member: str
    most: int
    """The most records."""


def acquire(
    state: ShareState, window: ShareWindow, terms: Terms, wish: Wish, now: float, *, under_way: Collection[int] = ()
) -> Wanted:
    """Returns what has to be written so that a member may have records.

    Of each key the first record that is not done may be given, and no other (KEY-IN-HAND).

    Args:
        state: The state as far as the worker has read it. What it has not read makes it give less, or nothing.
        window: Begins nowhere behind the stable offset; otherwise nothing is given.
        now: The worker's own clock, in seconds.
        under_way: Offsets of locks that the worker is writing for others: they are as good as in hand.
    """
    done = state.done
    live = {offset for offset, held in state.locks if is_live(held, terms, now)}.union(under_way)
    if not state.incarnation or not sees_all(window, done.stable, live):
        return Wanted()
    picked = _Picked(terms, keys_in_hand(window, live), min(wish.most, terms.most_in_hand - len(live)))
    picked.take_first_of(window, done, live, state.locks)
    locks = [
        Lock(state.incarnation, wish.member, turn, tries, Ranges((each, each + 1) for each in offsets))
        for (turn, tries), offsets in sorted(picked.by_turn.items())
    ]
    return Wanted(locks, [*_archived(state, window, picked.spent), *_passed(state, window)], picked.blocked)


class _Picked:
    """What a member is to have.

    Args:
        busy: Keys of which nothing may be given; more are added.
        left: How many records may still be picked.
    """

    def __init__(self, terms: Terms, busy: set[int], left: int) -> None:
        self.left = left
        self.by_turn: dict[tuple[int, int], list[int]] = {}
        """The offsets by turn and tries of their locks."""
        self.spent: list[int] = []
        """The offsets of records that were given too often, and are done."""
        self.blocked = 0
        """Records that have been given too often, and hold up their keys."""
        self._terms = terms
        self._busy = busy

    def take_first_of(self, window: ShareWindow, done: Done, live: Collection[int], locks: Locks) -> None:
        """Picks what is neither done nor in hand, the first records first."""
        busy, passed = self._busy, 0
        for offset, key in window.left:  # of ten thousand nearly all are passed over here
            if key in busy or offset in live:
                continue
            if self.left <= 0:
                break
            if done.has(offset):
                passed += 1
            else:
                self.take(offset, key, locks.of(offset))
        if passed > _MOST_PASSED:
            window.prune(done)

    def take(self, offset: int, key: int | None, held: Held | None) -> None:
        """Picks a record that is neither done nor in hand, and of whose key no earlier one is left."""
        turn, tries = next_turn(held), next_try(held)
        may_be_given = is_within(tries, self._terms) and turn <= MOST_TURNS
        if may_be_given:
            self.by_turn.setdefault((turn, tries), []).append(offset)
            self.left -= 1
        elif self._terms.archives:
            self.spent.append(offset)
        else:
            self.blocked += 1
        self.hold_up(key)

    def hold_up(self, key: int | None) -> None:
        """Has later records of a key wait, whether the one before is given or is given no more (KEY-IN-HAND)."""
        if key is not None:
            self._busy.add(key)


def is_within(tries: int, terms: Terms) -> bool:
    """Whether a record may be given so often."""
    return tries <= terms.most_tries


def is_live(held: Held, terms: Terms, now: float) -> bool:
    """Whether a member may still have a record in hand."""
    return not held.is_over and now - held.since < terms.lock_seconds


def keys_in_hand(window: ShareWindow, live: Collection[int]) -> set[int]:
    """Returns the keys of records that are in hand (KEY-IN-HAND).

    Such a record can be done: its lock had expired and another member got it, while the first one was done with it.
    """
    keys = (window.key_of(offset) for offset in live if window.has(offset))
    return {key for key in keys if key is not None}


def sees_all(window: ShareWindow, stable: int, live: Collection[int]) -> bool:
    """Whether the worker knows the keys of all that is before what it gives, and of what is in hand there (ALL-SEEN).

    Of what is done before the stable offset and still in hand it does not know the key.
    """
    return window.begin <= stable and all(offset >= window.begin for offset in live)


def next_turn(held: Held | None) -> int:
    """Returns the turn of a record's next lock."""
    return held.turn + 1 if held is not None else 1


def next_try(held: Held | None) -> int:
    """Returns how often a record will have been given (TRIES-KEPT)."""
    return held.tries + 1 if held is not None else 1


def _archived(state: ShareState, window: ShareWindow, spent: Iterable[int]) -> Iterator[LockOutcome]:
    for offset in spent:
        held = state.locks.of(offset)
        turn = held.turn if held is not None else NO_TURN
        yield LockOutcome(state.incarnation, turn, window.covered([offset]), Ranges([(offset, offset + 1)]))


def _passed(state: ShareState, window: ShareWindow) -> Iterator[LockOutcome]:
    """Yields what has to be said so that offsets without records hold nothing up."""
    if gap := window.gap_at(state.done.stable):
        yield LockOutcome(state.incarnation, NO_TURN, gap, NONE)


def given(state: ShareState, window: ShareWindow, locks: Collection[str]) -> list[GivenRecord]:
    """Returns what a member is given of locks that were read back, in order (READ-BACK).

    That is what no other worker had locked before, and what is not done by now. Of a key nothing is given behind a
    record that another worker has locked.

    Args:
        locks: Keys of their records in the log.
    """
    mine = {offset: held.tries for offset, held in state.locks if held.key in locks}
    keys = {window.key_of(offset) for offset in mine if window.has(offset)}
    found, missed, done, last = list[GivenRecord](), set[int](), state.done, max(mine, default=-1)
    for offset, key in window.left:
        if offset > last:
            break
        if key not in keys or key in missed or done.has(offset):
            continue
        if offset in mine:
            found.append(GivenRecord(offset, mine[offset]))
        elif key is not None:
            missed.add(key)
    return found
