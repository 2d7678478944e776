"""One client's connection and the one to its broker, without I/O: events in, commands out.

Requests and responses have a leg each. Between them stands `waiting`: the requests that have no response yet, in
their order. It alone decides whose response comes next, be it the broker's or one of Kordon's own, so responses leave
in the order of their requests whatever happens (Kafka protocol guide, "Network").
"""

from __future__ import annotations

from collections import deque
from typing import Protocol, assert_never

from kordon.codecs.look import Buffer
from kordon.proxy.addresses import Advertised
from kordon.proxy.answers import answer_frame
from kordon.proxy.causes import CloseCause
from kordon.proxy.errors import ProtocolError
from kordon.proxy.events import (
    Close,
    Command,
    DownstreamEnded,
    Drain,
    EndUpstream,
    Event,
    LearnNodes,
    PassToServing,
    PauseDownstream,
    PauseUpstream,
    Performed,
    RequestBytes,
    ResponseBytes,
    ResumeDownstream,
    ResumeUpstream,
    SendDownstream,
    SendUpstream,
    Served,
    StartServing,
    Tick,
    UpstreamEnded,
)
from kordon.proxy.interception import Interception, NothingManaged
from kordon.proxy.request_leg import FrameLimits, RequestLeg
from kordon.proxy.response_leg import ResponseLeg
from kordon.proxy.tally import Tally
from kordon.proxy.waiting import Body, Waiting


class ConnectionLimits(FrameLimits, Protocol):
    """The limits of one connection (`kordon.proxy.config.Limits`)."""

    @property
    def idle_ms(self) -> int:
        """Milliseconds without a byte either way after which a connection ends."""
        ...

    @property
    def handshake_ms(self) -> int:
        """Milliseconds from the connection's beginning to its first whole request."""
        ...

    @property
    def request_ms(self) -> int:
        """Milliseconds from a request's first byte to its last."""
        ...


