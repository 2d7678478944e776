"""Records of lent epochs are read as they were written, and nothing else is."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kordon.proxy.ordering.lent_epoch_records import (
    KIND,
    MOST_BYTES,
    MOST_KEY_CHARACTERS,
    dump,
    key_of,
    load,
    transactional_id_of,
)
from kordon.proxy.ordering.lent_epochs import EpochClaim, Lent, ProducerIdentity

NUMBERS = st.integers(0, (1 << 63) - 1)
IDENTITIES = st.none() | st.builds(ProducerIdentity, NUMBERS, st.integers(0, (1 << 15) - 1))
CLAIMS = st.none() | st.builds(EpochClaim, st.text("0123456789abcdef-", max_size=100), IDENTITIES, st.integers(1, 2))
RECORDS = st.builds(Lent, NUMBERS, IDENTITIES, IDENTITIES, NUMBERS, CLAIMS)
LENT = Lent(4, ProducerIdentity(7, 1), ProducerIdentity(7, 0), 0, EpochClaim("5f0c-12", ProducerIdentity(7, 1)))
VALUE: dict[str, Any] = {
    "version": 1,
    "number": 4,
    "current": [7, 1],
    "last": [7, 0],
    "doubtful": 0,
    "claim": {"token": "5f0c-12", "given": [7, 1], "epochs": 1},
}


def test_a_record_looks_as_the_module_says() -> None:
    """Older and newer proxies read it, too."""
    assert json.loads(dump(LENT)) == VALUE
    assert key_of("orders-writer") == 'epochs/"orders-writer"'


@given(RECORDS)
def test_what_was_written_is_read(lent: Lent) -> None:
    """All of it, and identities as such."""
    read = load(dump(lent))
    assert read is not None
    assert read == lent
    assert all(
        isinstance(each, ProducerIdentity | None) for each in (read.current, read.last, read.claim and read.claim.given)
    )


@given(st.text(max_size=50))
def test_any_transactional_id_has_a_key(transactional_id: str) -> None:
    """Clients name them as they like."""
    assert transactional_id_of(key_of(transactional_id)) == transactional_id


@given(st.integers(0, 32_000), st.sampled_from("aä\0😀"))
def test_keys_are_short_and_differ(length: int, letter: str) -> None:
    """However long a transactional id is."""
    ids = [letter * length + end for end in "xy"]
    keys = [key_of(each) for each in ids]
    assert len(set(keys)) == 2
    assert max(map(len, keys)) <= MOST_KEY_CHARACTERS
    assert None not in map(transactional_id_of, keys)


def test_a_long_key_is_refused_before_it_is_read() -> None:
    """Whoever has written it."""
    with pytest.raises(ValueError, match="characters"):
        transactional_id_of(f'{KIND}/"{"x" * MOST_KEY_CHARACTERS}"')


def test_another_kind_of_key_is_passed_over() -> None:
    """A later version may have some."""
    assert transactional_id_of('others/"orders-writer"') is None


@pytest.mark.parametrize("key", ["epochs/", "epochs/7", "epochs/orders-writer", 'epochs/["orders-writer"]'])
def test_a_key_that_is_not_what_its_kind_says_is_refused(key: str) -> None:
    """Whoever has written it."""
    with pytest.raises(ValueError, match="validation error"):
        transactional_id_of(key)


def test_a_later_version_is_not_guessed_at() -> None:
    """Whatever else it has."""
    assert load(b'{"version": 2, "anything": [1, 2]}') is None


@pytest.mark.parametrize(
    "change",
    [
        {"number": -1},
        {"number": 1 << 63},
        {"number": "4"},
        {"current": [7]},
        {"current": [7, 1 << 15]},
        {"current": [-1, 0]},
        {"last": 7},
        {"doubtful": -1},
        {"claim": {"token": "5f0c-12", "given": None}},
        {"claim": {"token": "x" * 101, "given": None, "epochs": 1}},
        {"claim": {"token": "5f0c-12", "given": None, "epochs": 0}},
        {"claim": {"token": "5f0c-12", "given": None, "epochs": 3}},
        {"more": 1},
    ],
    ids=str,
)
def test_a_value_that_is_not_a_record_is_refused(change: dict[str, Any]) -> None:
    """Each field has its type and its range."""
    with pytest.raises(ValueError, match="validation error"):
        load(json.dumps(VALUE | change).encode())


def test_a_long_value_is_refused_before_it_is_read() -> None:
    """Whoever has written it."""
    with pytest.raises(ValueError, match=f"{MOST_BYTES + 1} bytes"):
        load(json.dumps(VALUE).encode().ljust(MOST_BYTES + 1))
