"""What PARENT-FIRST knows of readers: where each stands, what it has shown of its group, and what it begins."""

from __future__ import annotations

from typing import Final

import polars as pl

from kordon.codecs.decision import Kind
from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.rules.gaps import with_gaps
from kordon.spark_jobs.judging.rules.readers import IS_DELIVERY, READER, in_order, steps_of
from kordon.spark_jobs.judging.schema import columns
from kordon.spark_jobs.judging.tables import evidence, shaped

READERS_MS: Final = 7 * 24 * 60 * 60 * 1000
_NOTHING: Final = "{}"
SHOWING: Final = ("positions", "log_starts")
"""What evidence shows how far a group is done with physical partitions, by these."""
_UNGATED: Final = "ordered_delivery"
READERS: Final = columns(
    READER, stood=pl.Int64, move=pl.Int32, position=pl.Int64, is_rewind=pl.Boolean, shown=pl.String
)
"""`stood`: the number of the decision behind which it stands at `position`; null: it has only waited. `shown`: the
evidence of its last RELEASE; `_NOTHING` since a rewind."""
STEPS: Final = columns(
    READER,
    group_id=pl.String,
    partition=pl.Int32,
    move=pl.Int32,
    first_offset=pl.Int64,
    last_offset=pl.Int64,
    stood_before=pl.Int64,
    move_before=pl.Int32,
    position_before=pl.Int64,
    shown=pl.String,
    across_gap=pl.Boolean,
)
"""Deliveries that begin something. `shown`: the evidence by which the reader's gate was open; null: there is none."""
_AS_TOLD: Final = (*READER, "kind", "group_id", "partition", "first_offset", "last_offset")
_STANDS: Final = ("stood", "move", "position", "is_rewind", "shown")


def deliveries_of(facts: Facts, readers: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns what readers were given, with `begins`, and where all of them stand behind it.

    A RELEASE has its number at once, a run of deliveries when it ends: the newest one since a rewind counts.
    """
    events = in_order(readers, _events(facts), before=_STANDS, carried=_STANDS)
    return events.filter(IS_DELIVERY).with_columns(begins=_begins()), events


def _events(facts: Facts) -> pl.DataFrame:
    is_release, is_rewind = (pl.col("kind") == kind.value for kind in (Kind.RELEASE, Kind.REWIND))
    has_any = pl.col("evidence").str.contains_any([*SHOWING, _UNGATED])  # most has none, and to parse it takes long
    shows = pl.any_horizontal(evidence(f"$.{name}").is_not_null() for name in SHOWING)
    told = steps_of(facts.decisions, Kind.RELEASE).select(
        *_AS_TOLD,
        pl.when((pl.col("stream") < 0) & has_any).then("evidence").alias("evidence"),
        pl.when(~is_release).then(pl.col("move").fill_null(0)).alias("move"),
        pl.when(~is_release).then("number").alias("stood"),
        pl.when(~is_release).then(is_rewind).alias("is_rewind"),
        pl.when(IS_DELIVERY).then(pl.col("last_offset") + 1).when(is_rewind).then("first_offset").alias("position"),
    )
    opened = told.with_columns(pl.when(shows).then("evidence").alias("opened_by"))
    released = pl.when(is_release).then("opened_by").fill_null(_NOTHING)
    return opened.with_columns(pl.when(~IS_DELIVERY).then(released).alias("shown"))


def _begins() -> pl.Expr:
    """Whether a DELIVER begins something: another stay, or of a physical partition what is to be shown again."""
    is_gated = (evidence(f"$.{_UNGATED}") != "false").fill_null(value=True)
    is_other = pl.col("move") != pl.col("move_before")
    shows = pl.col("stood_before").is_null() | pl.col("is_rewind_before") | is_other | pl.col("opened_by").is_not_null()
    moves = (pl.col("move") > pl.col("move_before")).fill_null(value=False)
    return pl.when(pl.col("stream") < 0).then(shows & is_gated).otherwise(moves)


def steps_in(deliveries: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """Returns those deliveries that begin something, as `STEPS`."""
    shown_before = pl.when(pl.col("shown_before") != _NOTHING).then("shown_before")
    begun = deliveries.filter("begins").with_columns(pl.coalesce("opened_by", shown_before).alias("shown"))
    return shaped(with_gaps(begun, facts.gaps, after="stood_before", until="number"), STEPS)
