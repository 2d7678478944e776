"""What a leader's answer about a producer means: whether its transaction is open there (ASKED-LEADER).

DescribeProducers tells the log end of whoever is asked: a follower, a leader that has been deposed, a witness that is
not replicated and that the next leader will lack. So the worker asks three things of one broker, in this order:

    ListOffsets, for the leader epoch ──> DescribeProducers ──> ListOffsets, for the high watermark and leader epoch

For AddPartitionsToTxn a worker asks each time, after the coordinator has accepted it. All earlier markers stand by
then. So if the producer is open, it is open by a witness of this transaction. What was known before may be of an
earlier one.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

NOT_OPEN: Final = -1
"""The start offset of a producer without an open transaction."""


class LeaderAnswer(NamedTuple):
    """What a partition's leader said of one producer."""

    leader_epoch_before: int
    leader_epoch_after: int
    producer_epoch: int
    """-1: it does not know the producer."""
    last_sequence: int
    """-1: nothing was written under this epoch."""
    start_offset: int
    """The start of the open transaction, or `NOT_OPEN`."""
    high_watermark: int
    """Asked for after the rest."""


class LeaderSays(Enum):
    """What an answer comes to."""

    OPEN = "open"
    NOT_OPEN = "not open"
    UNSURE = "unsure"
    """Ask again, with metadata read again."""


def leader_says(answer: LeaderAnswer, epoch: int, leader_epoch: int) -> LeaderSays:
    """Returns what an answer says of a producer.

    Args:
        epoch: The producer epoch of the transaction.
        leader_epoch: The epoch of the leader to which data would now be sent.
    """
    if not is_of_leader(answer, leader_epoch):
        return LeaderSays.UNSURE
    if answer.start_offset == NOT_OPEN or answer.producer_epoch != epoch:
        return LeaderSays.NOT_OPEN
    return LeaderSays.OPEN if is_replicated(answer) else LeaderSays.UNSURE


def is_of_leader(answer: LeaderAnswer, leader_epoch: int) -> bool:
    """Whether the partition's leader answered, and was the leader all the time."""
    return answer.leader_epoch_before == answer.leader_epoch_after == leader_epoch


def is_replicated(answer: LeaderAnswer) -> bool:
    """Whether the witness outlives an orderly election."""
    return answer.start_offset < answer.high_watermark


def witness_sequence(answer: LeaderAnswer, epoch: int) -> int:
    """Returns the sequence of a v1 witness: what follows the producer's last one under this epoch, or 0."""
    return (answer.last_sequence + 1) % (1 << 31) if answer.producer_epoch == epoch else 0
