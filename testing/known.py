"""What a test knows to be there."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def known(found: T | None) -> T:
    """Returns what was found; the test fails where there is nothing."""
    assert found is not None
    return found
