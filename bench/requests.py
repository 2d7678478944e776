"""What one request takes of a proxy: plain connections send prepared frames, so that little else is on the machine.

The process's own clock is counted, in nanoseconds (`/proc/PID/task/*/schedstat`): clients, broker and other programs on
the machine do not count, but they share its caches, so figures are compared within one run only. What the process
takes without requests is measured before them, and taken off.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import uuid4

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from kordon.bench.topics import Topics
from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.codecs.headers import build_request_header, parse_response_header
from kordon.codecs.messages import request, response
from kordon.codecs.records import batches, look_batch
from kordon.testing.plain_connection import PlainConnection

PRODUCE_VERSION: Final = 9
FETCH_VERSION: Final = 11
"""The newest that names topics and is parsed fast: the clients' own work is not what is measured."""
_MOST_BYTES: Final = 1 << 20
_PARKED_SECONDS: Final = 0.02
"""After which a Fetch waits for records at the proxy, on all but the busiest machines."""
_REST_MS: Final = 5
_SMALL_BYTES: Final = 200
_LONG_MS: Final = 30_000
_IDLE_SECONDS: Final = 2.0
"""How long a process is watched that nobody asks for anything."""


class Measured(Protocol):
    """A proxy."""

    @property
    def pid(self) -> int | None: ...
    @property
    def bootstrap(self) -> str: ...


@dataclass(frozen=True)
class Shape:
    """How a client sends records."""

    name: str
    connections: int
    batches: int
    """Of one request, each for another partition."""
    batch_bytes: int


SHAPES: Final = (
    Shape("Produce, 1 connection, 15 x 64 KB", 1, 15, 64 * 1024),
    Shape("Produce, 4 connections, 64 KB", 4, 1, 64 * 1024),
    Shape("Produce, 16 connections, 1 KB", 16, 1, 1024),
)

PARTITIONS: Final = 384
AT_REST: Final = f"Fetch of {PARTITIONS} partitions, at rest"
WITH_NEWS: Final = f"Fetch of {PARTITIONS} partitions, with news"
CASES: Final = (*(shape.name for shape in SHAPES), AT_REST, WITH_NEWS)


def cpu_us(pid: int) -> float:
    """Returns the microseconds of processor time that a process has taken so far, in all its threads."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(each.read_text().split()[0]) for each in tasks) / 1000


class Spent:
    """What requests take of a process: all that it takes from the start on, but what it takes without them.

    Args:
        idle_us: Microseconds that it takes each second without requests, by `idle_us`.
    """

    def __init__(self, pid: int, idle_us: float) -> None:
        self._pid = pid
        self._idle_us = idle_us
        self._begun, self._since = cpu_us(pid), time.monotonic()

    def each_us(self, requests: int) -> float:
        """Returns the microseconds for each of so many requests."""
        return beside_idle(cpu_us(self._pid) - self._begun, time.monotonic() - self._since, self._idle_us) / requests


def beside_idle(took_us: float, seconds: float, idle_us: float) -> float:
    """Returns what of some processor time was not idle; at least 0."""
    return max(took_us - seconds * idle_us, 0.0)


def idle_us(pid: int) -> float:
    """Watches a process that nobody asks for anything; returns the microseconds that it takes each second."""
    begun, since = cpu_us(pid), time.monotonic()
    time.sleep(_IDLE_SECONDS)
    return (cpu_us(pid) - begun) / (time.monotonic() - since)


def produce_us(pid: int, bootstrap: str, topic: str, shape: Shape, requests: int) -> float:
    """Sends a request on each connection, then waits for all; returns the microseconds of a process for each batch."""
    frame = produce_frame(topic, range(shape.batches), shape.batch_bytes)
    connections = [PlainConnection(bootstrap) for _ in range(shape.connections)]
    for each in connections:  # the first request of a connection opens the way to the broker
        each.ask_frame(frame)
    spent = Spent(pid, idle_us(pid))
    for _ in range(requests):
        for each in connections:
            each.tell_frame(frame)
        for each in connections:
            each.told_frame()
    took = spent.each_us(requests * shape.connections * shape.batches)
    for each in connections:
        each.close()
    return took


def produce_frame(topic: str, partitions: Iterable[int], batch_bytes: int) -> bytes:
    """Makes a Produce request with one batch for each partition."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 2 * batch_bytes)
    builder.append(0, timestamp=1_700_000_000_000, key=None, value=b"x" * (batch_bytes - 100), headers=[])
    records = bytes(builder.build())
    rows = [{"index": each, "records": records} for each in partitions]
    fields = {"acks": -1, "timeout_ms": _LONG_MS, "topic_data": [{"name": topic, "partition_data": rows}]}
    header = build_request_header(apis.PRODUCE, PRODUCE_VERSION, 1, "bench")
    return header + request(apis.PRODUCE).build(PRODUCE_VERSION, fields)


