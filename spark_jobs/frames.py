"""How tables are put together, so that on one machine all of a rule is one task.

A micro-batch is little data for many and large plans: what it costs is mostly what Spark does around its tasks, not in
them. Where a table has one partition, Spark needs no shuffle to group, sort or join it; where all tables have one, a
rule is one stage of one task. So what comes in is brought into as many partitions as a shuffle makes, and stays so.
With more than one (a cluster, or `--conf spark.sql.shuffle.partitions=N`) the same plans are shuffled as ever.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce
from typing import Any

import pyarrow
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


def local_rows(spark: SparkSession, rows: Collection[tuple[Any, ...]], schema: StructType) -> DataFrame:
    """Makes a table that stands in plans as its rows.

    What `createDataFrame` makes of a list is read by a Python worker, each time that a plan uses it, and no plan knows
    that it is empty; of this one it does, and leaves out whatever would come of it.

    Args:
        rows: In the order of the columns; few.
    """
    arrow: Any = to_arrow_schema(schema)
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pyarrow.array(list(values), type=kind) for values, kind in zip(columns, arrow.types, strict=True)]
    made = spark.createDataFrame(pyarrow.Table.from_arrays(arrays, schema=arrow), schema)
    return gathered(made) if rows else made


def gathered(table: DataFrame) -> DataFrame:
    """Returns a table in no more partitions than a shuffle makes, without a shuffle."""
    return table.coalesce(_partitions(table))


def dealt(table: DataFrame) -> DataFrame:
    """Returns a table in as many partitions as a shuffle makes; it is worked out in as many as it has until then."""
    return table.repartition(_partitions(table))


def stacked(*tables: DataFrame) -> DataFrame:
    """Returns all rows of some tables, each column by its name; what a table lacks is null."""
    if len(tables) == 1:
        return tables[0]
    return gathered(reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), tables))


def worked_out(table: DataFrame) -> DataFrame:
    """Returns a table that is worked out once, by whoever needs it first, and not by each that is made of it."""
    return gathered(table).localCheckpoint(eager=False)  # of a full outer join Spark knows no partitions


def _partitions(table: DataFrame) -> int:
    return int(table.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
