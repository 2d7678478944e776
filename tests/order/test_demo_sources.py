"""The demo's copied files: what it calls wrong. The whole of it runs in `test_order_on_managed_topics.py`."""

from collections import Counter

import pytest

from kordon.testing.demo_sources import digest, wrong_lines

WRITTEN = Counter([b"0:0", b"0:1", b"1:0"])


def test_each_line_once_is_right() -> None:
    """Whatever their order."""
    assert wrong_lines(WRITTEN, Counter([b"1:0", b"0:1", b"0:0"])) == []
    assert digest(WRITTEN) == digest(Counter([b"1:0", b"0:1", b"0:0"]))


@pytest.mark.parametrize(
    ("copied", "told"),
    [
        pytest.param([b"0:0", b"1:0"], "1 lines were lost, such as b'0:1'", id="lost"),
        pytest.param([b"0:0", b"0:1", b"0:1", b"1:0"], "1 lines were doubled, such as b'0:1'", id="doubled"),
        pytest.param([b"0:0", b"0:1", b"1:0", b"x"], "1 lines were doubled, such as b'x'", id="never written"),
    ],
)
def test_anything_else_is_told(copied: list[bytes], told: str) -> None:
    assert wrong_lines(WRITTEN, Counter(copied)) == [f"files: {told}"]
    assert digest(WRITTEN) != digest(Counter(copied))
