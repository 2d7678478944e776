"""Offsets of a virtual partition, found by what brokers say of the physical partitions it lived on.

A broker answers for a whole physical partition, co-residents included, and for times when the virtual partition lived
elsewhere. So what is found by time is the first offset at which a record can stand that is old enough: never behind the
first record that is, sometimes before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from kordon.proxy.ordering.chain import Chain, Stay
from kordon.proxy.ordering.epochs import LARGEST_EPOCH, split_epoch, virtual_epoch

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
"""KIP-734."""
EARLIEST_LOCAL: Final = -4
"""KIP-405."""
LATEST_TIERED: Final = -5
"""KIP-1005."""
EARLIEST_PENDING_UPLOAD: Final = -6
"""KIP-1023."""


class FoundOffset(NamedTuple):
    """An offset, of a physical partition as a broker told it or of a virtual one as a client gets it."""

    offset: int = -1
    """-1: there is none."""
    timestamp: int = -1
    epoch: int = -1
    """The leader epoch of the record there; -1: not known."""
    error: int = 0
    """Kafka's error code."""


NOTHING: Final = FoundOffset()


def visible(chain: Chain, floor: int = 0, limit: int | None = None) -> tuple[Stay, ...]:
    """Returns the stays that readers see something of, and the home always.

    Args:
        chain: The chain, which is not empty.
        floor: The virtual offset below which records were deleted (OWN-FLOOR).
        limit: The offset in the home's physical partition from which on nothing is shown (TAKEOVER-WAITS,
            FROZEN-READS); None: the end.
    """
    stays = [_from(stay, floor) for stay in chain.stays]
    kept = [replace(stay, end=stay.kept_end) for stay in stays[:-1]]
    former = [stay for stay in kept if stay.end is not None and stay.start < stay.end]
    home = stays[-1] if limit is None else replace(stays[-1], end=max(limit, stays[-1].start))
    return (*former, home)


def _from(stay: Stay, floor: int) -> Stay:
    return stay if stay.virtual_start >= floor else replace(stay, start=floor - stay.delta)


def partitions_to_ask(stays: Sequence[Stay], timestamp: int) -> frozenset[int]:
    """Returns the physical partitions whose brokers must be asked.

    Args:
        stays: The stays that `visible` returned.
        timestamp: The timestamp of the ListOffsets request: a time, or one of the negative values that have names here.
    """
    return frozenset(stay.partition for stay in (stays[-1:] if timestamp == LATEST else stays))


def resolve(stays: Sequence[Stay], timestamp: int, answers: Mapping[int, FoundOffset]) -> FoundOffset:
    """Finds the virtual offset.

    Args:
        stays: The stays that `visible` returned.
        timestamp: As for `partitions_to_ask`.
        answers: The brokers' answers to the same timestamp, by physical partition.

    Returns:
        What a client gets; an error where the answer depends on a partition that has one.
    """
    match timestamp:
        case -1:
            return _latest(stays[-1], answers[stays[-1].partition])
        case -2 | -4:
            found = _first(stays, answers, by_time=False)
            return found if found is not NOTHING else _end(stays[-1])
        case -3:
            return _youngest(stays, answers)
        case -5:
            return _last_tiered(stays, answers)
        case _:
            return _first(stays, answers, by_time=timestamp >= 0)


def _latest(home: Stay, answer: FoundOffset) -> FoundOffset:
    if answer.error:
        return answer
    end = max(answer.offset, home.start)  # a leader that is just elected may not know yet how far its log is committed
    if home.end is not None:
        end = min(end, home.end)
    return FoundOffset(end + home.delta, -1, virtual_epoch(home.move, answer.epoch))


