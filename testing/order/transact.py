"""What the transactional clients that are Python programs share: what they are told, and what they write down.

Programs in other languages (`tests/clients`) take the same arguments, name=value, and write the same history. A writer
ends when its standard input does. A reader ends when it has got the last record of each partition (`LAST`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from random import Random
from typing import Any, Final, Self

from kordon.testing.order.client import key_of, now_us, sequence_of
from kordon.testing.order.history import Recorder, recorded
from kordon.testing.order.transactions import ABORTED, UNKNOWN

LAST: Final = "last-"
"""Begins the key of the last record of each partition."""
RECORDS_A_LIFE: Final = 20_000
"""At most, of each key and of all keys: a new life numbers its own from here on, and need not know those before."""
TRANSACTIONS_A_LIFE: Final = 100_000
_MOST_RECORDS: Final = 8
"""Of one transaction."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a program is told on its command line."""

    bootstrap: str
    topic: str
    folder: Path
    """For histories."""
    role: str
    """write, read."""
    name: str
    """Of the writer, which begins its keys and is its transactional id; or of the group."""
    life: int = 0
    """Writers: how often it was killed before."""
    seed: int = 1
    keys: int = 10
    aborted_percent: int = 30
    held_percent: int = 10
    """Of the transactions: they stay open for `held_ms`."""
    held_ms: int = 300
    pause_ms: int = 20
    """Between two transactions."""
    isolation: str = ""
    """Readers: read_committed, read_uncommitted."""
    partitions: int = 3
    begins: str = ""
    """Readers: offsets by partition, as `0,17,4`; "": the start."""

    def arguments(self) -> list[str]:
        return [f"{each.name}={getattr(self, each.name)}" for each in fields(self)]

    @classmethod
    def from_arguments(cls, arguments: list[str]) -> Self:
        told = dict(argument.split("=", 1) for argument in arguments)
        kinds = {each.name: each.type for each in fields(cls)}
        values: dict[str, Any] = {name: int(text) if kinds[name] == "int" else text for name, text in told.items()}
        values["folder"] = Path(told["folder"])
        return cls(**values)

    @property
    def begin_offsets(self) -> list[int]:
        """Of each partition, where a reader begins."""
        return [int(word) for word in self.begins.split(",")] if self.begins else [0] * self.partitions


class Open:
    """A transaction as a writer goes through it, which writes down each step."""

    def __init__(self, recorder: Recorder, number: int, first: int, records: list[tuple[str, int]]) -> None:
        self._recorder = recorder
        self.number = number
        self.records = records
        self._first = first
        self._ending = False
        recorder.note("begun", now_us(), x=number, n=first, r=records)
        recorder.flush()

    def acknowledged(self, key: str, sequence: int, partition: int, offset: int) -> None:
        self._recorder.note(
            "acked", now_us(), n=self._first + self.records.index((key, sequence)), k=key, s=sequence, sent=0,
            p=partition, o=offset,
        )  # fmt: skip

    def ending(self, *, commits: bool) -> None:
        """Says what the writer is about to do; must come before it."""
        self._ending |= commits
        self._recorder.note("ending", now_us(), x=self.number, commits=commits)
        self._recorder.flush()

    def over(self, outcome: str) -> None:
        self._recorder.note("over", now_us(), x=self.number, outcome=outcome)
        self._recorder.flush()

    def lost(self) -> None:
        """Its producer is replaced: nobody says what came of it, and what had not begun to commit never does."""
        self.over(UNKNOWN if self._ending else ABORTED)


class Transactions:
    """What a life of a writer does: the same for the same seed."""

    def __init__(self, task: Task, recorder: Recorder) -> None:
        self._task = task
        self._recorder = recorder
        self._chance = Random(task.seed * 1000 + task.life)  # noqa: S311 - chance that can be repeated
        self._number = task.life * TRANSACTIONS_A_LIFE
        self._sent = task.life * RECORDS_A_LIFE
        self._sequences = [task.life * RECORDS_A_LIFE] * task.keys

    def begin(self) -> tuple[Open, bool, float]:
        """Returns the next transaction, whether it is to be committed, and for how many seconds it is to stay open."""
        task, records = self._task, list[tuple[str, int]]()
        for _ in range(self._chance.randint(1, _MOST_RECORDS)):
            key = self._chance.randrange(task.keys)
            records.append((f"{task.name}-{key}", self._sequences[key]))
            self._sequences[key] += 1
        begun = Open(self._recorder, self._number, self._sent, records)
        self._number += 1
        self._sent += len(records)
        commits = self._chance.randrange(100) >= task.aborted_percent
        held = self._chance.randrange(100) < task.held_percent
        return begun, commits, task.held_ms / 1000 if held else 0.0

    def trouble(self, kind: str, error: str) -> None:
        """Counts an error that the library has left to its user."""
        self._recorder.note("trouble", now_us(), kind=kind, error=error)
        self._recorder.flush()


class Reading:
    """What a reader writes down, and whether it has read to the end."""

    def __init__(self, task: Task, recorder: Recorder) -> None:
        self._recorder = recorder
        self._open = set(range(task.partitions))
        recorder.note("assigned", now_us(), p=sorted(self._open))
        if task.begins:
            for partition, offset in enumerate(task.begin_offsets):
                recorder.note("sought", now_us(), p=partition, o=offset)

    @property
    def is_done(self) -> bool:
        return not self._open

    def take(self, partition: int, offset: int, key: bytes | str | None, value: bytes | str | None) -> None:
        name = key_of(key)
        self._recorder.note("processed", now_us(), p=partition, o=offset, k=name, s=sequence_of(value))
        if name.startswith(LAST):
            self._open.discard(partition)
        self._recorder.flush()


def value_of(sequence: int) -> str:
    return f"{sequence} of a transaction"


@contextmanager
def written(task: Task) -> Generator[Transactions]:
    with recorded(task.folder, f"{task.name}.{task.life}", producer=task.name) as recorder:
        yield Transactions(task, recorder)


@contextmanager
def read(task: Task) -> Generator[Reading]:
    whose = {"group": task.name, "member": task.name, "isolation": task.isolation}
    whose |= {"begins": task.begins} if task.begins else {}
    with recorded(task.folder, task.name, **whose) as recorder:
        yield Reading(task, recorder)
        recorder.note("ended", now_us())


def work(roles: dict[str, Callable[[Task], None]]) -> None:
    """Runs the role that the command line names."""
    task = Task.from_arguments(sys.argv[1:])
    roles[task.role](task)


def pause(task: Task) -> None:
    time.sleep(task.pause_ms / 1000)
