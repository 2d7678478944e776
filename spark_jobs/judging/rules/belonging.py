"""Whose a batch is, by the layouts alone; and from when on that is certain.

The log of decisions and the topics are read side by side, and either may be ahead. A batch at the end of a log may be
behind a cut of which no decision has been read yet. So it waits until it is certain under which layout it stands:

- below a cut that is known, all is certain;
- what was acknowledged or delivered at an offset stands before the next cut, and all that is below it does, too;
- what has waited for `late_ms` of decisions' time is judged by the layouts that are known then.

So what waits is what was written in the seconds by which the log of decisions is behind; at most in `late_ms`. All of
it is worked out once per micro-batch, before the rules that ask for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from kordon.codecs.decision import Kind
from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.rule import State
from kordon.spark_jobs.judging.schema import BATCHES, PLACED, columns
from kordon.spark_jobs.judging.tables import FOR_EVER, shaped, stacked

NO_V: Final = (1 << 15) - 2
"""In place of a virtual partition: a client of the dialect wrote it to the physical partition as such."""
JANITOR: Final = NO_V - 1
"""The same of a janitor's marker."""
MOVES: Final = 256
"""Moves in identities are counted modulo this."""

OWN: Final = "own"
"""Of a virtual partition that lives there."""
OPENED: Final = "opened"
"""Of a dialect client; readers of virtual partitions get its records one by one."""
BEFORE: Final = "before"
"""From before the topic was taken over: untagged is right, and all of it is its virtual partition's."""
BYPASS: Final = "bypass"
"""Untagged where batches are tagged."""
MARKER: Final = "marker"
"""Of the janitor; hidden from readers."""
CONTROL: Final = "control"
"""A control batch: nothing to deliver."""
WITNESS: Final = "witness"
"""Of a transaction (`transaction_log.py`): nothing to deliver."""
STRAY: Final = "stray"
"""Tagged, and its stream does not live there."""
UNKNOWN_TOPIC: Final = "unmanaged"
"""No layout of its topic is known."""

_BATCH: Final = columns(BATCHES, seen_ms=pl.Int64)
_CERTAIN: Final = columns(topic=pl.String, partition=pl.Int32, last_offset=pl.Int64)
STATE: Final[Mapping[str, pl.Schema]] = {"batch": _BATCH, "certain": _CERTAIN}
"""Batches that wait, and up to which offset of each partition layouts are certain."""
_PLACE: Final = ("topic", "partition")
_PROVING: Final = (Kind.ADMIT.value, Kind.DELIVER.value)
_AT_ONCE: Final = (BEFORE, BYPASS, CONTROL, MARKER, WITNESS)


def placed(facts: Facts, state: State) -> tuple[pl.DataFrame, State]:
    """Finds the owners of new batches, once for all rules that ask.

    Args:
        state: The previous result.

    Returns:
        Batches of which it has become certain, as `PLACED`, in the order of their offsets; and the state. It is bounded
        by what is written while the log of decisions is behind.
    """
    certain = _certain_to(state["certain"], facts)
    new = facts.batches.with_columns(pl.lit(facts.newest_ms).alias("seen_ms"))
    found = owned(stacked(_BATCH, state["batch"], new), facts.stays)
    reached = found.join(certain.rename({"last_offset": "_to"}), on=_PLACE, how="left", maintain_order="left")
    is_certain = (pl.col("base_offset") <= pl.col("_to")).fill_null(value=False)
    is_settled = pl.col("kind").is_in(_AT_ONCE) | facts.is_late() | is_certain
    waiting = shaped(reached.filter(~is_settled), _BATCH)
    return shaped(reached.filter(is_settled), PLACED), {"batch": waiting, "certain": certain}


