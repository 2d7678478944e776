"""The identity of writes without a producer id: what a failure costs, and what is sent again (LENT-IDENTITY)."""

from kordon.proxy.ordering.lent_identity import LentIdentity
from kordon.proxy.ordering.write_result import Result
from kordon.proxy.ordering.write_sequencer import NO_PRODUCER, Write


def a_write() -> Write:
    return Write(NO_PRODUCER, -1, -1, records=2, size=100, acks=-1, since=0.0)


def sent(identity: LentIdentity[Write], count: int) -> list[tuple[Write, int]]:
    """Writes with their sequences."""
    writes: list[tuple[Write, int]] = []
    for _ in range(count):
        writes.append((a_write(), identity.sequence))
        identity.sent(records=2)
    return writes


def test_what_was_sent_behind_a_failure_is_sent_again_under_the_next_epoch() -> None:
    """A failed write may be in the log, so nothing goes on behind it before all of its epoch is answered."""
    identity = LentIdentity[Write](7)
    (lost, first), (behind, second) = sent(identity, 2)
    assert not identity.answered(lost, first, Result.LOST), "its client is told"
    assert (identity.rests, identity.can_be_renewed) == (True, False)
    assert identity.answered(behind, second, Result.SEQUENCE)
    assert identity.can_be_renewed
    assert identity.again == [behind]
    assert identity.renewed() == LentIdentity(7, epoch=1)


def test_the_sequence_of_a_rejected_batch_is_the_next_writes() -> None:
    """Brokers have appended nothing of it, so that costs no epoch."""
    identity = LentIdentity[Write](7)
    (fine, first), (rejected, second), (behind, third) = sent(identity, 3)
    assert not identity.answered(fine, first, Result.WRITTEN)
    assert not identity.answered(rejected, second, Result.REJECTED)
    assert identity.answered(behind, third, Result.SEQUENCE)
    assert behind.attempts == 0, "it has failed by no fault of its own"
    assert identity.renewed() == LentIdentity(7, epoch=0, sequence=second)


def test_a_producer_id_without_a_further_epoch_is_used_up() -> None:
    """Kafka counts epochs in 16 bits."""
    identity = LentIdentity[Write](7, epoch=(1 << 15) - 1)
    ((lost, first),) = sent(identity, 1)
    identity.answered(lost, first, Result.LOST)
    assert identity.renewed() is None


def test_sequences_begin_again_at_0() -> None:
    """Kafka counts them in 31 bits."""
    identity = LentIdentity[Write](7, sequence=(1 << 31) - 1)
    identity.sent(records=2)
    assert identity.sequence == 1
