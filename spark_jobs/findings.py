"""Where findings go besides the audit's own folder: a topic, a table of Delta or Iceberg.

Both take what they were given before: records have the finding's id as their key, and a table's rows of a micro-batch
are replaced. So whatever is written twice stands there once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import polars as pl
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so

from kordon.spark_jobs.errors import CannotCheck
from kordon.spark_jobs.jars import TableFormat
from kordon.spark_jobs.judging.schema import FINDINGS, Column
from kordon.spark_jobs.storage import absolute

TOPIC: Final = "__kordon.findings"
TOPIC_CONFIGS: Final = {"cleanup.policy": "compact"}
"""A finding that is written again takes the place of the one before."""
BATCH: Final = "batch"
"""Column with the number of the micro-batch."""
_SPARK_TYPES: Final[Mapping[Column, str]] = {
    pl.String: "string",
    pl.Int32: "int",
    pl.Int64: "bigint",
    pl.List(pl.String): "array<string>",
}
COLUMNS: Final = ", ".join(f"{name} {_SPARK_TYPES[kind]}" for name, kind in FINDINGS.items())
"""`FINDINGS` in Spark's words."""
_PATIENCE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "kafka.max.block.ms": "15000",
        "kafka.request.timeout.ms": "15000",
        "kafka.delivery.timeout.ms": "30000",
        "kafka.linger.ms": "0",
    }
)
"""What cannot be written now is written later: the audit does not wait for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingsTopic:
    """A topic that findings are written to."""

    name: str
    options: Mapping[str, str]
    """The options of Spark's Kafka sink: how the brokers are reached."""

    @property
    def told(self) -> str:
        """The name of the place in messages."""
        return f"the topic {self.name}"

    def write(self, findings: DataFrame) -> None:
        """Writes findings, of each id the newest.

        Args:
            findings: Rows of `FINDINGS`, with the micro-batch in `BATCH`.
        """
        newest = findings.groupBy("finding_id").agg(F.max(F.struct(BATCH, *FINDINGS.names())).alias("newest"))
        value = F.to_json(F.struct(*(f"newest.{name}" for name in FINDINGS.names())))
        rows = newest.select(F.col("finding_id").alias("key"), value.alias("value"))
        rows.write.format("kafka").options(**{**_PATIENCE, **self.options}).option("topic", self.name).save()


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of `FINDINGS` with a column `BATCH`."""

    name: str
    """A path or a name with dots for Delta; catalog.database.table for Iceberg."""
    format: TableFormat

    @property
    def told(self) -> str:
        """The name of the place in messages."""
        return f"the table {self.name}"

    def check(self, spark: SparkSession) -> None:
        """Looks whether Spark knows where it is.

        Raises:
            CannotCheck: The table is of a catalog that is not set up.
        """
        if self.format == "delta":
            return
        catalog, dot, _ = self.name.partition(".")
        if not dot or spark.conf.get(f"spark.sql.catalog.{catalog}", None) is None:
            raise CannotCheck(
                f"--table {self.name}: a table of Iceberg is named CATALOG.DATABASE.TABLE, and Spark does not know the "
                f"catalog {catalog}: --conf spark.sql.catalog.{catalog}=org.apache.iceberg.spark.SparkCatalog sets it "
                f"up, with --conf spark.sql.catalog.{catalog}.type=… and what that needs"
            )

    def write(self, findings: DataFrame, first: int, last: int) -> None:
        """Writes the findings of micro-batches over what an earlier try has left of them.

        Args:
            findings: Rows of `FINDINGS`, with the micro-batch in `BATCH`.
            first: The first micro-batch.
            last: The last micro-batch.
        """
        rows = findings.select(*FINDINGS.names(), F.col(BATCH).cast("bigint").alias(BATCH))
        if self.format == "delta":
            self._write_delta(rows, f"{BATCH} >= {first} AND {BATCH} <= {last}")
        elif rows.sparkSession.catalog.tableExists(self.name):
            rows.writeTo(self.name).overwrite(F.col(BATCH).between(first, last))
        else:
            rows.writeTo(self.name).using("iceberg").partitionedBy(F.col(BATCH)).create()

    def _write_delta(self, rows: DataFrame, replaced: str) -> None:
        writer = rows.write.format("delta").partitionBy(BATCH).mode("overwrite").option("replaceWhere", replaced)
        if "/" in self.name:
            writer.save(absolute(self.name))
        else:
            writer.saveAsTable(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sinks:
    """All places for findings."""

    topic: FindingsTopic | None = None
    table: Table | None = None
