"""The floor: the least that any proxy in Python must do, as something to measure Kordon against.

A relay that looks at every frame's header and at nothing else, and hands on the chunks as they come. It knows no
limits, no TLS and no addresses: the listener it leads to must advertise the floor's own port.

All connections read into one buffer. That is safe because a chunk is handed on before the next one is read:
`set_write_buffer_limits(high=0)` makes uvloop write at once instead of at the end of the loop's turn. What the kernel
does not take, the transport keeps as a view of the buffer; then the relay takes another buffer, and stops reading
until that rest is written. Nothing is copied.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import socket
from collections.abc import Coroutine, Sequence
from struct import Struct
from typing import Final, cast

import uvloop

REQUEST_HEAD: Final = Struct(">ihhi")
"""Size, api_key, api_version, correlation_id: how every request begins (Kafka protocol guide, "Request header")."""
RESPONSE_HEAD: Final = Struct(">ii")
"""Size, correlation_id."""
SIZE_BYTES: Final = 4
CHUNK_BYTES: Final = 256 * 1024
"""Most bytes read at once, unless told otherwise."""


class Heads:
    """Finds and reads the frame heads in a stream that comes in chunks.

    Args:
        head: How a frame begins; its first field is the size of what follows that field.
    """

    def __init__(self, head: Struct) -> None:
        self.frames = 0
        """Heads read so far."""
        self.last: tuple[int, ...] = ()
        """The fields of the last one."""
        self._unpack_from = head.unpack_from
        self._head_bytes = head.size
        self._until_next = 0  # bytes from the beginning of the next chunk to the next head
        self._begun = b""  # a head of which the end is still to come

    def look(self, chunk: memoryview, nbytes: int) -> None:
        """Reads the heads that lie in the first `nbytes` of a chunk, or end there."""
        at = self._until_next
        if self._begun:
            at = self._finish_begun(chunk, nbytes)
        last_start = nbytes - self._head_bytes
        while at <= last_start:
            self.last = fields = self._unpack_from(chunk, at)
            self.frames += 1
            at += SIZE_BYTES + fields[0]
        if at < nbytes:
            self._begun += bytes(chunk[at:nbytes])
            at = nbytes
        self._until_next = at - nbytes

    def _finish_begun(self, chunk: memoryview, nbytes: int) -> int:
        """Completes a head that began in an earlier chunk; returns where the next one begins."""
        begun = self._begun
        head = begun + bytes(chunk[: min(self._head_bytes - len(begun), nbytes)])
        if len(head) < self._head_bytes:
            return 0  # all of this chunk is still part of the head
        self._begun = b""
        self.last = fields = self._unpack_from(head)
        self.frames += 1
        size: int = fields[0]
        return SIZE_BYTES + size - len(begun)


class ReadBuffer:
    """The memory that all connections read into."""

    def __init__(self, chunk_bytes: int) -> None:
        self.chunk_bytes = chunk_bytes
        self.view = memoryview(bytearray(chunk_bytes))

    def leave(self) -> None:
        """Leaves the memory to the transport that still writes from it, and takes new."""
        self.view = memoryview(bytearray(self.chunk_bytes))


class _End(asyncio.BufferedProtocol):
    """One of the two ends of a relayed connection: what it reads, the other end writes."""

    peer: _End
    transport: asyncio.Transport

    def __init__(self, buffer: ReadBuffer, head: Struct) -> None:
        self._buffer = buffer
        self._look = Heads(head).look
        self._connected = False

    @property
    def is_open(self) -> bool:
        return self._connected and not self.transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=0)
        self._connected = True

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer.view

    def buffer_updated(self, nbytes: int) -> None:
        buffer = self._buffer
        view = buffer.view
        self._look(view, nbytes)
        to = self.peer.transport
        to.write(view[:nbytes])
        if to.get_write_buffer_size():
            buffer.leave()

    def pause_writing(self) -> None:
        if self.peer.is_open:
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.peer.is_open:
            self.peer.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connected = False
        if self.peer.is_open:
            self.peer.transport.close()


class Floor:
    """The listening relay.

    Args:
        upstream: Host and port of a broker's listener that advertises the floor's port.
    """

    def __init__(self, upstream: tuple[str, int], chunk_bytes: int = CHUNK_BYTES) -> None:
        self._upstream = upstream
        self._buffer = ReadBuffer(chunk_bytes)
        self._tasks: set[asyncio.Task[None]] = set()
        self._socket: socket.socket | None = None

    def listen(self, host: str, port: int) -> int:
        """Relays every connection from now on; returns the port, a free one for port 0; raises OSError."""
        self._socket = socket.create_server((host, port), backlog=4096)
        self._socket.setblocking(False)
        self._start(self._accept(self._socket))
        return int(self._socket.getsockname()[1])

    async def close(self) -> None:
        """Stops listening; open connections are left alone."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            accepted, _ = await asyncio.get_running_loop().sock_accept(listening)
            self._start(self._relay(accepted))

    async def _relay(self, accepted: socket.socket) -> None:
        """Dials the broker first: uvloop reads from a new transport at once, whatever `connection_made` says."""
        loop = asyncio.get_running_loop()
        downstream, upstream = _End(self._buffer, REQUEST_HEAD), _End(self._buffer, RESPONSE_HEAD)
        downstream.peer, upstream.peer = upstream, downstream
        try:
            await loop.create_connection(lambda: upstream, *self._upstream)
        except OSError:
            accepted.close()
            return
        await loop.connect_accepted_socket(lambda: downstream, accepted)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _run(listen: tuple[str, int], upstream: tuple[str, int], chunk_bytes: int) -> None:
    floor = Floor(upstream, chunk_bytes)
    port = floor.listen(*listen)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    print(f"floor: {listen[0]}:{port} -> {upstream[0]}:{upstream[1]}, {chunk_bytes} bytes a read", flush=True)
    await stopped.wait()
    await floor.close()


def _host_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m kordon.bench.floor", description="A bare header-parsing relay.")
    parser.add_argument("--listen", type=_host_port, required=True, metavar="HOST:PORT")
    parser.add_argument("--upstream", type=_host_port, required=True, metavar="HOST:PORT")
    parser.add_argument("--chunk-bytes", type=int, default=CHUNK_BYTES, help="most bytes read at once")
    told = parser.parse_args(arguments)
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(_run(told.listen, told.upstream, told.chunk_bytes))


if __name__ == "__main__":
    main()
