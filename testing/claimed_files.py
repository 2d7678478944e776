"""Tests that several processes of pytest share: each file of tests is run by the process that is first to claim it.

What the tests of a lane share, such as brokers, ends with the lane: it would take a part of the processor until the end
of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, pairwise
from pathlib import Path

import pytest


class Claims:
    """Runs the tests of a process's claims alone, in their order.

    A file is claimed when the last test before it is about to begin, so that whoever is slow claims less.

    Args:
        folder: Where the processes mark what they have claimed; empty at the beginning.
        lane_of: Names the lane of a test; the tests of a file that go in several are claimed apart.
    """

    def __init__(self, folder: Path, lane_of: Callable[[pytest.Item], str]) -> None:
        self._folder = folder
        self._lane_of = lane_of
        self._mine: set[str] = set()

    def run(self, session: pytest.Session) -> bool:
        """Runs what this process claims; returns True, and raises what tells pytest that it is not to go on."""
        for item, following in pairwise(chain(self._claimed(session), [None])):
            assert item is not None
            is_last = following is None or self._lane_of(following) != self._lane_of(item)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None if is_last else following)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
        return True

    def _claimed(self, session: pytest.Session) -> Iterator[pytest.Item]:
        """The tests of this process; the following one is looked for while its predecessor has not begun."""
        return (item for item in session.items if self._claim(item))

    def _claim(self, item: pytest.Item) -> bool:
        name = f"{self._lane_of(item)}-{item.path}".replace("/", "+")
        if name not in self._mine:
            try:
                (self._folder / name).touch(exist_ok=False)
            except FileExistsError:
                return False
            self._mine.add(name)
        return True
