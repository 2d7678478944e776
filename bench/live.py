"""What a proxy takes of a processor while consumers wait at the ends of many partitions, and few records come."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from kordon.bench import results
from kordon.bench.contenders import Contender
from kordon.bench.loads import ToolError
from kordon.bench.plan import Live
from kordon.bench.requests import cpu_us

_RECORD: Final = b"x" * 100
_PATIENCE_SECONDS: Final = 180.0
_POLL_SECONDS: Final = 0.2
_REQUESTS: Final = "kordon_requests_total"
_FETCH: Final = 'api="Fetch"'


class _Readers:
    """Consumers on librdkafka, each with its share of the topics; all read until they are closed."""

    def __init__(self, case: Live, bootstrap: str, topics: Sequence[str]) -> None:
        self.records = 0
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        for number in range(case.consumers):
            settings = {"bootstrap.servers": bootstrap, "group.id": "bench-live", "enable.auto.commit": False}
            consumer = Consumer(settings | {"log_level": 2})
            share = topics[number :: case.consumers]
            places = [
                TopicPartition(topic, each, OFFSET_BEGINNING) for topic in share for each in range(case.partitions)
            ]
            consumer.assign(places)
            self._threads.append(threading.Thread(target=self._read, args=(consumer,), name=f"consumer {number}"))
        for each in self._threads:
            each.start()

    def wait_for(self, records: int) -> None:
        """Returns when so many records have come in all; raises ToolError."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while self.records < records:
            if time.monotonic() > deadline:
                raise ToolError(f"live: {records - self.records} of {records} records did not come")
            time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """Ends all of them."""
        self._over.set()
        for each in self._threads:
            each.join()

    def _read(self, consumer: Any) -> None:
        while not self._over.is_set():
            came = sum(1 for message in consumer.consume(1_000, _POLL_SECONDS) if message.error() is None)
            with self._lock:
                self.records += came
        consumer.close()


def measure_live(case: Live, contender: Contender, topics: Sequence[str]) -> dict[str, float]:
    """Writes a record to each partition, has all of them read, and then says what waiting takes.

    Args:
        topics: Of the case, empty.

    Raises:
        ToolError: A record did not come, or was refused.
    """
    assert contender.pid is not None, "the broker itself is not measured"
    everywhere = list(itertools.product(topics, range(case.partitions)))
    with ExitStack() as stack:
        readers = _Readers(case, contender.bootstrap, topics)
        stack.callback(readers.close)
        producer = Producer({"bootstrap.servers": contender.bootstrap, "linger.ms": 0, "log_level": 2})
        _write(producer, everywhere, rate=0)
        readers.wait_for(len(everywhere))
        time.sleep(1.0)  # those that came last have their fillers
        fetches = contender.counted(_REQUESTS, _FETCH)
        begun, since = cpu_us(contender.pid), time.monotonic()
        news = list(itertools.islice(itertools.cycle(everywhere), case.records_per_second * case.seconds))
        _write(producer, news, rate=case.records_per_second)
        time.sleep(max(since + case.seconds - time.monotonic(), 0))
        seconds = time.monotonic() - since
        took = (cpu_us(contender.pid) - begun) / seconds
        fetches = (contender.counted(_REQUESTS, _FETCH) - fetches) / seconds
        readers.wait_for(len(everywhere) + len(news))
    return live_figures(case, took, fetches)


def live_figures(case: Live, cpu_us_per_s: float, fetches_per_s: float) -> dict[str, float]:
    """Returns what a proxy took each second, and that for each Fetch and for each record."""
    figures = {results.LIVE_CPU: cpu_us_per_s / 1000, results.LIVE_FETCHES: fetches_per_s}
    if fetches_per_s:
        figures[results.LIVE_FETCH_US] = cpu_us_per_s / fetches_per_s
    if case.records_per_second:
        figures[results.LIVE_RECORD_US] = cpu_us_per_s / case.records_per_second
    return figures


def _write(producer: Any, places: Sequence[tuple[str, int]], *, rate: int) -> None:
    """Writes a record to each; `rate` of them a second, as fast as it goes where that is 0."""
    failures: list[str] = []

    def reported(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(str(error))

    due = time.monotonic()
    for topic, partition in places:
        producer.produce(topic, _RECORD, partition=partition, on_delivery=reported)
        producer.poll(0)
        if rate:
            due += 1 / rate
            time.sleep(max(due - time.monotonic(), 0))
    left = producer.flush(_PATIENCE_SECONDS)
    if left or failures:
        raise ToolError(f"live: {left} records without an answer, {len(failures)} refused: {failures[:1]}")
