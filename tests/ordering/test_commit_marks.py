"""Marks tell Kordon's own commits from all others, and leave the client's own text as it was."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kordon.proxy.ordering.claims import MOST_INCARNATION, PlaceKey
from kordon.proxy.ordering.commit_marks import MARK_CHARS, marked, read_mark, without_mark

PLACE = PlaceKey("orders-readers", UUID(int=10), 7)
MARK = marked("", PLACE, 41, 5)
NAMES = st.integers(1, MOST_INCARNATION)
OFFSETS = st.integers(-1, 1 << 62)


def test_a_mark_looks_as_the_module_says() -> None:
    """Proxies of other versions read it, too; a group's own text has 20 bytes less."""
    assert MARK == "kc1:AAAAAAAAAAVHJybL"
    assert len(MARK.encode()) == MARK_CHARS


@given(st.text(max_size=30), OFFSETS, NAMES)
def test_what_was_marked_is_known_again(text: str, offset: int, incarnation: int) -> None:
    """And the client's own text comes back, also if it looks like a mark itself."""
    assert read_mark(marked(text, PLACE, offset, incarnation), PLACE, offset) == (text, incarnation)
    twice = marked(marked(text, PLACE, offset, incarnation), PLACE, offset, 1)
    assert read_mark(twice, PLACE, offset) == (marked(text, PLACE, offset, incarnation), 1)


@pytest.mark.parametrize(
    ("place", "offset"),
    [
        (PLACE, 40),
        (PLACE, -1),
        (PLACE._replace(partition=8), 41),
        (PLACE._replace(group_id="orders-reader"), 41),
        (PLACE._replace(topic_id=UUID(int=11)), 41),
    ],
)
def test_a_mark_counts_for_its_own_commit_only(place: PlaceKey, offset: int) -> None:
    """A tool has moved the offset, or copied the group; the text is the client's all the same."""
    assert read_mark("own" + MARK, place, offset) == ("own", None)


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        "",
        "kc1:",
        "own text",
        "kr1:AAAAAAAAAAVHJybL",
        MARK[:-1],
        MARK + " ",
        "kc1:AAAAAAAAAAVHJyb=",
        "kc1:AAAAAAAAAAV*JybL",
        "kc1:AAAAAAAAAAVHJyé1",
        "x" * 5000,
    ],
)
def test_other_text_is_no_mark(metadata: str | None) -> None:
    """It is the client's own, and is shown as it is."""
    assert read_mark(metadata, PLACE, 41) == (metadata or "", None)


@pytest.mark.parametrize("incarnation", [0, -1, MOST_INCARNATION + 1])
def test_a_mark_of_no_incarnation_does_not_count(incarnation: int) -> None:
    """Whoever may commit can write any."""
    assert read_mark(marked("", PLACE, 41, incarnation), PLACE, 41) == ("", None)


@given(st.text(max_size=40), OFFSETS)
def test_any_text_is_read(metadata: str, offset: int) -> None:
    """Nothing that clients commit is an error."""
    read = read_mark(metadata, PLACE, offset)
    assert metadata.startswith(read.text)


@pytest.mark.parametrize("text", [None, "", "mine", "kc1:", "x" * 5000])
def test_clients_that_know_nothing_of_marks_see_their_own_text(text: str | None) -> None:
    """With a mark behind it, and without."""
    assert without_mark(text) == text
    assert without_mark(marked(text, PLACE, 41, 5)) == (text or "")
