"""What stands in the log of share groups: each record reads as it was written, and nothing else is believed."""

import struct
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kordon.codecs.ranges import NONE, Ranges
from kordon.proxy.ordering.claim_records import dump as dump_claim
from kordon.proxy.ordering.claim_records import key_of, place_of
from kordon.proxy.ordering.claims import MOST_INCARNATION, Claim, Done, PlaceKey, Start
from kordon.proxy.ordering.share.lock_records import KIND, MOST_OFFSETS, dump, load
from kordon.proxy.ordering.share.locks import MOST_TURNS, Lock, LockOutcome


def lock_of(name: int, session: str, turn: int, tries: int, of: Ranges) -> Lock:
    """Returns one that was given no more often than it has turns."""
    return Lock(name, session, turn, min(turn, tries), of)


names = st.integers(1, MOST_INCARNATION)
turns = st.integers(1, MOST_TURNS)
offsets = st.lists(st.integers(0, 2**40), min_size=1, max_size=30).map(
    lambda every: Ranges((each, each + 1) for each in every)
)
locks = st.builds(lock_of, names, st.text("abcdef0123456789", min_size=1, max_size=64), turns, turns, offsets)
outcomes = st.builds(LockOutcome, names, st.integers(0, MOST_TURNS), offsets | st.just(NONE), offsets | st.just(NONE))
starts = st.builds(Start, names, st.integers(0, MOST_INCARNATION), st.builds(Done, st.integers(-1, 2**40)))


@given(said=locks | outcomes | starts)
def test_a_record_reads_as_it_was_written(said: Lock | LockOutcome | Start) -> None:
    """In one form."""
    assert load(dump(said)) == said


@given(said=locks | outcomes, cut=st.integers(0, 400), junk=st.binary(max_size=40), at=st.integers(0, 60))
def test_junk_is_no_record_or_a_sound_one(said: Lock | LockOutcome, cut: int, junk: bytes, at: int) -> None:
    """Whatever is cut off or put over it: nothing else comes of it than ValueError, or what can be written."""
    value = dump(said)[:cut]
    value = value[:at] + junk + value[at + len(junk) :]
    try:
        read = load(value)
    except ValueError:
        return
    assert read is None or load(dump(read)) == read


def _lock(incarnation: int = 1, turn: int = 1, tries: int = 1, size: int = 1, rest: bytes = b"") -> bytes:
    return struct.pack(">BBqIIB", 1, 4, incarnation, turn, tries, size) + rest


ONE = Ranges([(5, 6)]).dump()


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x01",
        _lock(incarnation=0, rest=b"s" + ONE),
        _lock(turn=2**31, rest=b"s" + ONE),
        _lock(tries=2, rest=b"s" + ONE),
        _lock(tries=0, rest=b"s" + ONE),
        _lock(size=0, rest=ONE),
        _lock(size=65, rest=b"s" * 65 + ONE),
        _lock(size=9, rest=b"s"),
        _lock(rest=b"\xff" + ONE),
        _lock(rest=b"s" + NONE.dump()),
        _lock(rest=b"s" + ONE + b"\x00"),
        _lock(rest=b"s" + Ranges([(0, MOST_OFFSETS + 1)]).dump()),
        struct.pack(">BBqII", 1, 3, 1, 1, 999) + ONE,
        dump(LockOutcome(1, 1, NONE, Ranges([(0, 1 << 61)]))),
        dump_claim(Claim(1, Done(5))),
        b"\x01\x04" + b"\x00" * 2_000_000,
    ],
)
def test_what_cannot_be_meant_is_not_read(value: bytes) -> None:
    """Of few bytes that say that 2^61 records are in hand nothing is built."""
    with pytest.raises(ValueError):  # noqa: PT011 - any
        load(value)


def test_a_lock_names_as_many_records_as_may_be_in_hand() -> None:
    """And what is done may be far more: a group passes all that was deleted at once."""
    most = Ranges([(0, MOST_OFFSETS)])
    assert load(dump(Lock(1, "s", 1, 1, most))) == Lock(1, "s", 1, 1, most)
    gone = LockOutcome(1, 0, Ranges([(0, 1 << 61)]), NONE)
    assert load(dump(gone)) == gone


@pytest.mark.parametrize("value", [b"\x02\x04x", b"\x01\x09x"])
def test_later_versions_and_kinds_are_passed_over(value: bytes) -> None:
    """They hold up nothing."""
    assert load(value) is None


def test_keys_of_other_kinds_are_passed_over() -> None:
    """Also those of claims, which stand in another topic."""
    place = PlaceKey("workers", UUID(int=7), 3)
    assert place_of(key_of(place, "w", 1, KIND), KIND) == place
    assert place_of(key_of(place, "w", 1), KIND) is None
