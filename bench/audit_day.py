"""A hard day of a Kordon that keeps its promises, made up: how much of it there is, and who works where.

    audit_topics.py     where streams live, and how far logs get: growths, a shrink, strays
    audit_log.py        the batches that stand in the topics, as bytes
    audit_traffic.py    what is acknowledged and given out, many decisions at once
    audit_changes.py    fences, cuts, layouts
    audit_steps.py      everything else: commits, positions, readers that connect anew, transactional producers
    audit_decisions.py  all decisions, as the files that workers write

A round is a second. In it each stream has a run of batches of one producer, and each reader is given all up to its end.
Some topics are written by virtual partition and read by stock clients; clients of the dialect read all of them, and
write to one of their own. Each topic grows three times and shrinks once. In the midst of a growth a worker is killed:
what it did in its last round is not on record, and others take over what it had. One reader is minutes behind the
others. Behind the day come quiet rounds, in which one stream alone is used.

Everything holds, so an audit finds nothing. All of it follows from the round's number, so any part of it can be made
alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]

START_MS: Final = 1_790_000_000_000
FIRST_PRODUCER: Final = 1_000
_CHANGES: Final = (2, 4, 8, 4)
"""Partitions after each change, over those at first."""
_SPAN: Final = 12
"""Changes begin after one twelfth of the day, two, and so on: in its second half nothing changes any more."""
_KILLED_WITHIN: Final = 2
"""The change of the first topic in whose midst a worker is killed."""


@dataclass(frozen=True)
class Day:
    """How much there is of it."""

    rounds: int
    """Seconds in which everything is used."""
    topics: int = 3
    """That are written by virtual partition; besides, there is one that clients of the dialect write to."""
    partitions: int = 3
    """Of each topic, at first."""
    virtual: int = 96
    """Virtual partitions of each topic: partitions times a power of two, at least eight times as many."""
    producers: int = 200
    """Idempotent ones; each writes to every stream."""
    workers: int = 3
    transactional_ids: int = 100
    batches: int = 4
    """In a run."""
    records: int = 16
    """In a batch."""
    batch_bytes: int = 16_384
    behind: int = 300
    """Rounds by which one reader is behind the others."""
    retained: int = 1_800
    """Rounds after which retention takes what was written."""
    quiet: int = 0
    """Rounds behind the day in which only one stream is used."""

    @property
    def all_rounds(self) -> int:
        """With the quiet ones."""
        return self.rounds + self.quiet

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all topics; the last one is that of the clients of the dialect."""
        return (*(f"orders-{number}" for number in range(self.topics)), "clicks")

    @property
    def run_records(self) -> int:
        return self.batches * self.records

    @property
    def counts(self) -> tuple[int, ...]:
        """Partitions of a topic after each change."""
        return tuple(self.partitions * each for each in _CHANGES)

    @property
    def killed_at(self) -> int:
        """The round before which the last worker is killed."""
        return self.changed_at(0, _KILLED_WITHIN)

    @property
    def killed(self) -> int:
        """The worker that is killed."""
        return self.workers - 1

    def changed_at(self, topic: int, change: int) -> int:
        """Returns the round with which a change of a topic comes into force."""
        return (change + 1) * self.rounds // _SPAN + topic

    def works_for(self, member: Numbers | int, rounds: Numbers | int) -> Numbers:
        """Returns the workers to which producers or readers are connected, by their numbers."""
        first = np.asarray(member) % self.workers
        then = np.asarray(member) // self.workers % (self.workers - 1)
        return np.where(self.has_moved(member, rounds), then, first)

    def has_moved(self, member: Numbers | int, rounds: Numbers | int) -> npt.NDArray[np.bool_]:
        """Returns who has lost a worker by then, and is connected to another one."""
        lost = np.asarray(member) % self.workers == self.killed
        return np.asarray(lost & (np.asarray(rounds) >= self.killed_at))

    def is_told(self, worker: Numbers, rounds: Numbers) -> npt.NDArray[np.bool_]:
        """Returns what is on record: a worker that is killed has not written down its last round."""
        return np.asarray((worker != self.killed) | (rounds < self.killed_at - 1))

    def producer(self, stream: Numbers | int, topic: int, rounds: Numbers | int) -> Numbers:
        """Returns which producer writes to a stream: each of them by turns."""
        number = np.where(np.asarray(stream) < 0, -1 - np.asarray(stream), stream)
        return np.asarray((number * 7 + topic * 31 + rounds) % self.producers)
