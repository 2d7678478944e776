"""A group of the SDK's cooperative consumers, each a process: they come and go, are killed, and their handlers fail.

Each writes down what it starts, finishes and commits (`cooperative.py`).
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from functools import partial
from multiprocessing.connection import Connection
from random import Random
from typing import Final

from aiokafka.structs import TopicPartition

from kordon.client.cooperative.consumer import CooperativeConsumer
from kordon.client.cooperative.entry import Progress
from kordon.client.cooperative.settings import Record
from kordon.testing.order.client import TELL_SECONDS, Settings, State, key_of, now_us, sequence_of
from kordon.testing.order.consume_dialect import work_by_processes
from kordon.testing.order.cooperative import cooperative_history
from kordon.testing.order.history import Recorder

# pyright: reportPrivateUsage=false

_CONCURRENCY: Final = 50
_HANDLER_SECONDS: Final = 0.02
"""At most; drawn for each record."""
_FAILING_PERCENT: Final = 2
_SLOW_SECONDS: Final = 1.5
"""For one record every two of these: longer than it takes until the next commit, which therefore has ranges."""


class _FailsNow(Exception):  # noqa: N818  it is drawn
    """What a handler raises now and then."""


class Member:
    """One member, from joining to leaving; its process tells the group's by a pipe."""

    def __init__(self, settings: Settings, group: str, name: str, pipe: Connection, recorder: Recorder) -> None:
        self._pipe = pipe
        self._recorder = recorder
        self._chance = Random(f"{name} {settings.seed}")  # noqa: S311 - chance that can be repeated
        self._counted = State("group", group)
        """What the group has not been told yet."""
        self._is_finishing = self._is_stopping = False
        self._slow_at = 0.0
        self._consumer = CooperativeConsumer(
            settings.topic,
            bootstrap_servers=settings.bootstrap,
            group_id=group,
            view="physical" if group == "cooperative-dialect" else "virtual",
            concurrency=_CONCURRENCY,
            redelivery_backoff_ms=20,
            drain_timeout_ms=3_000,
            auto_offset_reset="earliest",
            session_timeout_ms=10_000,
            heartbeat_interval_ms=1000,
            metadata_max_age_ms=1000,
            fetch_max_wait_ms=200,
            max_partition_fetch_bytes=settings.fetch_bytes,
        )
        store = self._consumer._membership._store
        self._write, store.write = store.write, self._commit  # type: ignore[method-assign]

    async def live(self, until: float) -> None:
        """Works until a time (of time.monotonic), or for ever while the group drains."""
        asyncio.get_running_loop().add_reader(self._pipe.fileno(), self._obey)
        await self._consumer.start()
        running = asyncio.ensure_future(self._consumer.run(self._handle))
        while not self._is_stopping and not running.done() and (self._is_finishing or time.monotonic() < until):
            await asyncio.sleep(TELL_SECONDS)
            self._tell()
        await self._consumer.stop()
        self._tell()
        await running

    def _obey(self) -> None:
        order = self._pipe.recv()
        self._is_finishing = True
        self._is_stopping = order == "stop"

    def _tell(self) -> None:
        for tp in self._consumer.assignment():
            self._counted.ends[tp.partition] = self._consumer.progress(tp).stable - 1
        self._pipe.send(self._counted)
        self._counted = State("group", self._counted.name)

    def _note(self, event: str, record: Record) -> None:
        at = {"p": record.partition, "o": record.offset}
        self._recorder.note(event, now_us(), **at, k=key_of(record.key), s=sequence_of(record.value))
        self._recorder.flush()

    async def _handle(self, record: Record) -> None:
        self._note("started", record)
        await asyncio.sleep(self._chance.uniform(0, _HANDLER_SECONDS) if self._is_quick() else _SLOW_SECONDS)
        if self._chance.random() * 100 < _FAILING_PERCENT:
            self._note("failed", record)
            raise _FailsNow
        self._note("finished", record)
        self._counted.records += 1

    def _is_quick(self) -> bool:
        """Says whether the next handler is: all but one, now and then."""
        is_slow = time.monotonic() >= self._slow_at
        if is_slow:
            self._slow_at = time.monotonic() + 2 * _SLOW_SECONDS
        return not is_slow

    async def _commit(self, progress: Mapping[TopicPartition, Progress]) -> None:
        await self._write(progress)
        at = [[tp.partition, each.stable, [*each.ranges]] for tp, each in progress.items()]
        self._recorder.note("committed", now_us(), at=at)
        self._recorder.flush()


def live(group: str, settings: Settings, name: str, pipe: Connection, stay_seconds: float) -> None:
    """Runs one member, in a process of its own."""

    async def run(recorder: Recorder) -> None:
        await Member(settings, group, name, pipe, recorder).live(time.monotonic() + stay_seconds)

    with cooperative_history(settings.folder, name) as recorder:
        asyncio.run(run(recorder))


if __name__ == "__main__":
    name = sys.argv.pop()
    work_by_processes(name, partial(live, name))
