"""The demo's word count by Streams: what it calls wrong. The whole of it runs in `test_order_on_managed_topics.py`."""

import pytest

from kordon.testing.demo_exactly_once import wrong_counts

WRITTEN = {"one": 3, "two": 1}
RIGHT = {"one": [1, 2, 3], "two": [1]}


def test_each_count_once_and_in_order_is_right() -> None:
    """Whatever the order of words among each other, which is not in here."""
    assert wrong_counts(WRITTEN, RIGHT) == []


@pytest.mark.parametrize(
    ("word", "counts", "told"),
    [
        pytest.param("one", [1, 2], "one was written 3 times, and its counts are [1, 2]", id="lost"),
        pytest.param("one", [1, 2, 2, 3], "one was written 3 times, and its counts are [1, 2, 2, 3]", id="doubled"),
        pytest.param("one", [1, 2, 3, 4], "one was written 3 times, and its counts are [1, 2, 3, 4]", id="more"),
        pytest.param("one", [2, 1, 3], "one was written 3 times, and its counts are [2, 1, 3]", id="out of order"),
        pytest.param("two", [], "two was written 1 times, and its counts are []", id="not at all"),
        pytest.param("three", [1], "three was counted, and never written", id="never written"),
    ],
)
def test_anything_else_is_told(word: str, counts: list[int], told: str) -> None:
    assert wrong_counts(WRITTEN, RIGHT | {word: counts}) == [f"exactly once: {told}"]
