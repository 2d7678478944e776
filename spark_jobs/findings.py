"""Where findings go besides the audit's own folder: a topic, a table of Delta or Iceberg.

All take a repeated micro-batch: records have the finding's id as their key, tables replace what the micro-batch had.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so

TOPIC: Final = "__kordon.findings"
TOPIC_CONFIGS: Final = {"cleanup.policy": "compact"}
"""A finding that is written again takes the place of the one before."""
TableFormat = Literal["delta", "iceberg"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic that findings are written to."""

    name: str
    options: Mapping[str, str]
    """Of Spark's Kafka sink: where and how the brokers are reached."""

    def write(self, findings: DataFrame) -> None:
        """Writes those of a micro-batch."""
        rows = findings.select(F.col("finding_id").alias("key"), F.to_json(F.struct("*")).alias("value"))
        rows.write.format("kafka").options(**self.options).option("topic", self.name).save()


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table with a column `batch`, the number of the micro-batch."""

    name: str
    """Of Delta, a path; of Iceberg, a table of the catalog that the session is set up with."""
    format: TableFormat

    def write(self, findings: DataFrame, batch_id: int) -> None:
        """Writes those of a micro-batch over what an earlier try has left."""
        rows = findings.withColumn("batch", F.lit(batch_id).cast("bigint"))
        if self.format == "delta":
            only = rows.write.format("delta").partitionBy("batch").mode("overwrite")
            only.option("replaceWhere", f"batch = {batch_id}").save(self.name)
        elif rows.sparkSession.catalog.tableExists(self.name):
            rows.writeTo(self.name).overwrite(F.col("batch") == batch_id)
        else:
            rows.writeTo(self.name).using("iceberg").partitionedBy(F.col("batch")).create()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sinks:
    """All of them."""

    topic: Topic | None = None
    table: Table | None = None
    written: list[int] = field(default_factory=list[int], compare=False)
    """Micro-batches that were written, for tests and logs."""

    def write(self, findings: DataFrame, batch_id: int) -> None:
        """Writes the findings of a micro-batch."""
        if self.topic is not None and not findings.isEmpty():
            self.topic.write(findings)
        if self.table is not None:
            self.table.write(findings, batch_id)
        self.written.append(batch_id)
