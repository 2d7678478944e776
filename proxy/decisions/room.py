"""Room on record: how much of what clients can ask for as often as they like is put on record, and what is left out."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kordon.codecs.decision import Decision

if TYPE_CHECKING:
    from kordon.proxy.decisions.journal import Journal

ROWS_AT_ONCE: Final = 20_000
"""The most rows that are put on record at once …"""
ROWS_A_SECOND: Final = 2_000
"""… and for long."""


class RecordRoom:
    """Puts decisions of many rows on record, as far as there is room.

    Args:
        journal: The journal in which the decisions are recorded.
        seconds: A clock that never goes back.
    """

    def __init__(self, journal: Journal, seconds: Callable[[], float] = time.monotonic) -> None:
        self._journal = journal
        self._seconds = seconds
        self._since = seconds()
        self._room: float = ROWS_AT_ONCE
        self._left_out = 0
        """Rows that were not put on record since the last that were."""

    def note(self, decision: Decision, rows: int) -> None:
        """Puts a decision on record, or counts its rows where there is no room; the next one has them as `left_out`."""
        now = self._seconds()
        self._room = min(ROWS_AT_ONCE, self._room + (now - self._since) * ROWS_A_SECOND)
        self._since = now
        if rows > self._room:
            self._left_out += rows
            return
        self._room -= rows
        if self._left_out:
            decision = replace(decision, evidence={**decision.evidence, "left_out": self._left_out})
            self._left_out = 0
        self._journal.note(decision)
