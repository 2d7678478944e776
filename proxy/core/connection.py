"""One client's connection and the one to its broker, without I/O: events in, commands out.

Requests and responses have a leg each. Between them stands `waiting`, which alone decides whose response comes next.
"""

from __future__ import annotations

from typing import Protocol, assert_never

from kordon.codecs.counted import counted
from kordon.codecs.look import Buffer
from kordon.proxy.core.addresses import Advertised
from kordon.proxy.core.answers import answer_frame
from kordon.proxy.core.causes import CloseCause
from kordon.proxy.core.errors import ProtocolError
from kordon.proxy.core.events import (
    CONFERRING,
    UNDECIDED,
    UNPROVEN,
    Asked,
    AwaitProof,
    Close,
    Command,
    Decided,
    DecideInTurns,
    DownstreamEnded,
    Drain,
    EndUpstream,
    Event,
    LearnNodes,
    LongReadDone,
    MuteDownstream,
    PassToServing,
    PauseDownstream,
    PauseUpstream,
    ReadOn,
    ResumeDownstream,
    ResumeUpstream,
    SendDownstream,
    SendUpstream,
    Served,
    StartConferring,
    StartServing,
    Tick,
    UpstreamEnded,
)
from kordon.proxy.core.frame_limits import FrameLimits
from kordon.proxy.core.interception import Interception, NothingManaged
from kordon.proxy.core.request_leg import RequestLeg
from kordon.proxy.core.response_leg import ResponseLeg
from kordon.proxy.core.tally import Tally
from kordon.proxy.core.timeouts import TimeLimits, Timeouts
from kordon.proxy.core.waiting import Awaits, Body, ConnectionMemory, PendingRequest, Throttled, Waiting


class ConnectionLimits(FrameLimits, TimeLimits, Protocol):
    """The limits of one connection (`kordon.proxy.config.config.Limits`)."""


