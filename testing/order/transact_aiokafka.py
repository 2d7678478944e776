"""aiokafka's transactional producer and its readers, which deal with errors as its transaction context does."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, ClassVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import IllegalOperation, KafkaError, ProducerFenced

from kordon.testing.order.client import Orders
from kordon.testing.order.transact import Open, Task, Transactions, read, value_of, work, written
from kordon.testing.order.transactions import ABORTED, COMMITTED

CALL_SECONDS = 60.0
"""aiokafka itself waits for ever."""


class Writer:
    """One life.

    Attributes:
        kind: Whose producer it is.
        tells_places: Whether that tells the partitions and offsets of virtual partitions.
    """

    kind: ClassVar[type[AIOKafkaProducer]] = AIOKafkaProducer
    tells_places: ClassVar[bool] = True

    def __init__(self, task: Task, transactions: Transactions) -> None:
        self._task = task
        self._transactions = transactions
        self._producer: AIOKafkaProducer | None = None

    async def transact(self) -> None:
        """Does one transaction, and whatever its errors ask for."""
        producer = self._producer or await self._start()
        begun, commits, held_seconds = self._transactions.begin()
        try:
            await asyncio.wait_for(self._send(producer, begun, held_seconds), CALL_SECONDS)
            begun.ending(commits=commits)
            ends = producer.commit_transaction if commits else producer.abort_transaction
            await asyncio.wait_for(ends(), CALL_SECONDS)
            begun.over(COMMITTED if commits else ABORTED)
        except (KafkaError, IllegalOperation, TimeoutError) as error:
            await self._give_up(producer, begun, error)

    async def _start(self) -> AIOKafkaProducer:
        config: dict[str, Any] = {"transactional_id": self._task.name, "linger_ms": 2, "metadata_max_age_ms": 1000}
        config |= {"transaction_timeout_ms": 30_000, "request_timeout_ms": 15_000}
        while True:
            producer = self.kind(bootstrap_servers=self._task.bootstrap, **config)
            try:
                await producer.start()
            except KafkaError as error:
                self._transactions.trouble("retriable", type(error).__name__)
                await producer.stop()
            else:
                self._producer = producer
                return producer

    async def _send(self, producer: AIOKafkaProducer, begun: Open, held_seconds: float) -> None:
        await producer.begin_transaction()
        answers = list[tuple[str, int, asyncio.Future[Any]]]()
        for place, (key, sequence) in enumerate(begun.records):
            if place == 1:
                await asyncio.sleep(held_seconds)
            sent = await producer.send(self._task.topic, value_of(sequence).encode(), key.encode())
            answers.append((key, sequence, sent))
        for key, sequence, answer in answers:
            at = await answer
            if at.offset >= 0 and self.tells_places:
                begun.acknowledged(key, sequence, at.partition, at.offset)

    async def _give_up(self, producer: AIOKafkaProducer, begun: Open, error: Exception) -> None:
        is_fatal = isinstance(error, ProducerFenced | IllegalOperation | TimeoutError)
        self._transactions.trouble("fatal" if is_fatal else "abortable", type(error).__name__)
        if not is_fatal:
            with suppress(KafkaError, TimeoutError):
                await asyncio.wait_for(producer.abort_transaction(), CALL_SECONDS)
                begun.over(ABORTED)
                return
        begun.lost()
        self._producer = None
        with suppress(KafkaError, TimeoutError):
            await asyncio.wait_for(producer.stop(), CALL_SECONDS)

    async def close(self) -> None:
        if self._producer is not None:
            await self._producer.stop()


async def _write(task: Task, kind: type[Writer]) -> None:
    orders = Orders()
    with written(task) as transactions:
        writer = kind(task, transactions)
        while not orders.finishing.is_set():
            await writer.transact()
            await asyncio.sleep(task.pause_ms / 1000)
        await writer.close()


async def _consume(task: Task) -> None:
    config: dict[str, Any] = {"isolation_level": task.isolation, "fetch_max_wait_ms": 100, "auto_offset_reset": "none"}
    consumer = AIOKafkaConsumer(bootstrap_servers=task.bootstrap, enable_auto_commit=False, **config)
    await consumer.start()
    partitions = [TopicPartition(task.topic, number) for number in range(task.partitions)]
    consumer.assign(partitions)
    for partition, begin in zip(partitions, task.begin_offsets, strict=True):
        consumer.seek(partition, begin)
    with read(task) as reading:
        while not reading.is_done:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                for each in records:
                    reading.take(each.partition, each.offset, each.key, each.value)
    await consumer.stop()


def write(task: Task, kind: type[Writer] = Writer) -> None:
    asyncio.run(_write(task, kind))


def consume(task: Task) -> None:
    asyncio.run(_consume(task))


if __name__ == "__main__":
    work({"write": write, "read": consume})
