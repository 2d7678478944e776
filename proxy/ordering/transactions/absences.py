"""Proofs that no marker is to come for a batch that none follows yet (PROVEN-ABSENCE).

    the batch is read ──> log end asked for ──> coordinators asked ──> log end asked for ──> the log is read up to there

A coordinator names a partition in an open transaction until its marker stands there. So if none names it for the
producer, the batch's transaction is over, and its marker lies below the second log end, or before the batch.

The last stable offset of the physical log proves nothing: an open transaction does not hold it where a marker was
repeated, or where a replica was made after retention took the witness.
"""

from __future__ import annotations

from typing import NamedTuple

from kordon.proxy.ordering.transactions.event_index import EventIndex
from kordon.proxy.ordering.transactions.events import Batch


class Absence(NamedTuple):
    """No coordinator had the partition in an open transaction of a producer, prepared ones included."""

    asked_at: int
    """The high watermark before coordinators were asked."""
    read_to: int
    """The high watermark that was asked for when they had answered."""
    leader_epoch: int
    """The epoch of the leader that told both. Another leader may have a shorter log, with other batches in it."""


class Absences:
    """The proofs of one physical partition.

    Args:
        most: Producers whose proofs are kept. Beyond it the oldest proof is forgotten, and Kordon can ask for it again.
    """

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._proven: dict[int, Absence] = {}

    def prove(self, producer_id: int, absence: Absence) -> None:
        """Keeps the newest proof for a producer."""
        self._proven.pop(producer_id, None)
        self._proven[producer_id] = absence
        if len(self._proven) > self._most:
            del self._proven[next(iter(self._proven))]

    def cover(self, batch: Batch, index: EventIndex) -> bool:
        """Whether no marker is to come for a batch.

        Args:
            batch: One with no event of its producer behind it.
            index: The log, as far as it has been read.
        """
        absence = self._proven.get(batch.producer_id)
        return absence is not None and is_proven(absence, batch, index)


def is_proven(absence: Absence, batch: Batch, index: EventIndex) -> bool:
    """Whether the coordinators' word is of a time when the batch stood there, and all of that time has been read."""
    return is_after(absence, batch) and is_read(absence, index) and is_of_leader(absence, index)


def is_after(absence: Absence, batch: Batch) -> bool:
    """Whether coordinators were asked when the batch stood in the log: before, its transaction might not have begun."""
    return batch.offset < absence.asked_at


def is_read(absence: Absence, index: EventIndex) -> bool:
    """Whether all markers have been read that stood in the log when coordinators answered."""
    return index.end >= absence.read_to


def is_of_leader(absence: Absence, index: EventIndex) -> bool:
    """Whether the log that has been read is the one whose ends were asked for."""
    return absence.leader_epoch == index.leader_epoch
