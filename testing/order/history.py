"""What producers and consumers write down while they work: files of JSON lines, one line for each event.

A file belongs to one producer, or to one member of a group, and its first line says to whom. Times are microseconds of
CLOCK_MONOTONIC, which all processes of a machine share (Java's System.nanoTime is the same clock), so that events of
several processes can be put in order. A consumer writes its lines out before it commits: what is committed was told.

    {"producer": "librdkafka"}
    {"e": "acked", "t": 17, "n": 0, "k": "librdkafka-3", "s": 0, "sent": 9, "p": 2, "o": 1041}
    {"e": "failed", "t": 18, "n": 1, "k": "librdkafka-7", "s": 0, "sent": 9, "error": "_TIMED_OUT", "refused": false}
    {"group": "classic", "member": "classic-1"}
    {"e": "assigned", "t": 30, "p": [0, 2]}
    {"e": "processed", "t": 31, "p": 2, "o": 1041, "k": "librdkafka-3", "s": 0}
    {"e": "committed", "t": 40, "at": [[2, 1042]]}
    {"e": "revoked", "t": 50, "p": [0, 2], "lost": false}
    {"e": "key_maybe_revoked", "t": 44, "at": [[2, 1042]]}
    {"e": "key_assigned", "t": 31, "p": [3]}
    {"e": "sought", "t": 43, "p": 2, "o": 17}
    {"e": "torn", "t": 59}
    {"e": "ended", "t": 60}

A transactional producer writes out what it is about to do before it does so, and so no kill takes from it whether a
transaction may be committed. `x` numbers its transactions over all its lives:

    {"e": "begun", "t": 17, "x": 4, "n": 31, "r": [["librdkafka-3", 0], ["librdkafka-7", 5]]}
    {"e": "ending", "t": 19, "x": 4, "commits": true}
    {"e": "over", "t": 21, "x": 4, "outcome": "committed"}
    {"e": "trouble", "t": 22, "kind": "abortable", "error": "INVALID_TXN_STATE"}

A group that reads a topic with transactions says by `"isolation"` in its first line what it is shown, and by `"begins"`
that it does not begin at the start. `transactions.py` says what is made of both.

Clients of the dialect say `"partitions": "physical"` in the first line: they know a topic's partitions by other numbers
than others do, and a producer of theirs keeps the order of each key, and of several keys none.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

UNKNOWN_OFFSET: Final = -1
"""Of a record that was acknowledged without saying where it stands (a duplicate, whose base offset is -1)."""
SUFFIX: Final = ".history"
ACTIONS: Final = f"actions{SUFFIX}"


class Acknowledged(NamedTuple):
    """The cluster took a record."""

    time_us: int
    number: int
    """Of the producer's sends, over all keys, from 0."""
    key: str
    sequence: int
    """The producer's own for this key, from 0."""
    sent_us: int
    partition: int
    offset: int


class Failed(NamedTuple):
    """A record was not acknowledged."""

    time_us: int
    number: int
    key: str
    sequence: int
    sent_us: int
    error: str
    refused: bool
    """It was certainly not written; else it may have been."""


class Processed(NamedTuple):
    """A member got a record."""

    time_us: int
    partition: int
    offset: int
    key: str
    sequence: int


class Assigned(NamedTuple):
    """A member owns these partitions from now on, in addition to those it has."""

    time_us: int
    partitions: tuple[int, ...]


class Revoked(NamedTuple):
    """A member owns these partitions no longer."""

    time_us: int
    partitions: tuple[int, ...]
    lost: bool
    """It was not asked: others may own them already."""


class Committed(NamedTuple):
    """A member's commit succeeded."""

    time_us: int
    offsets: tuple[tuple[int, int], ...]
    """(partition, next offset)."""


class Sought(NamedTuple):
    """A member goes to another offset of a partition of its own will."""

    time_us: int
    partition: int
    offset: int


class KeyMaybeRevoked(NamedTuple):
    """A member has returned from `on_partition_key_maybe_revoked`: the state of what it got is flushed."""

    time_us: int
    """Of the return."""
    offsets: tuple[tuple[int, int], ...]
    """(partition, next offset): what stands before it is flushed."""


