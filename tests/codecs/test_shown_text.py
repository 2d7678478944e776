"""Text of others is shown so that nothing in it is obeyed."""

import json
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kordon.codecs.shown_text import MOST_ENTRIES, shown, shown_facts

OBEYED = ("Cc", "Zl", "Zp", "Cs")
"""Categories of characters that end lines, command terminals, or cannot be written."""


@given(st.text(st.characters(exclude_categories=()), max_size=80))
def test_nothing_that_is_obeyed_is_left(text: str) -> None:
    """Whatever a client calls itself, what is shown has no control character, line end or direction mark."""
    told = shown(text)
    assert [each for each in told if unicodedata.category(each) in OBEYED] == []
    assert not set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c") & set(told)
    assert shown(told) == told


@given(st.recursive(st.text() | st.integers(), lambda each: st.lists(each) | st.dictionaries(st.text(), each)))
def test_escaped_json_says_the_same(value: Any) -> None:
    """The escapes are JSON's own, so a line of JSON can be shown and still be read by a program."""
    assert json.loads(shown(json.dumps(value, ensure_ascii=False))) == value


def test_words_of_people_stay_as_they_are() -> None:
    """Names in any script are left alone."""
    assert shown("commandes-été, 注文, заказы") == "commandes-été, 注文, заказы"


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("x" * 300, "x" * 256 + "… (44 more characters)"),
        (["a\n"] * 40, ["a\\u000a"] * MOST_ENTRIES + ["8 more"]),
        ({"\x1b": {"in": ("\x9b",)}}, {"\\u001b": {"in": ["\\u009b"]}}),
        (7, 7),
    ],
)
def test_facts_are_cut_and_escaped_at_every_depth(value: Any, told: Any) -> None:
    """A list of a thousand names, or a name of a megabyte, is a short fact."""
    assert shown_facts(value, 256) == told


def test_nothing_is_cut_where_all_is_wanted() -> None:
    """A page that somebody asked for shows all there is, escaped."""
    assert shown_facts(["\x07" * 300] * 40) == ["\\u0007" * 300] * 40
