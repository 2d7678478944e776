"""Records of claims are read as they were written, and nothing else is."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kordon.codecs.ranges import Ranges
from kordon.proxy.ordering.claim_records import MOST_VALUE_BYTES, dump, key_of, load, place_of
from kordon.proxy.ordering.claims import MOST_ENDED, MOST_INCARNATION, NO_OFFSET, Claim, Done, PlaceKey, Said, Start

PLACE = PlaceKey("orders/readers", UUID("2f0c1e52-0000-4000-8000-00000000000a"), 7)
NAMES = st.integers(1, MOST_INCARNATION)
DONE = st.builds(
    lambda stable, ranges: Done(stable, Ranges((stable + 1 + begin, stable + 2 + end) for begin, end in ranges)),
    st.integers(NO_OFFSET, 1 << 40),
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=10),
)
ENDED = st.lists(NAMES, max_size=MOST_ENDED).map(tuple)
RECORDS = st.builds(Claim, NAMES, DONE) | st.builds(Start, NAMES, st.integers(0, MOST_INCARNATION), DONE, ENDED)
START = Start(5, 3, Done(41, Ranges([(43, 46), (48, 50)])), (2,))


def test_a_record_looks_as_the_module_says() -> None:
    """Older and newer proxies read it, too."""
    assert key_of(PLACE, "9d41", 12) == 'claims/["orders/readers", "2f0c1e52-0000-4000-8000-00000000000a", 7]/9d41-12'
    numbers = bytes(7) + b"\x05" + bytes(7) + b"\x03" + bytes(7) + b"\x29"
    assert dump(START) == b"\x01\x01" + numbers + b"\x01" + bytes(7) + b"\x02" + b"\x02\x2b\x03\x02\x02"
    assert dump(Claim(5, Done(NO_OFFSET))) == b"\x01\x02" + bytes(7) + b"\x05" + b"\xff" * 8 + b"\0"


@given(RECORDS)
def test_what_was_written_is_read(said: Said) -> None:
    """All of it."""
    assert load(dump(said)) == said


@given(st.text(max_size=40), st.uuids(), st.integers(0, (1 << 31) - 1))
def test_a_key_names_its_place(group_id: str, topic_id: UUID, partition: int) -> None:
    """Whatever the group is called."""
    place = PlaceKey(group_id, topic_id, partition)
    assert place_of(key_of(place, "w", 1)) == place


@pytest.mark.parametrize(
    "key",
    [
        "claims/",
        "claims/[]",
        'claims/["g", "no uuid", 1]/w-1',
        f'claims/["g", "{PLACE.topic_id}", -1]/w-1',
        f'claims/["g", "{PLACE.topic_id}", 1]/',
        f'claims/["g", "{PLACE.topic_id}", 1]',
        "claims/" + "x" * 50_000,
        "claims/" + "[" * 30_000,
    ],
)
def test_what_is_no_key_is_refused(key: str) -> None:
    """Somebody else has written it."""
    with pytest.raises(ValueError, match=r"."):
        place_of(key)


def test_keys_of_another_kind_are_passed_over() -> None:
    """A later version of Kordon has written them."""
    assert place_of("offers/1") is None


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "too few"),
        (b"\x01\x01" + bytes(23), "too few"),
        (b"\x01\x02" + bytes(15), "too few"),
        (b"\x01\x02" + bytes(17), "no incarnation"),
        (b"\x01\x02" + b"\xff" * 8 + bytes(9), "no incarnation"),
        (b"\x01\x02" + bytes(7) + b"\x05" + b"\x80" + bytes(8), "no offset"),
        (b"\x01\x02" + bytes(7) + b"\x05" + bytes(7) + b"\x29" + b"\x01\x29\x01", "not behind its stable offset"),
        (b"\x01\x02" + bytes(7) + b"\x05" + bytes(8), "does not end"),
        (b"\x01\x01" + dump(START)[2:26], "too few"),
        (dump(START)[:26] + b"\x02" + dump(START)[27:35], "too few for 2 earlier"),
        (dump(START)[:26] + b"\x09" + bytes(80), "9 earlier"),
        (dump(START)[:26] + b"\x01" + bytes(9), "no incarnation among"),
        (bytes(MOST_VALUE_BYTES + 1), "at most"),
    ],
)
def test_what_is_no_record_is_refused(value: bytes, why: str) -> None:
    """With the reason."""
    with pytest.raises(ValueError, match=why):
        load(value)


@given(st.binary(max_size=80))
def test_bytes_are_a_record_or_refused(value: bytes) -> None:
    """And what is read of this version would be written so again."""
    try:
        said = load(value)
    except ValueError:
        return
    assert said is None or dump(said) == value


def test_later_versions_and_kinds_are_passed_over() -> None:
    """They do not harm what this version knows."""
    assert load(b"\x02\x01" + bytes(24)) is None
    assert load(b"\x01\x09" + bytes(24)) is None
