"""A request that has no response yet: what the two legs of a connection share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from kordon.codecs.schema import Buffer
from kordon.proxy.apis import Route
from kordon.proxy.rewrite import EDITS, Change

Body: TypeAlias = bytes | list[Buffer]
"""The body of a response of Kordon's own, in one piece or in several, which are not changed any more."""


class Waiting:
    """A request that was forwarded or answered here, and whose response has not left yet."""

    __slots__ = ("answer", "asks", "correlation_id", "edit", "handed", "kept", "promised", "route", "started", "told")

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
        self.kept = 0
        """Bytes that are kept of it until it is answered."""


class Kept:
    """Bytes of requests that one connection keeps until they are answered: they are read, and to be served."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0

    def keep(self, waiting: Waiting, count: int) -> None:
        """Counts what is kept of a request."""
        waiting.kept += count
        self.bytes += count

    def release(self, waiting: Waiting) -> None:
        """Counts what was kept of a request no more."""
        self.bytes -= waiting.kept
        waiting.kept = 0