class Connection:
    """The core of one connection; `handle` is its only way in.

    After `DownstreamEnded` no request comes, after a `Close` command nothing does.
    """

    def __init__(
        self,
        limits: ConnectionLimits,
        tally: Tally,
        advertised: Advertised,
        now: float,
        interception: Interception | None = None,
    ) -> None:
        self._limits = limits
        self._tally = tally
        self._waiting: deque[Waiting] = deque()
        self._requests = RequestLeg(limits, tally, self._waiting, interception or NothingManaged())
        self._responses = ResponseLeg(limits, tally, self._waiting, advertised)
        self._opened = self._active = now
        self._paused = False
        self._upstream_paused = False
        self._draining = False
        self._downstream_ended = False
        self.closed: Close | None = None
        """Why it ended; None while it lives."""

    @property
    def in_flight(self) -> int:
        """Requests whose response has not begun."""
        return len(self._waiting)

    def unanswered(self, api_keys: frozenset[int]) -> set[Waiting]:
        """Returns the requests of these apis that the broker has got, wholly or in part, and has not answered yet."""
        found = {each for each in self._waiting if each.asks and each.route.api.key in api_keys}
        under_way = self._requests.passing
        return found if under_way is None or under_way.route.api.key not in api_keys else found | {under_way}

    def end_sessions(self) -> None:
        """Has the client begin its Fetch session anew: what that holds is no longer what it was."""
        self._requests.end_sessions()

    @property
    def held_bytes(self) -> int:
        """Bytes kept here between events."""
        return self._requests.held_bytes + self._responses.held_bytes

    @property
    def completed(self) -> bool:
        """Whether the last event completed a frame, so that `Performed` is worth telling."""
        return bool(self._requests.completed or self._responses.completed)

    @property
    def unread_request_bytes(self) -> int:
        """Bytes at the end of the last `RequestBytes` that must begin the next one."""
        return self._requests.unread

    @property
    def unread_response_bytes(self) -> int:
        """Bytes at the end of the last `ResponseBytes` that must begin the next one."""
        return self._responses.unread

    def handle(self, event: Event) -> list[Command]:
        """Takes what happened; returns what to do, in order.

        Args:
            event: One of `kordon.proxy.events.Event`.

        Returns:
            Commands; their chunks are valid until `Performed` is handled. Empty once the connection is closed.
        """
        if self.closed is not None:
            return []
        if isinstance(event, Performed):  # the most frequent one, and nothing can come of it
            self._requests.performed(event.now)
            self._responses.performed(event.now)
            return []
        before = len(self._waiting)
        commands: list[Command]
        try:
            if isinstance(event, RequestBytes):
                commands = self._on_request_bytes(event.chunk, event.now)
            elif isinstance(event, ResponseBytes):
                commands = self._on_response_bytes(event.chunk, event.now)
            else:
                commands = self._dispatch(event)
        except ProtocolError as error:
            commands = [self._close(error.cause, error.detail)]
        self._tally.in_flight += len(self._waiting) - before
        return commands

    def passes_request(self, nbytes: int, now: float) -> bool:
        """Whether the next `nbytes` of the client lie amid a body that streams: then all of them go to the broker.

        A short way for most of the bytes of large requests. They count as handled if it is so, else nothing is changed.
        """
        if self.closed is not None or not self._requests.passes(nbytes):
            return False
        self._active = now
        return True

    def passes_response(self, nbytes: int, now: float) -> bool:
        """Whether the next `nbytes` of the broker lie amid a body that streams: then all of them go to the client."""
        if self.closed is not None or not self._responses.passes(nbytes):
            return False
        self._active = now
        return True

    def abandon(self, cause: CloseCause, detail: str) -> None:
        """Ends the connection for a reason that lies outside of it, such as a broker that cannot be reached."""
        self._tally.in_flight -= len(self._waiting)
        self._close(cause, detail)

    def _dispatch(self, event: DownstreamEnded | UpstreamEnded | Tick | Drain | Served) -> list[Command]:
        match event:
            case DownstreamEnded():
                self._downstream_ended = True
                return [] if self._is_asking else [EndUpstream()]
            case UpstreamEnded():
                return [self._upstream_ended()]
            case Tick(now, client_read):
                return self._on_tick(now, client_read=client_read)
            case Drain():
                self._draining = self._requests.draining = True
                return self._close_if_drained()
            case Served(waiting, body):
                return self._on_served(waiting, body)
            case _:
                assert_never(event)

    def _on_request_bytes(self, chunk: memoryview, now: float) -> list[Command]:
        self._active = now
        commands: list[Command] = []
        pieces = self._requests.receive(chunk, now)
        if pieces:
            commands.append(SendUpstream(pieces))
        if self._requests.served:
            commands += [StartServing(waiting, request) for waiting, request in self._requests.served]
            self._requests.served.clear()
        if self._waiting and self._waiting[0].answer is not None and (answers := self._responses.answers()):
            commands.append(SendDownstream(answers))
        if not self._paused and len(self._waiting) >= self._limits.requests_in_flight:
            self._paused = True
            self._tally.limit_hits["requests_in_flight"] += 1
            commands.append(PauseDownstream())
        return commands + self._close_if_drained() if self._draining else commands

    def _on_response_bytes(self, chunk: memoryview, now: float) -> list[Command]:
        self._active = now
        commands: list[Command] = []
        was_asking = self._downstream_ended and self._is_asking
        pieces: list[Buffer] = self._responses.receive(chunk, now)
        if self._waiting and self._waiting[0].answer is not None:
            pieces += self._responses.answers()
        if self._responses.nodes:
            commands.append(LearnNodes(self._responses.nodes))
        if pieces:
            commands.append(SendDownstream(pieces))
        if was_asking and not self._is_asking:
            commands.append(EndUpstream())
        if self._responses.parts:
            commands += [PassToServing(waiting, response) for waiting, response in self._responses.parts]
            self._responses.parts.clear()
        if self._responses.stalled and not self._upstream_paused:
            self._upstream_paused = True
            commands.append(PauseUpstream())
        return commands + self._after_responses()

    @property
    def _is_asking(self) -> bool:
        """Whether a question of Kordon's own is unanswered: a broker that was told of the end might not answer it."""
        return any(each.told is not None for each in self._waiting)

    def _on_served(self, waiting: Waiting, body: Body) -> list[Command]:
        """Gives an answer that was promised, if its turn has come; otherwise it waits for that."""
        if waiting not in self._waiting:
            return []
        waiting.answer = answer_frame(waiting.route, waiting.correlation_id, body)
        commands: list[Command] = []
        if answers := self._responses.answers():
            commands.append(SendDownstream(answers))
        if self._upstream_paused and not (self._waiting and self._waiting[0].promised and not self._waiting[0].asks):
            self._upstream_paused = False
            commands.append(ResumeUpstream())
        return commands + self._after_responses()

    def _after_responses(self) -> list[Command]:
        """Reads the client again where its answers were waited for, and ends what has drained."""
        commands: list[Command] = []
        if self._paused and len(self._waiting) < self._limits.requests_in_flight:
            self._paused = False
            commands.append(ResumeDownstream())
        return commands + self._close_if_drained() if self._draining else commands

    def _upstream_ended(self) -> Close:
        if self._downstream_ended:
            return self._close(CloseCause.CLIENT_CLOSED, "the client closed the connection")
        detail = f"the broker closed the connection, {len(self._waiting)} requests unanswered"
        return self._close(CloseCause.BROKER_CLOSED, detail)

    def _on_tick(self, now: float, *, client_read: bool) -> list[Command]:
        limits = self._limits
        if not client_read:
            self._requests.restart_clock(now)
            return []
        if not self._requests.frames and now - self._opened > limits.handshake_ms / 1000:
            detail = f"no whole request within limits.handshake_ms ({limits.handshake_ms})"
            return [self._close(CloseCause.HANDSHAKE_TIMEOUT, detail)]
        started = self._requests.frame_started
        if started is not None and now - started > limits.request_ms / 1000:
            detail = f"a request was not complete within limits.request_ms ({limits.request_ms})"
            return [self._close(CloseCause.REQUEST_TIMEOUT, detail)]
        if now - self._active > limits.idle_ms / 1000 and not self._waiting:
            return [self._close(CloseCause.IDLE, f"nothing was sent for limits.idle_ms ({limits.idle_ms})")]
        return []

    def _close_if_drained(self) -> list[Command]:
        if self._waiting or self._requests.under_way or not self._responses.between_frames:
            return []
        return [self._close(CloseCause.DRAINED, "the proxy is shutting down")]

    def _close(self, cause: CloseCause, detail: str) -> Close:
        self.closed = Close(cause, detail)
        self._waiting.clear()
        return self.closed
