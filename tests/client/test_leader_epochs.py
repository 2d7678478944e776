"""Leader epochs of what was read: which is a record's, and when the broker has to be asked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kordon.client.cooperative.leader_epochs import NO_EPOCH, EpochCheck, ReadEpochs
from kordon.testing.messages.batch_heads import batch_head as batch


def read(*batches: bytes, reach: int = 0, epoch: int = NO_EPOCH) -> ReadEpochs[int]:
    epochs = ReadEpochs[int]()
    epochs.begin(0, reach, epoch)
    epochs.fetched(0, b"".join(batches), epochs.assignment)
    return epochs


def test_an_epoch_counts_from_its_first_batch_on() -> None:
    """The one of a commit is that of the last record before its end."""
    epochs = read(batch(10, 3, 5), batch(15, 3, 5), batch(20, 7, 5))
    assert epochs.at(0, 25) == 3, "nobody has asked yet whether the log was cut before the newer one"
    epochs.settle(0)
    assert [epochs.at(0, reach) for reach in (10, 11, 20, 21, 25)] == [NO_EPOCH, 3, 3, 7, 7]
    assert epochs.at(1, 5) == NO_EPOCH


def test_the_broker_is_asked_about_what_was_read_when_the_epoch_rises() -> None:
    """Of an epoch that nothing was read of there is nothing to ask."""
    assert read(batch(10, 3, 5), batch(15, 3, 5)).doubts([0]) == {}
    epochs = read(batch(10, 3, 5), batch(15, 3, 5), batch(30, 7), batch(31, 9))
    epochs.fetched(0, batch(32, 9) + batch(33, 12), epochs.assignment)
    assert epochs.doubts([0, 1]) == {0: [EpochCheck(3, 20), EpochCheck(9, 33)]}, "one answer is of one log"
    epochs.settle(0)
    assert epochs.doubts([0]) == {0: [EpochCheck(9, 33)]}
    epochs.settle(0)
    assert epochs.doubts([0]) == {}


def test_what_others_have_finished_is_asked_about_as_well() -> None:
    """A commit says the epoch of its last record, and how far it reaches."""
    epochs = read(batch(10, 3), batch(11, 4), reach=40, epoch=3)
    assert epochs.doubts([0]) == {0: [EpochCheck(3, 40)]}
    assert read(batch(10, 2), reach=40, epoch=3).at(0, 40) == 3


def test_what_was_fetched_before_the_commit_was_read_counts_too() -> None:
    """Aiokafka fetches as soon as it has its own positions."""
    epochs = ReadEpochs[int]()
    epochs.fetched(0, batch(10, 3) + batch(11, 5, 4), epochs.assignment)
    epochs.begin(0, 10, 2)
    assert epochs.doubts([0]) == {0: [EpochCheck(2, 10), EpochCheck(3, 11)]}
    epochs.fetched(0, batch(15, 6), epochs.assignment)
    assert epochs.doubts([0])[0][-1] == EpochCheck(5, 15)
    for _ in range(3):
        epochs.settle(0)
    assert [epochs.at(0, reach) for reach in (10, 11, 15, 16)] == [2, 3, 5, 6]


def test_what_was_asked_for_in_an_assignment_that_is_over_does_not_count() -> None:
    """It may be of a place where this member does not read on."""
    epochs = read(batch(10, 3))
    before = epochs.assignment
    epochs.forget()
    epochs.fetched(0, batch(90, 5), before)
    assert epochs.at(0, 100) == NO_EPOCH


def test_batches_without_a_leader_epoch_say_nothing() -> None:
    """Where the field is, those of Kafka before 0.11 have a checksum."""
    assert read(batch(10, 77, magic=1)).at(0, 100) == NO_EPOCH


@given(st.binary(max_size=200))
def test_junk_ends(data: bytes) -> None:
    """Whatever its lengths say; aiokafka refuses it by its checksum."""
    read(data, batch(10, 3) + data)


def test_the_memory_is_bounded_whatever_a_broker_says() -> None:
    """Of what was read long ago the epoch is not known any more, so it would be done again."""
    epochs = ReadEpochs[int]()
    for epoch in range(1_000):
        epochs.fetched(0, batch(epoch, epoch), epochs.assignment)
    while doubts := epochs.doubts([0]):
        assert len(doubts[0]) <= 100
        epochs.settle(0)
    assert (epochs.at(0, 1), epochs.at(0, 1_000)) == (NO_EPOCH, 999)
