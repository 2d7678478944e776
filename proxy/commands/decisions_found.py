"""Single decisions, each looked for by its worker and its number: in the topic, or in files.

All decisions of a worker are in one partition of the topic, in the order of their numbers. So that partition is read
first, up to the highest number that is wanted. Of what was read, only the wanted decisions are kept.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from kordon.codecs.decision import Entry
from kordon.proxy.commands.decisions_source import DecisionsTopic, PartitionSpan, check_folder, decisions_topic
from kordon.proxy.decisions.to_files import PATTERN

if TYPE_CHECKING:
    from kordon.proxy.config.config import Upstream

_NUMBER: Final = "[0-9]{1,19}"


class Name(NamedTuple):
    """The name of a decision."""

    worker: str
    number: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads WORKER:NUMBER.

        Raises:
            ValueError: The text is something else; the message says who shows such names.
        """
        worker, _, number = text.rpartition(":")
        with suppress(UnicodeEncodeError):  # an argument of bytes that are no text
            if worker.encode() and re.fullmatch(_NUMBER, number):
                return cls(worker, int(number))
        raise ValueError(f"{text!r} is not WORKER:NUMBER, which is how the audit's report names decisions")


class Search:
    """The decisions of one worker that are looked for, and those that were found.

    Args:
        numbers: The numbers of the decisions; at least one.
    """

    def __init__(self, worker: str, numbers: Iterable[int]) -> None:
        self.worker = worker
        self.missing = set(numbers)
        self.found: dict[int, Entry] = {}
        self._last_wanted = max(self.missing)
        self._first: int | None = None
        self._last = self._last_here = -1
        self._name = json.dumps(worker, ensure_ascii=False).encode()
        self._place = re.compile(rb'"worker": ?' + re.escape(self._name) + rb', ?"number": ?(%b)' % _NUMBER.encode())

    def enter(self) -> None:
        """Begins with another partition, or with the files."""
        self._last_here = -1

    def look_at(self, value: bytes) -> None:
        """Takes a record of the log if it is wanted; of others of the worker it notes the number, and reads no more."""
        if self._name not in value:
            return
        place = self._place.search(value)
        if place is not None and int(place[1]) not in self.missing:
            self._meet(int(place[1]))
            return
        with suppress(ValueError):
            entry = Entry.load(value)
            if entry.worker == self.worker:
                self._meet(entry.number)
                self._take(entry)

    def _meet(self, number: int) -> None:
        self._first = number if self._first is None else min(self._first, number)
        self._last_here = number
        self._last = max(self._last, number)

    def _take(self, entry: Entry) -> None:
        if entry.number in self.missing:
            self.missing.remove(entry.number)
            self.found[entry.number] = entry

    @property
    def is_past(self) -> bool:
        """Whether what follows in this partition has higher numbers only."""
        return self._last_here >= self._last_wanted

    @property
    def is_over(self) -> bool:
        """Whether all was found, or what is missing is surely nowhere, as lower and higher numbers were there."""
        return not self.missing or (self.is_past and self._first is not None and self._first < min(self.missing))

    def why_missing(self, number: int) -> str:
        """Says what is there instead of a decision, and what would help."""
        if self._first is None:
            return (
                "there is no decision of this worker. Is it the log of that Kordon, and the whole name of the worker? "
                "Without --since, older decisions are searched, too"
            )
        if number < self._first:
            return (
                f"the log has this worker's decisions from number {self._first} on. Without --since, older ones are "
                "searched, too; what retention has taken is gone"
            )
        if number > self._last:
            return (
                f"the last decision of this worker is number {self._last}. This one is not written yet, or the worker "
                "was killed before"
            )
        return (
            "the log has this worker's decisions before and after it. Kordon has dropped it; "
            "`kordon decisions tail --kind gap --from-beginning` shows when and why"
        )


def searches(names: Iterable[Name]) -> list[Search]:
    """Divides what is wanted by workers."""
    wanted: dict[str, set[int]] = {}
    for name in names:
        wanted.setdefault(name.worker, set()).add(name.number)
    return [Search(worker, numbers) for worker, numbers in wanted.items()]


async def search_topic(upstream: Upstream, wanted: Iterable[Search], since_ms: int | None) -> None:
    """Looks into the topic, as far as it goes when the search begins.

    Args:
        upstream: The brokers: bootstrap, brokers, TLS and SASL are used.
        since_ms: Begin with what was written then, in milliseconds since 1970; None: with the first decision.

    Raises:
        LogUnreadable: The brokers cannot be reached, have no such topic, or no longer answer.
    """
    async with decisions_topic(upstream) as topic:
        spans = await topic.spans(None, since_ms)
        for search in wanted:
            for number in _likeliest_first(search.worker, len(spans)):
                await _search_partition(topic, number, spans[number], search)
                if search.is_over:
                    break


def _likeliest_first(worker: str, partitions: int) -> list[int]:
    """Orders the partitions; the topic may have had fewer when the worker wrote."""
    likely = zlib.crc32(worker.encode()) % partitions
    return [*range(likely, partitions), *range(likely)]


async def _search_partition(topic: DecisionsTopic, number: int, span: PartitionSpan, search: Search) -> None:
    topic.positions = {number: span.start}
    search.enter()
    while topic.positions[number] < span.end:
        for value in await topic.read([number]):
            search.look_at(value)
            if search.is_past:
                return


def search_files(folder: Path, wanted: Iterable[Search]) -> None:
    """Looks into the files of a folder, line by line; those of the worker come first.

    Raises:
        LogUnreadable: There is no such folder.
    """
    check_folder(folder)
    for search in wanted:
        own = f"decisions-{search.worker}-"
        for path in sorted(folder.glob(PATTERN), key=lambda path: (not path.name.startswith(own), path.name)):
            with suppress(FileNotFoundError):  # the oldest go while new ones come
                _search_file(path, search)
            if search.is_past:
                break


def _search_file(path: Path, search: Search) -> None:
    with path.open("rb") as lines:
        for line in lines:
            search.look_at(line)
            if search.is_past:
                return


def results(wanted: Iterable[Search], names: Iterable[Name]) -> Iterator[tuple[Name, Entry | str]]:
    """Yields what became of each, in the order in which they were asked for: the decision, or why it is missing."""
    by_worker = {search.worker: search for search in wanted}
    for name in dict.fromkeys(names):
        search = by_worker[name.worker]
        yield name, search.found.get(name.number) or search.why_missing(name.number)
