"""What a summary is, and what all of them are made with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so
from pyspark.sql.types import BooleanType, IntegerType, LongType, StringType, StructField, StructType

from kordon.codecs.decision import Kind
from kordon.spark_jobs.rules.rule import Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One table of the report."""

    name: str
    """The name of its folder."""
    state: StructType
    """Its columns; the first micro-batch is given an empty table."""
    fold: Callable[[Facts, DataFrame, DataFrame], DataFrame]
    """What is new, the findings of this micro-batch, and the table so far, to the next one."""


_TYPES: Final = {"string": StringType(), "int": IntegerType(), "bigint": LongType(), "boolean": BooleanType()}


def columns(text: str) -> StructType:
    """Reads "name type, name type": Spark's own parser would need a session for it."""
    pairs = (each.split() for each in text.split(", "))
    return StructType([StructField(name, _TYPES[kind]) for name, kind in pairs])


def at_kind(kind: Kind, value: Column) -> Column:
    """Returns a value of decisions of one kind, null of others."""
    return F.when(F.col("kind") == kind.value, value)


def newest_of(table: DataFrame, most: int, by: Column, within: tuple[str, ...] = ()) -> DataFrame:
    """Keeps the newest rows, so that a table stays bounded."""
    if not within:
        return table.orderBy(by.desc_nulls_last()).limit(most)
    window = Window.partitionBy(*within).orderBy(by.desc_nulls_last())
    return table.withColumn("_place", F.row_number().over(window)).where(F.col("_place") <= most).drop("_place")