class KeyAssigned(NamedTuple):
    """A member was called in `on_partition_key_assigned`: it loads what others have flushed."""

    time_us: int
    """Of the call."""
    partitions: tuple[int, ...]


class Torn(NamedTuple):
    """A member's client gave up by a fault of its own (docs/limits.md), and the member begins anew."""

    time_us: int


class Ended(NamedTuple):
    """The last line of a file: nothing is missing in it."""

    time_us: int


class Done(NamedTuple):
    """Whoever runs the clients did something meanwhile: changed the number of partitions, or killed a proxy."""

    began_us: int
    ended_us: int
    what: str


class RolledBack(NamedTuple):
    """A record of a transaction that was aborted; no client says so, `transactions.py` makes it."""

    time_us: int
    number: int
    key: str
    sequence: int
    sent_us: int


class Begun(NamedTuple):
    """A producer is about to send these records in a transaction."""

    time_us: int
    transaction: int
    """Of the producer's, over all its lives."""
    number: int
    """Of the first record, of the producer's sends."""
    records: tuple[tuple[str, int], ...]
    """(key, sequence)."""


class Ending(NamedTuple):
    """A producer is about to end a transaction."""

    time_us: int
    transaction: int
    commits: bool


class Over(NamedTuple):
    """A producer was told how a transaction ended, or cannot be told."""

    time_us: int
    transaction: int
    outcome: str
    """committed, aborted, unknown."""


class Trouble(NamedTuple):
    """A transactional producer was told an error that its library has not dealt with."""

    time_us: int
    kind: str
    """retriable: called again; abortable: the transaction was aborted; fatal: the producer was replaced."""
    error: str


Write = Acknowledged | Failed | RolledBack | Begun | Ending | Over | Trouble | Ended
Read = Processed | Assigned | Revoked | Committed | Sought | KeyMaybeRevoked | KeyAssigned | Torn | Ended


class HistoryError(ValueError):
    """A history's line cannot be read; the message says where it stands."""


@dataclass(frozen=True, slots=True)
class Source:
    """Whose file it is: of a producer, or of a group's member."""

    file: Path
    producer: str | None
    group: str | None
    member: str
    is_dialect: bool = False
    """It knows partitions by the numbers of physical ones."""
    isolation: str = ""
    """read_committed, read_uncommitted; "": of a run without transactions."""
    begins_anywhere: bool = False
    """It says itself where it begins in each partition (`sought`)."""


class Recorder:
    """Writes one file of history."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def note(self, event: str, time_us: int, **fields: Any) -> None:
        """Writes one line; the fields' names are those of the module's example."""
        self._file.write(json.dumps({"e": event, "t": time_us} | fields, separators=(",", ":")) + "\n")

    def flush(self) -> None:
        """Hands to the kernel what was written, so that not even SIGKILL takes it back."""
        self._file.flush()


@contextmanager
def recorded(folder: Path, name: str, **whose: str) -> Generator[Recorder]:
    """Opens a new file of history.

    Args:
        whose: `producer`, or `group` and `member`; and `partitions` of the dialect's clients.
    """
    with (folder / f"{name}{SUFFIX}").open("x", encoding="utf-8") as file:
        file.write(json.dumps(whose) + "\n")
        file.flush()  # whoever is killed now has an empty history, and not half a line
        yield Recorder(file)


def sources(folder: Path) -> list[Source]:
    """Returns the clients' files of a run; raises HistoryError."""
    found: list[Source] = []
    for file in sorted(folder.glob(f"*{SUFFIX}")):
        if file.name == ACTIONS:
            continue
        with file.open(encoding="utf-8") as lines:
            whose = _parse(file, 1, lines.readline())
        source = Source(
            file, whose.get("producer"), whose.get("group"), whose.get("member", ""), "partitions" in whose,
            whose.get("isolation", ""), "begins" in whose,
        )  # fmt: skip
        if (source.producer is None) == (source.group is None):
            raise HistoryError(f"{file}:1: says neither which producer nor which group wrote it")
        found.append(source)
    return found


def writes(folder: Path) -> Iterator[tuple[str, Write]]:
    """Returns what producers wrote down, in the order of time, with the producer's name."""
    return heapq.merge(*(_told(source) for source in sources(folder) if source.producer is not None), key=_time)


