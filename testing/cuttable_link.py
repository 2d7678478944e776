"""A TCP relay that can be cut as a network is cut: nothing passes, nobody is told, and later all of it arrives."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Final, Self

_CHUNK_BYTES: Final = 64 * 1024
_START_SECONDS: Final = 60.0
_LATE_SECONDS: Final = 1.0


class CuttableLink:
    """Passes connections on, in a thread of its own; use it as a context manager.

    While a direction is cut, connections stay open and bytes wait, as in a network that loses its packets and whose TCP
    repeats them: what was under way arrives when the cut is healed, however old it is by then.

    Args:
        port: Of 127.0.0.1, where it listens.
        target: Port of 127.0.0.1, to which it passes connections on.
    """

    def __init__(self, port: int, target: int) -> None:
        self.late = b""
        """Answers in which this stands arrive a second later, with all behind them; empty: none do."""
        self._port = port
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._requests, self._answers = asyncio.Event(), asyncio.Event()
        self._requests.set()
        self._answers.set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._listening = threading.Event()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listening.wait(_START_SECONDS), f"nothing listens on port {self._port}"
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(_START_SECONDS)
        self._loop.close()

    def cut_requests(self) -> AbstractContextManager[None]:
        """Lets nothing pass to the target, which works on nothing new; then what has waited, and all that comes."""
        return self._cut(self._requests)

    def cut_answers(self) -> AbstractContextManager[None]:
        """Lets nothing pass from the target, which works on; then what has waited, and all that comes."""
        return self._cut(self._answers)

    @contextmanager
    def _cut(self, way: asyncio.Event) -> Generator[None]:
        self._loop.call_soon_threadsafe(way.clear)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(way.set)

    async def _run(self) -> None:
        server = await asyncio.start_server(self._connect, "127.0.0.1", self._port)
        self._listening.set()
        await self._ended.wait()
        server.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._requests.wait()
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        for source, sink, way in ((reader, far_writer, self._requests), (far_reader, writer, self._answers)):
            pump = self._loop.create_task(self._pump(source, sink, way))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, way: asyncio.Event) -> None:
        try:
            while chunk := await source.read(_CHUNK_BYTES):
                await way.wait()
                if way is self._answers and self.late and self.late in chunk:
                    await asyncio.sleep(_LATE_SECONDS)
                sink.write(chunk)
                await sink.drain()
            await way.wait()  # the end of a connection does not pass a cut either
        except ConnectionError:
            pass
        finally:
            sink.close()
