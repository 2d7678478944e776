"""How layouts have changed: the steps of fences, and which layout was in force since when."""

from __future__ import annotations

import json
from typing import Final

import polars as pl

from kordon.codecs.decision import Kind
from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.schema import columns
from kordon.spark_jobs.judging.summaries.summary import Summary, at_kind, grouped, is_of, longs, newest_of
from kordon.spark_jobs.judging.tables import evidence, stacked

MOST_FENCES: Final = 1_000
MOST_LAYOUTS: Final = 1_000


_STEPS: Final = ("fenced_ms", "acknowledged_ms", "cut_ms", "committed_ms", "cancelled_ms")
_FENCES: Final = columns(
    topic=pl.String,
    fence=pl.String,
    kind=pl.String,
    layout_epoch=pl.Int32,
    sealed=pl.String,
    **longs("members", "acknowledged", *_STEPS, "layouts_offset"),
)
_FIRST_OF_FENCE: Final = ("fenced_ms", "committed_ms", "cancelled_ms", "layouts_offset")


def _fences(facts: Facts, findings: pl.DataFrame, state: pl.DataFrame) -> pl.DataFrame:
    """When the steps of each fence were taken. Bounded: the newest `MOST_FENCES` of each topic."""
    is_step = is_of(Kind.FENCE, Kind.ACKNOWLEDGE, Kind.CUT, Kind.COMMIT, Kind.CANCEL)
    told = facts.decisions.filter(is_step, pl.col("fence").is_not_null() & pl.col("topic").is_not_null())
    new = told.select(
        "topic",
        "fence",
        evidence("$.kind").alias("kind"),
        pl.when(pl.col("kind") != Kind.ACKNOWLEDGE.value).then("layout_epoch").alias("layout_epoch"),
        at_kind(Kind.FENCE, evidence("$.sealed")).alias("sealed"),
        at_kind(Kind.FENCE, evidence("$.members")).map_elements(_length, pl.Int64).alias("members"),
        at_kind(Kind.ACKNOWLEDGE, pl.lit(1)).alias("acknowledged"),
        at_kind(Kind.FENCE, "at_ms").alias("fenced_ms"),
        at_kind(Kind.ACKNOWLEDGE, "at_ms").alias("acknowledged_ms"),
        at_kind(Kind.CUT, "at_ms").alias("cut_ms"),
        at_kind(Kind.COMMIT, "at_ms").alias("committed_ms"),
        at_kind(Kind.CANCEL, "at_ms").alias("cancelled_ms"),
        at_kind(Kind.FENCE, "layouts_offset").alias("layouts_offset"),
    )
    rows = stacked(_FENCES, state, new)
    fences = grouped(rows, ("topic", "fence"), sums=["acknowledged"], least=_FIRST_OF_FENCE)
    return newest_of(fences, MOST_FENCES, pl.max_horizontal(*_STEPS), ["fence"], within=["topic"])


def _length(array: str) -> int | None:
    try:
        told = json.loads(array)
    except ValueError:
        return None
    return len(told) if isinstance(told, list) else None


_LAYOUTS: Final = columns(
    topic=pl.String,
    layout_epoch=pl.Int32,
    n=pl.Int32,
    v_count=pl.Int32,
    u=pl.Int32,
    placement=pl.String,
    **longs("since_ms", "committed_ms", "adopted_ms", "adopted", "layouts_offset", "forgotten_ms"),
)
_FIRST_OF_LAYOUT: Final = ("since_ms", "committed_ms", "adopted_ms", "layouts_offset")


def _layouts(facts: Facts, findings: pl.DataFrame, state: pl.DataFrame) -> pl.DataFrame:
    """Which layout was in force since when. Bounded: the newest `MOST_LAYOUTS` epochs of each topic."""
    is_sure = pl.col("reason").is_null()  # a commit that may have failed is on record, too
    is_told = is_of(Kind.COMMIT, Kind.ADOPT, Kind.FORGET) & is_sure & pl.col("topic").is_not_null()
    new = facts.decisions.filter(is_told).select(
        "topic",
        pl.col("layout_epoch").fill_null(-1),
        _number("$.layout.n").alias("n"),
        _number("$.layout.v_count").alias("v_count"),
        _number("$.layout.epochs[-1].u").alias("u"),
        evidence("$.layout.epochs[-1].placement").alias("placement"),
        pl.when(pl.col("kind") != Kind.FORGET.value).then("at_ms").alias("since_ms"),
        at_kind(Kind.COMMIT, "at_ms").alias("committed_ms"),
        at_kind(Kind.ADOPT, "at_ms").alias("adopted_ms"),
        at_kind(Kind.ADOPT, pl.lit(1)).alias("adopted"),
        pl.when(pl.col("layouts_offset") >= 0).then("layouts_offset").alias("layouts_offset"),
        at_kind(Kind.FORGET, "at_ms").alias("forgotten_ms"),
    )
    rows = stacked(_LAYOUTS, state, new)
    layouts = grouped(rows, ("topic", "layout_epoch"), sums=["adopted"], least=_FIRST_OF_LAYOUT)
    return newest_of(layouts, MOST_LAYOUTS, "layout_epoch", (), within=["topic"])


def _number(path: str) -> pl.Expr:
    return evidence(path).cast(pl.Int32, strict=False)


SUMMARIES: Final = (
    Summary(name="fences", state=_FENCES, fold=_fences),
    Summary(name="layouts", state=_LAYOUTS, fold=_layouts),
)
