"""Epochs for transactional producers on brokers that cannot check what a producer was, case by case."""

from dataclasses import replace

import pytest

from kordon.proxy.ordering.lent_epochs import (
    EpochClaim,
    Lent,
    ProducerIdentity,
    Refusal,
    called_again,
    counts,
    decide,
    released,
    repeated,
    settled,
)

FIRST, SECOND, THIRD = (ProducerIdentity(7, epoch) for epoch in range(3))
BUSY, FENCED = Refusal.BUSY, Refusal.FENCED
SETTLED = Lent(4, SECOND, FIRST)
"""The newest instance has given its first epoch for its second."""


def asked(given: ProducerIdentity | None, token: str = "own") -> EpochClaim:
    return EpochClaim(token, given)


def claimed(lent: Lent | None, given: ProducerIdentity | None, token: str = "own") -> Lent:
    """Decides that the broker is to be called, and returns the record."""
    found = decide(lent, asked(given, token), may_take_over=True)
    assert isinstance(found, Lent)
    return found


def test_a_new_instance_calls_the_broker_whatever_is_known() -> None:
    """1a and 1b: what the former instance had is of no use any more."""
    for lent in (None, SETTLED):
        found = settled(claimed(lent, None), "own", THIRD)
        assert found is not None
        record, told = found
        assert told == record.current == THIRD
        assert record.last is None
        assert decide(record, asked(SECOND), may_take_over=True) is FENCED


def test_the_current_producer_gets_the_next_epoch_and_the_same_again() -> None:
    """2a and 2b."""
    found = settled(claimed(SETTLED, SECOND), "own", THIRD)
    assert found is not None
    record, told = found
    assert (told, record.last) == (THIRD, SECOND)
    assert decide(record, asked(SECOND), may_take_over=False) == THIRD


@pytest.mark.parametrize("given", [THIRD, ProducerIdentity(8, 1), ProducerIdentity(6, 0), ProducerIdentity(7, -1)])
def test_who_is_neither_current_nor_last_is_fenced_without_a_call(given: ProducerIdentity) -> None:
    """2c: a call would take the epoch away from who is current."""
    assert decide(SETTLED, asked(given), may_take_over=True) is FENCED


def test_another_id_is_as_good_as_the_next_epoch() -> None:
    """1b ii and 2a ii; or the broker has forgotten the transactional id (INVALID_PRODUCER_ID_MAPPING)."""
    found = settled(claimed(SETTLED, SECOND), "own", ProducerIdentity(9, 0))
    assert found == (Lent(6, ProducerIdentity(9, 0), SECOND), ProducerIdentity(9, 0))


def test_a_producer_from_before_kordon_goes_on_if_it_was_the_newest() -> None:
    """Nothing is known of its transactional id, and the broker's answer tells."""
    claim = claimed(None, SECOND)
    assert settled(claim, "own", THIRD) == (Lent(1, THIRD, SECOND), THIRD)
    assert settled(claim, "own", ProducerIdentity(7, 3)) == (Lent(1, ProducerIdentity(7, 3)), FENCED)


def test_who_came_round_kordon_fences_the_producer() -> None:
    """One epoch more than was claimed, or another id that has been used."""
    claim = claimed(SETTLED, SECOND)
    for answer in (ProducerIdentity(7, 3), ProducerIdentity(9, 1)):
        assert settled(claim, "own", answer) == (Lent(6, answer), FENCED)


def test_the_end_of_a_transaction_takes_one_epoch_more() -> None:
    """However often the broker is asked meanwhile."""
    claim = called_again(claimed(SETTLED, SECOND), "own")
    assert claim is not None
    again = called_again(claim, "own")
    assert again is not None
    for each in (claim, again):
        found = settled(each, "own", ProducerIdentity(7, 3))
        assert found is not None
        assert found[1] == ProducerIdentity(7, 3)
        assert settled(each, "own", ProducerIdentity(7, 4)) == (Lent(each.number + 1, ProducerIdentity(7, 4)), FENCED)


def test_a_claim_is_left_alone_and_then_taken_over() -> None:
    """By the producer that asks again, or by a new instance; what was claimed may have been taken, now or later."""
    claim = claimed(SETTLED, SECOND, "gone")
    for given in (SECOND, None, FIRST):
        assert decide(claim, asked(given), may_take_over=False) is BUSY
    for given in (SECOND, None):
        over = claimed(claim, given)
        assert over == Lent(6, SECOND, FIRST, doubtful=1, claim=asked(given))
        for answer, left in ((THIRD, 1), (ProducerIdentity(7, 3), 0)):
            found = settled(over, "own", answer)
            assert found is not None
            assert (found[1], found[0].doubtful) == (answer, left)
    assert decide(claim, asked(FIRST), may_take_over=True) is FENCED


def test_a_new_instance_that_has_gone_still_fences() -> None:
    """It has claimed, and nobody knows what it was told."""
    claim = claimed(SETTLED, None, "gone")
    for given in (SECOND, FIRST):
        assert decide(claim, asked(given), may_take_over=True) is FENCED


def test_who_was_taken_over_from_neither_settles_nor_calls_again() -> None:
    """It decides anew, and is told what the other one was given."""
    over = claimed(claimed(SETTLED, SECOND, "slow"), SECOND, "quick")
    assert settled(over, "slow", THIRD) is None
    assert called_again(over, "slow") is None
    found = settled(over, "quick", ProducerIdentity(7, 3))
    assert found is not None
    assert settled(found[0], "slow", THIRD) is None
    assert decide(found[0], asked(SECOND, "slow"), may_take_over=True) == ProducerIdentity(7, 3)


def test_of_two_records_with_one_number_the_first_counts() -> None:
    """Both writers had read the same."""
    mine, yours = claimed(SETTLED, SECOND, "mine"), claimed(SETTLED, None, "yours")
    assert counts(SETTLED, mine)
    assert not counts(mine, yours)
    assert not counts(mine, SETTLED)


def test_a_late_record_that_is_read_first_keeps_nobody_out() -> None:
    """Compaction has taken those before it."""
    late = claimed(Lent(1, FIRST), None, "late")
    assert counts(None, late)
    assert counts(late, SETTLED)


def test_a_late_record_does_not_stay_the_last_of_its_key() -> None:
    """Of an old log there is only the last record: behind a late one, what counts is said again."""
    late = claimed(Lent(3, FIRST), None, "late")
    assert not counts(SETTLED, late)
    log = [SETTLED, late, repeated(SETTLED)]
    assert counts(SETTLED, log[-1])
    assert replace(log[-1], number=SETTLED.number) == SETTLED
    assert decide(log[-1], asked(FIRST), may_take_over=True) == SECOND
    assert decide(late, asked(FIRST), may_take_over=True) is FENCED


def test_a_refused_call_leaves_no_claim() -> None:
    """Nobody waits for it, unless an epoch was taken to end a transaction: whoever has the current one is fenced."""
    claimed_now = replace(SETTLED, claim=EpochClaim("a", SECOND))
    assert released(claimed_now, "a") == replace(SETTLED, number=5)
    assert released(claimed_now, "b") is None
    assert released(SETTLED, "a") is None
    busy = called_again(claimed_now, "a")
    assert busy is not None
    assert released(busy, "a") is None
