"""The image: what a producer had written of a virtual partition when it moved, and how sequences go on behind it (I3).

A producer counts its batches per partition that it sees, from 0 on. In the log of a new home each identity begins at 0
again, so a client's sequence there is its own minus what stands in the homes before.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

_SEQUENCES: Final = 1 << 31
"""Sequences wrap around to 0 behind 2^31 - 1 (DefaultRecordBatch.incrementSequence)."""


class Written(NamedTuple):
    """What one producer had written of one virtual partition before its last move."""

    epoch: int
    """Its producer epoch."""
    last_sequence: int
    """In the client's count: of its last record before the cut."""


Image = Mapping[int, Written]
"""By the producer id that the client knows; of one virtual partition."""


class Refusal(Enum):
    """Why a batch is not written."""

    DUPLICATE = "duplicate"
    """It stands in an earlier home: success without an offset."""
    FENCED = "fenced"
    """A later epoch of the same producer wrote before: INVALID_PRODUCER_EPOCH."""


def distance(later: int, earlier: int) -> int:
    """Returns how far one sequence lies behind another, modulo 2^31: negative if it lies before."""
    gap = (later - earlier) % _SEQUENCES
    return gap if gap < _SEQUENCES // 2 else gap - _SEQUENCES


def sequence_at_home(written: Written | None, epoch: int, base_sequence: int, last_sequence: int) -> int | Refusal:
    """Translates the sequence of a client's batch to its present home.

    Args:
        written: Of its producer, in the image; None if it has none.
        epoch: The batch's producer epoch.
        base_sequence: Of its first record, in the client's count.
        last_sequence: Of its last record.

    Returns:
        The base sequence under which it goes into the log, or why it does not.
    """
    if written is None or epoch > written.epoch:
        return base_sequence
    if epoch < written.epoch:
        return Refusal.FENCED
    if distance(last_sequence, written.last_sequence) <= 0:
        return Refusal.DUPLICATE
    return (base_sequence - written.last_sequence - 1) % _SEQUENCES


def sequence_of_client(written: Written | None, epoch: int, sequence: int) -> int:
    """Translates a sequence of the present home back into the client's count: what the next image holds."""
    if written is None or epoch != written.epoch:
        return sequence
    return (sequence + written.last_sequence + 1) % _SEQUENCES


def carried(before: Image, here: Mapping[int, Written]) -> dict[int, Written]:
    """Returns the image behind a move.

    Args:
        before: The image of the home that is left; silent producers are carried over.
        here: By client id, epoch and last sequence as the log of that home has them (DescribeProducers).
    """
    moved = dict(before)
    for client_id, found in here.items():
        known = before.get(client_id)
        moved[client_id] = Written(found.epoch, sequence_of_client(known, found.epoch, found.last_sequence))
    return moved
