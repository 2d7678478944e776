"""librdkafka's transactional producer and its readers, as confluent_kafka's own guide has them deal with errors."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from kordon.testing.order.client import Orders, key_of, sequence_of
from kordon.testing.order.transact import Open, Task, Transactions, pause, read, value_of, work, written
from kordon.testing.order.transactions import ABORTED, COMMITTED

CALL_SECONDS = 30.0


class Replace(RuntimeError):  # noqa: N818 - says what is to be done
    """The producer has had a fatal error."""


class Writer:
    """One life."""

    def __init__(self, task: Task, transactions: Transactions) -> None:
        self._task = task
        self._transactions = transactions
        self._producer = self._new()

    def _new(self) -> Producer:
        config = {
            "bootstrap.servers": self._task.bootstrap, "transactional.id": self._task.name, "linger.ms": 2,
            "topic.metadata.refresh.interval.ms": 1000, "transaction.timeout.ms": 30_000,
        }  # fmt: skip
        producer = Producer(config)
        self._call(partial(producer.init_transactions, CALL_SECONDS))
        return producer

    def transact(self) -> None:
        """Does one transaction, and whatever its errors ask for."""
        begun, commits, held_seconds = self._transactions.begin()
        try:
            self._try(begun, held_seconds, commits=commits)
        except Replace:
            begun.lost()
            self._producer = self._new()

    def _try(self, begun: Open, held_seconds: float, *, commits: bool) -> None:
        try:
            self._call(self._producer.begin_transaction)
            for place, (key, sequence) in enumerate(begun.records):
                if place == 1:
                    time.sleep(held_seconds)
                self._producer.produce(
                    self._task.topic, value_of(sequence), key, on_delivery=partial(self._answered, begun)
                )
            self._producer.flush(CALL_SECONDS)
            begun.ending(commits=commits)
            if commits:
                self._call(partial(self._producer.commit_transaction, CALL_SECONDS))
                begun.over(COMMITTED)
                return
        except KafkaException as error:
            self._transactions.trouble("abortable", error.args[0].name())
        self._abort(begun)

    def _abort(self, begun: Open) -> None:
        try:
            self._call(partial(self._producer.abort_transaction, CALL_SECONDS))
        except KafkaException as error:
            self._transactions.trouble("fatal", error.args[0].name())
            raise Replace from error
        begun.over(ABORTED)

    def _call(self, call: Callable[[], None]) -> None:
        """Calls again what can be called again; raises Replace, or KafkaException for what asks for an abort."""
        while True:
            try:
                call()
            except KafkaException as error:
                told: KafkaError = error.args[0]
                if told.fatal():
                    self._transactions.trouble("fatal", told.name())
                    raise Replace from error
                if not told.retriable() or told.txn_requires_abort():
                    raise
                self._transactions.trouble("retriable", told.name())
                time.sleep(0.1)
            else:
                return

    @staticmethod
    def _answered(begun: Open, error: KafkaError | None, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        if error is None and partition is not None and offset is not None and offset >= 0:
            begun.acknowledged(key_of(message.key()), sequence_of(message.value()), partition, offset)


def write(task: Task) -> None:
    orders = Orders()
    with written(task) as transactions:
        writer = Writer(task, transactions)
        while not orders.finishing.is_set():
            writer.transact()
            pause(task)


def consume(task: Task) -> None:
    """Reads from where it is told until it has the last record of each partition."""
    consumer = Consumer({
        "bootstrap.servers": task.bootstrap, "group.id": task.name, "enable.auto.commit": False,
        "isolation.level": task.isolation, "auto.offset.reset": "error", "fetch.wait.max.ms": 100,
    })  # fmt: skip
    begins = task.begin_offsets if task.begins else [OFFSET_BEGINNING] * task.partitions
    consumer.assign([TopicPartition(task.topic, partition, begin) for partition, begin in enumerate(begins)])
    with read(task) as reading:
        while not reading.is_done:
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._AUTO_OFFSET_RESET or error.fatal():
                    raise KafkaException(error)
                continue
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            reading.take(partition, offset, message.key(), message.value())
    consumer.close()


if __name__ == "__main__":
    work({"write": write, "read": consume})
