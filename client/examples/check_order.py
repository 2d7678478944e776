"""Puts a topic under load with stock clients, and checks the order in which a group of two gets each key's records.

    python -m kordon.client.examples.check_order --bootstrap kordon:9092 --topic orders --virtual 12

It creates the topic, as a managed one with 3 partitions, unless it is there. Grow and shrink it meanwhile, or kill a
proxy: each line tells what was written and read so far. It runs until it is ended, or for `--seconds`. Its clients are
aiokafka's own, and know nothing of Kordon.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError

_CUSTOMERS = 50
_LINE_SECONDS = 5.0
_TICK_SECONDS = 0.05
_PATIENCE_SECONDS = 60.0


class OrderCheck:
    """Knows the number of the last record of each key that was read."""

    def __init__(self) -> None:
        self.written = 0
        """Records that the cluster has acknowledged."""
        self.failed = 0
        """Records that it has not."""
        self.read = 0
        self.again = 0
        """Records that were read once more, which a group may do after a member has gone."""
        self.out_of_order = 0
        """Records that were read before an earlier one of their key."""
        self._last: dict[str, int] = {}
        self._missing: dict[str, set[int]] = {}

    def take(self, key: str, number: int) -> None:
        """Takes a record that was read; the numbers of a key begin at 0 and leave none out.

        >>> check = OrderCheck()
        >>> for number in (0, 1, 1, 3, 2):
        ...     check.take("customer-1", number)
        >>> check.read, check.again, check.out_of_order
        (4, 1, 2)
        """
        last = self._last.get(key, -1)
        if number <= last and number not in self._missing.get(key, ()):
            self.again += 1
            return
        self.read += 1
        if number != last + 1:
            self.out_of_order += 1
        missing = self._missing.setdefault(key, set())
        missing.update(range(last + 1, number))
        missing.discard(number)
        self._last[key] = max(last, number)

    def __str__(self) -> str:
        """Returns the counts in a line."""
        return (
            f"{self.written:,} written, {self.read:,} read; {self.out_of_order} out of order, "
            f"{self.failed} failed sends, {self.again} read again"
        )


class Load:
    """Writes and reads a topic."""

    def __init__(self, bootstrap: str, topic: str, rate: int) -> None:
        self.check = OrderCheck()
        self._bootstrap = bootstrap
        self._topic = topic
        self._rate = rate
        self._run = f"{time.time_ns():x}"
        """Sets the records of this run apart from those of others in the topic."""
        self._is_over = asyncio.Event()

    def end(self) -> None:
        """Has the producer stop; what it has written is read to the end."""
        self._is_over.set()

    async def create(self, virtual: int) -> None:
        """Creates the topic with 3 partitions unless it is there."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await admin.start()
        try:
            wanted = NewTopic(self._topic, 3, 1, topic_configs={"kordon.virtual.partitions": str(virtual)})
            with suppress(TopicAlreadyExistsError):
                await admin.create_topics([wanted])
        finally:
            await admin.close()

    async def run(self) -> None:
        """Runs until `end`; then until all is read, or for a minute without progress."""
        async with AsyncExitStack() as stack:
            readers = [await stack.enter_async_context(self._consumer()) for _ in range(2)]
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            beside = [tasks.create_task(self._read(reader)) for reader in readers]
            beside.append(tasks.create_task(self._tell()))
            async with AIOKafkaProducer(bootstrap_servers=self._bootstrap, enable_idempotence=True) as producer:
                await self._write(producer)
            await self._drain()
            for task in beside:
                task.cancel()

    def _consumer(self) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            self._topic,
            bootstrap_servers=self._bootstrap,
            group_id=f"check-order-{self._run}",
            auto_offset_reset="earliest",
            metadata_max_age_ms=10_000,
        )

    async def _read(self, consumer: AIOKafkaConsumer) -> None:
        prefix = f"{self._run} "
        async for record in consumer:
            run, _, number = (record.value or b"").decode(errors="replace").partition(" ")
            if f"{run} " == prefix:
                self.check.take((record.key or b"").decode(), int(number))

    async def _write(self, producer: AIOKafkaProducer) -> None:
        numbers = dict.fromkeys((f"customer-{each}" for each in range(_CUSTOMERS)), 0)
        keys = _round(list(numbers))
        due = time.monotonic()
        while not self._is_over.is_set():
            await asyncio.sleep(max(0, due - time.monotonic()))
            key = next(keys)
            value = f"{self._run} {numbers[key]}".encode()
            numbers[key] += 1
            sent = await producer.send(self._topic, value, key=key.encode())
            sent.add_done_callback(self._told)
            due += 1 / self._rate

    def _told(self, sent: asyncio.Future[object]) -> None:
        if sent.cancelled() or sent.exception() is not None:
            self.check.failed += 1
        else:
            self.check.written += 1

    async def _drain(self) -> None:
        before, since = self.check.read, time.monotonic()
        while self.check.read < self.check.written and time.monotonic() < since + _PATIENCE_SECONDS:
            await asyncio.sleep(_TICK_SECONDS)
            if self.check.read != before:
                before, since = self.check.read, time.monotonic()

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(_LINE_SECONDS)
            _say(str(self.check))


def _round(keys: list[str]) -> Iterator[str]:
    while True:
        yield from keys


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


@contextmanager
def _until_ended(load: Load) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, load.end)
    yield
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)


async def _check_order(options: argparse.Namespace) -> int:
    load = Load(options.bootstrap, options.topic, options.rate)
    await load.create(options.virtual)
    with _until_ended(load):
        if options.seconds is not None:
            asyncio.get_running_loop().call_later(options.seconds, load.end)
        await load.run()
    _say(str(load.check))
    return int(load.check.out_of_order > 0 or load.check.read != load.check.written)


def parser() -> argparse.ArgumentParser:
    """The options of the command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--bootstrap", required=True, help="host:port of one or several Kordons, separated by commas")
    made.add_argument("--topic", required=True)
    made.add_argument("--virtual", type=int, default=12, help="virtual partitions of the topic, if it is created")
    made.add_argument("--rate", type=int, default=200, help="records a second")
    made.add_argument("--seconds", type=float, help="ends after so long; by default when it is told to")
    return made


def main() -> None:
    """The command line; ends with 1 if a record was lost or read too early."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # what a killed proxy costs stands in the counts
    try:
        sys.exit(asyncio.run(_check_order(parser().parse_args())))
    except KafkaError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
