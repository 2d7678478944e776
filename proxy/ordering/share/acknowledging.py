"""What a member makes of records that it was given: it accepts, rejects or releases them, or wants them for longer.

Source: ShareFetch and ShareAcknowledge (KIP-932, KIP-1222); SharePartition of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from kordon.codecs.error_codes import Code
from kordon.codecs.ranges import Ranges
from kordon.proxy.ordering.share.acquiring import next_turn
from kordon.proxy.ordering.share.locks import Held, Lock, LockOutcome
from kordon.proxy.ordering.share.state import ShareState
from kordon.proxy.ordering.share.window import ShareWindow

MOST_OFFSETS: Final = 20_000
"""Of one partition in one request: more than a member can have in hand of it."""


class ShareAcknowledgeType(IntEnum):
    """The kind of an acknowledgement."""

    GAP = 0
    """There is no record. Members say that only of what they were given, so it is refused where there is one."""
    ACCEPT = 1
    RELEASE = 2
    """The record is to be given again."""
    REJECT = 3
    RENEW = 4
    """The member wants it for as long again."""


class AcknowledgementBatch(NamedTuple):
    """Acknowledgements of offsets in a row."""

    first: int
    last: int
    kinds: Sequence[int]
    """One for each offset, or one for all."""


@dataclass(slots=True)
class JudgedAcknowledgements:
    """What becomes of the acknowledgements of one partition: all of them count, or none."""

    code: Code = Code.NONE
    outcomes: list[LockOutcome] = field(default_factory=list[LockOutcome])
    """To be written, one for each turn."""
    renewals: list[Lock] = field(default_factory=list[Lock])
    """The renewals that are to be written."""
    is_sure: bool = True
    """Whether it stands as it is. Otherwise the worker reads the log to its end, and judges again (READ-BACK).

    Nothing is written by which it would find that it knew too little, such as that the group was reset.
    """


def acknowledge(
    state: ShareState,
    window: ShareWindow,
    member: str,
    batches: Sequence[AcknowledgementBatch],
    *,
    may_renew: bool = False,
) -> JudgedAcknowledgements:
    """Judges what a member says of one partition.

    Args:
        state: The state as far as the worker has read it.
        may_renew: Whether the request says that it renews (ShareFetch and ShareAcknowledge 2).

    Returns:
        INVALID_REQUEST: it is not what acknowledgements are. INVALID_RECORD_STATE: the member does not have one of the
        records, or has it no longer.
    """
    if not _is_sound(batches, may_renew=may_renew):
        return JudgedAcknowledgements(Code.INVALID_REQUEST)
    by_turn: dict[int, dict[ShareAcknowledgeType, list[int]]] = {}
    held_of: dict[int, Held] = {}
    has_passed = False
    for offset, kind in each_acknowledged(batches):
        held = state.locks.of(offset)
        if held is not None and has_in_hand(held, member):
            held_of[offset] = held
            if kind is ShareAcknowledgeType.GAP:
                return JudgedAcknowledgements(Code.INVALID_RECORD_STATE)
            by_turn.setdefault(held.turn, {}).setdefault(kind, []).append(offset)
        elif offset < state.done.stable and kind is not ShareAcknowledgeType.RENEW:
            has_passed = True  # brokers say nothing of it either
        elif kind is not ShareAcknowledgeType.GAP or window.has(offset):
            return JudgedAcknowledgements(Code.INVALID_RECORD_STATE, is_sure=False)
    judged = JudgedAcknowledgements(is_sure=not has_passed)
    for turn, kinds in sorted(by_turn.items()):
        _judge(judged, state, window, turn, kinds)
        if renewed := kinds.get(ShareAcknowledgeType.RENEW):
            judged.renewals += _renewals(state, member, renewed, held_of)
    return judged


def has_in_hand(held: Held, member: str) -> bool:
    """Whether a member may say what has become of a record: nobody else has it since (HOLDER-SAYS).

    A lock that has expired is a member's for as long as nobody else wants its record.
    """
    return held.member == member and not held.is_over


def _judge(
    judged: JudgedAcknowledgements,
    state: ShareState,
    window: ShareWindow,
    turn: int,
    kinds: dict[ShareAcknowledgeType, list[int]],
) -> None:
    done = [*kinds.get(ShareAcknowledgeType.ACCEPT, ()), *kinds.get(ShareAcknowledgeType.REJECT, ())]
    ended = [*done, *kinds.get(ShareAcknowledgeType.RELEASE, ())]
    if ended:
        offsets = Ranges((each, each + 1) for each in ended)
        judged.outcomes.append(LockOutcome(state.incarnation, turn, window.covered(sorted(done)), offsets))


def _renewals(state: ShareState, member: str, offsets: list[int], held_of: dict[int, Held]) -> Iterable[Lock]:
    by_tries: dict[tuple[int, int], list[int]] = {}
    for offset in offsets:
        held = held_of[offset]
        by_tries.setdefault((renewed_turn(held), held.tries), []).append(offset)
    for (turn, tries), those in sorted(by_tries.items()):
        yield Lock(state.incarnation, member, turn, tries, Ranges((each, each + 1) for each in those))


def renewed_turn(held: Held) -> int:
    """Returns the turn of a lock that is renewed: the next one, so that nobody takes over meanwhile (OWN-TURN)."""
    return next_turn(held)


def stands(state: ShareState, judged: JudgedAcknowledgements, renewals: Iterable[str]) -> bool:
    """Whether a member may be told that its acknowledgements count, once they were read back (READ-BACK).

    Another worker may have found the lock expired and given the record to another member before.

    Args:
        renewals: Keys of the records of its renewals.
    """
    said: list[LockOutcome | Lock] = [*judged.outcomes, *judged.renewals]
    if any(each.incarnation != state.incarnation for each in said):
        return False
    keys = set(renewals)
    return all(is_own(state, each) for each in judged.outcomes) and all(
        held is not None and held.key in keys for each in judged.renewals for held in _held(state, each.offsets)
    )


def is_own(state: ShareState, outcome: LockOutcome) -> bool:
    """Whether all that is done was still the member's when it was said."""
    return all(
        held is None or offset not in outcome.done or held.turn == outcome.turn
        for begin, end in outcome.ended
        for offset in range(begin, end)
        for held in [state.locks.of(offset)]
    )


def _held(state: ShareState, offsets: Ranges) -> Iterable[Held | None]:
    return (state.locks.of(offset) for begin, end in offsets for offset in range(begin, end))


def _is_sound(batches: Sequence[AcknowledgementBatch], *, may_renew: bool) -> bool:
    """Whether they ascend, do not overlap, and say one of the kinds for each offset; bounded before it is read."""
    before, count = -1, 0
    for first, last, kinds in batches:
        size = last - first + 1
        count += size
        if first <= before or size < 1 or count > MOST_OFFSETS or len(kinds) not in (1, size):
            return False
        most = ShareAcknowledgeType.RENEW if may_renew else ShareAcknowledgeType.REJECT
        if not all(ShareAcknowledgeType.GAP <= each <= most for each in kinds):
            return False
        before = last
    return True


def each_acknowledged(batches: Sequence[AcknowledgementBatch]) -> Iterable[tuple[int, ShareAcknowledgeType]]:
    """Yields offsets, and what is said of each, of batches that are sound."""
    for first, last, kinds in batches:
        for offset in range(first, last + 1):
            yield offset, ShareAcknowledgeType(kinds[offset - first] if len(kinds) > 1 else kinds[0])
