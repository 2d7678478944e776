"""One client connection in the shell: two transports, one core between them. Read, handle, perform; no policy.

Time is `time.monotonic`: uvloop's own clock stands still between two polls and counts milliseconds. Each chunk is also
compared with the clock of leases (`runtime/clock.py`, here without its call), which continues while the machine sleeps.
"""

from __future__ import annotations

import asyncio
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from time import CLOCK_BOOTTIME, clock_gettime, monotonic
from typing import Final

from kordon.proxy.core.causes import CloseCause
from kordon.proxy.core.connection import Connection
from kordon.proxy.core.events import (
    CONFERRING,
    UNDECIDED,
    UNPROVEN,
    AwaitProof,
    Close,
    Command,
    DecideInTurns,
    DownstreamEnded,
    Drain,
    EndUpstream,
    Event,
    LearnNodes,
    MuteDownstream,
    PassToServing,
    PauseDownstream,
    PauseUpstream,
    ReadInTurns,
    ReadOn,
    ResumeDownstream,
    ResumeUpstream,
    SendDownstream,
    SendUpstream,
    StartConferring,
    StartServing,
    Steering,
    Tick,
    UpstreamEnded,
)
from kordon.proxy.core.interception import Services
from kordon.proxy.core.request_leg import RequestLeg
from kordon.proxy.core.response_leg import ResponseLeg
from kordon.proxy.core.tally import Flow
from kordon.proxy.decisions.runs import Client
from kordon.proxy.relay.connection_record import ConnectionRecord
from kordon.proxy.relay.entrance import TurnedAway, hear, know_managed, meet
from kordon.proxy.relay.late_work import LateWork
from kordon.proxy.relay.listener import Listener
from kordon.proxy.relay.muting import Muting
from kordon.proxy.relay.shared import Shared
from kordon.proxy.relay.socket_end import SocketEnd
from kordon.proxy.runtime.tls import explain

LINGER_SECONDS: Final = 5.0
"""How long a closing connection may take to send what it still has."""
_BLOCKED: Final = "the other end does not take what was written"
_IN_FLIGHT: Final = "too many requests in flight"
_ANSWER_DUE: Final = "an answer of Kordon's own is due first"


class _End(SocketEnd, ABC):
    """One end of a connection: hands what it reads to the core, and does what the core says.

    Args:
        flow: The counters of this end.
        receive: Called with a chunk. It returns the commands to perform; None: the chunk goes to the other end as it
            is.
        leg: The frames that come from here.
    """

    def __init__(
        self,
        relay: Relay,
        shared: Shared,
        flow: Flow,
        receive: Callable[[memoryview, float], list[Command] | None],
        leg: RequestLeg | ResponseLeg,
    ) -> None:
        super().__init__(shared.buffer, flow)
        self.relay = relay
        self._wakefulness = shared.wakefulness
        self._receive = receive
        self._leg = leg

    @property
    @abstractmethod
    def other(self) -> SocketEnd:
        """The end to which the bytes from this end go."""

    def buffer_updated(self, nbytes: int) -> None:
        if clock_gettime(CLOCK_BOOTTIME) > self._wakefulness.asleep_after and not self._wakefulness.look():
            return
        self._flow.received_bytes += nbytes
        leg = self._leg
        chunk = self._buffer.view[: len(self.unread) + nbytes]
        try:
            commands = self._receive(chunk, monotonic())
            if commands is None:
                self.other.send(chunk)
            else:
                self.relay.perform(commands)
                self.relay.bound_held()
            if leg.completed:
                leg.performed(monotonic())
            if self.unread or leg.unread:
                self.keep_unread(chunk, leg.unread)
        except Exception as error:  # the outermost edge: this connection ends, and no other
            self.relay.fail("read what was received", error)

    def read_again(self) -> None:
        """Hands what was left unread to the core once more."""
        if self.unread:
            self.get_buffer(-1)
            self.buffer_updated(0)

    def pause_writing(self) -> None:
        self.other.hold(_BLOCKED)
        self.relay.note_held()

    def resume_writing(self) -> None:
        self.all_sent()
        self.other.release(_BLOCKED)
        self.relay.note_held()


class _Downstream(_End):
    """The client's end."""

    @property
    def other(self) -> SocketEnd:
        return self.relay.upstream

    def eof_received(self) -> bool:
        self.ended = True
        if self.relay.lingering:
            self.close()
        self.relay.perform(self.relay.core.handle(DownstreamEnded()))
        return self.relay.is_plain  # TLS cannot be half closed

    def connection_lost(self, exc: Exception | None) -> None:
        cause = CloseCause.NETWORK_ERROR if exc else CloseCause.CLIENT_CLOSED
        self.relay.close(cause, explain(exc) if exc else "the client closed the connection")
        self.relay.lost()