def _first(stays: Sequence[Stay], answers: Mapping[int, FoundOffset], *, by_time: bool) -> FoundOffset:
    """Takes the first stay in which, or before which, the answer lies.

    An answer before a stay says that what a client wants was there when the stay began already.
    """
    for stay in stays:
        answer = answers[stay.partition]
        if answer.error:
            return answer
        offset = max(answer.offset, stay.start)
        if answer.offset < 0 or (stay.end is not None and offset >= stay.end):
            continue
        epoch = virtual_epoch(stay.move, answer.epoch) if offset == answer.offset else -1
        return FoundOffset(offset + stay.delta, answer.timestamp if by_time else -1, epoch)
    return NOTHING


def _end(home: Stay) -> FoundOffset:
    assert home.end is not None  # or else it would have been found in the home
    return FoundOffset(home.end + home.delta)


def _youngest(stays: Sequence[Stay], answers: Mapping[int, FoundOffset]) -> FoundOffset:
    """Takes the greatest timestamp of those that stand in a stay; a partition's may stand elsewhere."""
    best = NOTHING
    for stay in stays:
        answer = answers[stay.partition]
        if answer.error:
            return answer
        inside = stay.start <= answer.offset and (stay.end is None or answer.offset < stay.end)
        if inside and answer.timestamp > best.timestamp:
            epoch = virtual_epoch(stay.move, answer.epoch)
            best = FoundOffset(answer.offset + stay.delta, answer.timestamp, epoch)
    return best


def _last_tiered(stays: Sequence[Stay], answers: Mapping[int, FoundOffset]) -> FoundOffset:
    for stay in reversed(stays):
        answer = answers[stay.partition]
        if answer.error:
            return answer
        offset = answer.offset if stay.end is None else min(answer.offset, stay.end - 1)
        if offset >= stay.start:
            epoch = virtual_epoch(stay.move, answer.epoch) if offset == answer.offset else -1
            return FoundOffset(offset + stay.delta, -1, epoch)
    return NOTHING


class EpochQuestion(NamedTuple):
    """What to ask of a leader epoch that a client asked for."""

    stay: Stay
    """Where the virtual partition lived during that move; from the first to the last offset there."""
    epoch: int
    """The physical partition's epoch."""


def epoch_question(chain: Chain, virtual: int) -> EpochQuestion | None:
    """Returns which physical partition knows a leader epoch; None: nobody does (OffsetForLeaderEpoch answers -1, -1).

    A physical partition as such has no stay for a change that left its keys alone: then the one before it is asked for
    its last leader epoch, which is how KIP-253 gets a cut from the epoch before a change.

    Args:
        chain: The chain, which is not empty.
        virtual: The leader epoch that the client asks for.
    """
    if virtual < 0:
        return None
    move, epoch = split_epoch(virtual)
    moves = [stay.move for stay in chain.stays if stay.move <= move]
    if not moves or (moves[-1] < move and len(moves) == len(chain.stays) and chain.stays[-1].end is None):
        return None
    stays = [stay for stay in chain.stays if stay.move == moves[-1]]  # several where it was taken over (PAST-STAYS)
    return EpochQuestion(replace(stays[-1], start=stays[0].start), epoch if moves[-1] == move else LARGEST_EPOCH)


def epoch_end(question: EpochQuestion, answer: FoundOffset) -> FoundOffset:
    """Returns the largest leader epoch that is not above the one asked for, and the virtual offset where it ends.

    Args:
        question: The question that `epoch_question` returned.
        answer: The broker's: epoch and end offset, both -1 for an epoch that it does not know.
    """
    stay = question.stay
    if answer.error:
        return answer
    if answer.offset >= 0:
        offset = max(answer.offset, stay.start)
        offset = offset if stay.kept_end is None else min(offset, stay.kept_end)
        return FoundOffset(offset + stay.delta, -1, virtual_epoch(stay.move, answer.epoch))
    if stay.kept_end is None:
        return NOTHING
    return FoundOffset(
        stay.kept_end + stay.delta, -1, virtual_epoch(stay.move, question.epoch)
    )  # the next move is above it
