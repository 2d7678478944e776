"""Which epoch a transactional producer gets where brokers cannot check what it was before (KIP-360, Kafka before 2.5).

Such brokers give every InitProducerId the next epoch, a zombie's too. So proxies write down what each transactional id
was given, in a log that all of them read. Its order decides between them: a record counts if its number is greater than
that of the last one that counts, and so of two with the same number the first. Each says all that is known of its id.

    settled ──claim──> claimed ──the broker is called──> settled     current and last are as KIP-360 has them
       ^                 │   ^
       │                 └───┘ another claim: the broker is busy, or who claimed has gone
       └── no claim is written for a producer that is neither current nor last: it is fenced

A claim is written before each call of the broker. It takes one epoch, and one more to end a transaction, and who has
claimed it may die before or behind it. If an epoch is further on than that explains, somebody came around Kordon. A
producer that asks for its next epoch is fenced then. Where a proxy has died, that may go unnoticed. A new id tells
nothing: the broker has forgotten the former one, or its epochs have run out.

Who claims a call makes it at once or never (`CALL_SECONDS`). Others wait longer (`TAKE_OVER_SECONDS`), because a call
that comes late takes the epoch away that they have told a producer.

Source: KIP-360; TransactionCoordinator.handleInitProducerId, TransactionMetadata.prepareIncrementProducerEpoch and
prepareProducerIdRotation (Kafka 2.4 and 2.5).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

CALL_SECONDS: Final = 5.0
"""After the claim was sent, no call of the broker begins, and none is waited for."""
TAKE_OVER_SECONDS: Final = 15.0
"""After a claim was read, another proxy continues in its place: a call that began in time has ended by then."""


_MOST_EPOCHS: Final = 2


class ProducerIdentity(NamedTuple):
    """What a broker knows a producer by."""

    producer_id: int
    epoch: int


class EpochClaim(NamedTuple):
    """A request for which the broker is called."""

    token: str
    """The token of the request for which it is made, in one proxy. No other request has the same."""
    given: ProducerIdentity | None
    """What the producer says that it is; None: it is a new instance."""
    epochs: int = 1
    """That its proxy may take: two if the broker has had to end a transaction, which takes one."""


@dataclass(frozen=True, slots=True)
class Lent:
    """What is known of one transactional id, as one record says it."""

    number: int
    """Rises by one with each record that counts."""
    current: ProducerIdentity | None
    """What the newest instance was given last; None: nobody has got anything through Kordon."""
    last: ProducerIdentity | None = None
    """What that instance had before, and gave for `current`; None: it had nothing."""
    doubtful: int = 0
    """Epochs that proxies may have taken, or may still take, which have not told of them."""
    claim: EpochClaim | None = None
    """The request that is under way."""


class Refusal(Enum):
    """Why a producer gets no epoch."""

    FENCED = "fenced"
    """Another instance has come: PRODUCER_FENCED, or INVALID_PRODUCER_EPOCH before version 4."""
    BUSY = "busy"
    """Somebody else is calling the broker: CONCURRENT_TRANSACTIONS, after which clients ask again."""


Decision: TypeAlias = Lent | ProducerIdentity | Refusal
"""The record that claims a call of the broker, what the producer is told without one, or why it gets nothing."""


def counts(lent: Lent | None, record: Lent) -> bool:
    """Says whether a record counts, which follows others of its transactional id in the log.

    Whoever writes one has read the last that counts, or fewer. So the number is greater by one, or the record came too
    late. Only in a compacted log may it be greater by more: what is read first there may have come too late itself.

    Args:
        lent: What the last record that counts says. None: none has been read.
    """
    return lent is None or record.number > lent.number


def decide(lent: Lent | None, asked: EpochClaim, *, may_take_over: bool) -> Decision:
    """Decides on an InitProducerId request, by all that stands in the log since it came.

    Args:
        lent: What is known of the transactional id. None: nothing is.
        asked: The request.
        may_take_over: Whether the claim that stands there was read `TAKE_OVER_SECONDS` ago.
    """
    if lent is None:  # the producer is from before Kordon, or it is the first: the broker's answer tells
        return Lent(0, asked.given, claim=asked)
    if lent.claim is not None:
        return _decide_beside(lent, lent.claim, asked, may_take_over=may_take_over)
    if asked.given is None or asked.given == lent.current:
        return _claimed(lent, asked)
    if asked.given == lent.last and lent.current is not None:
        return lent.current
    return Refusal.FENCED


def _decide_beside(lent: Lent, claim: EpochClaim, asked: EpochClaim, *, may_take_over: bool) -> Decision:
    if not may_take_over:
        return Refusal.BUSY
    if asked.given is None or asked.given == claim.given:
        return _claimed(lent, asked)
    return Refusal.FENCED


def _claimed(lent: Lent, asked: EpochClaim) -> Lent:
    left = lent.claim.epochs if lent.claim is not None else 0
    return replace(lent, number=lent.number + 1, doubtful=lent.doubtful + left, claim=asked)


def called_again(lent: Lent, token: str) -> Lent | None:
    """Returns the record that claims one more call, because the broker was busy; None: another proxy has taken over.

    Args:
        token: The request's token.
    """
    claim = lent.claim
    if claim is None or claim.token != token:
        return None
    return replace(lent, number=lent.number + 1, claim=claim._replace(epochs=_MOST_EPOCHS))


def released(lent: Lent, token: str) -> Lent | None:
    """Returns the record that says that a call came to nothing; None: the claim stays, or another proxy has taken over.

    It stays where the broker has ended a transaction for it: that took an epoch, so the current producer is fenced.

    Args:
        token: The request's token.
    """
    claim = lent.claim
    if claim is None or claim.token != token or claim.epochs > 1:
        return None
    return replace(lent, number=lent.number + 1, claim=None)


def repeated(lent: Lent) -> Lent:
    """Returns the record that says the same again.

    It is written behind one that does not count: if that stayed the last of its key, compaction would leave it alone.
    Whoever has written that one does so, or after `TAKE_OVER_SECONDS` any proxy that follows the log.
    """
    return replace(lent, number=lent.number + 1)


def settled(lent: Lent, token: str, answer: ProducerIdentity) -> tuple[Lent, ProducerIdentity | Refusal] | None:
    """Returns the record of what the broker has answered, and what the producer is told once that counts.

    Args:
        lent: What is now known of the transactional id.
        token: The token of the request for which the broker was called.
        answer: The broker's answer.

    Returns:
        None: another proxy has taken over, and the request is to be decided again.
    """
    claim = lent.claim
    if claim is None or claim.token != token:
        return None
    of_others = _epochs_taken(lent.current, answer) - claim.epochs if lent.current is not None else 0
    is_granted = claim.given is None or of_others <= lent.doubtful
    left = lent.doubtful - min(max(of_others, 0), lent.doubtful)
    record = Lent(lent.number + 1, answer, claim.given if is_granted else None, left)
    return record, answer if is_granted else Refusal.FENCED


def _epochs_taken(current: ProducerIdentity, answer: ProducerIdentity) -> int:
    """Returns how many epochs have been taken since one was given."""
    if answer.producer_id == current.producer_id:
        return answer.epoch - current.epoch
    return answer.epoch + 1  # the id has run out of epochs, or the broker had forgotten it
