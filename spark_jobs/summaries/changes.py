"""How layouts have changed: the steps of fences, and which layout was in force since when."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so

from kordon.codecs.decision import Kind
from kordon.spark_jobs.frames import stacked
from kordon.spark_jobs.rules.rule import Facts
from kordon.spark_jobs.summaries.summary import Summary, at_kind, columns, newest_of

MOST_FENCES: Final = 1_000
MOST_LAYOUTS: Final = 1_000


_FENCES: Final = columns(
    "topic string, fence string, kind string, layout_epoch int, sealed string, members bigint, acknowledged bigint, "
    "fenced_ms bigint, acknowledged_ms bigint, cut_ms bigint, committed_ms bigint, cancelled_ms bigint, "
    "layouts_offset bigint"
)


def _fences(facts: Facts, findings: DataFrame, state: DataFrame) -> DataFrame:
    """When the steps of each fence were taken. Bounded: the newest `MOST_FENCES` of each topic."""
    at = F.col("at_ms")
    steps = [Kind.FENCE, Kind.ACKNOWLEDGE, Kind.CUT, Kind.COMMIT, Kind.CANCEL]
    told = facts.decisions.where(
        F.col("kind").isin([each.value for each in steps]) & F.col("fence").isNotNull() & F.col("topic").isNotNull()
    )
    new = told.select(
        "topic",
        "fence",
        F.get_json_object("evidence", "$.kind").alias("kind_of"),
        F.when(F.col("kind") != Kind.ACKNOWLEDGE.value, F.col("layout_epoch")).alias("layout_epoch"),
        at_kind(Kind.FENCE, F.get_json_object("evidence", "$.sealed")).alias("sealed"),
        at_kind(Kind.FENCE, F.json_array_length(F.get_json_object("evidence", "$.members")).cast("bigint")).alias(
            "members"
        ),
        at_kind(Kind.ACKNOWLEDGE, F.lit(1).cast("bigint")).alias("acknowledged"),
        at_kind(Kind.FENCE, at).alias("fenced_ms"),
        at_kind(Kind.ACKNOWLEDGE, at).alias("acknowledged_ms"),
        at_kind(Kind.CUT, at).alias("cut_ms"),
        at_kind(Kind.COMMIT, at).alias("committed_ms"),
        at_kind(Kind.CANCEL, at).alias("cancelled_ms"),
        at_kind(Kind.FENCE, F.col("layouts_offset")).alias("layouts_offset"),
    ).withColumnRenamed("kind_of", "kind")
    first = {"fenced_ms", "committed_ms", "cancelled_ms", "layouts_offset"}
    folds = [
        (F.sum if each == "acknowledged" else F.min if each in first else F.max)(each).alias(each)
        for each in _FENCES.names[2:]
    ]
    grouped = stacked(state, new).groupBy("topic", "fence").agg(*folds).select(*_FENCES.names)
    latest = F.greatest("fenced_ms", "acknowledged_ms", "cut_ms", "committed_ms", "cancelled_ms")
    return newest_of(grouped, MOST_FENCES, latest, ("topic",))


_LAYOUTS: Final = columns(
    "topic string, layout_epoch int, n int, v_count int, u int, placement string, since_ms bigint, "
    "committed_ms bigint, adopted_ms bigint, adopted bigint, layouts_offset bigint, forgotten_ms bigint"
)
_LAYOUT_JSON: Final = (
    "layout struct<n: int, v_count: int, epochs: array<struct<number: int, u: int, placement: string>>>"
)


def _layouts(facts: Facts, findings: DataFrame, state: DataFrame) -> DataFrame:
    """Which layout was in force since when. Bounded: the newest `MOST_LAYOUTS` epochs of each topic."""
    kinds = [Kind.COMMIT.value, Kind.ADOPT.value, Kind.FORGET.value]
    is_sure = F.col("reason").isNull()  # a commit that may have failed is on record, too
    told = facts.decisions.where(F.col("kind").isin(kinds) & is_sure & F.col("topic").isNotNull())
    layout = F.from_json("evidence", _LAYOUT_JSON).getField("layout")
    at = F.col("at_ms")
    epoch = F.try_element_at(layout.getField("epochs"), F.lit(-1))
    new = told.select(
        "topic",
        F.coalesce("layout_epoch", F.lit(-1)).cast("int").alias("layout_epoch"),
        layout.getField("n").alias("n"),
        layout.getField("v_count").alias("v_count"),
        epoch.getField("u").alias("u"),
        epoch.getField("placement").alias("placement"),
        F.when(F.col("kind") != Kind.FORGET.value, at).alias("since_ms"),
        at_kind(Kind.COMMIT, at).alias("committed_ms"),
        at_kind(Kind.ADOPT, at).alias("adopted_ms"),
        at_kind(Kind.ADOPT, F.lit(1).cast("bigint")).alias("adopted"),
        F.when(F.col("layouts_offset") >= 0, F.col("layouts_offset")).alias("layouts_offset"),
        at_kind(Kind.FORGET, at).alias("forgotten_ms"),
    )
    first = {"since_ms", "committed_ms", "adopted_ms", "layouts_offset"}
    folds = [
        (F.sum if each == "adopted" else F.min if each in first else F.max)(each).alias(each)
        for each in _LAYOUTS.names[2:]
    ]
    grouped = stacked(state, new).groupBy("topic", "layout_epoch").agg(*folds).select(*_LAYOUTS.names)
    return newest_of(grouped, MOST_LAYOUTS, F.col("layout_epoch"), ("topic",))


SUMMARIES: Final = (
    Summary(name="fences", state=_FENCES, fold=_fences),
    Summary(name="layouts", state=_LAYOUTS, fold=_layouts),
)
