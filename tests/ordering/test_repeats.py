"""REPEAT-FIRST: what is behind a batch that is to come again is to come again, too."""

from __future__ import annotations

from kordon.proxy.ordering.repeats import REPEAT_SECONDS, Repeats

P, EPOCH = 7, 2
LAST = (1 << 31) - 1


def test_what_is_behind_a_refused_batch_waits_for_it() -> None:
    """Not the batch itself, and not what is before it."""
    repeats = Repeats()
    repeats.expect(P, EPOCH, 10, 0.0)
    assert [repeats.is_behind(P, EPOCH, sequence, 1.0) for sequence in (9, 10, 11, 500)] == [False, False, True, True]


def test_it_is_the_first_of_several_that_is_waited_for() -> None:
    """They are refused in their order, and some clients send a later one first."""
    for order in ((10, 15, 20), (15, 20, 10), (20, 15, 10)):
        repeats = Repeats()
        for sequence in order:
            repeats.expect(P, EPOCH, sequence, 0.0)
        assert [repeats.is_behind(P, EPOCH, sequence, 1.0) for sequence in (10, 15, 20)] == [False, True, True]


def test_sequences_begin_again_at_zero() -> None:
    """The one behind 2^31 - 1 is 0."""
    repeats = Repeats()
    repeats.expect(P, EPOCH, LAST, 0.0)
    assert repeats.is_behind(P, EPOCH, 0, 1.0)
    repeats.written(P)
    repeats.expect(P, EPOCH, 0, 0.0)
    assert not repeats.is_behind(P, EPOCH, LAST, 1.0)


def test_nothing_is_waited_for_once_a_batch_is_written_or_the_epoch_is_another() -> None:
    """Nor for other producers."""
    repeats = Repeats()
    repeats.expect(P, EPOCH, 10, 0.0)
    assert not repeats.is_behind(P, EPOCH + 1, 11, 1.0)
    assert not repeats.is_behind(P + 1, EPOCH, 11, 1.0)
    repeats.written(P)
    assert not repeats.is_behind(P, EPOCH, 11, 1.0)


def test_a_batch_that_does_not_come_is_not_waited_for_without_end() -> None:
    """Its client may have given it up, and has to know of the gap. Refusals of what is behind do not prolong it."""
    repeats = Repeats()
    repeats.expect(P, EPOCH, 10, 0.0)
    repeats.expect(P, EPOCH, 15, REPEAT_SECONDS - 1)
    assert repeats.is_behind(P, EPOCH, 15, REPEAT_SECONDS - 0.1)
    assert not repeats.is_behind(P, EPOCH, 15, REPEAT_SECONDS)


def test_what_is_remembered_is_bounded() -> None:
    """The oldest are forgotten."""
    repeats = Repeats()
    for producer_id in range(20_000):
        repeats.expect(producer_id, EPOCH, 10, 0.0)
    known = [each for each in range(20_000) if repeats.is_behind(each, EPOCH, 11, 1.0)]
    assert known == list(range(10_000, 20_000))
