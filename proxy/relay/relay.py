"""One client connection in the shell: two transports, one core between them. Read, handle, perform; no policy.

All connections of a worker read into one buffer, which is possible because a chunk is handed on before the next one
is read: transports write at once (`set_write_buffer_limits`). What the kernel does not take stays with the
transport, which keeps a view of the buffer; the worker then takes another buffer, and the other side is not read until
this one has been written. So a connection holds one chunk at the most, and nothing is copied.

Time is `time.monotonic`: uvloop's own clock stands still between two polls and counts milliseconds.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, cast

from kordon.codecs.look import Buffer
from kordon.proxy.core.causes import CloseCause
from kordon.proxy.core.connection import Connection
from kordon.proxy.core.errors import ProtocolError, SilentWriteFailed, UpstreamUnavailable
from kordon.proxy.core.events import (
    UNDECIDED,
    UNPROVEN,
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
    PassToServing,
    PauseDownstream,
    PauseUpstream,
    ReadInTurns,
    ReadOn,
    ResumeDownstream,
    ResumeUpstream,
    SendDownstream,
    SendUpstream,
    Served,
    StartServing,
    Tick,
    UpstreamEnded,
)
from kordon.proxy.core.waiting import Waiting
from kordon.proxy.runtime.clock import clock
from kordon.proxy.runtime.tls import certified, explain

if TYPE_CHECKING:
    from kordon.proxy.config.config import HostPort
    from kordon.proxy.relay.listener import Listener
    from kordon.proxy.relay.relays import Relays

CHUNK_BYTES: Final = 256 * 1024
"""Most bytes read at once; a power of two above the largest request head (limits.header_bytes)."""
_TLS_HIGH_WATER_BYTES: Final = 64 * 1024
"""TLS copies what it encrypts, so it need not write at once. Above what a handshake leaves behind: uvloop would call
for a pause because of that and not take it back while reading is paused, so that two TLS sides wait for each other."""
_SPARE_BUFFERS: Final = 8
"""Buffers kept for the next slow readers: 2 MiB. Fresh ones cost as much time as a chunk's way through Kordon."""
LINGER_SECONDS: Final = 5.0
"""How long a closing connection may take to send what it still has."""


