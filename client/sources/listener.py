"""The callbacks of an application whose source partitions come and go (KIP-509)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Collection, Mapping


class SourceRebalanceListener(ABC):
    """Is called when source partitions are given up and taken; give one to `SourceProducer.subscribe`.

    Both methods may be coroutines. One that fails is logged, and nothing waits for its repetition.
    """

    @abstractmethod
    def on_source_partitions_revoked(self, revoked: Collection[int]) -> Awaitable[None] | None:
        """Stop reading these partitions of the source.

        A transaction that is open may still be committed, here or by whoever has begun it, within `drain_timeout_ms`.
        What is open after that is aborted. Then another member may have the partitions.
        """

    @abstractmethod
    def on_source_partitions_assigned(self, points: Mapping[int, str | None]) -> Awaitable[None] | None:
        """Go on with these partitions of the source, each from its restart point.

        Args:
            points: The last committed restart point, by partition. None: no point was ever committed, so the source is
                read from its beginning. Empty: this member is a standby.

        No transaction begins before this returns, so do not wait for one here.
        """