class Reader:
    """A consumer that names all its partitions in each request, and remembers only where it stands."""

    def __init__(self, bootstrap: str, topics: Sequence[str], partitions: int, version: int = FETCH_VERSION) -> None:
        self._connection = PlainConnection(bootstrap)
        self._version = version
        self._positions = {topic: dict.fromkeys(range(partitions), 0) for topic in topics}

    def send(self, max_wait_ms: int) -> None:
        """Asks for whatever is new."""
        topics = [
            {
                "topic": topic,
                "partitions": [
                    {"partition": each, "fetch_offset": offset, "partition_max_bytes": _MOST_BYTES}
                    for each, offset in positions.items()
                ],
            }
            for topic, positions in self._positions.items()
        ]
        fields: dict[str, Any] = {
            "max_wait_ms": max_wait_ms,
            "min_bytes": 1,
            "max_bytes": 50 * _MOST_BYTES,
            "isolation_level": 0,
        }
        fields |= {"session_id": 0, "topics": topics, "forgotten_topics_data": [], "rack_id": ""}
        self._connection.tell(apis.FETCH, self._version, fields)

    def receive(self) -> int:
        """Takes the answer in; returns how many batches it had, and partitions that are to be asked again."""
        taken = 0
        for topic in (
            response(apis.FETCH).parse(self._version, self._connection.told(apis.FETCH, self._version)).responses
        ):
            for row in topic.partitions:
                if row.error_code == Code.NOT_LEADER_OR_FOLLOWER:  # on a busy machine an end may not be known in time
                    taken += 1
                elif row.error_code:
                    raise RuntimeError(f"partition {row.partition_index} of {topic.topic}: error {row.error_code}")
                for span in batches(row.records or b""):
                    self._positions[topic.topic][row.partition_index] = look_batch(row.records, span.start).next_offset
                    taken += 1
        return taken

    def catch_up(self) -> None:
        """Reads until nothing comes any more, for longer than brokers and proxies take to look."""
        quiet = 0
        while quiet < 3:
            self.send(200)
            quiet = 0 if self.receive() else quiet + 1

    def close(self) -> None:
        self._connection.close()


def rest_us(pid: int, reader: Reader, requests: int) -> float:
    """Has a reader that has all there is ask again and again; returns the microseconds of a process for each Fetch."""
    reader.catch_up()
    spent = Spent(pid, idle_us(pid))
    for _ in range(requests):
        reader.send(_REST_MS)
        reader.receive()
    return spent.each_us(requests)


def news_us(pid: int, reader: Reader, writer: PlainConnection, frames: Sequence[bytes]) -> float:
    """Writes a batch while a Fetch waits, again and again; returns the microseconds for Produce and Fetch together."""
    reader.catch_up()
    spent = Spent(pid, idle_us(pid))
    for frame in frames:
        reader.send(_LONG_MS)
        time.sleep(_PARKED_SECONDS)
        writer.ask_frame(frame)
        reader.receive()
    return spent.each_us(len(frames))


def measure_untouched(proxy: Measured, topics: Topics, requests: int) -> dict[str, float]:
    """Measures requests that name a topic which is not managed; returns microseconds by case."""
    topic = f"untouched-{uuid4()}"  # brokers may still know the one before by its name
    topics.create([topic], PARTITIONS)
    figures = measure_reading(proxy, topic, requests)
    for shape in SHAPES:
        figures[shape.name] = produce_us(known_pid(proxy), proxy.bootstrap, topic, shape, requests)
    topics.delete([topic])
    return figures


def measure_reading(proxy: Measured, topic: str, requests: int) -> dict[str, float]:
    """Measures Fetch of all partitions of a topic, at rest and with news; returns microseconds by case."""
    pid = known_pid(proxy)
    writer = PlainConnection(proxy.bootstrap)
    for each in range(PARTITIONS):
        while not _is_written(writer.ask_frame(produce_frame(topic, [each], _SMALL_BYTES))):
            time.sleep(_PARKED_SECONDS)
    reader = Reader(proxy.bootstrap, [topic], PARTITIONS)
    frames = [produce_frame(topic, [number * 7 % PARTITIONS], _SMALL_BYTES) for number in range(max(requests // 4, 1))]
    figures = {AT_REST: rest_us(pid, reader, len(frames)), WITH_NEWS: news_us(pid, reader, writer, frames)}
    reader.close()
    writer.close()
    return figures


def known_pid(proxy: Measured) -> int:
    """Returns the process id of a proxy, which the broker itself does not have here."""
    assert proxy.pid is not None
    return proxy.pid


def _is_written(answer: bytes) -> bool:
    """Whether a partition of a new topic has a leader, by the answer to a write."""
    _, header_bytes = parse_response_header(apis.PRODUCE, PRODUCE_VERSION, answer)
    answered = response(apis.PRODUCE).parse(PRODUCE_VERSION, answer[header_bytes:]).responses
    return not any(row.error_code for topic in answered for row in topic.partition_responses)