class Connection:
    """The core of one connection: bytes come in by `receive_requests` and `receive_responses`, all else by `handle`.

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
        self._requests_in_flight = limits.requests_in_flight
        self._tally = tally
        self._waiting = Waiting()
        self._kept = ConnectionMemory()
        self.requests = RequestLeg(limits, tally, self._waiting, interception or NothingManaged(), self._kept)
        self.responses = ResponseLeg(limits, tally, self._waiting, advertised, self._kept)
        self._awaits_proof = False
        self._timeouts = Timeouts(limits, now)
        self._paused = False
        self._upstream_paused = False
        self._draining: Drain | None = None
        self._downstream_ended = False
        self._end_is_due = False  # the broker is to hear of the client's end once it has answered Kordon
        self.closed: Close | None = None
        """Why it ended; None while it lives."""

    @property
    def in_flight(self) -> int:
        """Requests whose response has not begun."""
        return len(self._waiting)

    def unanswered(self, api_keys: frozenset[int]) -> set[PendingRequest]:
        """Returns the requests of these apis that the broker has got, wholly or in part, and has not answered yet."""
        found = self._waiting.with_broker(api_keys)
        under_way = self.requests.passing
        return found if under_way is None or under_way.route.api.key not in api_keys else found | {under_way}

    @property
    def held_bytes(self) -> int:
        """Bytes kept here between events."""
        return self._kept.memory_bytes

    @property
    def proven(self) -> bool:
        """Whether the broker has answered a request that it answers only after a log-in."""
        return self.responses.proves

    def receive_requests(self, chunk: memoryview, now: float) -> list[Command] | None:
        """Takes bytes of the client; returns what to do, in order.

        Args:
            chunk: The bytes, after those that were left unread the last time (`requests.unread`).
            now: Seconds of a monotonic clock.

        Returns:
            Commands, whose pieces are valid until they have been performed; none once the connection is closed.
            None: send the chunk to the broker as it is. That is by far the most frequent case.
        """
        if self.closed is not None:
            return []
        self._timeouts.active = now
        try:
            pieces = self.requests.receive(chunk, now)
        except ProtocolError as error:
            return [self._close(error.cause, error.detail)]
        if pieces is None and len(self._waiting) < self._requests_in_flight and not self._draining:
            return None
        sent: list[Buffer] = [chunk] if pieces is None else pieces
        if self.requests.undecided is not None:
            return [*self._after_requests(sent), DecideInTurns(self.requests.decide_late)]
        if self.requests.lacks_proof is None or self._awaits_proof:
            return self._after_requests(sent)
        self._awaits_proof = True
        self.requests.whole.ask_for_proof(sent, now)
        return [*self._after_requests(sent), AwaitProof()]

    def receive_responses(self, chunk: memoryview, now: float) -> list[Command] | None:
        """Takes bytes of the broker; see `receive_requests`. None: send the chunk to the client as it is."""
        if self.closed is not None:
            return []
        self._timeouts.active = now
        try:
            pieces = self.responses.receive(chunk, now)
        except ProtocolError as error:
            return [self._close(error.cause, error.detail)]
        if self.responses.proves and not self.requests.proven:
            self.requests.proven = True
            if self._awaits_proof:
                return [*self._after_responses([chunk] if pieces is None else pieces), *self._take_proof()]
        answer_is_due = self._waiting and self._waiting[0].answer is not None
        if pieces is None and not (answer_is_due or self._paused or self._draining):
            return None
        return self._after_responses([chunk] if pieces is None else pieces)

    def _take_proof(self) -> list[Command]:
        """Reads from the client again, now that its broker has accepted it."""
        self._awaits_proof, self.requests.lacks_proof = False, None
        return [ReadOn(UNPROVEN)] if self.closed is None else []

    def handle(self, event: Event) -> list[Command]:
        """Takes what happened; returns what to do, in order.

        Returns:
            The commands; none once the connection is closed.
        """
        if self.closed is not None:
            return []
        match event:
            case DownstreamEnded():
                self._downstream_ended = True
                whole = self.requests.whole
                self._end_is_due = (
                    self._waiting.is_asking or self.requests.undecided is not None or whole.conferring is not None
                )
                return [] if self._end_is_due else [EndUpstream()]
            case UpstreamEnded():
                return [self._upstream_ended()]
            case Tick(now, client_read):
                return self._on_tick(now, client_read=client_read)
            case Drain():
                self._draining = self._draining or event
                self.requests.draining = True
                return self._close_if_drained()
            case Served(pending, body):
                return self._on_served(pending, body)
            case LongReadDone():
                return self._on_long_read(event)
            case Decided(pieces):
                self.requests.undecided = None
                return [*self._after_requests(pieces), *self._end_if_due(), ReadOn(UNDECIDED)]
            case Asked(pending, question):
                pieces = self.requests.whole.ask(pending, question)
                return [SendUpstream(pieces)] if pieces else []
            case _:
                assert_never(event)

    def abandon(self, cause: CloseCause, detail: str) -> None:
        """Ends the connection for a reason that lies outside of it, such as a broker that cannot be reached."""
        self._close(cause, detail)

    def _after_requests(self, pieces: list[Buffer]) -> list[Command]:
        commands: list[Command] = [SendUpstream(pieces)] if pieces else []
        commands += [StartServing(*served) for served in self.requests.whole.served]
        self.requests.whole.served.clear()
        if self.requests.whole.conferring is not None and self.requests.whole.to_confer is not None:
            commands.append(StartConferring(self.requests.whole.conferring, self.requests.whole.to_confer))
            self.requests.whole.to_confer = None
        if answers := self.responses.answers():
            commands.append(SendDownstream(answers))
        if not self._paused and len(self._waiting) >= self._requests_in_flight:
            self._paused = True
            self._tally.limit_hits["requests_in_flight"] += 1
            commands.append(PauseDownstream())
        return commands + self._close_if_drained()

    def _after_responses(self, pieces: list[Buffer]) -> list[Command]:
        commands: list[Command] = []
        pieces += self.responses.answers()
        if self.responses.nodes:
            commands.append(LearnNodes(self.responses.nodes))
        if pieces:
            commands.append(SendDownstream(pieces))
        commands += self._end_if_due()
        commands += [PassToServing(*part) for part in self.responses.parts]
        self.responses.parts.clear()
        commands += self.responses.long_reads.commands
        self.responses.long_reads.commands.clear()
        if self.responses.stalled and not self._upstream_paused:
            self._upstream_paused = True
            commands.append(PauseUpstream())
        return commands + self._after_answers()

    def _end_if_due(self) -> list[Command]:
        """Tells the broker of the client's end once it has answered what Kordon has asked."""
        if not self._end_is_due or self._waiting.is_asking or self.requests.whole.conferring is not None:
            return []
        self._end_is_due = False
        return [EndUpstream()]

    def _on_served(self, pending: PendingRequest, body: Body | Throttled) -> list[Command]:
        """Gives an answer that was promised, if its turn has come; otherwise it waits for that."""
        if isinstance(body, Throttled):
            return [*self._on_served(pending, body.body), MuteDownstream(body.mute_ms)]
        self._kept.release(pending)
        if pending not in self._waiting:
            return []
        pending.be_answered(answer_frame(pending.route, pending.correlation_id, body))
        commands: list[Command] = []
        if answers := self.responses.answers():
            commands.append(SendDownstream(answers))
        else:
            self._kept.keep_answer(pending)
        if self._upstream_paused and not (self._waiting and self._waiting[0].awaits is Awaits.SERVICE):
            self._upstream_paused = False
            commands.append(ResumeUpstream())
        if self.requests.whole.answered(pending):
            commands += [*self._end_if_due(), ReadOn(CONFERRING)]
        return commands + self._after_answers()

    def _on_long_read(self, done: LongReadDone) -> list[Command]:
        """Takes an answer to where it belongs: to who has asked for it, into what Kordon serves, or to the client."""
        pending = done.pending
        self.responses.long_reads.forget(pending)
        commands: list[Command] = [LearnNodes(done.nodes)] if done.nodes else []
        if isinstance(done.answer, bytes):
            return commands + self._on_served(pending, done.answer)
        if pending.told is None:
            return [*commands, PassToServing(pending, done.answer)]
        pending.told(done.answer)
        return commands

    def _after_answers(self) -> list[Command]:
        """Reads the client again where its answers were waited for, and ends what has drained."""
        commands: list[Command] = []
        if self._paused and len(self._waiting) < self._requests_in_flight:
            self._paused = False
            commands.append(ResumeDownstream())
        return commands + self._close_if_drained()

    def _upstream_ended(self) -> Close:
        if self._downstream_ended:
            return self._close(CloseCause.CLIENT_CLOSED, "the client closed the connection")
        if self._awaits_proof:
            detail = f"a request of {self.requests.lacks_proof} bytes from a client that its broker has not accepted;"
            detail += f" limits.unproven_bytes allows {self._limits.unproven_bytes}"
            return self._close(CloseCause.UNPROVEN, detail)
        detail = f"the broker closed the connection, with {counted(len(self._waiting), 'request')} unanswered"
        return self._close(CloseCause.BROKER_CLOSED, detail)

    def _on_tick(self, now: float, *, client_read: bool) -> list[Command]:
        requests = self.requests
        if not client_read:
            requests.restart_clock(now)
            return []
        overdue = self._timeouts.overdue(
            now, frames=requests.frames, frame_started=requests.frame_started, is_answered=not self._waiting
        )
        return [] if overdue is None else [self._close(*overdue)]

    def _close_if_drained(self) -> list[Command]:
        drain = self._draining
        if drain is None or self._waiting or self.requests.under_way or not self.responses.between_frames:
            return []
        return [self._close(drain.cause, drain.detail)]

    def _close(self, cause: CloseCause, detail: str) -> Close:
        self.closed = Close(cause, detail)
        self._waiting.clear()
        self.requests.forget()
        self.responses.forget()
        return self.closed
