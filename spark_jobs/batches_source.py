"""The source `kordon.batches`: what stands in managed topics, batch by batch, as a stream of shipments.

Offsets are `{topic: {partition: next offset}}`. A micro-batch reads the batches that begin between two of them, so
that it reads the same when it is repeated. Behind the last batch of a partition a shipment says how far it was read.

Options: `bootstrap`; `topics`, names with commas between; `parts`, among which topics are divided; `tasks`, the most
that read at once; `max_bytes`, of a micro-batch, about; `positions`, offsets as above at which a stream that is begun
again stands (Spark tells a Python source no such thing before it has to say how far the next micro-batch is to go);
`pinned`: what is written after the first look is left alone; `one_in`, as in `read_partition`; and `Security`'s.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from kordon.codecs.errors import WireError
from kordon.spark_jobs.brokers import LATEST, BrokersUnavailable, Cluster, PartitionKey, Security
from kordon.spark_jobs.tasks import COLUMNS, bundled, forget_archives

if TYPE_CHECKING:
    from kordon.spark_jobs.judging.shipments import RecordBatch, Shipment

MAX_BYTES: Final = 1024 << 20
_SAMPLE_BYTES: Final = 64 << 10
_FEW: Final = 1000
"""Offsets for which it is not worth while to ask how large they are."""
_FEW_BYTES: Final = 1024.0

Offsets: TypeAlias = dict[str, dict[str, int]]


class BatchRange(NamedTuple):
    """Batches of a partition that begin in [start, end)."""

    place: PartitionKey
    start: int | None
    """None: from the log's beginning."""
    end: int


@dataclass
class BatchRanges(InputPartition):
    """The ranges of batches that one task reads."""

    ranges: list[BatchRange]


class BatchesSource(DataSource):
    """A source of Spark for the batches of topics; see the module."""

    @classmethod
    def name(cls) -> str:
        """The name that Spark asks for."""
        return "kordon.batches"

    def schema(self) -> str:
        """Returns the columns."""
        return COLUMNS

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Returns a reader of a stream."""
        forget_archives()
        return BatchesStream(self.options)


class _Reading:
    """Opens a partition; made on the driver, used in the workers."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.bootstrap = options["bootstrap"]
        self.security = Security.of(options)
        self._parts = int(options.get("parts", "1"))
        self._one_in = int(options.get("one_in", "0"))

    def read(self, ranges: Iterable[BatchRange]) -> Iterator[Shipment]:
        from kordon.spark_jobs.batch_reader import read_partition  # noqa: PLC0415
        from kordon.spark_jobs.judging.intake import of_partition  # noqa: PLC0415

        with Cluster(self.bootstrap, self.security) as cluster:
            for place, start, end in ranges:
                for what, table in read_partition(cluster, place, start, end, one_in=self._one_in):
                    yield from of_partition(what, table, *place, self._parts)


class BatchesStream(DataSourceStreamReader):
    """A stream of batches; see the module for its offsets."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._reading = _Reading(options)
        self._topics = _names(options.get("topics", ""))
        self._tasks = int(options.get("tasks", "1"))
        self._max_bytes = int(options.get("max_bytes", str(MAX_BYTES)))
        self._positions = places_of(json.loads(options.get("positions", "{}")))
        self._pins: dict[PartitionKey, int] | None = {} if options.get("pinned", "") == "true" else None

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        """Returns the offset before everything: each partition begins where its log does."""
        return {}

    def latestOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        """Returns how far the next micro-batch goes; not further than it has got while no broker answers."""
        with Cluster(self._reading.bootstrap, self._reading.security) as cluster:
            try:
                places = cluster.partitions(self._topics)
                ends = self._pinned(cluster.ends(places, LATEST))
                return offsets_of(self._positions | self._bounded(cluster, ends))
            except BrokersUnavailable:
                return offsets_of(self._positions)

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        """Returns what is to be read between two offsets."""
        begins, ends = places_of(start), places_of(end)
        self._positions |= ends
        ranges = [
            BatchRange(place, begins.get(place), stop)
            for place, stop in sorted(ends.items())
            if begins.get(place, -1) < stop
        ]
        return [BatchRanges(each) for each in bundled(ranges, _offsets_in, self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        """Reads a part of it, in a worker."""
        assert isinstance(partition, BatchRanges)
        from kordon.spark_jobs.judging.shipments import together  # noqa: PLC0415

        yield from together(self._reading.read(partition.ranges))
        forget_archives()

    def commit(self, end: Offsets) -> None:
        """Notes that a micro-batch is complete."""
        self._positions |= places_of(end)

    def _pinned(self, ends: dict[PartitionKey, int]) -> dict[PartitionKey, int]:
        if self._pins is None:
            return ends
        return {place: self._pins.setdefault(place, end) for place, end in ends.items()}

    def _bounded(self, cluster: Cluster, ends: Mapping[PartitionKey, int]) -> dict[PartitionKey, int]:
        """Cuts what is new to `max_bytes`, the same part of each partition."""
        new = {place: end - self._positions.get(place, 0) for place, end in ends.items()}
        bytes_by_place = {place: count * self._density(cluster, place, count) for place, count in new.items()}
        share = min(1.0, self._max_bytes / max(1.0, sum(bytes_by_place.values())))
        return {
            place: self._positions.get(place, 0) + (max(1, int(count * share)) if count > 0 else 0)
            for place, count in new.items()
        }

    def _density(self, cluster: Cluster, place: PartitionKey, count: int) -> float:
        """Returns about how many bytes an offset stands for, from where the next micro-batch begins."""
        if count < _FEW:
            return _FEW_BYTES if count > 0 else 0.0
        from kordon.spark_jobs.batch_reader import columns  # noqa: PLC0415

        start = self._positions.get(place, 0)
        try:
            told = cluster.fetch(place, start, _SAMPLE_BYTES)
            rows = columns(told, place)
        except (BrokersUnavailable, WireError):
            return _FEW_BYTES
        if rows is None:
            return _FEW_BYTES
        table, behind = rows
        return float(table.get_column("bytes").sum()) / max(1, behind - start)


def _offsets_in(part: BatchRange) -> int:
    return part.end - (part.start or 0)


def _names(listed: str) -> list[str]:
    return [name for name in (each.strip() for each in listed.split(",")) if name]


def places_of(offsets: Mapping[str, Mapping[str, int]]) -> dict[PartitionKey, int]:
    """Returns offsets, as Spark writes them down for topics, by partition."""
    return {
        PartitionKey(topic, int(q)): next_offset for topic, its in offsets.items() for q, next_offset in its.items()
    }


def offsets_of(places: Mapping[PartitionKey, int]) -> Offsets:
    """Returns next offsets of partitions as Spark writes them down for topics."""
    found: dict[str, Any] = {}
    for place, next_offset in sorted(places.items()):
        found.setdefault(place.topic, {})[str(place.partition)] = next_offset
    return found
