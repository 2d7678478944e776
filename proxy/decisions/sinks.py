"""Where records of decisions go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kordon.proxy.core.errors import KordonError


class SinkFailed(KordonError):  # noqa: N818 - a state of the world, named as operators say it
    """Raised when records could not be written now; they may be later."""


class RecordTooLarge(SinkFailed):
    """Raised when one record, alone, will never be taken."""


class Sink(Protocol):
    """Takes records, in order, each at least once."""

    async def write(self, values: Sequence[bytes]) -> None:
        """Writes records; when it returns, they are safe.

        Raises:
            SinkFailed: Kordon does not know that all records are safe.
        """
        ...

    async def close(self) -> None:
        """Lets go of what it holds."""
        ...
