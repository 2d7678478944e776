"""What rules have in common when they hand over their rows: columns by schema, identities of findings, verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so
from pyspark.sql.types import StructType

from kordon.spark_jobs.frames import stacked
from kordon.spark_jobs.rules.rule import CHECKED, FINDINGS, LATE, PASS, UNKNOWN, Facts

QUIET_MS: Final = 24 * 60 * 60 * 1000
"""What has been silent for so long, in decisions' time, is dropped from states; if it comes back, it begins anew."""


def union(tables: Sequence[DataFrame], schema: StructType) -> DataFrame:
    """Returns all rows of some tables, each with the columns of a schema."""
    return stacked(*(each.to(schema) for each in tables))


def findings(rows: DataFrame, number: int, name: str, identity: Sequence[str], facts: Facts) -> DataFrame:
    """Makes findings.

    Args:
        rows: With `kind`, `verdict`, `text`, `decisions`, and what else findings have.
        identity: Columns that tell one finding from others, besides its rule and kind.
    """
    told = ", ".join(f"coalesce(cast({each} as string), '-')" for each in identity)
    finding_id = F.expr(f"sha2(concat_ws('/', '{number}', kind, {told}), 256)")
    filled = rows.withColumns(
        {
            "finding_id": finding_id,
            "rule": F.lit(number),
            "name": F.lit(name),
            "found_ms": F.lit(facts.newest_ms),
        }
    )
    return filled.to(FINDINGS)


def checked(rows: DataFrame) -> DataFrame:
    """Sums up what was looked at.

    Args:
        rows: With `topic`, `partition`, `stream`, `first_offset`, `last_offset` where they have them, and `verdict`;
            those that failed are left out, as findings tell of them.
    """
    places = ("topic", "partition", "stream", "verdict")
    filled = rows.to(CHECKED).where(F.col("verdict").isin(PASS, UNKNOWN, LATE))
    summed = filled.groupBy(*places).agg(
        F.min("first_offset").alias("first_offset"),
        F.max("last_offset").alias("last_offset"),
        F.count(F.lit(1)).alias("count"),
    )
    return summed.to(CHECKED)


def decision(worker: str = "worker", number: str = "number") -> Column:
    """Returns how findings name a decision: `worker:number`, of the columns that are named."""
    return F.concat_ws(":", F.col(worker), F.col(number).cast("string"))
