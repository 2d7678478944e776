"""What is known of transactional ids follows from the order and the times of records alone."""

import pytest

from kordon.proxy.ordering.lent_epochs import TAKE_OVER_SECONDS, Lent, ProducerIdentity
from kordon.proxy.ordering.lent_table import FORGET_MS, LentTable

KEY = 'epochs/"orders-writer"'
OTHER = 'epochs/"others-writer"'
FIRST = Lent(0, ProducerIdentity(7, 0))
SECOND = Lent(1, ProducerIdentity(7, 1), ProducerIdentity(7, 0))
BEGAN_MS = 1_000_000


@pytest.fixture
def table() -> LentTable:
    found = LentTable()
    assert found.take_in(KEY, FIRST, BEGAN_MS, 0.0)
    assert found.take_in(KEY, SECOND, BEGAN_MS, 1.0)
    return found


def test_what_counts_is_known(table: LentTable) -> None:
    """Of its own id."""
    assert (table.lent(KEY), table.lent(OTHER), len(table)) == (SECOND, None, 1)


def test_a_late_record_changes_nothing_and_is_mended(table: LentTable) -> None:
    """Until a record that counts stands behind it."""
    assert table.mended(KEY) is None
    assert not table.take_in(KEY, Lent(1, ProducerIdentity(8, 0)), BEGAN_MS, 2.0)
    assert table.lent(KEY) == SECOND
    mended = table.mended(KEY)
    assert mended == Lent(2, ProducerIdentity(7, 1), ProducerIdentity(7, 0))
    assert table.take_in(KEY, mended, BEGAN_MS, 3.0)
    assert table.mended(KEY) is None


def test_others_mend_what_its_writer_does_not(table: LentTable) -> None:
    """After a while."""
    table.take_in(KEY, SECOND, BEGAN_MS, 2.0)
    assert table.left_spoilt(2.0 + TAKE_OVER_SECONDS / 2) == []
    assert table.left_spoilt(2.0 + TAKE_OVER_SECONDS) == [KEY]


def test_a_record_that_cannot_be_read_is_mended_too(table: LentTable) -> None:
    """Compaction would leave it alone as well."""
    table.spoil(OTHER, 2.0)
    table.spoil(KEY, 2.0)
    assert table.left_spoilt(2.0 + TAKE_OVER_SECONDS) == [KEY]


def test_a_claim_may_be_taken_over_after_a_while(table: LentTable) -> None:
    """Counted from when the last record that counts was read."""
    table.take_in(KEY, SECOND, BEGAN_MS, 10.0)  # late
    assert not table.may_take_over(KEY, 1.0 + TAKE_OVER_SECONDS - 0.1)
    assert table.may_take_over(KEY, 1.0 + TAKE_OVER_SECONDS)
    assert not table.may_take_over(OTHER, 1_000.0)


def test_a_silent_id_is_forgotten(table: LentTable) -> None:
    """It begins anew then, with any number."""
    silent_ms = BEGAN_MS + FORGET_MS
    assert list(table.silent(silent_ms - 1)) == []
    assert list(table.silent(silent_ms)) == [KEY]
    assert table.forget(KEY, silent_ms, 9.0)
    assert (table.lent(KEY), len(table), table.left_spoilt(1_000.0)) == (None, 0, [])
    assert table.take_in(KEY, FIRST, silent_ms, 10.0)


def test_an_id_that_somebody_has_used_meanwhile_is_not_forgotten(table: LentTable) -> None:
    """The record without a value came too late, and is mended like any other."""
    assert table.take_in(KEY, Lent(2, ProducerIdentity(7, 2)), BEGAN_MS + FORGET_MS - 1, 2.0)
    assert not table.forget(KEY, BEGAN_MS + FORGET_MS, 3.0)
    assert table.lent(KEY) == Lent(2, ProducerIdentity(7, 2))
    assert table.mended(KEY) == Lent(3, ProducerIdentity(7, 2))


def test_forgetting_what_is_not_known_does_no_harm(table: LentTable) -> None:
    """Each proxy may write that an id is forgotten."""
    assert not table.forget(OTHER, BEGAN_MS, 3.0)
    assert table.left_spoilt(1_000.0) == []


def test_what_a_later_version_has_written_is_not_guessed_at(table: LentTable) -> None:
    """Nothing is known of the id, and no proxy of this version decides."""
    assert table.take_in(KEY, None, BEGAN_MS, 3.0)
    assert table.is_unreadable(KEY)
    assert (table.lent(KEY), table.mended(KEY)) == (None, None)
    assert not table.is_unreadable(OTHER)


def test_no_more_than_so_many_ids_are_taken_up() -> None:
    """Those that are known go on; of what others have forged, as many again are kept."""
    table = LentTable(most_ids=2)
    keys = [f'epochs/"{number}"' for number in range(5)]
    for key in keys[:2]:
        assert not table.is_full_for(key)
        table.take_in(key, FIRST, BEGAN_MS, 0.0)
    assert [table.is_full_for(key) for key in keys[:3]] == [False, False, True]
    assert [table.take_in(key, FIRST, BEGAN_MS, 0.0) for key in keys[2:]] == [True, True, False]
    assert len(table) == 4
