"""Pieces of physical logs as readers share them: batches by owner, in memory that is never copied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kordon.proxy.kafka.opening import Reason
from kordon.proxy.ordering.transactions.events import Batch
from kordon.proxy.ordering.transactions.open_batches import Seen


class ServedBatch(NamedTuple):
    """A batch of a virtual partition, as clients get it."""

    base_offset: int
    """In the physical partition, like `next_offset`."""
    next_offset: int
    data: memoryview
    records: int = 0
    """That are a consumer's: none of a control batch."""
    txn: Batch | None = None
    """As a batch of a transaction, whose outcome decides who gets it; None: it is of none."""


class PassedRange(NamedTuple):
    """Offsets [start, end) of the physical partition that nobody gets, because their batch cannot be opened."""

    start: int
    end: int
    reason: Reason


@dataclass(slots=True, eq=False)
class LogSegmentView:
    """A stretch of a physical partition's log, split by owner."""

    start: int
    end: int
    """Offsets [start, end): all batches in between are here."""
    entries: dict[int, list[ServedBatch]]
    """The batches by virtual partition."""
    leader_epoch: int
    """The physical leader epoch of the last batch."""
    size_bytes: int
    forget: Callable[[LogSegmentView], None]
    """Called when the cache lets it go."""
    seen: Sequence[Seen] = ()
    """What concerns transactions, in its order."""
    unsent: set[int] = field(init=False)
    """Virtual partitions whose last batch here has not been sent to anybody."""
    touched: float = 0.0
    """The time when a reader last used it, in seconds of the monotonic clock."""

    def __post_init__(self) -> None:
        self.unsent = set(self.entries)

    @property
    def last(self) -> dict[int, int]:
        """The end of the last batch of each virtual partition."""
        return {v: entries[-1].next_offset for v, entries in self.entries.items()}
