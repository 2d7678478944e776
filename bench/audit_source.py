"""A made-up day's topics as a source of Spark's, as light as the auditor's own, which three processes plan with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from kordon.bench.audit_day import Day
from kordon.spark_jobs.batches_source import BatchesStream, BatchRanges, Offsets, offsets_of
from kordon.spark_jobs.tasks import COLUMNS, forget_archives

if TYPE_CHECKING:
    from kordon.spark_jobs.judging.shipments import Shipment


class RecordedSource(DataSource):
    """A day's batches as a stream. Options: `day`, JSON; `round`, a file with the round that it is; `parts`."""

    @classmethod
    def name(cls) -> str:
        return "kordon.bench.recorded"

    def schema(self) -> str:
        return COLUMNS

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return RecordedStream(self.options)


class RecordedStream(BatchesStream):
    """The auditor's own stream, but for brokers: all logs end where a round begins."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__({"bootstrap": "nowhere:0", **options})
        self._day = Day(**json.loads(options["day"]))
        self._round = Path(options["round"])
        self._parts = int(options["parts"])

    def latestOffset(self) -> Offsets:  # noqa: N802 - Spark's name
        from kordon.bench.audit_log import ends_of  # noqa: PLC0415

        return offsets_of(ends_of(self._day, int(self._round.read_text())))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, BatchRanges)
        from kordon.spark_jobs.judging.shipments import together  # noqa: PLC0415

        yield from together(self._shipments(partition))
        forget_archives()

    def _shipments(self, part: BatchRanges) -> Iterator[Shipment]:
        from kordon.bench.audit_log import Recorded  # noqa: PLC0415
        from kordon.spark_jobs.judging.intake import of_partition  # noqa: PLC0415

        recorded = Recorded(self._day, int(self._round.read_text()))
        for place, start, end in part.ranges:
            for what, table in recorded.read(place, start, end):
                yield from of_partition(what, table, *place, self._parts)