def dialect_producers(folder: Path) -> frozenset[str]:
    return frozenset(each.producer for each in sources(folder) if each.producer is not None and each.is_dialect)


def all_producers(folder: Path) -> frozenset[str]:
    return frozenset(each.producer for each in sources(folder) if each.producer is not None)


def dialect_groups(folder: Path) -> frozenset[str]:
    return frozenset(each.group for each in sources(folder) if each.group is not None and each.is_dialect)


def reads(folder: Path) -> dict[str, Iterator[tuple[str, Read]]]:
    """Returns by group what its members wrote down, in the order of time, with the member's name."""
    by_group: dict[str, list[Source]] = {}
    for source in sources(folder):
        if source.group is not None:
            by_group.setdefault(source.group, []).append(source)
    return {group: heapq.merge(*map(_told, members), key=_time) for group, members in by_group.items()}


def actions(folder: Path) -> list[Done]:
    file = folder / ACTIONS
    if not file.exists():
        return []
    with file.open(encoding="utf-8") as lines:
        rows = [_parse(file, number, line) for number, line in enumerate(lines, 1)]
    return [Done(row["began"], row["t"], row["what"]) for row in rows]


def note_action(folder: Path, done: Done) -> None:
    with (folder / ACTIONS).open("a", encoding="utf-8") as file:
        line = {"e": "done", "began": done.began_us, "t": done.ended_us, "what": done.what}
        file.write(json.dumps(line) + "\n")


def _told(source: Source) -> Iterator[tuple[str, Any]]:
    for event in _events(source.file):
        yield source.producer or source.member, event


def _time(told: tuple[str, Write | Read]) -> int:
    return told[1].time_us


def _events(file: Path) -> Iterator[Any]:
    with file.open(encoding="utf-8") as lines:
        next(lines)
        for number, line in enumerate(lines, 2):
            if not line.endswith("\n"):
                return  # its writer was killed within this line
            yield _event(file, number, _parse(file, number, line))


def _parse(file: Path, number: int, line: str) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise HistoryError(f"{file}:{number}: {error}") from error
    if not isinstance(fields, dict):
        raise HistoryError(f"{file}:{number}: not an object")
    return fields


def _event(file: Path, number: int, line: dict[str, Any]) -> Write | Read:
    try:
        return _EVENTS[line["e"]](line)
    except (KeyError, TypeError, ValueError) as error:
        raise HistoryError(f"{file}:{number}: no event, or not all of it: {error!r}") from error


def _offsets(line: dict[str, Any]) -> tuple[tuple[int, int], ...]:
    return tuple((partition, offset) for partition, offset in line["at"])


_EVENTS: Final[dict[str, Callable[[dict[str, Any]], Write | Read]]] = {
    "processed": lambda line: Processed(line["t"], line["p"], line["o"], line["k"], line["s"]),
    "acked": lambda line: Acknowledged(line["t"], line["n"], line["k"], line["s"], line["sent"], line["p"], line["o"]),
    "failed": lambda line: Failed(
        line["t"], line["n"], line["k"], line["s"], line["sent"], line["error"], line["refused"]
    ),
    "begun": lambda line: Begun(line["t"], line["x"], line["n"], tuple((key, sequence) for key, sequence in line["r"])),
    "ending": lambda line: Ending(line["t"], line["x"], line["commits"]),
    "over": lambda line: Over(line["t"], line["x"], line["outcome"]),
    "trouble": lambda line: Trouble(line["t"], line["kind"], line["error"]),
    "assigned": lambda line: Assigned(line["t"], tuple(line["p"])),
    "revoked": lambda line: Revoked(line["t"], tuple(line["p"]), line["lost"]),
    "committed": lambda line: Committed(line["t"], _offsets(line)),
    "sought": lambda line: Sought(line["t"], line["p"], line["o"]),
    "key_maybe_revoked": lambda line: KeyMaybeRevoked(line["t"], _offsets(line)),
    "key_assigned": lambda line: KeyAssigned(line["t"], tuple(line["p"])),
    "torn": lambda line: Torn(line["t"]),
    "ended": lambda line: Ended(line["t"]),
}
