"""A request that has no response yet: what the two legs of a connection share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from kordon.codecs.apis import PRODUCE
from kordon.codecs.schema import Buffer
from kordon.proxy.core.rewrite import EDITS, Change
from kordon.proxy.core.verdicts import Route

_PARSED_FACTOR: Final = 10
"""Bytes of memory that a byte of a request takes once it is parsed: 30 to 40 bytes of a row are 300 to 500 then.
Produce requests are walked, and stay as they are."""
Body: TypeAlias = bytes | list[Buffer]
"""The body of a response of Kordon's own, in one piece or in several, which are not changed any more."""
Answer: TypeAlias = Body | Callable[[], Body]
"""A body, or what makes it: that may take long where it has many rows."""


class Waiting:
    """A request that was forwarded or answered here, and whose response has not left yet."""

    __slots__ = (
        "answer",
        "asks",
        "correlation_id",
        "edit",
        "handed",
        "kept_bytes",
        "promised",
        "route",
        "started",
        "told",
    )

    def __init__(
        self, route: Route, correlation_id: int, started: float, answer: Sequence[Buffer] | None = None
    ) -> None:
        self.route = route
        self.correlation_id = correlation_id
        self.started = started
        """When its first byte was seen."""
        self.handed = 0.0
        """When its last byte was handed to the broker's socket; 0 before."""
        self.answer = answer
        """The response frame, in pieces, where Kordon itself answers."""
        self.promised = False
        """Whether `answer` comes later."""
        self.asks = answer is None
        """Whether the broker will answer something of it."""
        self.edit: Change | None = EDITS.get((route.api.key, route.version))
        """What is changed in the broker's answer."""
        self.told: Callable[[Any], None] | None = None
        """Is given the broker's answer to a question of Kordon's own, which the client does not see."""
        self.kept_bytes = 0
        """Its size in bytes until it is answered, then the size of an answer that waits for its turn."""


class ConnectionMemory:
    """What one connection keeps in memory.

    That is what has come of requests and answers that are held until they are whole; requests that are read, until they
    are answered; and answers of Kordon's own that wait for those of earlier requests.
    """

    __slots__ = ("memory_bytes", "request_bytes")

    def __init__(self) -> None:
        self.request_bytes = 0
        """Bytes of requests that are read and not answered, as they came."""
        self.memory_bytes = 0
        """Bytes that all of it takes in memory."""

    def keep(self, waiting: Waiting, count: int) -> None:
        """Counts a request of so many bytes."""
        waiting.kept_bytes = count
        self.request_bytes += count
        self.memory_bytes += count if waiting.route.api.key == PRODUCE else count * _PARSED_FACTOR

    def release(self, waiting: Waiting) -> None:
        """Counts a request no more."""
        count, waiting.kept_bytes = waiting.kept_bytes, 0
        self.request_bytes -= count
        self.memory_bytes -= count if waiting.route.api.key == PRODUCE else count * _PARSED_FACTOR

    def keep_answer(self, waiting: Waiting) -> None:
        """Counts the answer to a request that is kept no more."""
        waiting.kept_bytes = sum(map(len, waiting.answer or ()))
        self.memory_bytes += waiting.kept_bytes

    def release_answer(self, waiting: Waiting) -> None:
        """Counts an answer no more."""
        self.memory_bytes -= waiting.kept_bytes
        waiting.kept_bytes = 0

    def forget(self) -> None:
        """Counts none of them any more."""
        self.request_bytes = self.memory_bytes = 0
