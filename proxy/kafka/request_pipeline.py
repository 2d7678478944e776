"""Requests on one of Kordon's own connections to a broker, and their answers, in one order.

Many callers may use a connection at a time: a request is on the wire when `send` returns, so the order of calls is the
order on the wire, and the broker answers in that order (Kafka protocol guide, "Network").
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from struct import Struct
from typing import Any, Final, TypeVar

from kordon.codecs.errors import WireError
from kordon.codecs.headers import parse_response_header, request_header_version, response_header_version
from kordon.codecs.look import Buffer
from kordon.proxy.core import verdicts
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.answer_frames import AnswerFrames
from kordon.proxy.kafka.log_in import LOG_IN_KEYS
from kordon.proxy.runtime.tls import explain

_Answer = TypeVar("_Answer")

CLIENT_ID: Final = "kordon"
MOST_UNANSWERED: Final = 1000
"""Requests on one connection that wait for their answers; more are refused."""
_SIZE: Final = Struct(">i")
_CLIENT_ID: Final = CLIENT_ID.encode()
_REQUEST_HEADER: Final = Struct(f">hhih{len(_CLIENT_ID)}s")
_CORRELATION_ID: Final = Struct(">i")


@dataclass(slots=True, eq=False)
class OpenRequest:
    """What is known of a request until it is answered."""

    api_key: int
    version: int
    pieces: Sequence[Buffer]
    """Its body; empty once it is written."""
    read: Callable[[memoryview], Any]
    """Makes the outcome of the answer's body."""
    outcome: asyncio.Future[Any]
    deadline: float
    """By the loop's clock."""
    correlation_id: int = 0


