"""Holds histories of cooperative groups against what they promise: records are finished one by one, each key in order.

Members write one line when they start a record, when its handler fails or has done its work, and when a commit was
answered:

    {"e": "started", "t": 4711, "p": 3, "o": 17, "k": "librdkafka-7", "s": 2}
    {"e": "committed", "t": 4712, "at": [[3, 12, [[14, 17]]]]}      partition, stable offset, ranges behind it
    {"e": "accepted", "t": 4712, "p": 3, "o": 17}                   in place of that, where members acknowledge

What is judged:

- **lost**: acknowledged to its producer, and never finished by the group.
- **inversion**: started before an earlier record of its key was finished for the first time.
- **overlap**: two records of a key were worked on at the same time.
- **again**: started again, though the last commit of its partition covers it, or it was accepted.
"""

from __future__ import annotations

import heapq
import json
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from kordon.testing.order.history import Acknowledged, Recorder, writes

_SUFFIX: Final = ".cooperative"
_SHOWN: Final = 5

Place: TypeAlias = tuple[int, int]
"""Partition and offset."""


@dataclass(slots=True)
class Judged:
    """What came of a group."""

    finished: int = 0
    """Records, each counted once."""
    repeats: int = 0
    """Records that were finished more than once."""
    commits_with_ranges: int = 0
    accepted: int = 0
    """Records of which a member was told that they are done."""
    counts: Counter[str] = field(default_factory=Counter[str])
    """Breaches by name."""
    examples: list[str] = field(default_factory=list[str])

    def add(self, name: str, told: str) -> None:
        """Counts a breach."""
        self.counts[name] += 1
        if self.counts[name] <= _SHOWN:
            self.examples.append(f"{name}: {told}")


@contextmanager
def cooperative_history(folder: Path, name: str) -> Generator[Recorder]:
    """Opens a new file of history for a member."""
    with (folder / f"{name}{_SUFFIX}").open("x", encoding="utf-8") as file:
        yield Recorder(file)


def judge(folder: Path) -> Judged:
    """Judges the members of a run, which are of one group."""
    acknowledged = {(event.key, event.sequence) for _, event in writes(folder) if isinstance(event, Acknowledged)}
    group = _Group()
    for member, event in heapq.merge(
        *(_events(file) for file in sorted(folder.glob(f"*{_SUFFIX}"))), key=lambda each: each[1]["t"]
    ):
        group.take(member, event)
    for key, sequence in sorted(acknowledged - group.finished.keys()):
        group.judged.add("lost", f"{sequence} of {key}")
    group.judged.finished = len(group.finished)
    return group.judged


class _Group:
    def __init__(self) -> None:
        self.judged = Judged()
        self.finished: dict[tuple[str, int], int] = {}
        """When each record was finished first."""
        self._next: dict[str, int] = {}
        """By key, the lowest sequence that is not finished."""
        self._begun: dict[str, dict[tuple[str, int], int]] = {}
        """By key, what is worked on, by member and sequence, and since when."""
        self._last_begun: dict[str, int] = {}
        """By key, when that was begun which was begun last of what is finished."""
        self._covered: dict[int, tuple[int, list[list[int]]]] = {}
        self._accepted: set[Place] = set()

    def take(self, member: str, event: dict[str, Any]) -> None:
        """Takes the next event in."""
        match event["e"]:
            case "started":
                self._started(member, event)
            case "failed":
                self._begun.get(event["k"], {}).pop((member, event["s"]), None)
            case "finished":
                self._finished(member, event)
            case "accepted":
                self._accepted.add((event["p"], event["o"]))
                self.judged.accepted = len(self._accepted)
            case _:
                for partition, stable, ranges in event["at"]:
                    self._covered[partition] = stable, ranges
                    self.judged.commits_with_ranges += bool(ranges)

    def _started(self, member: str, event: dict[str, Any]) -> None:
        key, sequence, place = event["k"], event["s"], (event["p"], event["o"])
        told = f"{sequence} of {key} at {place} by {member} at {event['t']}"
        if sequence > self._next.get(key, 0):
            self.judged.add("inversion", f"{told}, and {self._next.get(key, 0)} is not finished")
        if self._covers(place):
            self.judged.add("again", f"{told}, and {self._covered[place[0]]} is committed")
        if place in self._accepted:
            self.judged.add("again", f"{told}, and it was accepted")
        self._begun.setdefault(key, {})[member, sequence] = event["t"]

    def _finished(self, member: str, event: dict[str, Any]) -> None:
        key, sequence = event["k"], event["s"]
        busy = self._begun.get(key, {})
        since = busy.pop((member, sequence), event["t"])
        # what was begun and never ended belongs to a member that was killed, or was cancelled
        for other, begun in busy.items():
            if begun > since:
                self.judged.add("overlap", f"{sequence} of {key} by {member} beside {other} at {event['t']}")
        if self._last_begun.get(key, 0) > since:
            self.judged.add("overlap", f"{sequence} of {key} by {member} around another one at {event['t']}")
        self._last_begun[key] = max(since, self._last_begun.get(key, 0))
        if (key, sequence) in self.finished:
            self.judged.repeats += 1
        self.finished.setdefault((key, sequence), event["t"])
        while (key, self._next.get(key, 0)) in self.finished:
            self._next[key] = self._next.get(key, 0) + 1

    def _covers(self, place: Place) -> bool:
        stable, ranges = self._covered.get(place[0], (0, []))
        return place[1] < stable or any(begin <= place[1] < end for begin, end in ranges)


def _events(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            if line.endswith("\n"):  # a killed member leaves half a line
                yield file.name.removesuffix(_SUFFIX), json.loads(line)