def _certain_to(known: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """Returns up to which offset of each partition layouts are certain."""
    is_placed = pl.all_horizontal(pl.col(_CERTAIN.names()).is_not_null())
    proven = facts.decisions.select("kind", *_CERTAIN).filter(pl.col("kind").is_in(_PROVING) & is_placed)
    ends = facts.stays.filter(pl.col("end").is_not_null()).with_columns((pl.col("end") - 1).alias("last_offset"))
    return stacked(_CERTAIN, known, proven, ends).group_by(_PLACE).agg(pl.max("last_offset"))


def owned(batches: pl.DataFrame, stays: pl.DataFrame) -> pl.DataFrame:
    """Adds to batches their kind and owner, as in `PLACED`, by some stays."""
    named = (
        pl.when(pl.col("v") == NO_V).then(-1 - pl.col("partition")).when(pl.col("v") < JANITOR).then(pl.col("v"))
    ).alias("_named")
    lived = stays.with_columns(pl.col("kept_end").fill_null(FOR_EVER), (pl.col("move") % MOVES).alias("_move"))
    lived = lived.filter(pl.col("start") < pl.col("kept_end")).sort("start")
    own = lived.filter("tagged").select(*_PLACE, pl.col("stream").alias("_named"), "_move", *_of_home("own"))
    before = lived.filter(~pl.col("tagged") & (pl.col("stream") >= 0)).select(*_PLACE, *_of_home("before"))
    asked = batches.with_columns(named, pl.col("move").alias("_move")).sort("base_offset")
    found = _within(_within(asked, own, (*_PLACE, "_named", "_move"), "own"), before, _PLACE, "before")
    known = stays.select("topic").unique().with_columns(pl.lit(value=True).alias("_known"))
    return found.join(known, on="topic", how="left", maintain_order="left").with_columns(_kind(), *_whose())


def _of_home(name: str) -> list[pl.Expr]:
    columns = ("start", "kept_end", "stream", "move", "compacted", "shared_from", "shared_to")
    return [pl.col(each).alias(f"{name}_{each}") for each in columns]


def _within(batches: pl.DataFrame, homes: pl.DataFrame, keys: tuple[str, ...], name: str) -> pl.DataFrame:
    """Adds the columns of the home that holds a batch's first offset; null: there is none."""
    if homes.is_empty():
        return batches.with_columns(pl.lit(None, kind).alias(each) for each, kind in homes.drop(keys).schema.items())
    joined = batches.join_asof(
        homes, left_on="base_offset", right_on=f"{name}_start", by=list(keys), check_sortedness=False
    )
    held = pl.col("base_offset") < pl.col(f"{name}_kept_end")
    return joined.with_columns(pl.when(held).then(pl.col(f"^{name}_.*$")).name.keep())


def _kind() -> pl.Expr:
    return (
        pl.when(pl.col("_known").is_null())
        .then(pl.lit(UNKNOWN_TOPIC))
        .when(pl.col("before_stream").is_not_null())
        .then(pl.lit(BEFORE))
        .when(pl.col("is_control").fill_null(value=False))
        .then(pl.lit(CONTROL))
        .when(pl.col("event") == WITNESS)
        .then(pl.lit(WITNESS))
        .when(pl.col("v").is_null())
        .then(pl.lit(BYPASS))
        .when(pl.col("v") == JANITOR)
        .then(pl.lit(MARKER))
        .when(pl.col("own_stream").is_null())
        .then(pl.lit(STRAY))
        .when(pl.col("v") == NO_V)
        .then(pl.lit(OPENED))
        .otherwise(pl.lit(OWN))
        .alias("kind")
    )


def _whose() -> list[pl.Expr]:
    shared_to = pl.col("own_shared_to").fill_null(FOR_EVER)
    is_shared = pl.col("base_offset").is_between(pl.col("own_shared_from"), shared_to - 1).fill_null(value=False)
    stream = pl.coalesce("before_stream", "own_stream", "_named")
    return [
        stream.alias("stream"),
        pl.coalesce("before_move", "own_move").alias("home_move"),
        pl.coalesce("before_start", "own_start").alias("home_start"),
        pl.coalesce("before_compacted", "own_compacted").fill_null(value=False).alias("compacted"),
        pl.when(is_shared).then(pl.col("partition")).otherwise(stream).alias("given_as"),
    ]