class RequestPipeline:
    """The requests and answers of one connection, which is open from `open` until it breaks.

    Args:
        broker: The broker's address, for error messages.
        on_broken: Called once when the connection breaks.
    """

    def __init__(self, broker: str, on_broken: Callable[[], None]) -> None:
        self.unanswered: deque[OpenRequest] = deque()
        """What is on the wire."""
        self._broker = broker
        self._on_broken = on_broken
        self._transport: asyncio.Transport | None = None
        self._broken: str | None = "the connection is not open"
        self._correlation_id = 0
        self._held: list[OpenRequest] | None = None
        """What waits for `release`; None: nothing has to."""
        self._room = asyncio.Event()
        self._blocked = False
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = inf

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._broken is not None

    @property
    def count(self) -> int:
        """How many requests wait for their answers."""
        return len(self.unanswered) + len(self._held or ())

    def receiver(self) -> AnswerFrames:
        """Returns what takes in the broker's bytes; for the transport that `open` gets."""
        return AnswerFrames(self._on_answer, self.close, self._on_flow)

    def open(self, transport: asyncio.Transport) -> None:
        """Sends from now on, by this transport."""
        self._transport = transport
        self._broken = None
        self._tell_room()

    def close(self, reason: Exception | str) -> None:
        """Ends the connection at once; what is unanswered fails for this reason."""
        if self._broken is not None:
            return
        self._broken = explain(reason) if isinstance(reason, Exception) else reason
        if self._transport is not None:
            self._transport.abort()
        if self._alarm is not None:
            self._alarm.cancel()
        self._on_broken()
        left = [*self.unanswered, *(self._held or ())]
        self.unanswered.clear()
        self._held = None
        for asked in left:
            if not asked.outcome.done():
                asked.outcome.set_exception(self.unavailable(asked.api_key, self._broken))
        self._tell_room()

    def hold(self) -> None:
        """Holds everything but a log-in back until `release`: a broker takes nothing else before that is over."""
        self._held = []

    def release(self) -> None:
        """Sends what was held back, in its order."""
        held, self._held = self._held or [], None
        for asked in held:
            if not asked.outcome.cancelled():
                self._write(asked)

    async def room(self) -> None:
        """Returns when the socket takes bytes and fewer than `MOST_UNANSWERED` wait, or the connection is closed."""
        while not self._room.is_set():
            await self._room.wait()

    def send(
        self,
        api_key: int,
        version: int,
        pieces: Sequence[Buffer],
        read: Callable[[memoryview], _Answer],
        seconds: float,
    ) -> asyncio.Future[_Answer]:
        """Sends a request at once, unless it is held back.

        Args:
            pieces: Its body; they must not be changed before the answer.
            read: Makes the outcome of the answer's body.
            seconds: When the oldest request is unanswered for longer, the connection is closed: no later one can be
                answered either.

        Returns:
            The outcome to come, or UpstreamUnavailable.
        """
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[_Answer] = loop.create_future()
        asked = OpenRequest(api_key, version, pieces, read, outcome, loop.time() + seconds)
        if self._broken is not None:
            asked.outcome.set_exception(self.unavailable(api_key, self._broken))
        elif api_key in LOG_IN_KEYS:
            self._write(asked)
        elif self.count >= MOST_UNANSWERED:
            asked.outcome.set_exception(self.unavailable(api_key, f"{MOST_UNANSWERED} requests are unanswered"))
        elif self._held is not None:
            self._held.append(asked)
        else:
            self._write(asked)
        self._tell_room()
        return outcome

    def unavailable(self, api_key: int, what: str) -> UpstreamUnavailable:
        """Returns the error that says what has become of a request."""
        return UpstreamUnavailable(f"{self._broker}: {verdicts.api_name(api_key)}: {what}")

    def _write(self, asked: OpenRequest) -> None:
        assert self._transport is not None
        self._correlation_id = asked.correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = _REQUEST_HEADER.pack(asked.api_key, asked.version, asked.correlation_id, len(_CLIENT_ID), _CLIENT_ID)
        if request_header_version(asked.api_key, asked.version) == 2:
            header += b"\0"  # no tagged fields
        size = len(header) + sum(map(len, asked.pieces))
        self.unanswered.append(asked)
        self._transport.writelines([_SIZE.pack(size) + header, *asked.pieces])
        asked.pieces = ()
        self._watch()

    def _on_answer(self, frame: memoryview) -> None:
        if self._broken is not None:
            return
        asked = self.unanswered[0] if self.unanswered else None
        if asked is None or _CORRELATION_ID.unpack_from(frame)[0] != asked.correlation_id:
            self.close("an answer that nobody asked for; this is no Kafka broker")
            return
        self.unanswered.popleft()
        self._watch()
        if not asked.outcome.done():
            try:
                body = frame[_header_bytes(asked, frame) :]
                asked.outcome.set_result(asked.read(body))
            except WireError as error:
                asked.outcome.set_exception(self.unavailable(asked.api_key, explain(error)))
        self._tell_room()

    def _on_flow(self, takes: bool) -> None:
        self._blocked = not takes
        self._tell_room()

    def _tell_room(self) -> None:
        if self._broken is not None or not (self._blocked or self.count >= MOST_UNANSWERED):
            self._room.set()
        else:
            self._room.clear()

    def _watch(self) -> None:
        """Sets an alarm for the oldest request; while answers come it is left alone as long as it is early enough."""
        if self.unanswered and self.unanswered[0].deadline < self._alarm_at:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm_at = self.unanswered[0].deadline
            self._alarm = asyncio.get_running_loop().call_at(self._alarm_at, self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm, self._alarm_at = None, inf
        if self.unanswered and self.unanswered[0].deadline <= asyncio.get_running_loop().time():
            self.close(explain(TimeoutError()))
        else:
            self._watch()


def _header_bytes(asked: OpenRequest, frame: memoryview) -> int:
    if response_header_version(asked.api_key, asked.version) == 0:
        return 4  # the correlation id
    if frame[4] == 0:
        return 5  # and no tagged fields
    return parse_response_header(asked.api_key, asked.version, frame)[1]
