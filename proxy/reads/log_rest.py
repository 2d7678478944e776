"""Those who rest at one log, and what wakes them: news of the log, its end, or an answer that is late."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from kordon.codecs.error_codes import Code
from kordon.codecs.fetch_requests import FetchPartition
from kordon.proxy.reads.homes import StreamHome
from kordon.proxy.reads.logs import PartitionLog

HasNothingFor = Callable[[StreamHome, int], bool]
"""Whether nothing is left for the reader of a stream in its home, from a position on."""


class Resting(NamedTuple):
    """A partition that rests."""

    row: FetchPartition
    home: StreamHome

    @property
    def position(self) -> int:
        """The position of its reader in the log."""
        return self.row[2] - self.home.delta


class Stirred:
    """The rests of one reader that may be over.

    Attributes:
        wake: Called when a rest is added; None: nobody waits.
    """

    __slots__ = ("rests", "wake")

    def __init__(self) -> None:
        self.rests: list[LogRest] = []
        self.wake: Callable[[], None] | None = None

    def take(self) -> list[LogRest]:
        """Takes the rests out."""
        taken, self.rests = self.rests, []
        return taken

    def add(self, rest: LogRest) -> None:
        """Adds a rest."""
        self.rests.append(rest)
        if self.wake is not None:
            self.wake()


class LogRest:
    """The partitions of one topic for which nothing is left in one log, up to its high watermark.

    Args:
        key: The key of the topic.
        position: The position of the partition that rests here first.
        stirred: The reader's stirred rests, to which this rest is added when it may be over.
    """

    __slots__ = ("__weakref__", "_coming", "_end", "_stirred", "key", "least", "log", "resting")

    def __init__(self, key: str | UUID, log: PartitionLog, position: int, stirred: Stirred) -> None:
        self.key = key
        self.log = log
        self.least = position
        """No position is lower."""
        self.resting: dict[int, Resting] = {}
        """The resting partitions by number."""
        self._stirred = stirred
        self._end = log.high_watermark or 0
        """The end before which nothing is left for any of them. It never falls."""
        self._coming = self._wait()

    @property
    def is_behind(self) -> bool:
        """Whether a partition stands before the end, so that a filler is due when its answer is late."""
        return self.least < (self.log.high_watermark or 0)

    def wake(self, has_nothing_for: HasNothingFor, *, is_late: bool) -> tuple[list[int], int]:
        """Returns the partitions with something left or a filler due, and the end before which nothing is left."""
        mark, empty_until = self.log.high_watermark, self._end
        if mark is None or self._is_over():
            return [*self.resting], 0
        is_moved = mark != self._end
        if is_moved or self._coming.done():
            self._end, self._coming = mark, self._wait()
        awake: list[int] = []
        for partition, each in self.resting.items():
            is_due = is_late and each.position < mark
            if is_due or (is_moved and not has_nothing_for(each.home, each.position)):
                awake.append(partition)
        return awake, empty_until

    def _wait(self) -> asyncio.Task[int]:
        """Adds this rest to the stirred ones when something comes behind the end."""
        coming = self.log.coming(self.log.high_watermark or 0)
        itself = weakref.ref(self)  # what is read for others keeps nothing of a connection that is gone

        def come(_: object) -> None:
            rest = itself()
            if rest is not None and rest._coming is coming:
                rest._stirred.add(rest)

        coming.add_done_callback(come)
        return coming

    def _is_over(self) -> bool:
        """Whether nobody rests here any more, whatever the log has."""
        if self.log.is_closed:
            return True
        return self._coming.done() and (self._coming.cancelled() or self._coming.result() != Code.NONE)
