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
from collections.abc import Sequence
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
        """Whether it is connected and not about to close."""
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


class _Downstream(_End):
    """The client's end; it dials the broker before it reads."""

    def __init__(self, buffer: ReadBuffer, upstream: tuple[str, int]) -> None:
        super().__init__(buffer, REQUEST_HEAD)
        self.peer = _End(buffer, RESPONSE_HEAD)
        self.peer.peer = self
        self._upstream = upstream
        self._dialling: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.pause_reading()
        self._dialling = asyncio.get_running_loop().create_task(self._dial())

    async def _dial(self) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self.peer, *self._upstream)
        except OSError:
            self.transport.abort()
            return
        if self.is_open:
            self.transport.resume_reading()
        else:
            self.peer.transport.abort()


async def serve(listen: tuple[str, int], upstream: tuple[str, int], chunk_bytes: int = CHUNK_BYTES) -> asyncio.Server:
    """Relays every connection to `listen` to `upstream`.

    Args:
        listen: Host and port; port 0 takes a free one.
        upstream: Host and port of a broker's listener that advertises `listen`.
        chunk_bytes: Most bytes read at once.

    Returns:
        The listening server; closing it leaves open connections alone.

    Raises:
        OSError: The port cannot be opened.
    """
    buffer = ReadBuffer(chunk_bytes)
    return await asyncio.get_running_loop().create_server(lambda: _Downstream(buffer, upstream), *listen, backlog=4096)


async def _run(listen: tuple[str, int], upstream: tuple[str, int], chunk_bytes: int) -> None:
    server = await serve(listen, upstream, chunk_bytes)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    print(f"floor: {listen[0]}:{listen[1]} -> {upstream[0]}:{upstream[1]}, {chunk_bytes} bytes a read", flush=True)
    await stopped.wait()
    server.close()


def _host_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the floor until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m kordon.bench.floor", description="A bare header-parsing relay.")
    parser.add_argument("--listen", type=_host_port, required=True, metavar="HOST:PORT")
    parser.add_argument("--upstream", type=_host_port, required=True, metavar="HOST:PORT")
    parser.add_argument("--chunk-bytes", type=int, default=CHUNK_BYTES, help="most bytes read at once")
    told = parser.parse_args(arguments)
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(_run(told.listen, told.upstream, told.chunk_bytes))


if __name__ == "__main__":
    main()