class ReadBuffer:
    """The memory that every connection of a worker reads into."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(CHUNK_BYTES))
        self._spare: list[memoryview] = []

    def leave(self) -> memoryview:
        """Leaves the memory to the transport that still writes from it, and takes other; returns what was left."""
        left, self.view = self.view, self._spare.pop() if self._spare else memoryview(bytearray(CHUNK_BYTES))
        return left

    def give_back(self, left: list[memoryview]) -> None:
        """Takes memory back that has been written; keeps a few for the next that is left."""
        self._spare = (self._spare + left)[:_SPARE_BUFFERS]
        left.clear()


class _End(asyncio.BufferedProtocol):
    """What both ends of a relay have in common: reading into the shared buffer, pausing, closing."""

    def __init__(self, relay: Relay, buffer: ReadBuffer) -> None:
        self.relay = relay
        self.transport: asyncio.Transport | None = None
        self.ended = False
        """Whether the peer has sent its end."""
        self._buffer = buffer
        self._left: list[memoryview] = []  # what is still written from
        self._unread = b""
        self._holds: set[str] = set()
        self._is_tls = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._is_tls = transport.get_extra_info("sslcontext") is not None
        self.transport.set_write_buffer_limits(high=_TLS_HIGH_WATER_BYTES if self._is_tls else 0)
        if self._holds:
            self.transport.pause_reading()

    def get_buffer(self, sizehint: int) -> memoryview:
        view = self._buffer.view
        if not self._unread:
            return view
        unread = len(self._unread)
        view[:unread] = self._unread
        return view[unread:]

    def keep_unread(self, chunk: memoryview, unread: int) -> None:
        """Saves the end of a chunk for the next one."""
        self._unread = bytes(chunk[len(chunk) - unread :]) if unread else b""

    def send(self, piece: Buffer) -> int:
        """Writes at once as much as the kernel takes; returns the number of bytes accepted."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return 0
        transport.write(piece)
        if not self._is_tls and transport.get_write_buffer_size():
            self._left.append(self._buffer.leave())
        return len(piece)

    def send_all(self, pieces: list[Buffer]) -> int:
        """Does what `send` does, with several pieces in one call of the kernel."""
        if len(pieces) == 1:
            return self.send(pieces[0])
        transport = self.transport
        if transport is None or transport.is_closing():
            return 0
        transport.writelines(pieces)
        if not self._is_tls and transport.get_write_buffer_size():
            self._left.append(self._buffer.leave())
        return sum(map(len, pieces))

    def all_sent(self) -> None:
        """The peer has taken everything."""
        if self._left:
            self._buffer.give_back(self._left)

    def hold(self, reason: str) -> None:
        """Reads nothing more from the peer until `release` of every reason."""
        if not self._holds and self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()
        self._holds.add(reason)

    def release(self, reason: str) -> None:
        """Takes a reason back."""
        self._holds.discard(reason)
        if not self._holds and self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    @property
    def is_read(self) -> bool:
        """Whether nothing holds the reading."""
        return not self._holds

    def end_writing(self) -> None:
        """Tells the peer that nothing more comes; where TLS cannot, closes."""
        if self.transport is None or self.transport.is_closing():
            return
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()

    def close(self) -> None:
        """Closes once everything is sent."""
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Closes at once."""
        if self.transport is not None:
            self.transport.abort()


class _Downstream(_End):
    """The client's end."""

    def buffer_updated(self, nbytes: int) -> None:
        relay = self.relay
        if clock() > relay.relays.asleep_after and not relay.relays.look_awake():
            return
        core, tally = relay.core, relay.tally
        tally.received_downstream_bytes += nbytes
        chunk = self._buffer.view[: len(self._unread) + nbytes]
        try:
            commands = core.receive_requests(chunk, monotonic())
            if commands is None:
                tally.sent_upstream_bytes += relay.upstream.send(chunk)
            else:
                relay.perform(commands)
                relay.bound_held()
            if core.requests.completed:
                core.requests.performed(monotonic())
            if self._unread or core.requests.unread:
                self.keep_unread(chunk, core.requests.unread)
        except Exception as error:  # the outermost edge: this connection ends, and no other
            relay.fail("read requests", error)

    def read_again(self) -> None:
        """Hands what was left unread to the core once more."""
        if self._unread:
            self.get_buffer(-1)
            self.buffer_updated(0)

    def eof_received(self) -> bool:
        self.ended = True
        if self.relay.lingering:
            self.close()
        self.relay.perform(self.relay.core.handle(DownstreamEnded()))
        return self.relay.relays.downstream_tls is None  # TLS cannot be half closed

    def pause_writing(self) -> None:
        self.relay.upstream.hold("downstream blocked")
        self.relay.note_held()

    def resume_writing(self) -> None:
        self.all_sent()
        self.relay.upstream.release("downstream blocked")
        self.relay.note_held()

    def connection_lost(self, exc: Exception | None) -> None:
        cause = CloseCause.NETWORK_ERROR if exc else CloseCause.CLIENT_CLOSED
        self.relay.close(cause, explain(exc) if exc else "the client closed the connection")
        self.relay.lost()


