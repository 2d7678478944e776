"""What something costs, in calls: a count that no other work on the machine changes."""

from __future__ import annotations

import sys
from collections.abc import Callable


def calls_of(what: Callable[[], object]) -> int:
    """Counts the calls, of Python's functions and of those in C, that something takes."""
    calls = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        what()
    finally:
        sys.setprofile(None)
    return calls
