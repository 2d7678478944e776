"""What layouts say, read from the decisions that carry them and derived once more: the auditor trusts no derived value.

A COMMIT or ADOPT decision carries the whole layout as the proxy writes it down: counts, segments with their cuts, and
what each layout epoch changed. Who lived where is worked out here, by linear hashing of the auditor's own.

    decisions ──newest──> a row per topic ──expand──> segments: offsets of a physical partition under one set of streams
                                                 └──> stays: a stream's time on one physical partition
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so

from kordon.spark_jobs.frames import local_rows, stacked
from kordon.spark_jobs.judging.layouts import expand
from kordon.spark_jobs.schema import SEGMENTS, STAYS

NEWEST: Final = "topic string, layouts_offset long, layout_epoch int, layout string, let_go long"
"""Of `newest`; a topic that is not managed any more has no layout. `let_go`: where that was written down last."""
_LETTING_GO: Final = "forget"
_TELLING: Final = ("commit", "adopt", _LETTING_GO)


def newest(decisions: DataFrame, known: DataFrame | None = None) -> DataFrame:
    """Returns the newest layout of each topic; a later one contains all that went before.

    Args:
        known: What this returned before, of earlier decisions.
    """
    is_sure = F.col("reason").isNull()  # of a commit that may have failed nothing is told but that
    told = decisions.where(F.col("kind").isin(*_TELLING) & is_sure & F.col("topic").isNotNull()).select(
        "topic",
        F.coalesce("layouts_offset", F.lit(-1)).cast("long").alias("layouts_offset"),
        F.coalesce("layout_epoch", F.lit(-1)).cast("int").alias("layout_epoch"),
        F.get_json_object("evidence", "$.layout").alias("layout"),
        F.when(F.col("kind") == _LETTING_GO, F.col("layouts_offset")).alias("let_go"),
    )
    every = told if known is None else stacked(told, known)
    order = Window.partitionBy("topic").orderBy(
        F.desc("layouts_offset"), F.desc("layout_epoch"), F.col("layout").desc_nulls_last()
    )
    let_go = F.max("let_go").over(Window.partitionBy("topic"))
    ranked = every.withColumns({"rank": F.row_number().over(order), "let_go": let_go})
    return ranked.where("rank = 1").drop("rank")


def frames(spark: SparkSession, layouts: Iterable[str]) -> tuple[DataFrame, DataFrame]:
    """Returns segments and stays of all topics.

    Args:
        layouts: The newest of each topic, as JSON.
    """
    expanded = [expand(layout) for layout in layouts]
    segments = [segment for one, _ in expanded for segment in one]
    stays = [stay for _, one in expanded for stay in one]
    return local_rows(spark, segments, SEGMENTS), local_rows(spark, stays, STAYS)
