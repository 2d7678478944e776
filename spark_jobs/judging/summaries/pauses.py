"""When writes and readers waited, and for what."""

from __future__ import annotations

from typing import Final

import polars as pl

from kordon.codecs.decision import Kind
from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.schema import columns
from kordon.spark_jobs.judging.summaries.summary import Summary, is_of, longs, newest_of
from kordon.spark_jobs.judging.tables import shaped

MOST_PAUSES: Final = 500
MOST_HOLDS: Final = 20_000


_PAUSES: Final = columns(
    topic=pl.String,
    what=pl.String,
    reason=pl.String,
    worker=pl.String,
    stream=pl.Int32,
    **longs("connection", "number", "began_ms", "ended_ms", "holds", "longest_ms"),
)
_HELD: Final = ("worker", "topic", "stream", "connection")
_SAME: Final = ("topic", "what", "reason")
_IS_OPEN: Final = pl.col("ended_ms").is_null()


def _pauses(facts: Facts, findings: pl.DataFrame, state: pl.DataFrame) -> pl.DataFrame:
    """When writes, or dialect readers, of a topic waited, and for what.

    A worker that holds all of a fence goes on by a release, or by the layout that it adopts. A hold that has no end yet
    is a row of its own (`ended_ms` null); the others are merged where they overlap.
    Bounded: the newest `MOST_PAUSES` per topic and reason, and the newest `MOST_HOLDS` without an end.
    """
    held = _held(facts.decisions, state.filter(_IS_OPEN))
    opened = newest_of(held.filter(_IS_OPEN), MOST_HOLDS, "began_ms", ("worker", "number"))
    pauses = _merged(pl.concat([state.filter(~_IS_OPEN), held.filter(~_IS_OPEN)]))
    return pl.concat([opened, newest_of(pauses, MOST_PAUSES, "began_ms", (), within=_SAME)])


def _held(decisions: pl.DataFrame, still: pl.DataFrame) -> pl.DataFrame:
    """Returns each hold of these decisions, and those that still had no end, with the end that is known now."""
    what = pl.when(pl.col("reason") == "gate").then(pl.lit("readers")).otherwise(pl.lit("writes"))
    new = decisions.filter(is_of(Kind.HOLD, Kind.RELEASE, Kind.ADOPT, Kind.FORGET)).select(
        *_HELD,
        "number",
        "kind",
        what.alias("what"),
        pl.coalesce("reason", "rule", pl.lit("")).alias("reason"),
        pl.col("at_ms").alias("began_ms"),
    )
    steps = pl.concat([still.with_columns(kind=pl.lit(Kind.HOLD.value)).select(new.columns), new]).sort("number")
    following = pl.col("began_ms").shift(-1).over(_HELD)
    ended = pl.when(following.is_not_null()).then(pl.max_horizontal("began_ms", following))
    held = steps.with_columns(ended.alias("ended_ms"), pl.lit(1).alias("holds")).filter(is_of(Kind.HOLD))
    return shaped(held.with_columns(longest_ms=pl.col("ended_ms") - pl.col("began_ms")), _PAUSES)


def _merged(pauses: pl.DataFrame) -> pl.DataFrame:
    """One row for what overlaps in time, per topic and reason (gaps and islands)."""
    reached = pl.col("ended_ms").cum_max().shift(1).over(_SAME)
    goes_on = (pl.col("began_ms") <= reached).fill_null(value=False)
    by_time = pauses.sort(*_SAME, "began_ms", "ended_ms").with_columns((~goes_on).cum_sum().alias("island"))
    merged = by_time.group_by(*_SAME, "island").agg(
        pl.min("began_ms"), pl.max("ended_ms"), pl.sum("holds"), pl.max("longest_ms")
    )
    return shaped(merged, _PAUSES)


SUMMARIES: Final = (Summary(name="pauses", state=_PAUSES, fold=_pauses),)
