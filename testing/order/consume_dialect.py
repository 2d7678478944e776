"""A group of the SDK's consumers, each a process: they come and go, are killed, go back, are slow, and do not answer.

Each writes down what it processes, and when it was called around a key's move.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from random import Random
from typing import Any, Final

from aiokafka import ConsumerRebalanceListener
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from kordon.client.consumer import OrderedConsumer
from kordon.client.listener import PartitionKeyRebalanceListener
from kordon.testing.order.client import (
    TELL_SECONDS,
    Orders,
    Settings,
    State,
    key_of,
    now_us,
    sequence_of,
    work_as_group,
)
from kordon.testing.order.history import Recorder, recorded

GROUP: Final = "dialect-group"
COMMIT_SECONDS: Final = 1.0
AWAY_SECONDS: Final = 1.0
CALLBACK_MS: Final = 1000
"""The time limit of callbacks: what is never answered lasts so long."""
_SLOWER: Final = 10
_USUAL_RATE: Final = 500
"""Records a second of which slow members process a tenth where no rate is asked for."""
_BACK: Final = 200
"""Records, at most, by which a member goes back."""


class Member(ConsumerRebalanceListener, PartitionKeyRebalanceListener):  # type: ignore[misc] # aiokafka says no types
    """One member, from joining to leaving; its process tells the group's by a pipe."""

    def __init__(self, settings: Settings, name: str, group: Connection, recorder: Recorder) -> None:
        self._settings = settings
        self._group = group
        self._recorder = recorder
        self._chance = Random(f"{name} {settings.seed}")  # noqa: S311 - chance that can be repeated
        self._positions: dict[int, int] = {}
        self._counted = State("group", GROUP)
        """What the group has not been told yet."""
        self._is_finishing = self._is_stopping = False
        self._commits_when_revoked = True
        self._consumer = OrderedConsumer(
            bootstrap_servers=settings.bootstrap,
            group_id=GROUP,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=10_000,
            heartbeat_interval_ms=1000,
            metadata_max_age_ms=1000,
            fetch_max_wait_ms=200,
            max_partition_fetch_bytes=settings.fetch_bytes,
            key_callback_timeout_ms=CALLBACK_MS,
        )
        self._consumer.subscribe([settings.topic], listener=self, key_listener=self)

    async def live(self, until: float, *, commits_at_end: bool) -> None:
        """Works until a time (of time.monotonic), or for ever while the group drains.

        Args:
            until: When it leaves.
            commits_at_end: Or else the next owner of its partitions has to go back.
        """
        asyncio.get_running_loop().add_reader(self._group.fileno(), self._obey)
        await self._consumer.start()
        next_commit = next_told = time.monotonic()
        next_rewind = self._next_rewind()
        while not self._is_stopping and (self._is_finishing or time.monotonic() < until):
            await self._process_one()
            now = time.monotonic()
            if now > next_commit:
                await self._commit(self._positions)
                next_commit = now + COMMIT_SECONDS
            if now > next_told:
                self._tell()
                next_told = now + TELL_SECONDS
            if now > next_rewind and not self._is_finishing:
                self._go_back()
                next_rewind = self._next_rewind()
        self._commits_when_revoked = commits_at_end
        await self._consumer.stop()
        self._tell()

    def _obey(self) -> None:
        order = self._group.recv()
        self._is_finishing = True
        self._is_stopping = order == "stop"

    def _tell(self) -> None:
        self._group.send(self._counted)
        self._counted = State("group", GROUP)

    async def _process_one(self) -> None:
        # one by one: what comes of several partitions may be revoked while the first is processed
        for partition, messages in (await self._consumer.getmany(timeout_ms=200, max_records=1)).items():
            for message in messages:
                key, sequence = key_of(message.key), sequence_of(message.value)
                at = {"p": partition.partition, "o": message.offset}
                self._recorder.note("processed", now_us(), **at, k=key, s=sequence)
                self._positions[partition.partition] = message.offset + 1
                self._counted.reach(partition.partition, message.offset)
                if self._settings.consume_rate and not self._is_finishing:
                    await asyncio.sleep(1 / self._settings.consume_rate)

    async def _commit(self, positions: dict[int, int]) -> None:
        self._recorder.flush()
        if not positions:
            return
        at = dict(positions)
        try:
            await self._consumer.commit({TopicPartition(self._settings.topic, p): offset for p, offset in at.items()})
        except KafkaError:
            return  # it may or may not be there: whoever owns the partition next begins at one or the other
        self._recorder.note("committed", now_us(), at=list(at.items()))

    def _next_rewind(self) -> float:
        seconds = self._settings.rewind_seconds
        return time.monotonic() + seconds * self._chance.uniform(0.5, 1.5) if seconds else float("inf")

    def _go_back(self) -> None:
        """Goes to an earlier offset of one partition: what is delivered again is meant to be."""
        partitions = [p for p in self._positions if self._positions[p] > 0]
        if partitions:
            partition = self._chance.choice(partitions)
            offset = max(0, self._positions[partition] - self._chance.randint(1, _BACK))
            self._recorder.note("sought", now_us(), p=partition, o=offset)
            self._consumer.seek(TopicPartition(self._settings.topic, partition), offset)
            self._positions[partition] = offset

    # --- partitions

    async def on_partitions_assigned(  # pyright: ignore[reportIncompatibleMethodOverride] # both are allowed
        self, assigned: Collection[TopicPartition]
    ) -> None:
        self._recorder.note("assigned", now_us(), p=sorted(each.partition for each in assigned))

    async def on_partitions_revoked(  # pyright: ignore[reportIncompatibleMethodOverride] # both are allowed
        self, revoked: Collection[TopicPartition]
    ) -> None:
        """Notes what it has no more; what it knew of the keys is stored."""
        going = sorted(each.partition for each in revoked)
        if self._commits_when_revoked:
            await self._commit({number: self._positions[number] for number in going if number in self._positions})
        for number in going:
            self._positions.pop(number, None)
        self._recorder.note("revoked", now_us(), p=going, lost=False)
        self._recorder.flush()

    # --- keys

    async def on_partition_key_maybe_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Flushes: what it has processed is in its history."""
        at = [(p, self._positions[p]) for p in sorted(each.partition for each in revoked) if p in self._positions]
        await self._answer()
        self._recorder.note("key_maybe_revoked", now_us(), at=at)
        self._recorder.flush()

    async def on_partition_key_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._recorder.note("key_assigned", now_us(), p=sorted(each.partition for each in assigned))
        await self._answer()

    async def _answer(self) -> None:
        """Takes a little time, or all there is."""
        is_silent = not self._is_finishing and self._chance.random() * 100 < self._settings.silent_percent
        await asyncio.sleep(3600 if is_silent else self._chance.uniform(0, 0.05))


def live(settings: Settings, name: str, group: Connection, stay_seconds: float) -> None:
    """Runs one member, in a process of its own."""
    chance = Random(f"{name} {settings.seed} character")  # noqa: S311 - chance that can be repeated
    if chance.random() * 100 < settings.slow_percent:
        settings = replace(settings, consume_rate=(settings.consume_rate or _USUAL_RATE) // _SLOWER)

    async def run(recorder: Recorder) -> None:
        member = Member(settings, name, group, recorder)
        await member.live(time.monotonic() + stay_seconds, commits_at_end=chance.random() < 0.5)

    with recorded(settings.folder, name, group=GROUP, member=name, partitions="physical") as recorder:
        asyncio.run(run(recorder))
        recorder.note("ended", now_us())


def come_and_go(
    processes: Any,
    stem: str,
    settings: Settings,
    orders: Orders,
    state: State,
    *,
    live: Callable[[Settings, str, Connection, float], None],
) -> None:
    """Lets one member after another live; some are killed.

    Args:
        processes: Where processes come from (multiprocessing).
        live: Runs one member, in a process of its own, for so many seconds.
    """
    chance = Random(f"{stem} {settings.seed}")  # noqa: S311 - chance that can be repeated
    life = 0
    while not orders.stopping.is_set():
        stay_seconds = settings.churn_seconds * chance.uniform(1, 2) or 1e9
        is_killed = settings.churn_seconds > 0 and chance.random() * 100 < settings.killed_percent
        ours, theirs = processes.Pipe()
        told = settings, f"{stem}.{life}", theirs, 1e9 if is_killed else stay_seconds
        process = processes.Process(target=live, args=told, daemon=True)
        process.start()
        theirs.close()
        _watch(process, ours, orders, state, time.monotonic() + stay_seconds if is_killed else None)
        orders.finishing.wait(AWAY_SECONDS)
        life += 1


def _watch(process: Any, pipe: Connection, orders: Orders, state: State, kill_at: float | None) -> None:
    """Hears how far a member comes, tells it what the group is told, and sees it end."""
    is_told_to_finish = is_told_to_stop = False
    while True:
        if kill_at is not None and time.monotonic() > kill_at and not orders.finishing.is_set():
            process.kill()
        try:
            if pipe.poll(TELL_SECONDS / 3):
                _add(state, pipe.recv())
            if orders.stopping.is_set() and not is_told_to_stop:
                pipe.send("stop")
                is_told_to_finish = is_told_to_stop = True
            elif orders.finishing.is_set() and not is_told_to_finish:
                pipe.send("finish")
                is_told_to_finish = True
        except (EOFError, BrokenPipeError, ConnectionResetError):
            break
    process.join()
    if process.exitcode not in (0, -signal.SIGKILL, _NOT_HEARD):
        _FAILED.append(process.exitcode)


_ADDING: Final = threading.Lock()
_NOT_HEARD: Final = 255
"""What multiprocessing says where it did not hear how a process ended (`popen_forkserver.py`). One that fails has 1."""
_FAILED: Final[list[int]] = []
"""Exit codes of members that ended otherwise than they should."""


def _add(state: State, told: State) -> None:
    with _ADDING:
        state.records += told.records
        for partition, offset in told.ends.items():
            state.ends[partition] = max(offset, state.ends.get(partition, -1))


def work_by_processes(group: str, live: Callable[[Settings, str, Connection, float], None]) -> None:
    """Has members come and go, each a process; ends with an error if one of them did."""
    forkserver = multiprocessing.get_context("forkserver")
    forkserver.set_forkserver_preload(["kordon.client"])
    work_as_group(group, partial(come_and_go, forkserver, live=live))
    if _FAILED:
        sys.exit(f"members ended with exit codes {_FAILED}")


if __name__ == "__main__":
    work_by_processes(GROUP, live)
