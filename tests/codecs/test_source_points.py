"""Restart points as the metadata of commits: what is written is read, and whatever else is there is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kordon.codecs.source_points import POINT_BYTES, Point, UnreadPoint, build, check_text, parse

OWNER = "0123456789abcdef0123456789abcdef"
BROKERS_TAKE = 4096
"""Characters of metadata (offset.metadata.max.bytes)."""


@pytest.mark.parametrize(
    "point",
    [
        Point(),
        Point(owner=OWNER),
        Point(1, "", OWNER, 1),
        Point(17, "12:34:00", "", 1_795_765_980_000),
        Point(17, "a;b;;c\n\0é", OWNER, 1_795_765_980_000),
        Point(2**62, "x" * POINT_BYTES, OWNER, 2**42),
    ],
)
def test_what_is_written_is_read(point: Point) -> None:
    """Whatever the application calls its point; and brokers take it."""
    assert parse(build(point)) == point
    assert len(build(point)) <= BROKERS_TAKE


@given(st.text(), st.integers(1, 2**62))
def test_any_text_is_a_point(text: str, number: int) -> None:
    """Also one that looks like metadata."""
    assert parse(build(Point(number, text, OWNER, number))).text == text


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        ("", "has no restart point"),
        (None, "has no restart point"),
        ("leader epoch 7", "is no restart point"),
        ("1;17;12:34", "is no restart point"),
        ("ks2;1;1;;x", "is no version that is known here"),
        ("ks1", "is cut short"),
        ("ks1;1;1;", "is cut short"),
        ("ks1;-1;1;;x", "is damaged"),
        ("ks1;+1;1;;x", "is damaged"),
        ("ks1;01;1;;x", "is damaged"),
        ("ks1;\u0661;1;;x", "is damaged"),
        ("ks1;99999999999999999999;1;;x", "is damaged"),
        ("ks1;9999999999999999999;1;;x", "is damaged"),
        (f"ks1;{2**62 + 1};1;;x", "is damaged"),
        ("ks1;1;now;;x", "is damaged"),
        ("ks1;1;1;another.group;x", "is damaged"),
        ("ks1;1;1;" + OWNER.upper() + ";x", "is damaged"),
        ("ks1;0;1;" + OWNER + ";x" * 40_000, "are more than"),
        ("\x1b[2Kforged", "is no restart point"),
    ],
)
def test_whatever_else_is_there_is_no_point(metadata: str | None, why: str) -> None:
    """A stock consumer's commit, a tool's, a later version, junk; what is shown of it no terminal obeys."""
    with pytest.raises(UnreadPoint, match=why) as error:
        parse(metadata)
    assert "\x1b" not in str(error.value)
    assert len(str(error.value)) < 300


@given(st.text(max_size=200).map(lambda text: "ks1;" + text))
def test_junk_is_read_or_refused(metadata: str) -> None:
    """Nothing else is raised, and what is read could have been written."""
    try:
        point = parse(metadata)
    except UnreadPoint:
        return
    assert parse(build(point)) == point


def test_a_point_has_its_limits() -> None:
    """They are told before anything is sent, with what to do."""
    assert check_text("é" * (POINT_BYTES // 2))
    with pytest.raises(ValueError, match=r"at most 4,000 bytes, and this one has 4,002: keep what is longer"):
        check_text("é" * (POINT_BYTES // 2 + 1))
    with pytest.raises(TypeError, match=r"is a str, not int: turn it into text"):
        check_text(17)
    with pytest.raises(ValueError, match="lone surrogate"):
        check_text("\ud800")
