"""Long work takes turns with the rest of the event loop: where loops go over rows, it pauses every so many of them.

What reads, changes and writes messages is ordinary code. Where `runtime/turns.py` runs it, it stands in a greenlet of
its own, and `rows_done` passes control back to the event loop. Anywhere else `rows_done` does nothing.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Final

from greenlet import getcurrent, greenlet

ROWS_A_TURN: Final = 400
"""A row takes 3 to 10 microseconds, so a turn takes a few milliseconds."""
MOST_BYTES_AT_ONCE: Final = 8 * 1024
"""A message of more bytes may be long work: it may have 4,000 rows, and one of fewer is read and changed at once."""
ROWS_AT_ONCE: Final = 64
"""After so many rows a loop says that they are done: a power of two."""
LAST_AT_ONCE: Final = ROWS_AT_ONCE - 1
"""`index & LAST_AT_ONCE` is 0 for the first row, and for one in so many behind it."""


class LongWork(greenlet):
    """Work that is done in turns."""

    rows_left = ROWS_A_TURN
    """How many rows it may go over before its turn ends."""

    def pause(self) -> None:
        """Lets others have their turn."""
        self.rows_left = ROWS_A_TURN
        assert self.parent is not None
        self.parent.switch()


def rows_done(count: int) -> None:
    """Says that a loop goes over so many more rows; pauses if the turn is over.

    The first row of each array says so, too. So rows count that lie in short arrays.
    """
    work = getcurrent()
    if isinstance(work, LongWork):
        work.rows_left -= count
        if work.rows_left < 0:
            work.pause()


def let_go(value: MutableMapping[str, object]) -> None:
    """Frees a message that is needed no more, in turns: all its rows at once may take longer than a turn."""
    lists = [list(rows) for rows in value.values() if isinstance(rows, list)]
    value.clear()
    for rows in lists:
        while rows:
            rows.pop()
            rows_done(1)
