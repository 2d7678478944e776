"""The names in a Metadata request are read where they lie, as the table reads them."""

from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kordon.codecs.errors import TooManyRows
from kordon.codecs.messages.metadata import REQUEST
from kordon.codecs.metadata_requests import look_names
from kordon.codecs.primitives import RowBudget
from kordon.testing.messages.values import Values

VERSIONS = st.integers(0, 13)


@given(VERSIONS, st.lists(st.text(max_size=200), max_size=4))
def test_what_clients_send_is_found(version: int, names: list[str]) -> None:
    """Every version, with any names; librdkafka sends more behind it, and a request that is cut short is not read."""
    body = REQUEST.build(version, {"topics": [{"name": each} for each in names]})
    asks_all = version == 0 and not names
    assert look_names(version, body + b"\xaa") == (None if asks_all else names)
    assert all(look_names(version, body[:end]) is None for end in range(len(body)))


@given(VERSIONS, st.randoms(use_true_random=False))
def test_what_is_found_is_what_the_table_finds(version: int, random: Random) -> None:
    """Of any message: either nothing, or the same."""
    body = REQUEST.build(version, Values(random).message(REQUEST, version))
    found = look_names(version, body)
    value = REQUEST.parse(version, body)
    assert found is None or found == [row.name for row in value.topics or ()]


@given(VERSIONS, st.binary(max_size=120))
def test_noise_raises_nothing(version: int, noise: bytes) -> None:
    """Whatever is sent, it is names or nothing."""
    found = look_names(version, noise)
    assert found is None or len(found) <= len(noise)


@pytest.mark.parametrize("version", [10, 12, 13])
def test_ids_are_left_to_the_table(version: int) -> None:
    """A topic that is asked for by its id has no name here."""
    asked = [{"name": "orders"}, {"name": None if version >= 12 else "", "topic_id": UUID(int=7)}]
    assert look_names(version, REQUEST.build(version, {"topics": asked})) is None
    assert look_names(version, REQUEST.build(version, {"topics": asked[:1]})) == ["orders"]


@pytest.mark.parametrize("version", [1, 9, 13])
def test_all_topics_are_no_names(version: int) -> None:
    """Null asks for all of them, an empty list for none."""
    assert look_names(version, REQUEST.build(version, {"topics": None})) is None
    assert look_names(version, REQUEST.build(version, {"topics": []})) == []


@pytest.mark.parametrize("version", [8, 13])
def test_rows_have_a_bound(version: int) -> None:
    """As for the table."""
    body = REQUEST.build(version, {"topics": [{"name": "a"}] * 3})
    assert look_names(version, body, RowBudget(3)) == ["a"] * 3
    with pytest.raises(TooManyRows):
        look_names(version, body, RowBudget(2))
