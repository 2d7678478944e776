"""Which views a worker keeps for other readers."""

from __future__ import annotations

import time
from collections import OrderedDict
from itertools import chain
from typing import Final

from kordon.proxy.reads.read_tally import ReadTally
from kordon.proxy.reads.segment_views import LogSegmentView

LINGER_SECONDS: Final = 1.0
"""How long a view stays when all of it has been sent: other groups are seldom further apart."""


class ViewCache:
    """The views of one worker, within a bound: what is sent goes first, then what nobody has looked at for longest.

    Args:
        bound_bytes: The most bytes that the cache holds.
    """

    def __init__(self, bound_bytes: int, tally: ReadTally) -> None:
        self._bound_bytes = bound_bytes
        self._tally = tally
        self._sent: OrderedDict[LogSegmentView, None] = OrderedDict()
        """Sent to all; those that were looked at longest ago are in front. Readers come back to the end of what they
        got last: it must outlive what was sent before."""
        self._unsent: OrderedDict[LogSegmentView, None] = OrderedDict()

    @property
    def is_full(self) -> bool:
        """Whether reading ahead would drive out what is still to be read."""
        return self._tally.cached_bytes > self._bound_bytes // 2

    def add(self, view: LogSegmentView) -> None:
        """Takes a view in, and lets others go for it; a view alone is never too large."""
        self.touch(view, is_new=True)
        self._tally.cached_bytes += view.size_bytes
        while self._tally.cached_bytes > self._bound_bytes:
            first = next((each for each in chain(self._sent, self._unsent) if each is not view), None)
            if first is None:
                return
            self.drop(first)

    def prune(self) -> None:
        """Drops views that a moment ago had been sent to all readers."""
        until = time.monotonic() - LINGER_SECONDS
        while self._sent and (first := next(iter(self._sent))).touched < until:
            self.drop(first)

    def touch(self, view: LogSegmentView, *, is_new: bool = False) -> None:
        """Notes that a reader uses a view."""
        view.touched = time.monotonic()
        if self._take_out(view) or is_new:
            (self._unsent if view.unsent else self._sent)[view] = None

    def drop(self, view: LogSegmentView) -> None:
        """Lets a view go."""
        if self._take_out(view):
            self._tally.cached_bytes -= view.size_bytes
            view.forget(view)

    def _take_out(self, view: LogSegmentView) -> bool:
        for views in (self._sent, self._unsent):
            if view in views:
                del views[view]
                return True
        return False
