"""Writes one worker's decision log: ends old runs, writes records, and writes all that is left at the end.

Only this part waits for a disk or a broker. While they fail, decisions wait in the backlog, and traffic does not.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from time import monotonic
from typing import Final

import structlog

from kordon.proxy.config.config import Decisions
from kordon.proxy.decisions.backlog import Backlog
from kordon.proxy.decisions.journal import Journal
from kordon.proxy.decisions.sinks import RecordTooLarge, Sink, SinkFailed
from kordon.proxy.decisions.to_files import Files
from kordon.proxy.decisions.to_topic import TopicSink
from kordon.proxy.kafka.broker_connections import BrokerConnections
from kordon.proxy.kafka.topology import Topology
from kordon.proxy.runtime.clock import now_ms
from kordon.proxy.runtime.tasks import Tasks

log = structlog.get_logger(__name__)

FLUSH_SECONDS: Final = 5.0
"""The time for which a stop waits for unwritten records."""
_LINGER_SECONDS: Final = 0.1
"""Decisions within that time are one batch."""
_BATCH_RECORDS: Final = 200
"""A batch holds up the event loop for some 20 us a record."""
_BATCH_BYTES: Final = 256 * 1024
_ORDINARY_BYTES: Final = 64 * 1024
"""A sink that refuses a smaller record is misconfigured."""
SWEEP_SECONDS: Final = 0.25
RUNS_PER_SWEEP: Final = 250
"""A thousand records a second take some 25 ms of the event loop. So the most that can be open (MOST_RUNS) have ended
within 100 s of their time, far less than the auditor waits for what comes late."""
_FIRST_RETRY_SECONDS: Final = 0.2
_LAST_RETRY_SECONDS: Final = 5.0
_LINE_SECONDS: Final = 10.0


class Recorder:
    """Writes what a journal takes in.

    Attributes:
        journal: The journal that takes decisions in.
        written: The number of records that are safe.
        failures: The number of writes that failed.
    """

    def __init__(self, worker: str, sink: Sink, config: Decisions) -> None:
        self.backlog = Backlog(socket.gethostname(), worker, config.queue_bytes, now_ms, self._want)
        self.journal = Journal(self.backlog, config.run_ms)
        self.written = 0
        self.failures = 0
        self._sink = sink
        self._sweep_seconds = min(config.run_ms / 4000, SWEEP_SECONDS)
        self._delay_seconds = 0.0
        self._tasks = Tasks()
        self._wanted = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closing = asyncio.Event()
        self._said = -_LINE_SECONDS

    @property
    def lag_seconds(self) -> float:
        """The age of the oldest unwritten decision; without one, the age at which the last one was written."""
        oldest = self.backlog.oldest_ms
        return self._delay_seconds if oldest is None else max(0.0, (now_ms() - oldest) / 1000)

    def start(self) -> None:
        """Begins to write."""
        self._tasks.keep(self._sweep, name="end runs of decisions")
        self._tasks.keep(self._write_on, name="write decisions")

    async def close(self, seconds: float = FLUSH_SECONDS) -> None:
        """Ends all runs and writes what is left. It gives up what it cannot write within the time."""
        self._closing.set()
        self.journal.end_runs()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        await self._tasks.stop()
        self.backlog.abandon(f"they could not be written within {seconds:g} s")
        await self._sink.close()

    def _want(self) -> None:
        self._idle.clear()
        self._wanted.set()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._sweep_seconds)
            self.journal.end_old_runs(RUNS_PER_SWEEP)

    async def _write_on(self) -> None:
        wait = _FIRST_RETRY_SECONDS
        while True:
            if not self.backlog:
                self._idle.set()
                self._wanted.clear()
                await self._wanted.wait()
                await self._pause(_LINGER_SECONDS)
            try:
                await self._write()
                wait = _FIRST_RETRY_SECONDS
            except SinkFailed as error:
                self._tell(error, wait)
                await self._pause(wait)
                wait = min(2 * wait, _LAST_RETRY_SECONDS)

    async def _pause(self, seconds: float) -> None:
        """Waits for a time, or until the recorder closes."""
        if self._closing.is_set():
            await asyncio.sleep(min(seconds, _FIRST_RETRY_SECONDS))
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()

    async def _write(self) -> None:
        """Writes the next records; a record that the sink never takes becomes a gap."""
        oldest_ms = self.backlog.oldest_ms
        values = self.backlog.next(_BATCH_RECORDS, _BATCH_BYTES)
        try:
            await self._sink.write(values)
        except RecordTooLarge:
            values = values[:1]
            await self._write_alone(values[0])
        self.backlog.written(values)
        self.written += len(values)
        if oldest_ms is not None:
            self._delay_seconds = max(0.0, (now_ms() - oldest_ms) / 1000)

    async def _write_alone(self, value: bytes) -> None:
        try:
            await self._sink.write([value])
        except RecordTooLarge as error:
            if len(value) < _ORDINARY_BYTES:
                raise SinkFailed(str(error)) from error  # it takes nothing at all, so no gap either
            self.written -= 1
            self.backlog.refuse_oldest(str(error))

    def _tell(self, error: SinkFailed, wait: float) -> None:
        self.failures += 1
        now = monotonic()
        if now - self._said >= _LINE_SECONDS:
            self._said = now
            log.warning(
                "decisions_unwritten",
                error=str(error),
                waiting=len(self.backlog),
                waiting_bytes=self.backlog.bytes,
                retry_seconds=wait,
            )


def make_recorder(config: Decisions, topology: Topology, worker: str) -> Recorder | None:
    """Makes the decision log of the configuration; None: it has none.

    Args:
        config: The configuration of the decision log.
    """
    match config.to:
        case "none":
            return None
        case "topic":
            return Recorder(worker, TopicSink(BrokerConnections(topology), worker, config), config)
        case "files":
            assert config.folder is not None, "the configuration has been checked"
            return Recorder(worker, Files(config.folder, worker, config.file_bytes, config.files), config)
