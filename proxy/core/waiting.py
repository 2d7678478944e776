"""The requests that have no response yet: what the two legs of a connection share.

`Waiting` alone decides whose response comes next, be it the broker's or one of Kordon's own, so responses leave in the
order of their requests whatever happens (Kafka protocol guide, "Network").
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from kordon.codecs.look import Buffer
from kordon.proxy.core.causes import CloseCause
from kordon.proxy.core.errors import BrokerProtocolError
from kordon.proxy.core.rewrite import EDITS, Change, TakeAnswer
from kordon.proxy.core.verdicts import Route

_PARSED_FACTOR: Final = 10
"""Bytes of memory that a byte of a request takes once it is parsed: 30 to 40 bytes of a row are 300 to 500 then.
Requests that bring records are walked over, and stay as they are."""
Body: TypeAlias = bytes | list[Buffer]
"""The body of a response of Kordon's own, in one piece or in several, which are not changed any more."""


class Throttled(NamedTuple):
    """A body behind which the client is not read for a while, as it has taken more than its quota allows (KIP-219)."""

    body: Body
    mute_ms: int


Answer: TypeAlias = Body | Throttled | Callable[[], Body | Throttled]
"""A body, or what makes it: that may take long where it has many rows."""


class Awaits(Enum):
    """The event for which a request waits before its response can leave."""

    BROKER = "the broker's answer, which goes to the client"
    QUESTION = "the broker's answer to a question of Kordon's own, which the client does not see"
    PART = "the broker's answer to a part of the request, which is merged into what Kordon serves"
    SERVICE = "Kordon's own answer"
    TURN = "the responses to earlier requests"


BROKER: Final = Awaits.BROKER
"""For what is done with each frame: a member costs more to look up in its class than a call does."""
SERVICE: Final = Awaits.SERVICE
_FROM_BROKER: Final = (Awaits.BROKER, Awaits.QUESTION, Awaits.PART)


class PendingRequest:
    """A request that was forwarded or answered here, and whose response has not left yet."""

    __slots__ = (
        "answer",
        "awaits",
        "correlation_id",
        "edit",
        "handed",
        "kept_bytes",
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
        """The response frame in pieces, once it awaits its turn."""
        self.awaits = BROKER if answer is None else Awaits.TURN
        self.edit: Change | None = EDITS.get((route.api.key, route.version))
        """What is changed in the broker's answer."""
        self.told: TakeAnswer | None = None
        """Is given the broker's answer, parsed, if that is to a question of Kordon's own."""
        self.kept_bytes = 0
        """Its size in bytes until it is answered, then the size of an answer that waits for its turn."""

    @property
    def is_with_broker(self) -> bool:
        """Whether the broker has yet to answer it, wholly or in part."""
        return self.awaits in _FROM_BROKER

    def be_answered(self, answer: Sequence[Buffer]) -> None:
        """Takes the response frame, which leaves when its turn comes."""
        self.answer, self.awaits = answer, Awaits.TURN


class Waiting(deque[PendingRequest]):
    """A connection's requests that have no response yet, in their order."""

    @property
    def is_asking(self) -> bool:
        """Whether a question of Kordon's own is unanswered: a broker that was told of the end might not answer it."""
        return any(each.awaits is Awaits.QUESTION for each in self)

    def with_broker(self, api_keys: frozenset[int]) -> set[PendingRequest]:
        """Returns the requests of these apis that the broker has yet to answer, wholly or in part."""
        return {each for each in self if each.is_with_broker and each.route.api.key in api_keys}

    def asked(self) -> PendingRequest | None:
        """Returns whose answer the broker gives next, None if it may not be taken before one that Kordon has promised.

        The answer to a question of Kordon's own may: the client does not see it.
        """
        first = next((each for each in self if each.is_with_broker), None)
        return first if first is not None and (first is self[0] or first.awaits is Awaits.QUESTION) else None

    def expected(self, correlation_id: int) -> PendingRequest:
        """Returns whose answer the broker gives next.

        Raises:
            BrokerProtocolError: The answer belongs to another request, or nothing was asked.
        """
        pending = self.asked()
        if pending is None:
            detail = f"the broker answered correlation id {correlation_id}, but nothing was asked"
            raise BrokerProtocolError(CloseCause.MALFORMED_RESPONSE, detail)
        if pending.correlation_id != correlation_id:
            detail = f"the broker answered correlation id {correlation_id} in place of {pending.correlation_id}"
            raise BrokerProtocolError(CloseCause.MALFORMED_RESPONSE, detail)
        return pending


class ConnectionMemory:
    """The memory of one connection.

    That is what has come of requests and answers that are held until they are whole; requests that are read, until they
    are answered; and answers of Kordon's own that wait for those of earlier requests.
    """

    __slots__ = ("memory_bytes", "request_bytes")

    def __init__(self) -> None:
        self.request_bytes = 0
        """Bytes of requests that are read and not answered, as they came."""
        self.memory_bytes = 0
        """Bytes that all of it takes in memory."""

    def keep(self, pending: PendingRequest, count: int) -> None:
        """Counts a request of so many bytes."""
        pending.kept_bytes = count
        self.request_bytes += count
        self.memory_bytes += count if pending.route.api.brings_records else count * _PARSED_FACTOR

    def release(self, pending: PendingRequest) -> None:
        """Counts a request no more."""
        count, pending.kept_bytes = pending.kept_bytes, 0
        self.request_bytes -= count
        self.memory_bytes -= count if pending.route.api.brings_records else count * _PARSED_FACTOR

    def keep_answer(self, pending: PendingRequest) -> None:
        """Counts the answer to a request that is kept no more."""
        pending.kept_bytes = sum(map(len, pending.answer or ()))
        self.memory_bytes += pending.kept_bytes

    def release_answer(self, pending: PendingRequest) -> None:
        """Counts an answer no more."""
        self.memory_bytes -= pending.kept_bytes
        pending.kept_bytes = 0

    def forget(self) -> None:
        """Counts none of them any more."""
        self.request_bytes = self.memory_bytes = 0
