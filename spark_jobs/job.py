"""The one Spark job of a micro-batch: shipments are brought together by their part, and each part is judged by a task.

The plan is the same for every micro-batch. Whatever differs travels as rows: so Java compiles it once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so

from kordon.spark_jobs.judging.judge import MANAGED, RULE_CHECKED, SETTINGS, TOTALS, Judge, merged_findings
from kordon.spark_jobs.judging.schema import FINDINGS
from kordon.spark_jobs.judging.shipments import (
    ROWS,
    RecordBatch,
    Shipment,
    What,
    of_arrow,
    packed,
    redivided,
    to_arrow,
    together,
    unpacked,
)
from kordon.spark_jobs.tasks import COLUMNS, forget_archives

KEPT: Final = "kept"
"""A column of what is written: whether the next micro-batch alone asks for it."""


def judged(judge: Judge, parts: int, *shipments: DataFrame) -> DataFrame:
    """Returns what comes of shipments: rows of `ROWS`, and `KEPT`."""
    whole = shipments[0]
    for each in shipments[1:]:
        whole = whole.unionByName(each)
    told = whole.repartitionById(parts, "part").mapInArrow(_task(judge), COLUMNS)
    return told.withColumn(KEPT, F.col("what") == What.STATE.value)


def settings(spark: SparkSession, parts: int, *, late_ms: int, is_last: bool) -> DataFrame:
    """Returns how each part judges a micro-batch, as shipments."""
    table = packed(pl.DataFrame([(late_ms, is_last)], schema=SETTINGS, orient="row"))
    rows = [Shipment(part, What.SETTINGS, "", 0, table) for part in range(parts)]
    return spark.createDataFrame(pa.Table.from_batches([to_arrow(rows)]), COLUMNS)


def state_of(rows: DataFrame, former_parts: int, parts: int) -> DataFrame:
    """Returns states and summaries out of what a micro-batch has left, divided among the parts that there are now."""
    kept = rows.where(F.col("what").isin(What.STATE.value, What.SUMMARY.value)).select(*ROWS.names)
    if former_parts == parts:
        return kept
    return kept.repartition(1).mapInArrow(_redivider(parts), COLUMNS)


def _task(judge: Judge) -> Callable[[Iterable[RecordBatch]], Iterator[RecordBatch]]:
    def run(tables: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        forget_archives()
        given = defaultdict[int, list[Shipment]](list)
        for table in tables:
            for each in of_arrow(table):
                given[each.part].append(each)
        for part in sorted(given):
            yield from together(judge.judge(part, given.pop(part)))

    return run


def _redivider(parts: int) -> Callable[[Iterable[RecordBatch]], Iterator[RecordBatch]]:
    def run(tables: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        yield from together(redivided((each for table in tables for each in of_arrow(table)), parts))

    return run


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """What a micro-batch tells the driver, of all parts together."""

    findings: pl.DataFrame
    """`FINDINGS`, each once."""
    checked: pl.DataFrame
    """`RULE_CHECKED`."""
    totals: pl.DataFrame
    """`TOTALS`, a row for each part."""
    managed: frozenset[str]
    summaries: dict[str, Sequence[Sequence[Shipment]]]
    """By name, of each part that has it."""

    @classmethod
    def of(cls, rows: Iterable[Shipment]) -> BatchResult:
        """Returns what some shipments tell."""
        ordered = sorted(rows, key=lambda each: (each.what, each.name, each.part, each.first))
        by_what = {what: list(each) for what, each in groupby(ordered, lambda each: each.what)}
        summaries: dict[str, list[list[Shipment]]] = {}
        for (name, _), each in groupby(by_what.get(What.SUMMARY, []), lambda row: (row.name, row.part)):
            summaries.setdefault(name, []).append(list(each))
        return cls(
            findings=merged_findings(unpacked(FINDINGS, by_what.get(What.FINDINGS, []))),
            checked=unpacked(RULE_CHECKED, by_what.get(What.CHECKED, [])),
            totals=unpacked(TOTALS, by_what.get(What.TOTALS, [])),
            managed=frozenset(unpacked(MANAGED, by_what.get(What.MANAGED, [])).get_column("topic").to_list()),
            summaries=dict(summaries),
        )
