"""What serves clients, as a layout member sees it: what writes and reads for them, and what passes their requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol


class ServedWrites(Protocol):
    """The part that writes to managed topics on behalf of clients."""

    async def drain(self, topic: str, partitions: frozenset[int]) -> Mapping[int, int]:
        """Returns when nothing sent to these partitions is unanswered: up to where was written meanwhile."""
        ...

    async def expect(self, topic: str, partitions: frozenset[int]) -> None:
        """Gets ready to write to these partitions soon, as far as it can."""
        ...

    def lease_renewed(self) -> None:
        """Notes that a lease that had ended lives again, and that the layouts were read since (LATE-ANSWER)."""
        ...


class ServedReads(Protocol):
    """The part that reads managed topics on behalf of clients."""

    async def ready(self, topic: str) -> None:
        """Gets ready to freeze soon, as far as it can."""
        ...

    async def freeze(self, topic: str, partitions: frozenset[int]) -> Mapping[int, int]:
        """Shows nothing more of sealed partitions, and returns high watermarks, for `Fence.frozen` (FROZEN-READS)."""
        ...

    def told(self, topic: str, partitions: frozenset[int]) -> Mapping[int, int]:
        """Returns up to which offsets readers may have been told of partitions (BEYOND-LOSS)."""
        ...

    def invalidate(self, topic: str) -> None:
        """Notes that another layout is in force."""
        ...

    async def nothing_between(self, topic: str, v: int, offset: int, until: int) -> bool:
        """Whether no record of a virtual partition stands in [offset, until), as far as can be known in a moment."""
        ...


class PassedRequests(Protocol):
    """The part that passes clients' requests to brokers."""

    async def settle(self) -> None:
        """Returns when what clients have written or asked to read before is answered; sessions end (TAKEOVER-WAITS)."""
        ...

    async def renew_views(self, topic: str) -> None:
        """Has clients see again how many partitions a topic has; returns when they have had time to."""
        ...


class NothingPassed:
    """Passes nothing, where there are no clients."""

    async def settle(self) -> None:
        """Returns at once."""

    async def renew_views(self, topic: str) -> None:
        """Returns at once."""


class ServedParts(NamedTuple):
    """The parts that serve the clients of one worker."""

    writes: ServedWrites
    reads: ServedReads
    passed: Callable[[], PassedRequests] = NothingPassed
    """Returns what passes clients' requests; they are there once the worker has started."""
