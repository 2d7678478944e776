"""Tables of a few rows that the driver has at hand."""

from __future__ import annotations

from collections.abc import Collection
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
        spark: The session.
        rows: In the order of the columns; few.
        schema: Its columns.
    """
    arrow: Any = to_arrow_schema(schema)
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pyarrow.array(list(values), type=kind) for values, kind in zip(columns, arrow.types, strict=True)]
    return spark.createDataFrame(pyarrow.Table.from_arrays(arrays, schema=arrow), schema)