class _Upstream(_End):
    """The broker's end."""

    @property
    def other(self) -> SocketEnd:
        return self.relay.downstream

    def eof_received(self) -> bool:
        self.ended = True
        self.relay.perform(self.relay.core.handle(UpstreamEnded()))
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.relay.perform(self.relay.core.handle(UpstreamEnded()))


class Relay:
    """A client connection from accept to close.

    Args:
        shared: What the relay shares with the worker's other connections.
        services: The services that decide on its requests about managed topics, and answer them.
        sock: The accepted socket, which the relay owns from now on.
        client: The client's address, for logs and limits.
        on_gone: Called when the client's side is gone.
    """

    def __init__(
        self,
        shared: Shared,
        services: Services[Client],
        listener: Listener,
        sock: socket.socket,
        client: str,
        *,
        on_gone: Callable[[Relay], None],
    ) -> None:
        self.shared = shared
        self.tally = shared.tally
        self.record = ConnectionRecord(shared.journal, shared.tally, client, listener.role)
        self.node_id: int | None = None
        """The broker it leads to; None for the bootstrap listener."""
        self.lingering = False
        self.noted_bytes = 0
        """What `held_bytes` was when the worker was last told."""
        self._tls = shared.downstream_tls
        self._listener = listener
        self._on_gone = on_gone
        self._drains = False
        self._service = services.connected(self.record.peer)
        self.core = Connection(
            shared.config.limits, self.tally, shared.advertised_at(sock), self.record.opened, self._service
        )
        core, tally = self.core, shared.tally
        self.downstream = _Downstream(self, shared, tally.downstream, core.receive_requests, core.requests)
        self.upstream = _Upstream(self, shared, tally.upstream, core.receive_responses, core.responses)
        self._muting = Muting(self.downstream)
        self._late_work = LateWork(shared.tasks, shared.turns, take=self._take, end=self.close)
        self._socket = sock
        self._opening: asyncio.Task[None] | None = None
        self._closing_since: float | None = None

    @property
    def is_plain(self) -> bool:
        """Whether its client speaks without TLS."""
        return self._tls is None

    @property
    def held_bytes(self) -> int:
        """Bytes held in memory for this connection now."""
        held = self.core.held_bytes
        for transport in (self.downstream.transport, self.upstream.transport):
            if transport is not None:
                held += transport.get_write_buffer_size()
        return held

    def note_held(self) -> None:
        """Tells the worker how much is held now."""
        held = self.held_bytes
        if held != self.noted_bytes:
            self.shared.memory.note(self, held)

    def bound_held(self) -> None:
        """Tells the worker how much is held now, and has connections closed if that is too much."""
        held, memory = self.held_bytes, self.shared.memory
        if held != self.noted_bytes:
            memory.note(self, held)
        if memory.is_too_much:
            memory.shed()

    def start(self) -> None:
        """Lets the client in and leads it to its broker."""
        self._opening = self.shared.tasks.start(self._open(), name="open connection")

    async def _open(self) -> None:
        """Waits until the client says something, dials the broker, and lets the bytes flow.

        Whoever says nothing costs the broker nothing. A plain client's socket is not read before its broker is there.
        uvloop reads from a new transport whatever `connection_made` says, so the transport is made last.
        """
        try:
            is_open = await self._enter(self.shared.config.limits.handshake_ms / 1000)
        except TurnedAway as away:
            self.close(away.cause, away.detail)
            return
        if not is_open:
            self.upstream.abort()
        elif self.is_plain:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: self.downstream, self._socket)
        else:
            self.downstream.release("opening")

    async def _enter(self, seconds: float) -> bool:
        """Goes through the steps by which a client gets in; False: the connection has ended meanwhile."""
        if self._tls is None:
            await hear(self._socket, seconds)
        else:
            self.downstream.hold("opening")
            await meet(self._socket, self.downstream, self._tls, seconds)
            if self.downstream.transport is not None:
                self.record.name_bearer(self.downstream.transport.get_extra_info("ssl_object"))
        if self._closing_since is not None:
            return False
        target = self._listener.target(self.downstream.transport)
        self.node_id = self.record.peer.broker = target.node_id
        await self.shared.dialer.dial(target, lambda: self.upstream)
        if self._closing_since is None:
            await know_managed(self._service, seconds)
        return self._closing_since is None

    def perform(self, commands: list[Command]) -> None:
        """Does what the core says."""
        for command in commands:
            match command:
                case SendUpstream(pieces):
                    self.upstream.send_all(pieces)
                case SendDownstream(pieces):
                    self.downstream.send_all(pieces)
                case LearnNodes(nodes):
                    self.shared.topology.learn(nodes)
                case StartServing(pending, answer):
                    self._late_work.serve(pending, answer)
                case StartConferring(pending, decision):
                    self.downstream.hold(CONFERRING)
                    self._late_work.confer(pending, decision)
                case PassToServing(pending, response):
                    self._late_work.pass_part(pending, response)
                case MuteDownstream(ms):
                    self._muting.mute(ms / 1000)
                case Close(cause, detail):
                    self.close(cause, detail)
                case _:
                    self._steer(command)

    def _steer(self, command: Steering) -> None:
        match command:
            case EndUpstream():
                self._end_upstream()
            case PauseDownstream():
                self.downstream.hold(_IN_FLIGHT)
                self.record.waits(self.shared.config.limits.requests_in_flight)
            case ResumeDownstream():
                self.downstream.release(_IN_FLIGHT)
            case AwaitProof():
                self.downstream.hold(UNPROVEN)
            case ReadInTurns():
                self._late_work.read(command)
            case DecideInTurns(decide):
                self.downstream.hold(UNDECIDED)
                self._late_work.decide(decide)
            case ReadOn(held_for):
                asyncio.get_running_loop().call_soon(self._read_on, held_for)
            case PauseUpstream():
                self.upstream.hold(_ANSWER_DUE)
            case ResumeUpstream():
                self.upstream.release(_ANSWER_DUE)
                self.upstream.read_again()

    def _read_on(self, held_for: str) -> None:
        """Reads from a client again, beginning with what was left, once what was sent has left the worker's buffer."""
        self.downstream.release(held_for)
        self.downstream.read_again()

    def _take(self, event: Event) -> None:
        """Gives the core the result of its own late work."""
        self.perform(self.core.handle(event))
        self.bound_held()

    def tick(self, now: float) -> None:
        """Ends what took too long."""
        if self._closing_since is None:
            client_read = self.downstream.transport is not None and self.downstream.is_read
            self.perform(self.core.handle(Tick(now, client_read)))
        elif now - self._closing_since > LINGER_SECONDS:
            self.abort()

    def drain(self, why: Drain) -> None:
        """Lets accepted requests finish, and closes."""
        self._drains = True
        if self._opening is not None and not self._opening.done():
            self.close(why.cause, why.detail)
            return
        self.perform(self.core.handle(why))

    def close(self, cause: CloseCause, detail: str) -> None:
        """Ends the connection; the first cause counts, what was written still leaves."""
        if self._closing_since is not None:
            return
        self._closing_since = monotonic()
        if self.core.closed is None:
            self.core.abandon(cause, detail)
        self.record.closed(cause, detail)
        if self._opening is not None and self._opening is not asyncio.current_task() and not self._is_connected:
            self._opening.cancel()
        self._late_work.cancel()
        self._service.closed()
        self._muting.cancel()
        self.upstream.close()
        if self.downstream.transport is None:
            self._socket.close()
            self.lost()
        elif self._drains and not self.downstream.ended:
            self.lingering = True
            self.downstream.end_writing()
        else:
            self.downstream.close()

    @property
    def _is_connected(self) -> bool:
        """Whether a plain client is connected, be it that `_open` has not been told yet.

        A client's first bytes can come before. uvloop tells no `connection_lost` where the connecting is cancelled.
        """
        return self.downstream.transport is not None and self.is_plain

    def fail(self, doing: str, error: Exception) -> None:
        """Ends the connection because of a mistake of Kordon's own, which is reported."""
        self.shared.tasks.report(doing, error)
        self.close(CloseCause.INTERNAL_ERROR, f"could not {doing}: {error!r}")

    def abort(self) -> None:
        """Cuts both sides at once."""
        self.downstream.abort()
        self.upstream.abort()

    def lost(self) -> None:
        """The client's side is gone."""
        self._on_gone(self)
        self.upstream.close()

    def _end_upstream(self) -> None:
        if self.upstream.transport is None:
            self.close(CloseCause.CLIENT_CLOSED, "the client closed the connection")
            return
        self.upstream.end_writing()
