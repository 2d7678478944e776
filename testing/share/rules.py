"""What order in share groups rests on, each with what stands in its place when it is taken out.

Most is the product's (`ordering/share/`), and some is what workers have to do around it.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from kordon.codecs.ranges import Range
from kordon.proxy.ordering import claims
from kordon.proxy.ordering.claims import NO_OFFSET, Claim, Done
from kordon.proxy.ordering.share import acknowledging, acquiring, locks
from kordon.proxy.ordering.share.acquiring import GivenRecord
from kordon.proxy.ordering.share.locks import Held, Lock, LockOutcome, Locks
from kordon.proxy.ordering.share.opening import Openings
from kordon.proxy.ordering.share.state import Said, ShareState
from kordon.proxy.ordering.share.window import ShareWindow
from kordon.testing.share import workers
from kordon.testing.share.workers import Worker
from kordon.testing.share.world import Reader
from kordon.testing.taken_out import constant, without

# pyright: reportPrivateUsage=false
# what is replaced


@dataclass(frozen=True)
class Rule:
    """A rule, and where it is kept."""

    what: str
    breaks: str
    """A promise that does not hold without it; empty: now one, now another."""
    seeds: tuple[int, ...]
    """Three of those that show that; two where they are rare."""
    parts: tuple[tuple[Any, str, Any], ...]
    harsh: bool = False
    """Whether the log has to lose records for it."""

    def taken_out(self) -> AbstractContextManager[object]:
        """Has all go without the rule in a block."""
        return without(self.parts)


def _last_lock(turn: int, held: int) -> bool:
    return turn >= held


def _same_turn(held: Held) -> int:
    return held.turn


def _as_asked(state: ShareState, _: ShareWindow, keys: Collection[str]) -> list[GivenRecord]:
    asked = [state.locks._standing[key] for key in keys if key in state.locks._standing]
    return [
        GivenRecord(each, lock.tries) for lock in asked for begin, end in lock.offsets for each in range(begin, end)
    ]


def _each_alone(state: ShareState, _: ShareWindow, keys: Collection[str]) -> list[GivenRecord]:
    mine = ((offset, held) for offset, held in state.locks if held.key in keys)
    return [GivenRecord(offset, held.tries) for offset, held in mine if not state.done.has(offset)]


def _of_long_ago(reader: Reader, end: int, now: float) -> None:
    _READ(reader, end, now if reader.position else -1e9)


def _only_undone(locks: Locks, key: str, lock: Lock, done: Done, read_before: float) -> bool:
    own = (held for begin, end in lock.offsets for each in range(begin, end) if (held := locks.of(each)) is not None)
    return any(held.key == key and not held.is_over and held.since >= read_before for held in own)


def _to_the_one(window: ShareWindow, offset: int) -> Range:
    return window.begin, offset + 1


def _of_any_incarnation(state: ShareState, key: str, offset: int, said: Said | None, now: float) -> None:
    if isinstance(said, LockOutcome):
        state.place.apply(key, offset, Claim(state.incarnation, Done(NO_OFFSET, said.done)))
        state._of(said.incarnation).end(said)
    else:
        _APPLY(state, key, offset, said, now)


def _newest_only(state: ShareState, key: str, offset: int, said: Said | None, now: float) -> None:
    if not isinstance(said, Lock) or said.incarnation == state.incarnation:
        _APPLY(state, key, offset, said, now)


def _last_done(worker: Worker, life: int) -> int:
    done = worker.reader.of(life).done
    return max(0, done.stable, done.ranges.end)


def _none_in_hand(_: ShareWindow, __: Collection[int]) -> set[int]:
    return set()


def _where_it_looks(window: ShareWindow, stable: int, _: Collection[int]) -> bool:
    return window.begin <= stable


_READ: Final = Reader.read
_APPLY: Final = ShareState.apply

RULES: Final = (
    Rule(
        "of two locks of one turn the first counts (FIRST-LOCK)",
        "two hands",
        (3, 5, 8),
        ((locks, "is_later", _last_lock),),
    ),
    Rule(
        "records are given once their locks are read back (READ-BACK)",
        "two hands",
        (5, 8, 10),
        ((workers, "given", _as_asked),),
    ),
    Rule(
        "members are told once it is read back (READ-BACK)",
        "two hands",
        (16, 37, 142),
        ((workers, "stands", constant(True)),),
    ),
    Rule(
        "what is not written is told at the log's end (READ-BACK)",
        "redone",
        (218, 244, 251),
        ((Worker, "is_sure", constant(True)),),
    ),
    Rule(
        "of each key one record is given (KEY-IN-HAND)",
        "two hands",
        (0, 1, 2),
        ((acquiring._Picked, "hold_up", constant(None)),),
    ),
    Rule(
        "no key in hand is given (KEY-IN-HAND)",
        "overtaken",
        (0, 1, 2),
        ((acquiring, "keys_in_hand", _none_in_hand), (workers, "given", _each_alone)),
    ),
    Rule(
        "what is done may be in hand (ALL-SEEN)",
        "two hands",
        (140, 159, 188),
        ((acquiring, "sees_all", _where_it_looks),),
    ),
    Rule(
        "a worker looks from the stable offset on (ALL-SEEN)",
        "overtaken",
        (0, 1, 2),
        ((Worker, "first_ahead", _last_done), (acquiring, "sees_all", constant(True))),
    ),
    Rule("a lock runs from when it was read", "two hands", (0, 1, 2), ((Reader, "read", _of_long_ago),)),
    Rule(
        "records are given while their locks are young",
        "two hands",
        (23, 107, 169),
        ((Worker, "is_in_time", constant(True)),),
    ),
    Rule(
        "tries are counted on from lock to lock (TRIES-KEPT)",
        "counts",
        (0, 1, 2),
        ((acquiring, "next_try", constant(1)),),
    ),
    Rule("locks of what is not done stay (TRIES-KEPT)", "counts", (0, 1, 2), ((Locks, "_is_needed", _only_undone),)),
    Rule("a record is given so often at most", "counts", (1, 2, 3), ((acquiring, "is_within", constant(True)),)),
    Rule(
        "to renew is to take the next turn (OWN-TURN)",
        "two hands",
        (0, 5, 7),
        ((acknowledging, "renewed_turn", _same_turn), (workers, "stands", constant(True))),
    ),
    Rule(
        "an outcome ends the locks of its turn (OWN-TURN)",
        "two hands",
        (120, 134, 161),
        ((locks, "ends", constant(True)),),
    ),
    Rule(
        "offsets are done that no record was seen at (SEEN-GAPS)",
        "skipped",
        (0, 1, 2),
        ((ShareWindow, "_covered", _to_the_one),),
    ),
    Rule(
        "who has a record speaks of it (HOLDER-SAYS)",
        "two hands",
        (0, 4, 7),
        ((acknowledging, "has_in_hand", constant(True)),),
    ),
    Rule(
        "what is done counts in its own incarnation", "", (35, 86, 131), ((ShareState, "apply", _of_any_incarnation),)
    ),
    Rule("locks count before their start is read", "counts", (0, 9, 44), ((ShareState, "apply", _newest_only),)),
    Rule("of two starts the first counts (ONE-START)", "stuck", (1, 3, 4), ((claims, "counts", constant(True)),)),
    Rule(
        "a group that is older than the log begins at earliest (OLD-GROUP)",
        "skipped",
        (8, 16, 18),
        ((Openings, "begins_at_earliest", constant(False)),),
        harsh=True,
    ),
    Rule(
        "no group begins before its log is opened (OLD-GROUP)",
        "skipped",
        (31, 32, 71),
        ((Worker, "may_begin", constant(True)),),
        harsh=True,
    ),
    Rule(
        "what was read before a loss counts for nothing",
        "overtaken",
        (186, 342),
        ((Worker, "has_begun_anew", constant(False)),),
        harsh=True,
    ),
)
"""All rules; without each of them some promise breaks."""
