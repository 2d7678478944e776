"""The source `kordon.decision-files`: lines of decision files (`decisions: {to: files}`) as shipments.

Spark's own file source reads a file once, when it sees it first; a worker's newest file grows. So offsets are
`{file name: bytes read}`, always behind the end of a line. A file that was removed before it was read is passed over:
the gap in its worker's numbers tells.

Options: `folder`; `max_bytes`, of a micro-batch; `parts`, `tasks`, `positions` and `pinned` as in `batches_source.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from kordon.spark_jobs.tasks import COLUMNS, bundled, forget_archives

if TYPE_CHECKING:
    from kordon.spark_jobs.judging.shipments import RecordBatch, Shipment

PATTERN: Final = "*.jsonl"
MAX_BYTES: Final = 64 << 20
_CHUNK_BYTES: Final = 4 << 20
_NOWHERE: Final = -1
"""In place of a partition of the decision log."""

Offsets: TypeAlias = dict[str, int]


class _Unread(NamedTuple):
    """A file that is not read to its end."""

    name: str
    begin: int
    size: int


@dataclass
class Lines(InputPartition):
    """Lines of some workers' files, one file after the other: (path, first byte, byte behind the last)."""

    parts: list[tuple[str, int, int]]


class DecisionFilesSource(DataSource):
    """A source of Spark for files of decisions; see the module."""

    @classmethod
    def name(cls) -> str:
        """The name that Spark asks for."""
        return "kordon.decision-files"

    def schema(self) -> str:
        """Returns the columns."""
        return COLUMNS

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Returns a reader of a stream."""
        forget_archives()
        return LinesStream(self.options)


class LinesStream(DataSourceStreamReader):
    """A stream of lines; see the module for its offsets."""

    def __init__(self, options: dict[str, str]) -> None:
        self._folder = Path(options["folder"])
        self._max_bytes = int(options.get("max_bytes", str(MAX_BYTES)))
        self._positions: Offsets = json.loads(options.get("positions", "{}"))
        self._pins: Offsets | None = {} if options.get("pinned", "") == "true" else None
        self._is_pinned = False
        self._parts = int(options.get("parts", "1"))
        self._tasks = int(options.get("tasks", "1"))

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        """Returns the offset before everything."""
        return {}

    def latestOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        """Returns how far the next micro-batch goes.

        Where not all fits, each worker has its share of what fits, older files first: so all of them come to the same
        time of day, about, and none is late only because others were read before it.
        """
        found = dict(self._positions)
        by_worker: dict[str, list[_Unread]] = {}
        for name, size in self._sizes():
            if (begin := found.get(name, 0)) < size:
                by_worker.setdefault(_worker_of(name), []).append(_Unread(name, begin, size))
        unread = {worker: sum(each.size - each.begin for each in files) for worker, files in by_worker.items()}
        fits = min(1.0, self._max_bytes / max(1, sum(unread.values())))
        for worker, files in by_worker.items():
            found |= self._ends(files, int(fits * unread[worker]))
        return dict(sorted(found.items()))

    def _ends(self, files: Iterable[_Unread], room: int) -> Offsets:
        """Returns up to where some files of a worker are read; at least a line of the first, if it has one."""
        ends: Offsets = {}
        for name, begin, size in files:
            path, left = self._folder / name, size - begin
            end = _line_end(path, begin, begin + min(left, room))
            if end == begin and not ends:
                end = _line_end(path, begin, begin + min(left, self._max_bytes))
            ends[name] = end
            room -= left
            if room < 0:
                break
        return {name: end for name, end in ends.items() if end}

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        """Returns what is to be read between two offsets; a worker's files are one task's."""
        self._positions |= end
        by_worker: dict[str, list[tuple[str, int, int]]] = {}
        for name, stop in sorted(end.items()):
            if (begin := start.get(name, 0)) < stop:
                by_worker.setdefault(_worker_of(name), []).append((str(self._folder / name), begin, stop))
        bundles = bundled(by_worker.values(), _bytes_in, self._tasks)
        return [Lines([part for parts in bundle for part in parts]) for bundle in bundles]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Reads a part of it, in a worker."""
        assert isinstance(partition, Lines)
        from kordon.spark_jobs.judging.shipments import together  # noqa: PLC0415

        yield from together(self._shipments(partition))
        forget_archives()

    def _shipments(self, part: Lines) -> Iterator[Shipment]:
        from kordon.spark_jobs.judging.intake import of_decisions  # noqa: PLC0415

        for name, first, lines in lines_of(part):
            nowhere = [_NOWHERE] * len(lines), [None] * len(lines)
            yield from of_decisions(lines, *nowhere, name=name, first=first, parts=self._parts)

    def commit(self, end: Offsets) -> None:
        """Notes that a micro-batch is complete."""
        self._positions |= end

    def _sizes(self) -> list[tuple[str, int]]:
        """Files that there are, and up to where they are looked at."""
        found: list[tuple[str, int]] = []
        for path in sorted(self._folder.glob(PATTERN)):
            try:
                found.append((path.name, path.stat().st_size))
            except FileNotFoundError:
                continue  # removed since
        if self._pins is None:
            return found
        if not self._is_pinned:
            self._pins, self._is_pinned = dict(found), True
        return [(name, min(size, self._pins[name])) for name, size in found if name in self._pins]


def ends(folder: Path) -> Offsets:
    """Returns where the last whole line of each file of a folder ends."""
    found: Offsets = {}
    for path in folder.glob(PATTERN):
        with suppress(FileNotFoundError):  # removed since
            found[path.name] = _line_end(path, 0, path.stat().st_size)
    return found


def _bytes_in(parts: Iterable[tuple[str, int, int]]) -> int:
    return sum(stop - begin for _, begin, stop in parts)


def _worker_of(name: str) -> str:
    return name.rpartition("-")[0]


def _line_end(path: Path, begin: int, end: int) -> int:
    """Returns where the last line that ends in [begin, end) ends; `begin`: none does."""
    try:
        with path.open("rb") as file:
            at = end
            while at > begin:
                step = min(at - begin, 1 << 16)
                file.seek(at - step)
                place = file.read(step).rfind(b"\n")
                if place >= 0:
                    return at - step + place + 1
                at -= step
    except FileNotFoundError:
        pass
    return begin


def lines_of(part: Lines) -> Iterator[tuple[str, int, list[bytes]]]:
    """Yields lines, a few megabytes at once, with their file, and where in it was begun to read them."""
    for path, begin, end in part.parts:
        with suppress(FileNotFoundError):  # removed since
            for first, lines in _lines(Path(path), begin, end):
                yield path, first, lines


def _lines(path: Path, begin: int, end: int) -> Iterator[tuple[int, list[bytes]]]:
    with path.open("rb") as file:
        file.seek(begin)
        left = end - begin
        rest = b""
        while left > 0 and (chunk := file.read(min(left, _CHUNK_BYTES))):
            *whole, rest = (rest + chunk).split(b"\n")
            if whole:
                yield end - left, whole
            left -= len(chunk)