class _Upstream(_End):
    """The broker's end."""

    def buffer_updated(self, nbytes: int) -> None:
        relay = self.relay
        if clock() > relay.relays.asleep_after and not relay.relays.look_awake():
            return
        core, tally = relay.core, relay.tally
        tally.received_upstream_bytes += nbytes
        chunk = self._buffer.view[: len(self._unread) + nbytes]
        try:
            commands = core.receive_responses(chunk, monotonic())
            if commands is None:
                tally.sent_downstream_bytes += relay.downstream.send(chunk)
            else:
                relay.perform(commands)
                relay.bound_held()
            if core.responses.completed:
                core.responses.performed(monotonic())
            if self._unread or core.responses.unread:
                self.keep_unread(chunk, core.responses.unread)
        except Exception as error:  # the outermost edge: this connection ends, and no other
            relay.fail("read answers", error)

    def read_again(self) -> None:
        """Hands what was left unread to the core once more."""
        if self._unread:
            self.get_buffer(-1)
            self.buffer_updated(0)

    def eof_received(self) -> bool:
        self.ended = True
        self.relay.perform(self.relay.core.handle(UpstreamEnded()))
        return False

    def pause_writing(self) -> None:
        self.relay.downstream.hold("upstream blocked")
        self.relay.note_held()

    def resume_writing(self) -> None:
        self.all_sent()
        self.relay.downstream.release("upstream blocked")
        self.relay.note_held()

    def connection_lost(self, exc: Exception | None) -> None:
        self.relay.perform(self.relay.core.handle(UpstreamEnded()))


