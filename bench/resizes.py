"""How long writes of a managed topic wait while it grows and shrinks, and that others do not.

Idempotent producers send a hundred times a second to every physical partition concerned, to its virtual ones by turns,
while the topic goes from 6 partitions to 8 and back. Those on partitions 0 and 1 are sealed by that, those on 2 and 3
are not; the latter have connections of their own. So a pause is seen record by record, as the client sees it. There are
no more records than that: a machine that has no processor time left pauses by itself.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from itertools import cycle, islice
from typing import Any, Final, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from kordon.bench import results
from kordon.bench.loads import ToolError
from kordon.bench.plan import Resizes
from kordon.proxy.ordering.hashing import home, parent

PARTITIONS: Final = 6
VIRTUAL_PARTITIONS: Final = 24
_MOVED: Final = frozenset({0, 1})
_STEADY: Final = frozenset({2, 3})
_SIZES: Final = (7, 8, 7, 6)
_TICK_SECONDS: Final = 0.01
_POLL_SECONDS: Final = 0.001
_WARM_UP_SECONDS: Final = 2.0
_QUIET_SECONDS: Final = 0.5
"""Between two changes; also how long after a change its acknowledgements are looked at."""
_PATIENCE_SECONDS: Final = 60.0


class Sample(NamedTuple):
    """A record that was acknowledged."""

    v: int
    sent: float
    """By the monotonic clock."""
    seconds: float
    """From send to acknowledgement."""


class Window(NamedTuple):
    """A stretch of time in which records were sent."""

    begin: float
    end: float
    u: int
    """Undeleted partitions at its beginning."""
    sealed: frozenset[int]
    """Physical partitions; none: nothing happens."""


class Stream:
    """One producer, through one proxy, to some virtual partitions.

    Args:
        turns: The virtual partitions, by the turn in which they get a record.
    """

    def __init__(self, bootstrap: str, topic: str, turns: Sequence[Sequence[int]]) -> None:
        self.partitions = frozenset(v for turn in turns for v in turn)
        self.samples: list[Sample] = []
        self.errors: list[str] = []
        self._topic = topic
        self._turns = cycle(turns)
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 2}
        self._producer = Producer(settings)

    def tick(self) -> None:
        """Sends a record to each of those whose turn it is."""
        for v in next(self._turns):
            self._producer.produce(self._topic, value=b"x" * 100, partition=v, on_delivery=self._delivered)

    def poll(self) -> None:
        self._producer.poll(0)

    def finish(self) -> None:
        """Waits for what is left; raises ToolError."""
        left = self._producer.flush(_PATIENCE_SECONDS)
        if left or self.errors:
            raise ToolError(f"resizes: {left} records without an answer, errors: {self.errors[:3]}")

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(str(error))
            return
        seconds = message.latency()
        self.samples.append(Sample(message.partition(), time.monotonic() - seconds, seconds))


def measure_resizes(case: Resizes, bootstraps: Sequence[str], topic: str) -> dict[str, float]:
    """Grows and shrinks a topic, which is made and deleted here; returns the pauses in ms by figure.

    Raises:
        ToolError: A record was lost, or a change did not happen.
    """
    admin = AdminClient({"bootstrap.servers": bootstraps[0], "log_level": 2})
    config = {"kordon.virtual.partitions": str(VIRTUAL_PARTITIONS)}
    admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=config)])[topic].result(_PATIENCE_SECONDS)
    moved = [Stream(each, topic, turns_on(_MOVED, most=max(_SIZES))) for each in bootstraps]
    steady = [Stream(each, topic, turns_on(_STEADY, most=PARTITIONS)) for each in bootstraps]
    with _sending([*moved, *steady]):
        time.sleep(_WARM_UP_SECONDS)
        windows = _resize(admin, topic, case.resizes)
    for stream in (*moved, *steady):
        stream.finish()
    admin.delete_topics([topic])[topic].result(_PATIENCE_SECONDS)
    changes = [window for window in windows if window.sealed]
    quiet = [window for window in windows if not window.sealed]
    return {
        **summary(results.SEALED, [pause for each in moved for pause in pauses(each, changes, quiet)]),
        **summary(results.OTHERS, [pause for each in steady for pause in pauses(each, changes, quiet)]),
        **summary(results.QUIET, [pause for each in (*moved, *steady) for pause in pauses(each, quiet, quiet)]),
        results.RESIZE_MS: statistics.median(window.end - window.begin - _QUIET_SECONDS for window in changes) * 1000,
    }


def living_on(partitions: Iterable[int], u: int = PARTITIONS) -> list[int]:
    """Returns the virtual partitions that live on physical ones."""
    wanted = frozenset(partitions)
    return [v for v in range(VIRTUAL_PARTITIONS) if home(v, PARTITIONS, u, VIRTUAL_PARTITIONS) in wanted]


def turns_on(partitions: Iterable[int], *, most: int) -> list[list[int]]:
    """Returns virtual partitions in turns: each has one of each physical partition where there are `most` of those."""
    groups: dict[int, list[int]] = {}
    for v in living_on(partitions):
        groups.setdefault(home(v, PARTITIONS, most, VIRTUAL_PARTITIONS), []).append(v)
    return [list(turn) for turn in zip(*groups.values(), strict=True)]


def sealed_by(u: int, following: int) -> frozenset[int]:
    """Returns the physical partitions that a step of one seals."""
    if following > u:
        return frozenset({parent(u, PARTITIONS)})
    return frozenset({following, parent(following, PARTITIONS)})


def pauses(stream: Stream, windows: Iterable[Window], quiet: Iterable[Window]) -> list[float]:
    """Returns the longest wait of each window beyond the usual one, in seconds.

    Of a stream that writes to what is sealed there is one for each sealed physical partition, of others one.

    Args:
        stream: When it has finished.
        windows: That are looked at.
        quiet: Those whose median is what is usual.
    """
    usual = statistics.median(sample.seconds for window in quiet for sample in _sent_in(stream, window))
    found: list[float] = []
    for window in windows:
        samples = _sent_in(stream, window)
        groups = [set(living_on({q}, window.u)) for q in window.sealed]
        groups = [group for group in groups if group & stream.partitions] or [set(stream.partitions)]
        for group in groups:
            longest = max((sample.seconds for sample in samples if sample.v in group), default=usual)
            found.append(max(longest - usual, 0.0))
    return found


def summary(who: str, seconds: Sequence[float]) -> dict[str, float]:
    """Returns median, 99th percentile and most, in ms, by figure."""
    ordered = sorted(each * 1000 for each in seconds)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return {f"{who}_p50_ms": statistics.median(ordered), f"{who}_p99_ms": p99, f"{who}_max_ms": ordered[-1]}


def _sent_in(stream: Stream, window: Window) -> list[Sample]:
    return [sample for sample in stream.samples if window.begin <= sample.sent < window.end]


def _resize(admin: AdminClient, topic: str, resizes: int) -> list[Window]:
    """Changes the topic again and again; returns the windows of the changes and of the quiet in between."""
    windows: list[Window] = []
    u = PARTITIONS
    for following in islice(cycle(_SIZES), resizes):
        begin = time.monotonic()
        time.sleep(_QUIET_SECONDS)
        middle = time.monotonic()
        done = admin.create_partitions([NewPartitions(topic, following)], request_timeout=_PATIENCE_SECONDS)
        done[topic].result(_PATIENCE_SECONDS)
        time.sleep(_QUIET_SECONDS)
        windows += [
            Window(begin, middle, u, frozenset()),
            Window(middle, time.monotonic(), u, sealed_by(u, following)),
        ]
        u = following
    return windows


@contextmanager
def _sending(streams: Sequence[Stream]) -> Generator[None]:
    """Sends steadily from a thread while the block runs."""
    over = threading.Event()

    def send() -> None:
        due = time.monotonic()
        while not over.wait(_POLL_SECONDS):
            if time.monotonic() >= due:
                due += _TICK_SECONDS
                for stream in streams:
                    stream.tick()
            for stream in streams:
                stream.poll()

    thread = threading.Thread(target=send, name="steady producers")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
