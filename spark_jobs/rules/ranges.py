"""What rules on topic data keep between micro-batches: one shape of row for batches and ranges, merged where they join.

A row is a range of offsets of one physical partition, with whatever the rule needs to know of it; `what` says which of
the rule's tables it belongs to. Ranges are merged by windows ("gaps and islands"), so that state grows with the number
of producers, streams and readers, and not with the number of batches.
"""

from __future__ import annotations

import re
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so
from pyspark.sql.types import BooleanType, IntegerType, LongType, StringType, StructField, StructType
from pyspark.sql.window import WindowSpec

from kordon.spark_jobs.rules.rule import Facts

SEQUENCES: Final = 1 << 31
"""Sequences wrap around to 0 behind 2^31 - 1 (DefaultRecordBatch.incrementSequence)."""
FOR_EVER: Final = (1 << 63) - 1
"""Stands for the end of what is open."""
_BRACES: Final = re.compile(r"[{}]")

ROW: Final = StructType(
    [
        StructField("what", StringType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("stream", IntegerType()),
        StructField("v", IntegerType()),
        StructField("move", IntegerType()),
        StructField("producer_id", LongType()),
        StructField("client_producer_id", LongType()),
        StructField("producer_epoch", IntegerType()),
        StructField("base_offset", LongType()),
        StructField("last_offset", LongType()),
        StructField("base_sequence", LongType()),
        StructField("last_sequence", LongType()),
        StructField("records", LongType()),
        StructField("batches", LongType()),
        StructField("is_control", BooleanType()),
        StructField("is_transactional", BooleanType()),
        StructField("layout_epoch", IntegerType()),
        StructField("worker", StringType()),
        StructField("connection", LongType()),
        StructField("group_id", StringType()),
        StructField("decision", StringType()),
        StructField("seen_ms", LongType()),
        StructField("at_ms", LongType()),
    ]
)
"""A row of any of these rules' states. `seen_ms`: the newest decision's time when it came; `at_ms`: of a decision, its
own."""


def rows(frame: DataFrame, what: str, **columns: Column) -> DataFrame:
    """Brings a frame into the shape of state.

    Args:
        frame: Columns that `ROW` does not have are left out, those that it lacks are null.
        columns: Made of the frame's columns, by the name that they are to have.
    """
    return frame.withColumns({"what": F.lit(what), **columns}).to(ROW)


def table(state: DataFrame, what: str) -> DataFrame:
    """Returns one table of a state."""
    return state.where(F.col("what") == what)


def distance(later: Column, earlier: Column) -> Column:
    """Returns how far one sequence lies behind another, modulo 2^31: negative if it lies before."""
    gap = F.pmod(later - earlier, F.lit(SEQUENCES))
    return F.when(gap < SEQUENCES // 2, gap).otherwise(gap - SEQUENCES)


def by_offset(*keys: str) -> WindowSpec:
    """Returns the window over rows of the same keys in the order of their offsets."""
    return Window.partitionBy(*keys).orderBy("base_offset", "last_offset")


def sentence(template: str) -> Column:
    """Returns a text with the values of columns in it, each named in braces; ? where there is none.

    Args:
        template: `{column}`, or with a word in front that is told for one or several: `{record:count}` becomes "1
            record" or "3 records", and `{offset:first:last}` "offset 7" or "offsets 7 to 9".
    """
    parts = (_quoted(text) if not place % 2 else _told(text) for place, text in enumerate(_BRACES.split(template)))
    return F.expr(f"concat({', '.join(parts)})")  # one text: each column put together in Python is a talk with Java


def _told(place: str) -> str:
    match place.split(":"):
        case [word, count]:
            return f"concat({_text(count)}, if({count} <=> 1, ' {word}', ' {word}s'))"
        case [word, first, last]:
            several = f"concat('{word}s ', {_text(first)}, ' to ', {_text(last)})"
            return f"if({first} <=> {last}, concat('{word} ', {_text(first)}), {several})"
        case _:
            return _text(place)


def _text(name: str) -> str:
    return f"coalesce(cast({name} as string), '?')"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def read_so_far(known: DataFrame, facts: Facts) -> DataFrame:
    """Returns up to where each partition has been read, and below which offset not all was, as rows of state.

    Returns:
        `last_offset` is the last that was read; below `base_offset` something was gone before it could be.
    """
    before = known.select("topic", "partition", F.col("base_offset").alias("hole"), F.col("last_offset").alias("to"))
    joined = facts.read_to.join(before, ["topic", "partition"], "full_outer")
    is_behind = F.coalesce(F.col("log_start") > F.col("to") + 1, F.col("hole").isNull())
    return rows(
        joined,
        "read",
        base_offset=F.when(is_behind, F.col("log_start")).otherwise(F.col("hole")),
        last_offset=F.greatest(F.col("next_offset") - 1, F.col("to")),
    )