class Relay:
    """A client connection from accept to close.

    Args:
        relays: The worker's connections, which this one joins by `start`.
        listener: Where it came in.
        sock: The accepted socket; owned from now on.
        client: The client's address, for logs and limits.
    """

    def __init__(self, relays: Relays, listener: Listener, sock: socket.socket, client: str) -> None:
        self.relays = relays
        self.tally = relays.tally
        self.listener = listener
        self.client = client
        self.downstream = _Downstream(self, relays.buffer)
        self.upstream = _Upstream(self, relays.buffer)
        self.node_id: int | None = None
        """The broker it leads to; None for the bootstrap listener."""
        self.opened = monotonic()
        self.lingering = False
        self.waited = False
        """Whether it was ever read later as it had too much in flight."""
        self.noted_bytes = 0
        """What `held_bytes` was when the worker was last told."""
        self._drains = False
        self.peer = relays.journal.connected()
        """The connection as decisions name it."""
        self._service = relays.service.connected(self.peer)
        self.core = Connection(relays.config.limits, self.tally, relays.advertised_at(sock), self.opened, self._service)
        self._parts: dict[Waiting, asyncio.Future[Any]] = {}
        self._serving: set[asyncio.Task[None]] = set()
        self._socket = sock
        self._opening: asyncio.Task[None] | None = None
        self._closing_since: float | None = None

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
            self.relays.note_held(self, held)

    def bound_held(self) -> None:
        """Tells the worker how much is held now, and has connections closed if that is too much."""
        held = self.held_bytes
        if held != self.noted_bytes:
            self.relays.note_held(self, held)
        if self.relays.holds_too_much:
            self.relays.bound_memory()

    def start(self) -> None:
        """Lets the client in or turns it away, and leads it to its broker."""
        refusal = self.relays.admit(self)
        if refusal is not None:
            self.close(*refusal)
            return
        self._opening = self.relays.tasks.start(self._open(), name="open connection")

    async def _open(self) -> None:
        """Waits until the client says something, dials the broker, and lets the bytes flow.

        Whoever says nothing costs the broker nothing. A plain client's socket is not read before its broker is there.
        uvloop reads from a new transport whatever `connection_made` says, so the transport is made last.
        """
        context = self.relays.downstream_tls
        if not await (self._meet_client(context) if context is not None else self._hear_client()):
            return
        target = self.listener.target(self.downstream.transport)
        self.node_id = target.node_id
        if not await self._dial(target.addresses, target.problem) or not await self._know_managed():
            return
        if context is None:
            await self.relays.loop.connect_accepted_socket(lambda: self.downstream, self._socket)
        else:
            self.downstream.release("opening")

    async def _hear_client(self) -> bool:
        """Waits for a plain client's first byte, without taking it."""
        loop, heard = self.relays.loop, asyncio.Event()
        loop.add_reader(self._socket, heard.set)
        try:
            async with asyncio.timeout(self.relays.config.limits.handshake_ms / 1000):
                await heard.wait()
            first = self._socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            self.close(CloseCause.HANDSHAKE_TIMEOUT, "the client said nothing within limits.handshake_ms")
            return False
        except OSError as error:
            self.close(CloseCause.NETWORK_ERROR, explain(error))
            return False
        finally:
            loop.remove_reader(self._socket)
        if not first:
            self.close(CloseCause.CLIENT_CLOSED, "the client closed the connection without a word")
        return bool(first)

    async def _meet_client(self, context: ssl.SSLContext) -> bool:
        self.downstream.hold("opening")
        timeout = self.relays.config.limits.handshake_ms / 1000
        try:
            await self.relays.loop.connect_accepted_socket(
                lambda: self.downstream, self._socket, ssl=context, ssl_handshake_timeout=timeout
            )
        except (OSError, TimeoutError) as error:
            # uvloop says "SSL handshake is taking longer than …" as a ConnectionAbortedError
            late = isinstance(error, TimeoutError | ConnectionAbortedError)
            cause = CloseCause.HANDSHAKE_TIMEOUT if late else CloseCause.DOWNSTREAM_TLS_FAILED
            self.close(cause, explain(error))
            return False
        self._name_bearer()
        return self._closing_since is None

    def _name_bearer(self) -> None:
        """Has decisions name the client by its certificate, until it logs in."""
        if self.relays.journal.is_on and self.downstream.transport is not None:
            principal = certified(self.downstream.transport.get_extra_info("ssl_object"))
            self.relays.journal.named(self.peer, self.peer.client_id, principal)

    async def _dial(self, addresses: list[HostPort], problem: str) -> bool:
        cause = CloseCause.UPSTREAM_UNREACHABLE
        for address in addresses:
            try:
                await self.relays.connect(address, lambda: self.upstream)
            except (OSError, TimeoutError, UpstreamUnavailable) as error:
                problem = f"{address}: {explain(error)}"
                cause = CloseCause.UPSTREAM_TLS_FAILED if isinstance(error, ssl.SSLError) else cause
                self.relays.dialled(self.node_id, problem)
                continue
            self.relays.dialled(self.node_id, None)
            if self._closing_since is None:
                return True
            self.upstream.abort()
            return False
        self.close(cause, problem)
        return False

    async def _know_managed(self) -> bool:
        """Waits until it is known what is managed: a client that came before would take it for ordinary topics."""
        try:
            async with asyncio.timeout(self.relays.config.limits.handshake_ms / 1000):
                await self._service.ready()
        except TimeoutError:
            self.close(CloseCause.UPSTREAM_UNREACHABLE, "the layouts of managed topics could not be read in time")
            return False
        return self._closing_since is None

    def perform(self, commands: list[Command]) -> None:
        """Does what the core says."""
        for command in commands:
            match command:
                case SendUpstream(pieces):
                    self.tally.sent_upstream_bytes += self.upstream.send_all(pieces)
                case SendDownstream(pieces):
                    self.tally.sent_downstream_bytes += self.downstream.send_all(pieces)
                case LearnNodes(nodes):
                    self.relays.learn(nodes)
                case StartServing(waiting, request):
                    self._start_serving(waiting, request)
                case PassToServing(waiting, response):
                    self._parts[waiting].set_result(response)
                case Close(cause, detail):
                    self.close(cause, detail)
                case _:
                    self._steer(command)

    def _steer(
        self,
        command: EndUpstream
        | PauseDownstream
        | ResumeDownstream
        | AwaitProof
        | ReadInTurns
        | DecideInTurns
        | ReadOn
        | PauseUpstream
        | ResumeUpstream,
    ) -> None:
        match command:
            case EndUpstream():
                self._end_upstream()
            case PauseDownstream():
                self.downstream.hold("too many requests in flight")
                self.relays.note_waits(self)
            case ResumeDownstream():
                self.downstream.release("too many requests in flight")
            case AwaitProof():
                self.downstream.hold(UNPROVEN)
            case ReadInTurns():
                self._work(self._read_in_turns(command), name="read a large answer")
            case DecideInTurns(decide):
                self.downstream.hold(UNDECIDED)
                self._work(self._decide_in_turns(decide), name="decide on a large request")
            case ReadOn(held_for):
                self.relays.loop.call_soon(self._read_on, held_for)
            case PauseUpstream():
                self.upstream.hold("an answer of Kordon's own is due first")
            case ResumeUpstream():
                self.upstream.release("an answer of Kordon's own is due first")
                self.upstream.read_again()

    def _read_on(self, held_for: str) -> None:
        """Reads from a client again, beginning with what was left, once what was sent has left the worker's buffer."""
        self.downstream.release(held_for)
        self.downstream.read_again()

    async def _read_in_turns(self, asked: ReadInTurns) -> None:
        answer, nodes = await self.relays.turns.do(asked.read)
        self._take(LongReadDone(asked.waiting, asked.is_part, answer, nodes))

    async def _decide_in_turns(self, decide: Callable[[], list[Buffer]]) -> None:
        self._take(Decided(await self.relays.turns.do(decide)))

    def _take(self, event: Event) -> None:
        """Has the core take in what work of its own has come to."""
        self.perform(self.core.handle(event))
        self.bound_held()

    def _work(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Starts work that this connection relies on: they end together, whichever is first."""
        task = self.relays.tasks.start(work, name=name, heard=(SilentWriteFailed, ProtocolError))
        self._serving.add(task)
        task.add_done_callback(self._worked)

    def _worked(self, task: asyncio.Task[None]) -> None:
        self._serving.discard(task)
        match None if task.cancelled() else task.exception():
            case None:
                pass
            case SilentWriteFailed() as error:
                self.close(CloseCause.WRITE_FAILED, str(error))
            case ProtocolError() as error:
                self.close(error.cause, error.detail)
            case error:
                self.close(CloseCause.INTERNAL_ERROR, f"could not {task.get_name()}: {error!r}")

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
        self.relays.note_closed(self, cause, detail)
        if self._opening is not None and self._opening is not asyncio.current_task() and not self._is_connected:
            self._opening.cancel()
        for task in self._serving:
            task.cancel()
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
        return self.downstream.transport is not None and self.relays.downstream_tls is None

    def fail(self, doing: str, error: Exception) -> None:
        """Ends the connection because of a mistake of Kordon's own, which is reported.

        Args:
            doing: What it was about.
            error: What was raised.
        """
        self.relays.tasks.report(doing, error)
        self.close(CloseCause.INTERNAL_ERROR, f"could not {doing}: {error!r}")

    def abort(self) -> None:
        """Cuts both sides at once."""
        self.downstream.abort()
        self.upstream.abort()

    def lost(self) -> None:
        """The client's side is gone."""
        self.relays.remove(self)
        self.upstream.close()

    def _start_serving(self, waiting: Waiting, request: Any) -> None:
        part: asyncio.Future[Any] | None = None
        if waiting.asks:
            part = self._parts[waiting] = self.relays.loop.create_future()
        self._work(self._serve(waiting, request, part), name=f"answer a {waiting.route.api.name} request")

    async def _serve(self, waiting: Waiting, request: Any, part: asyncio.Future[Any] | None) -> None:
        try:
            answer = await self._service.serve(waiting.route, request, part)
            body = await self.relays.turns.do(answer) if callable(answer) else answer
        finally:
            self._parts.pop(waiting, None)
        self._take(Served(waiting, body))

    def _end_upstream(self) -> None:
        if self.upstream.transport is None:
            self.close(CloseCause.CLIENT_CLOSED, "the client closed the connection")
            return
        self.upstream.end_writing()
