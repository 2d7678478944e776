"""The last stable offset of one virtual partition: its first undecided batch (STABLE-END).

The last stable offset of the physical log would hold a reader for the transactions of all neighbours. All offsets here
are those of the physical log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from kordon.proxy.ordering.transactions.events import Batch
from kordon.proxy.ordering.transactions.outcome import Outcome

Decide = Callable[[Batch], Outcome]


class StableOffset:
    """Kept for each virtual partition whose transactional batches are read."""

    def __init__(self) -> None:
        self._open: deque[Batch] = deque()
        """In their order; what lies before the first undecided one is dropped."""
        self._told = -1

    @property
    def told(self) -> int:
        """The highest that was told; -1: none."""
        return self._told

    @property
    def first(self) -> Batch | None:
        """The first batch that is not known to be decided, once `first_undecided` has looked; None: there is none."""
        return self._open[0] if self._open else None

    def __len__(self) -> int:
        return len(self._open)

    def take(self, batch: Batch) -> None:
        """Takes in the next transactional batch of the virtual partition."""
        self._open.append(batch)

    def first_undecided(self, decide: Decide) -> int | None:
        """Returns the offset that read_committed readers may not pass; None: nothing that was read is undecided."""
        while self._open and decide(self._open[0]) is not Outcome.UNDECIDED:
            self._open.popleft()
        return self._open[0].offset if self._open else None

    def tell(self, decide: Decide, read_to: int, high_watermark: int) -> int | None:
        """Returns the last stable offset for Fetch and ListOffsets, which tell the same one.

        Args:
            decide: Returns a batch's outcome.
            read_to: Up to where the log has been read.
            high_watermark: The log's, asked for now.

        Returns:
            Never less than before; None: the log has to be read up to the high watermark first.
        """
        if not is_read(read_to, high_watermark):
            return None
        first = self.first_undecided(decide)
        self._told = max(self._told, high_watermark if first is None else first)
        return self._told

    def trim_back(self, end: int) -> None:
        """Drops what an election took: batches at an offset and behind it, and what was told beyond it."""
        while self._open and self._open[-1].offset >= end:
            self._open.pop()
        self._told = min(self._told, end)


def is_read(read_to: int, high_watermark: int) -> bool:
    """Whether enough of a log has been read to tell its stable end: an unread batch may be the first undecided one."""
    return read_to >= high_watermark
