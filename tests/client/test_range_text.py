"""Finished ranges in the metadata of commits: what is written is read, and nothing else is believed."""

from __future__ import annotations

import random
from base64 import urlsafe_b64encode
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kordon.client.cooperative import range_text
from kordon.client.cooperative.range_text import RangesOwner, UnreadRanges, build, parse
from kordon.codecs.ranges import MOST_STORED, NONE, Ranges

# pyright: reportPrivateUsage=false

OWNER = RangesOwner("group", "topic", 3, UUID(int=7))
RANGES = st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), max_size=40).map(Ranges)


@given(st.integers(0, 2**61), RANGES, st.integers(0, 300))
def test_what_fits_is_read_as_it_was_written(stable: int, ranges: Ranges, most_bytes: int) -> None:
    """The lowest offsets have room first, so no record counts as finished before an earlier one of its key."""
    moved = Ranges((stable + begin, stable + end) for begin, end in ranges)
    text, told = build(OWNER, stable, moved, most_bytes)
    assert len(text) <= most_bytes
    assert parse(OWNER, stable, text) == told == moved.below(told.end)


@pytest.mark.parametrize("density", [0.01, 0.3, 0.5, 0.99])
def test_twenty_four_thousand_offsets_always_fit(density: float) -> None:
    """However they are finished: one bit for each is enough."""
    chance = random.Random(1)
    ranges = Ranges((offset, offset + 1) for offset in range(101, 24_100) if chance.random() < density)
    text, told = build(OWNER, 100, ranges)
    assert told == ranges
    assert parse(OWNER, 100, text) == ranges


def test_a_few_ranges_far_away_are_short() -> None:
    """They are written as distances and lengths, not as bits."""
    far = Ranges([(10**12, 10**12 + 10**9)])
    text, told = build(OWNER, 5, far)
    assert len(text) < 64
    assert parse(OWNER, 5, text) == told == far


def test_nothing_is_written_of_nothing() -> None:
    """An ordinary commit has no metadata, and neither has one without gaps."""
    assert build(OWNER, 5, NONE) == ("", NONE)
    assert parse(OWNER, 5, "") == NONE


@pytest.mark.parametrize(
    ("owner", "committed", "why"),
    [
        (replace(OWNER, group_id="other"), 5, "another group"),
        (replace(OWNER, topic="other"), 5, "another group"),
        (replace(OWNER, partition=4), 5, "another group"),
        (replace(OWNER, topic_id=UUID(int=8)), 5, "a topic with the id"),
        (OWNER, 4, "committed with offset 5"),
        (OWNER, 6, "committed with offset 5"),
    ],
)
def test_ranges_of_others_are_not_believed(owner: RangesOwner, committed: int, why: str) -> None:
    """Not of another group or partition, nor of a topic that was made again, nor with a reset or translated offset."""
    text, _ = build(OWNER, 5, Ranges([(7, 9)]))
    with pytest.raises(UnreadRanges, match=why):
        parse(owner, committed, text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("NTpib29r", "not of a CooperativeConsumer"),
        ("some text: of a tool", "not of a CooperativeConsumer"),
        ("kr:AAAA", "not of a CooperativeConsumer"),
        ("kr2:AAAA", "another version"),
        ("kr1:", "damaged"),
        ("kr1:A", "damaged"),
        ("kr1:\N{SNOWMAN}", "damaged"),
        ("kr1:" + "A" * 30_000, "damaged"),
        ("kr1:" + "A" * 70_000, "at most 65536 are read"),
        ("\ud800" * 10, "not of a CooperativeConsumer"),
    ],
)
def test_what_others_write_is_not_believed(text: str, why: str) -> None:
    """Other tools, later versions, junk."""
    with pytest.raises(UnreadRanges, match=why):
        parse(OWNER, 5, text)


def test_a_damaged_text_is_not_believed() -> None:
    """Cut anywhere, or with another character anywhere."""
    text, _ = build(OWNER, 5, Ranges([(7, 9), (100, 250)]))
    spoilt = [text[:end] for end in range(1, len(text))]
    spoilt += [text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :] for at in range(len(text))]
    believed = []
    for each in spoilt:
        try:
            believed.append(parse(OWNER, 5, each))
        except UnreadRanges:
            continue
    # the last character may have bits that say nothing
    assert all(ranges == Ranges([(7, 9), (100, 250)]) for ranges in believed)


def forged(stable: int, kind: int, data: bytes) -> str:
    """A text with a right checksum and the content of somebody who means harm."""
    body = range_text._HEAD.pack(OWNER.topic_id.bytes, stable, kind) + data
    return "kr1:" + urlsafe_b64encode(range_text._CRC.pack(range_text._crc(OWNER, body)) + body).decode()


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (0, bytes((1, 5, 5))),  # begins at the committed offset
        (0, bytes((1, 7, 0))),  # an empty one
        (0, bytes((2, 7, 2, 0, 2))),  # two that touch
        (0, bytes((1, 7))),  # half a range
        (0, b"\xff" * 9),  # a number without an end
        (0, b"\x01\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x01"),  # beyond all offsets
        (0, b"\xff\xff\x7f" + bytes((1, 1)) * (MOST_STORED + 1)),
        (1, b"\x01"),  # the committed offset itself
        (2, b""),
    ],
)
def test_forged_content_is_not_believed(kind: int, data: bytes) -> None:
    """Though its checksum is right."""
    with pytest.raises(UnreadRanges):
        parse(OWNER, 5, forged(5, kind, data))


@given(st.integers(0, 2), st.binary(max_size=60))
def test_whatever_is_believed_is_in_order_above_the_offset(kind: int, data: bytes) -> None:
    """No content of a text makes anything else of it."""
    try:
        ranges = parse(OWNER, 5, forged(5, kind, data))
    except UnreadRanges:
        return
    assert ranges == Ranges([*ranges])
    assert all(begin > 5 for begin, _ in ranges)
