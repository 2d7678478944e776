"""Real clients at work on a managed topic while a test breaks things: two idempotent producers, two running groups."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Self

from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer

from kordon.testing.broker_features import GROUP_PROTOCOLS
from kordon.testing.managed_clients import KEYS, Sender, read
from kordon.testing.waiting import wait_until

_PATIENCE_SECONDS: Final = 90.0
_END_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.01

Numbered = tuple[bytes, int]
"""A key and the number that is the value."""


class AioSender:
    """An idempotent aiokafka producer that numbers its records, and keeps what was acknowledged.

    Args:
        bootstrap: Of a Kordon that lives to the end: aiokafka never returns to its bootstrap servers, so that it is
            lost together with the one that it took by chance among several.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.sent = 0
        self.acknowledged: list[Numbered] = []
        self._bootstrap = bootstrap
        self._topic = topic
        self._waiting: set[asyncio.Future[Any]] = set()

    async def send_until(self, stopping: threading.Event) -> None:
        """Sends without a break, then waits for the last answers."""
        config: dict[str, Any] = {"enable_idempotence": True, "linger_ms": 5, "metadata_max_age_ms": 1000}
        async with AIOKafkaProducer(bootstrap_servers=self._bootstrap, **config) as producer:
            while not stopping.is_set():
                key, number = f"aio-{self.sent % KEYS}".encode(), self.sent
                self.sent += 1
                answer = await producer.send(self._topic, str(number).encode(), key)
                self._waiting.add(answer)
                answer.add_done_callback(partial(self._answered, (key, number)))
                await asyncio.sleep(_PAUSE_SECONDS)
            if self._waiting:
                await asyncio.wait(set(self._waiting), timeout=_PATIENCE_SECONDS)

    def _answered(self, what: Numbered, answer: asyncio.Future[Any]) -> None:
        self._waiting.discard(answer)
        if not answer.cancelled() and answer.exception() is None:
            self.acknowledged.append(what)


class Reader:
    """A group of one member that reads all the time."""

    def __init__(self, bootstrap: str, topic: str, protocol: str) -> None:
        self.protocol = protocol
        self.got: list[Numbered] = []
        """In the order of delivery; what a crash has rewound comes again."""
        self.seen: set[Numbered] = set()
        self._topic = topic
        config = {"bootstrap.servers": bootstrap, "group.id": f"{topic}-{protocol}", "group.protocol": protocol}
        self._config = config | {"auto.offset.reset": "earliest", "topic.metadata.refresh.interval.ms": "2000"}

    def read_until(self, stopping: threading.Event) -> None:
        consumer = Consumer(self._config)
        consumer.subscribe([self._topic])
        while not stopping.is_set():
            messages = consumer.consume(200, 0.1)
            read = [(each.key() or b"", int(each.value() or b"-1")) for each in messages if each.error() is None]
            self.got += read
            self.seen.update(read)
        consumer.close()


def assert_in_order(who: str, got: Sequence[Numbered]) -> None:
    """Each record that is new to a group has a higher number than all of its key before (promise 1)."""
    highest: dict[bytes, int] = {}
    seen: set[Numbered] = set()
    for key, number in got:
        if (key, number) in seen:
            continue
        seen.add((key, number))
        assert number > highest.get(key, -1), f"{who}: {key!r}: {number} after {highest[key]}"
        highest[key] = number


