"""A producer that numbers the records of each key, and a group that reads them: stock librdkafka clients in threads."""

from __future__ import annotations

import threading
import time
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import Consumer, KafkaError, Message, Producer

from kordon.testing.key_order import KeyOrder
from kordon.testing.waiting import wait_until

KEYS: Final = 200
MEMBERS: Final = 2
_PATIENCE_SECONDS: Final = 90.0
_LOST_SECONDS: Final = 20.0
_REFRESH_MS: Final = 1000
"""After which clients look for new partitions; the default is five minutes, which nobody wants to wait for here."""
_AT_ONCE: Final = 20
_LATE_SECONDS: Final = 1.0
"""What the writer makes up for after it had to wait."""
_COMMON: Final[dict[str, Any]] = {"log_level": 0, "topic.metadata.refresh.interval.ms": _REFRESH_MS}


class KeyedTraffic:
    """Clients at work on a topic that exists: the producer from entering this context, the group from `begin_reading`.

    Args:
        bootstrap: Addresses that clients begin at.
        records_per_second: How many are written.
    """

    def __init__(self, bootstrap: str, topic: str, records_per_second: int) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._rate = records_per_second
        self._lock = threading.Lock()
        self._order = KeyOrder()
        self._worst_ack = 0.0
        self._failed = 0
        self._writes = threading.Event()
        self._reads = threading.Event()
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._members = [threading.Thread(target=self._read, daemon=True) for _ in range(MEMBERS)]

    def __enter__(self) -> Self:
        self._writes.set()
        self._writer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._writes.clear()
        self._reads.clear()
        self._writer.join()
        for member in self._members:
            if member.is_alive():
                member.join()

    def set_rate(self, records_per_second: int) -> None:
        """Has so many records written from now on."""
        self._rate = records_per_second

    def begin_reading(self) -> None:
        """Has the group read the topic from its beginning."""
        self._reads.set()
        for member in self._members:
            member.start()

    def order(self) -> KeyOrder:
        """Returns what was counted so far; it goes on changing until the context is left."""
        return self._order

    def catch_up(self) -> None:
        """Ends the writing and returns when the group has read everything.

        What never comes is left as `KeyOrder.missing`: this gives up when nothing more was read for a while.
        """
        self._writes.clear()
        self._writer.join()
        read, since = -1, time.monotonic()
        while self._order.missing and time.monotonic() - since < _LOST_SECONDS:
            if self._order.read != read:
                read, since = self._order.read, time.monotonic()
            time.sleep(0.1)

    def wait_for(self, acknowledged: int) -> None:
        """Returns when so many more records are acknowledged."""
        enough = self._order.acknowledged + acknowledged
        wait_until("records are acknowledged", lambda: self._order.acknowledged >= enough, _PATIENCE_SECONDS)

    def worst_ack(self) -> float:
        """Returns the longest that a record has waited for its acknowledgement since the last call, in seconds."""
        with self._lock:
            worst, self._worst_ack = self._worst_ack, 0.0
            return worst

    @property
    def failed(self) -> int:
        """Records that the producer gave up."""
        return self._failed

    def _write(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "linger.ms": 5, **_COMMON}
        )
        due, sent = time.monotonic(), 0
        while self._writes.is_set():
            for _ in range(_AT_ONCE):
                number, key = divmod(sent, KEYS)
                name = f"customer-{key}"
                told = partial(self._acknowledged, name, number, time.monotonic())
                producer.produce(self._topic, key=name, value=str(number), on_delivery=told)
                sent += 1
            producer.poll(0)
            due = max(due + _AT_ONCE / self._rate, time.monotonic() - _LATE_SECONDS)
            time.sleep(max(0.0, due - time.monotonic()))
        producer.flush(_PATIENCE_SECONDS)

    def _acknowledged(self, key: str, number: int, sent_at: float, error: KafkaError | None, message: Message) -> None:
        with self._lock:
            if error is not None:
                self._failed += 1
                return
            self._order.wrote(key, number)
            self._worst_ack = max(self._worst_ack, time.monotonic() - sent_at)

    def _read(self) -> None:
        settings = {"group.id": f"{self._topic}-readers", "auto.offset.reset": "earliest"}
        consumer = Consumer({"bootstrap.servers": self._bootstrap, **settings, **_COMMON})
        consumer.subscribe([self._topic])
        try:
            while self._reads.is_set():
                for message in consumer.consume(_AT_ONCE, 0.1):
                    self._process(message)
        finally:
            consumer.close()

    def _process(self, message: Message) -> None:
        key, value, partition, offset = message.key(), message.value(), message.partition(), message.offset()
        if message.error() or key is None or value is None or partition is None or offset is None:
            return
        with self._lock:
            self._order.took(key.decode(), int(value), (partition, offset))
