"""What the clients that are Python programs share: settings, commands from standard input, telling their state."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from random import Random
from typing import Any, Final, Literal, Self

from kordon.testing.order.history import Recorder, recorded

TELL_SECONDS: Final = 0.3


@dataclass(frozen=True, kw_only=True)
class Load:
    """How much clients do, and how they behave."""

    seed: int = 1
    keys: int = 300
    """Of each producer."""
    hot_percent: int = 0
    """Of the records: they have the first key, whatever the others have."""
    acks: int = -1
    """Of librdkafka's producer: 0 and 1 are without idempotence, and nothing is sent twice; -1: all, idempotent."""
    bytes: int = 100
    """Of each value."""
    rate: int = 600
    """Records a second of each producer."""
    consume_rate: int = 0
    """Records a second that each member processes while producers run; 0: all there are. Less than what is produced
    makes a backlog."""
    commit_seconds: float = 1.0
    """Between two commits of a member of librdkafka's group."""
    heartbeat_ms: int = 3_000
    """Between two heartbeats of such a member; for so long each step of a rebalance may last."""
    members: int = 2
    """Of each group."""
    fetch_bytes: int = 32_768
    """Consumers take of a partition at once: little, so that none of several partitions waits long."""
    churn_seconds: float = 8.0
    """Members leave after this time, or up to twice of it, and others join; 0: they stay."""
    rewind_seconds: float = 0.0
    """A member of a dialect group goes back about once in this time; 0: never."""
    killed_percent: int = 0
    """Of the members of a dialect group that leave: they do so by SIGKILL."""
    silent_percent: int = 0
    """Of the calls of such a member around a key's move: they are never answered."""
    slow_percent: int = 0
    """Of such members: they process a tenth of what others do."""


@dataclass(frozen=True)
class Settings(Load):
    """What every client is told on its command line, as name=value."""

    bootstrap: str
    topic: str
    folder: Path
    """For histories."""

    def arguments(self) -> list[str]:
        return [f"{each.name}={getattr(self, each.name)}" for each in fields(self)]

    @classmethod
    def from_arguments(cls, arguments: list[str]) -> Self:
        told = dict(argument.split("=", 1) for argument in arguments)
        bootstrap, topic, folder = (told.pop(name) for name in ("bootstrap", "topic", "folder"))
        numbers: dict[str, Any] = {name: json.loads(number) for name, number in told.items()}
        return cls(bootstrap, topic, Path(folder), **numbers)


class Orders:
    """What standard input asks for: to finish, then to stop; its end is both, so that nobody is left behind."""

    def __init__(self) -> None:
        self.finishing = threading.Event()
        """Producers end; consumers are slow no longer, and stay."""
        self.stopping = threading.Event()
        threading.Thread(target=self._obey, name="orders", daemon=True).start()

    def _obey(self) -> None:
        for line in sys.stdin:
            if line.strip() == "finish":
                self.finishing.set()
            elif line.strip() == "stop":
                break
        self.finishing.set()
        self.stopping.set()


@dataclass(slots=True)
class State:
    """How far a producer or a group has come."""

    kind: Literal["producer", "group"]
    name: str
    records: int = 0
    """Acknowledged or processed."""
    failed: int = 0
    ends: dict[int, int] = field(default_factory=dict[int, int])
    """Highest offset acknowledged or processed, by partition."""
    done: bool = False
    """A producer has its last answer."""

    def reach(self, partition: int, offset: int) -> None:
        self.records += 1
        if offset > self.ends.get(partition, -1):
            self.ends[partition] = offset

    def tell(self) -> None:
        told = {name: getattr(self, name) for name in ("kind", "name", "records", "failed", "done")}
        sys.stdout.write(json.dumps(told | {"ends": dict(self.ends)}) + "\n")
        sys.stdout.flush()

    @classmethod
    def from_line(cls, line: str) -> Self:
        told: dict[str, Any] = json.loads(line)
        told["ends"] = {int(partition): offset for partition, offset in told["ends"].items()}
        return cls(**told)

    def tell_until(self, over: threading.Event) -> threading.Thread:
        """Tells it now and then in the background, and once at the end."""

        def tell() -> None:
            while not over.wait(TELL_SECONDS):
                self.tell()

        thread = threading.Thread(target=tell, name="state", daemon=True)
        thread.start()
        return thread


class Records:
    """Chooses keys and numbers their records."""

    def __init__(self, producer: str, settings: Settings) -> None:
        self._producer = producer
        self._settings = settings
        self._chance = Random(settings.seed)  # noqa: S311 - chance that can be repeated
        self._sequences = [0] * settings.keys
        self._began = time.monotonic()
        self.number = -1
        """Of the last record, over all keys."""

    def next(self) -> tuple[str, int, bytes]:
        """Returns key, sequence and value of the next record."""
        hot = self._settings.hot_percent
        is_hot = hot > 0 and self._chance.random() * 100 < hot
        chosen = 0 if is_hot else self._chance.randrange(len(self._sequences))
        sequence = self._sequences[chosen]
        self._sequences[chosen] += 1
        self.number += 1
        return f"{self._producer}-{chosen}", sequence, f"{sequence} ".encode().ljust(self._settings.bytes)

    def seconds_ahead(self) -> float:
        """Returns how long to wait before the next record is due."""
        return self._began + self.number / self._settings.rate - time.monotonic()


def now_us() -> int:
    return time.monotonic_ns() // 1000


def key_of(key: bytes | str | None) -> str:
    return key.decode() if isinstance(key, bytes) else key or ""


def sequence_of(value: bytes | str | None) -> int:
    """Returns the sequence that a record's value begins with."""
    text = value.decode() if isinstance(value, bytes) else value or ""
    return int(text.split(" ", 1)[0])


def work_as_group(name: str, come_and_go: Callable[[str, Settings, Orders, State], None]) -> None:
    """Has members come and go, each named by a stem, until standard input says "stop"."""
    settings, orders, state = Settings.from_arguments(sys.argv[1:]), Orders(), State("group", name)
    state.tell_until(orders.stopping)
    members = [
        threading.Thread(target=come_and_go, args=(f"{name}-{number}", settings, orders, state))
        for number in range(settings.members)
    ]
    for member in members:
        member.start()
    for member in members:
        member.join()


def work_as_producer(name: str, produce: Callable[[Settings, Orders, Recorder, State], bool], **whose: str) -> None:
    """Has a producer send until standard input says "finish".

    Args:
        name: Of the producer; it begins the keys.
        produce: Does it; returns whether the outcome of every record is known.
        whose: What else its history says of it.
    """
    settings, orders, state = Settings.from_arguments(sys.argv[1:]), Orders(), State("producer", name)
    state.tell_until(orders.stopping)
    with recorded(settings.folder, name, producer=name, **whose) as recorder:
        if produce(settings, orders, recorder, state):
            recorder.note("ended", now_us())
    state.done = True
    orders.stopping.wait()
