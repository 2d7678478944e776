"""The sockets' side of a relay: memory to read into, and what both ends do alike.

All connections of a worker read into one buffer, which is possible because a chunk is handed on before the next one
is read: transports write at once (`set_write_buffer_limits`). What the kernel does not take stays with the
transport, which keeps a view of the buffer; the worker then takes another buffer, and the other side is not read until
this one has been written. So a connection holds one chunk at most, and nothing is copied.
"""

from __future__ import annotations

import asyncio
from typing import Final, cast

from kordon.codecs.look import Buffer
from kordon.proxy.core.tally import Flow

CHUNK_BYTES: Final = 256 * 1024
"""Most bytes read at once; a power of two above the largest request head (limits.header_bytes)."""
_TLS_HIGH_WATER_BYTES: Final = 64 * 1024
"""TLS copies what it encrypts, so it need not write at once. Above what a handshake leaves behind: uvloop would call
for a pause because of that and not take it back while reading is paused, so that two TLS sides wait for each other."""
_SPARE_BUFFERS: Final = 8
"""Buffers kept for the next slow readers: 2 MiB. Fresh ones cost as much time as a chunk's way through Kordon."""


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


class SocketEnd(asyncio.BufferedProtocol):
    """One end of a relay as both have it: reads into the shared buffer, pauses, writes, closes."""

    def __init__(self, buffer: ReadBuffer, flow: Flow) -> None:
        self.transport: asyncio.Transport | None = None
        self.ended = False
        """Whether the peer has sent its end."""
        self._buffer = buffer
        self._flow = flow
        self._left: list[memoryview] = []  # what is still written from
        self.unread = b""
        """The end of the last chunk, which comes again before the next one."""
        self._holds: set[str] = set()
        self._is_tls = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Takes the transport; called by the loop."""
        self.transport = cast("asyncio.Transport", transport)
        self._is_tls = transport.get_extra_info("sslcontext") is not None
        self.transport.set_write_buffer_limits(high=_TLS_HIGH_WATER_BYTES if self._is_tls else 0)
        if self._holds:
            self.transport.pause_reading()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Returns where the next bytes go, behind those that were left unread; called by the loop."""
        view = self._buffer.view
        if not self.unread:
            return view
        unread = len(self.unread)
        view[:unread] = self.unread
        return view[unread:]

    def keep_unread(self, chunk: memoryview, unread: int) -> None:
        """Saves the end of a chunk for the next one."""
        self.unread = bytes(chunk[len(chunk) - unread :]) if unread else b""

    def send(self, piece: Buffer) -> None:
        """Writes at once as much as the kernel takes; the transport keeps the rest."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        transport.write(piece)
        if not self._is_tls and transport.get_write_buffer_size():
            self._left.append(self._buffer.leave())
        self._flow.sent_bytes += len(piece)

    def send_all(self, pieces: list[Buffer]) -> None:
        """Does what `send` does, with several pieces in one call of the kernel."""
        if len(pieces) == 1:
            self.send(pieces[0])
            return
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        transport.writelines(pieces)
        if not self._is_tls and transport.get_write_buffer_size():
            self._left.append(self._buffer.leave())
        self._flow.sent_bytes += sum(map(len, pieces))

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
