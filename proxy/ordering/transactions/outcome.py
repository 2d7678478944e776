"""The outcome of a batch of transactional data (OUTCOME-BEHIND).

All readers use one predicate, wherever they began. It looks only at what stands behind the batch in the same log.

    v1   the producer's next event: COMMIT of the batch's epoch commits, and nothing else does
    v2   its next event of a later epoch: COMMIT of the next epoch commits, and nothing else does

What stands before a batch is evidence for the audit (`is_witnessed`), not for readers.
"""

from __future__ import annotations

from enum import Enum

from kordon.proxy.ordering.transactions.absences import Absences
from kordon.proxy.ordering.transactions.event_index import EventIndex
from kordon.proxy.ordering.transactions.events import Batch, Event, Marker, Protocol, Witness


class Outcome(Enum):
    """What became of a batch."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    LATE = "late"
    """The batch belongs to no transaction that can commit, because it was written after the end of its own."""
    UNDECIDED = "undecided"
    """Its transaction may be open, or the log has not been read far enough."""


def outcome_of(batch: Batch, index: EventIndex, absences: Absences) -> Outcome:
    """Returns the outcome of a batch.

    Args:
        batch: One of this log.
        index: The events of its log, also of what lies behind the cut of its segment.
        absences: The coordinators' answers for the batch's partition.

    Raises:
        LookupError: The index has forgotten what stands behind the batch (`EventIndex.knows_behind`).
    """
    event = deciding_event(batch, index)
    if event is None:
        return Outcome.LATE if absences.cover(batch, index) else Outcome.UNDECIDED
    return outcome_by(batch, event)


def deciding_event(batch: Batch, index: EventIndex) -> Event | None:
    """Returns the event that decides about a batch.

    It decides the same about each batch of the same producer, epoch and protocol that stands between.

    Args:
        batch: As for `outcome_of`.

    Raises:
        LookupError: As for `outcome_of`.
    """
    behind = index.following(batch.offset, batch.producer_id)
    return next((each for each in behind if not is_passed_over(batch, each)), None)


def outcome_by(batch: Batch, event: Event) -> Outcome:
    """Returns the outcome of a batch by its deciding event."""
    if isinstance(event, Witness):
        return Outcome.LATE
    if not event.is_commit:
        return Outcome.ABORTED
    return Outcome.COMMITTED if closes(event, batch) else Outcome.LATE


def is_passed_over(batch: Batch, event: Event) -> bool:
    """Whether an event says nothing of a batch before it.

    On v2 such events are repetitions: a coordinator sent a marker twice, or a witness was written again because the
    leader had forgotten the first.
    """
    return batch.protocol is Protocol.V2 and event.epoch <= batch.epoch


def closes(marker: Marker, batch: Batch) -> bool:
    """Whether a marker has the epoch of the transaction that a batch belongs to."""
    return marker.epoch == batch.epoch + (batch.protocol is Protocol.V2)


def is_witnessed(batch: Batch, index: EventIndex) -> bool:
    """Whether a committed batch stands behind a witness of its own transaction (TXN-WITNESS).

    If it does not, whoever wrote it believed wrongly that its producer was open there. A record of the same transaction
    may have been lost as well.

    Args:
        batch: A committed batch.
        index: The events of its log from the log's beginning. If retention took the beginning, the answer may be False
            without a fault.
    """
    for event in reversed(index.before(batch.offset, batch.producer_id)):
        if isinstance(event, Witness):
            return event.epoch == batch.epoch
        if not is_passed_over(batch, event):
            return False
    return False