class Traffic:
    """Two idempotent producers and two groups that work from the beginning of a `with` block to `finish`.

    Args:
        bootstraps: Ways to the topic, of which the first one stays, whatever dies.
    """

    def __init__(self, bootstraps: Sequence[str], topic: str) -> None:
        self.topic = topic
        self._bootstraps = bootstraps
        everywhere = ",".join(bootstraps)
        self.sender = Sender(everywhere, topic)
        self.aio_sender = AioSender(bootstraps[0], topic)
        self.readers = [Reader(everywhere, topic, protocol) for protocol in GROUP_PROTOCOLS]
        self._sending_ends, self._reading_ends = threading.Event(), threading.Event()
        self._senders = [self._thread(self._send), self._thread(self._send_by_aiokafka)]
        self._reading = [self._thread(reader.read_until, self._reading_ends) for reader in self.readers]

    def __enter__(self) -> Self:
        for thread in (*self._senders, *self._reading):
            thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._sending_ends.set()
        self._reading_ends.set()
        patience = _PATIENCE_SECONDS if kind is None else _END_SECONDS  # what has failed may never get its answers
        for thread in (*self._senders, *self._reading):
            thread.join(patience)
        self.sender.close()

    def wait_flowing(self) -> None:
        """Waits until what is sent from now on is acknowledged, to both producers, and read by both groups."""
        began = {"key-": self.sender.sent, "aio-": self.aio_sender.sent}

        def has_new(records: list[Numbered], prefixes: Sequence[str]) -> bool:
            recent = records[-1000:]
            return all(any(k.startswith(p.encode()) and n >= began[p] for k, n in recent) for p in prefixes)

        def flows() -> bool:
            acknowledged = has_new(self.sender.acknowledged, ["key-"]) and has_new(
                self.aio_sender.acknowledged, ["aio-"]
            )
            return acknowledged and all(has_new(reader.got, list(began)) for reader in self.readers)

        wait_until(f"records of {self.topic} flow", flows, _PATIENCE_SECONDS)

    def wait_still(self, seconds: float) -> None:
        """Waits until nothing has been acknowledged for so long."""
        counts, since = (-1, -1), time.monotonic()

        def is_still() -> bool:
            nonlocal counts, since
            now = len(self.sender.acknowledged), len(self.aio_sender.acknowledged)
            if now != counts:
                counts, since = now, time.monotonic()
            return time.monotonic() - since > seconds

        wait_until(f"nothing of {self.topic} is acknowledged", is_still, _PATIENCE_SECONDS)

    def finish(self, *, is_kept: bool = True) -> int:
        """Lets all come to their end, and holds what was read against what was acknowledged (promises 1 and 2).

        Args:
            is_kept: Retention has taken nothing, so that a group that begins now reads everything; else something.

        Returns:
            How many records a group is shown that begins now.
        """
        self._sending_ends.set()
        for thread in self._senders:
            thread.join(_PATIENCE_SECONDS + 10)
            assert not thread.is_alive(), "a producer waits for its last answers"
        self.sender.finish()
        acknowledged = set(self.sender.acknowledged) | set(self.aio_sender.acknowledged)
        assert len(self.aio_sender.acknowledged) > 0
        for reader in self.readers:
            what = f"the {reader.protocol} group has all {len(acknowledged)}"
            wait_until(what, partial(acknowledged.issubset, reader.seen), _PATIENCE_SECONDS)
            assert_in_order(reader.protocol, reader.got)
        self._reading_ends.set()
        messages = read({"bootstrap.servers": self._bootstraps[0]}, self.topic, len(acknowledged) if is_kept else 1)
        got = [(message.key() or b"", int(message.value() or b"-1")) for message in messages]
        assert acknowledged <= set(got) if is_kept else got, "lost"
        twice = {each for each, count in Counter(got).items() if count > 1}
        shown = [(*each, message.partition(), message.offset()) for each, message in zip(got, messages, strict=True)]
        # one place twice: the group began anew; two places: the record stands twice
        assert not twice, f"doubled: {[each for each in shown if each[:2] in twice][:40]}"
        assert_in_order("a new group", got)
        return len(got)

    def _send(self) -> None:
        while not self._sending_ends.is_set():
            self.sender.send_for(0.1)

    def _send_by_aiokafka(self) -> None:
        asyncio.run(self.aio_sender.send_until(self._sending_ends))

    def _thread(self, target: Callable[..., None], *arguments: Any) -> threading.Thread:
        return threading.Thread(target=target, args=arguments, name=f"{target.__qualname__} {self.topic}", daemon=True)
