"""What PARENT-FIRST asks of a delivery that begins something: what has to be done before it, and whether it is."""

from __future__ import annotations

from typing import Final

import polars as pl

from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.rule import FAIL, LATE, PASS, UNKNOWN, State
from kordon.spark_jobs.judging.rules.belonging import MOVES, NO_V
from kordon.spark_jobs.judging.rules.parent_readers import SHOWING
from kordon.spark_jobs.judging.rules.parent_segments import SEGMENT, before
from kordon.spark_jobs.judging.schema import columns

WAIT: Final = "wait"
"""Not a verdict yet: something has not been read so far."""
_WORSE: Final = (PASS, UNKNOWN, WAIT, FAIL)
_STEP: Final = ("worker", "number")
_NEED: Final = columns(worker=pl.String, number=pl.Int64, of=pl.Int32, reached=pl.Int64, until=pl.Int64, done=pl.String)
"""Partition `of` has to be done up to `until`, and its reader was at `reached`. `done`: a verdict, or `WAIT`."""
_PLACE: Final = ["topic", "of"]


def judged_of(facts: Facts, steps: pl.DataFrame, data: State) -> pl.DataFrame:
    """Adds to each step a `verdict`, and the worst of what it needs as `_NEED` has it."""
    needs = [_NEED.to_frame()]
    gated, moved = (steps.filter(each) for each in (pl.col("stream") < 0, pl.col("stream") >= 0))
    if not gated.is_empty():
        needs.append(_done(_of_segments(facts, gated, data), data))
    if not moved.is_empty():
        needs.append(_done(_of_stays(facts, moved, data), data))
    ranked = pl.concat(needs).with_columns(pl.col("done").cast(pl.Enum(_WORSE)))
    worst = ranked.sort("done", "of", "reached", "until").group_by(_STEP, maintain_order=True).last()
    told = steps.join(worst.cast({"done": pl.String}), on=_STEP, how="left", maintain_order="left")
    return told.with_columns(_verdict(facts).alias("verdict"))


def _verdict(facts: Facts) -> pl.Expr:
    is_unproven = pl.col("across_gap") & ((pl.col("stream") >= 0) | pl.col("shown").is_null())
    return (
        pl.when(pl.col("done") == WAIT)
        .then(pl.when(facts.is_late("at_ms")).then(pl.lit(LATE)).otherwise(pl.lit(WAIT)))
        .when(is_unproven)
        .then(pl.lit(UNKNOWN))
        .otherwise(pl.col("done").fill_null(PASS))
    )


def _of_segments(facts: Facts, steps: pl.DataFrame, data: State) -> pl.DataFrame:
    """Returns what clients of the dialect need of other partitions, and whether it has anything `left`."""
    places = (pl.format(f"$.{name}['{{}}']", "of") for name in SHOWING)
    shown = (pl.col("shown").str.json_path_match(place).cast(pl.Int64, strict=False) for place in places)
    needs = steps.join(before(facts.segments, steps), on=SEGMENT, how="left").with_columns(
        pl.max_horizontal(*shown).fill_null(-1).alias("reached"), (pl.col("until") - 1).alias("_end")
    )
    others = needs.filter(pl.col("of").ne_missing(pl.col("partition"))).drop("first_offset", "last_offset")
    runs = pl.concat([data["run"], data["forgotten"]]).rename({"partition": "of"}).sort("first_offset")
    # runs do not overlap: the last one that begins before an end ends behind all others
    found = others.sort("_end").join_asof(
        runs, left_on="_end", right_on="first_offset", by=_PLACE, check_sortedness=False
    )
    return found.with_columns(left=pl.col("last_offset") >= pl.col("reached"), doubt=pl.lit(value=False))


def _of_stays(facts: Facts, steps: pl.DataFrame, data: State) -> pl.DataFrame:
    """Returns what other clients need: the rest of the stay they left, and all of those between.

    What is `left` there is told by the last batch of the stream. There is `doubt` where readers of virtual partitions
    are given records one by one, or later batches hide where the last one before the end was.
    """
    is_told = (pl.max("stay").over(_STEP) >= pl.col("move")).fill_null(value=False)
    stays = steps.join(_stays(facts), on=["topic", "stream"], how="left").with_columns(is_told.alias("is_told"))
    between = ~pl.col("is_told") | pl.col("stay").is_between("move_before", "move", closed="left")
    stood = pl.when(pl.col("stay") == pl.col("move_before")).then("position_before")
    needs = stays.filter(between).with_columns(
        pl.max_horizontal("start", "floor", stood).alias("reached"),
        pl.when("is_told").then("until").alias("until"),
        pl.when("tagged").then("stream").alias("v"),
        pl.when("tagged").then(pl.col("stay") % MOVES).alias("move"),
    )
    tails = data["tail"].rename({"partition": "of", "last_offset": "own_to"})
    is_mixed = pl.col("v").is_null() | (pl.col("v") == NO_V)
    mixed = tails.filter(is_mixed).group_by(_PLACE).agg(pl.max("own_to").alias("mixed_to"))
    found = needs.join(tails, on=[*_PLACE, "v", "move"], how="left", nulls_equal=True).join(mixed, _PLACE, how="left")
    is_behind = pl.col("own_to") >= pl.col("until")
    return found.with_columns(
        left=(pl.col("own_to") >= pl.col("reached")) & ~is_behind,
        doubt=is_behind | (pl.col("tagged") & (pl.col("mixed_to") >= pl.col("reached"))),
    )


def _stays(facts: Facts) -> pl.DataFrame:
    return facts.stays.select(
        "topic",
        "stream",
        pl.col("move").alias("stay"),
        pl.col("partition").alias("of"),
        "start",
        "floor",
        pl.col("kept_end").alias("until"),
        "tagged",
        pl.lit(value=False).alias("compacted"),
    )


def _done(needs: pl.DataFrame, data: State) -> pl.DataFrame:
    """Tells of needs whether they are done: by the position, or as nothing is left between it and the end."""
    forgotten = data["forgotten"].select("topic", "partition", (pl.col("last_offset") + 1).alias("forgotten_to"))
    read = data["read"].join(forgotten, on=["topic", "partition"], how="left").rename({"partition": "of"})
    known_from = pl.max_horizontal("hole_to", "forgotten_to")
    is_read = (pl.col("read_to") >= pl.col("until") - 1).fill_null(value=False)
    done = (
        pl.when(pl.col("until").is_null())
        .then(pl.lit(WAIT))
        .when(pl.col("reached") >= pl.col("until"))
        .then(pl.lit(PASS))
        .when(pl.col("left"))
        .then(pl.when("compacted").then(pl.lit(UNKNOWN)).otherwise(pl.lit(FAIL)))
        .when(~is_read)
        .then(pl.lit(WAIT))
        .when(pl.col("doubt") | (known_from > pl.max_horizontal("reached", 0)))
        .then(pl.lit(UNKNOWN))
        .otherwise(pl.lit(PASS))
    )
    known = needs.join(read, on=_PLACE, how="left")
    return known.with_columns(done.alias("done")).select(_NEED.names())
