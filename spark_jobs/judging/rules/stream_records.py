"""Which offsets of streams have records: kept so that it can be told whether any lies between two offsets.

The newest batches of all partitions are kept one by one, in at most `MOST_BYTES` (`batch_runs.py`). Of those before,
and of those that retention has taken, there is a row per stream and partition, its last offset. So nothing lies between
two offsets if neither says so, and all has been read. Batches of the dialect, and those that went around Kordon, are
given to readers of virtual partitions record by record: one of the stream may be among them, or none. What transactions
have aborted is nothing, as Kordon does not know who of a group reads it. What is not decided yet is waited for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.rule import FAIL, PASS, UNKNOWN, State
from kordon.spark_jobs.judging.rules import batch_runs
from kordon.spark_jobs.judging.rules.batch_runs import RUNS, batches_of, runs_of
from kordon.spark_jobs.judging.rules.belonging import BEFORE, BYPASS, OPENED, OWN, STRAY
from kordon.spark_jobs.judging.rules.read_so_far import READ, read_so_far
from kordon.spark_jobs.judging.rules.sums import sums_within
from kordon.spark_jobs.judging.schema import columns
from kordon.spark_jobs.judging.tables import FOR_EVER, shaped, stacked

MOST_BYTES: Final = 4 << 20
"""What the batches may take that are kept one by one: a million of four bytes. On a cluster each part may have as
many."""
WAIT: Final = "wait"
"""It is not read yet what there is."""
_READ: Final = columns(READ, waiting=pl.Int64, placed_to=pl.Int64)
"""`waiting`: how many batches were read of which it is not certain yet whose they are; all up to `placed_to` are."""
_TAIL: Final = columns(topic=pl.String, partition=pl.Int32, stream=pl.Int32, last_offset=pl.Int64)
"""The last offset of a stream among the batches that are not kept; `stream` null: of those that may be several's."""
STATE: Final[Mapping[str, pl.Schema]] = {"read": _READ, "run": RUNS, "tail": _TAIL}
_PLACE: Final = ("topic", "partition")
_STREAM: Final = ("topic", "stream")


def records_of(facts: Facts, state: State) -> State:
    """Returns what is known after a micro-batch, as `STATE`; `state` is what this returned before."""
    has = stacked(batch_runs.BATCHES, _has(facts.placed), _committed(facts.decided))
    runs = pl.concat([state["run"], runs_of(has, facts.newest_ms)])
    is_kept = _is_kept(runs, facts)
    gone = runs.filter(~is_kept)
    tails = state["tail"] if gone.is_empty() else _newest(stacked(_TAIL, state["tail"], batches_of(gone)))
    return {"read": _read(state["read"], facts), "run": runs.filter(is_kept), "tail": tails}


def _newest(tails: pl.DataFrame) -> pl.DataFrame:
    return shaped(tails.group_by(*_PLACE, "stream", maintain_order=True).agg(pl.max("last_offset")), _TAIL)


def _read(known: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """Returns how far each partition is read, and how far it is certain whose its batches are: in their order."""
    read = read_so_far(known.select(READ.names()), facts)
    waited = pl.col("kind").is_in(
        [OWN, OPENED, STRAY]
    )  # of others it is certain at once, before those in front of them
    settled = facts.placed.with_columns(placed_to=pl.when(waited).then("last_offset"))
    tables = (
        known.select(*_PLACE, "waiting", "placed_to"),
        facts.batches.select(*_PLACE, waiting=pl.lit(1), placed_to=pl.lit(None)),
        settled.select(*_PLACE, pl.lit(-1).alias("waiting"), "placed_to"),
    )
    counted = pl.concat([each.cast({"waiting": pl.Int64, "placed_to": pl.Int64}) for each in tables])
    placed = counted.group_by(_PLACE).agg(pl.sum("waiting"), pl.max("placed_to"))
    return shaped(read.join(placed, on=_PLACE, how="left"), _READ)


def _has(placed: pl.DataFrame) -> pl.DataFrame:
    """Returns what readers get; a batch that may be several streams' has none."""
    is_its_own = (pl.col("kind") == OWN) | ((pl.col("kind") == BEFORE) & ~pl.col("is_transactional"))
    is_decided_later = pl.col("kind").is_in([OWN, OPENED]) & pl.col("protocol").is_not_null()
    is_given = pl.col("kind").is_in([OWN, OPENED, BEFORE, BYPASS]) & ~pl.col("is_control") & ~is_decided_later
    return placed.filter(is_given).select(
        *_PLACE,
        pl.col("base_offset").alias("first_offset"),
        "last_offset",
        "records",
        pl.when(is_its_own).then("given_as").alias("stream"),
        "is_control",
    )


def _committed(decided: pl.DataFrame) -> pl.DataFrame:
    """Returns of `WRITTEN` what readers get; what nobody can say may be several streams'."""
    may_be = decided.filter(pl.col("is_committed").fill_null(value=True))
    return may_be.with_columns(
        pl.when("is_committed").then("stream").alias("stream"), pl.lit(value=False).alias("is_control")
    )


def _is_kept(runs: pl.DataFrame, facts: Facts) -> pl.Series:
    """Returns which runs are kept: those of which retention has left something, and of these the newest."""
    starts = facts.read_to.select(*_PLACE, "log_start")
    known = runs.select(*_PLACE, "last_offset", size=batch_runs.size(), age=pl.int_range(pl.len(), 0, -1))
    placed = known.join(starts, on=_PLACE, how="left", maintain_order="left")
    is_there = (pl.col("last_offset") >= pl.col("log_start")).fill_null(value=True)
    newer = pl.when(is_there).then("size").otherwise(0).cum_sum(reverse=True)
    return placed.select(is_there & (newer <= MOST_BYTES)).to_series()


def between(ranges: pl.DataFrame, facts: Facts, known: State) -> pl.DataFrame:
    """Says whether a stream has records in ranges of its own offsets.

    Args:
        ranges: With `topic`, `stream`; `partition`, `move` and `position`, where they begin; `span`, their length.
        known: The result of `records_of`.

    Returns:
        Them with `verdict`: FAIL if there are any, and they can still be read, PASS if not, UNKNOWN, or WAIT; and with
        `first_offset`, `last_offset` where the records are, in `partition`.
    """
    asked = ranges.with_row_index("row")
    pieces = _met(_pieces(asked, facts.stays), facts, known)
    has_some = pieces.filter("has_records").group_by("row").agg(pl.first("partition", "first_offset", "last_offset"))
    told = pieces.group_by("row").agg(pl.all("is_read"), pl.any("is_vague"))
    whole = asked.join(told, on="row", how="left").join(has_some, on="row", how="left", suffix="_met")
    verdict = (
        pl.when(pl.col("first_offset").is_not_null())
        .then(pl.lit(FAIL))
        .when(~pl.col("is_read").fill_null(value=False))
        .then(pl.lit(WAIT))
        .when("is_vague")
        .then(pl.lit(UNKNOWN))
        .otherwise(pl.lit(PASS))
    )
    place = pl.coalesce("partition_met", "partition").alias("partition")
    return whole.with_columns(verdict.alias("verdict"), place).drop("row", "is_read", "is_vague", "partition_met")


def _pieces(asked: pl.DataFrame, stays: pl.DataFrame) -> pl.DataFrame:
    """Cuts ranges up by the stays of their streams, which follow on each other in the streams' offsets."""
    length = pl.col("end") - pl.col("start")
    at = length.cum_sum().shift(1, fill_value=0).over(_STREAM)
    lived = stays.sort(*_STREAM, "place").with_columns(at.alias("at"))
    named = lived.rename({"partition": "home", "move": "in_move"})
    lives = asked.join(named, on=_STREAM, maintain_order="left_right")
    begins_here = (
        (pl.col("home") == pl.col("partition"))
        & (pl.col("in_move") == pl.col("move"))
        & (pl.col("start") <= pl.col("position"))
        & (pl.col("position") <= pl.col("end").fill_null(FOR_EVER))
    )
    begun = lives.filter(begins_here).group_by("row").agg((pl.col("at") + pl.col("position") - pl.col("start")).last())
    there = lives.join(begun.rename({"at": "from"}), on="row").with_columns(to=pl.col("from") + pl.col("span"))
    # a log that got shorter may have other records now where the stay had lost its own (BEYOND-LOSS)
    kept = pl.col("at") + pl.min_horizontal("end", "kept_end") - pl.col("start")
    ends = pl.when(pl.col("end").is_null()).then("to").otherwise(kept)
    return there.select(
        "row",
        *_STREAM,
        pl.col("home").alias("partition"),
        "floor",
        "compacted",
        "shortened",
        (pl.col("start") + pl.max_horizontal("from", "at") - pl.col("at")).alias("first_offset"),
        (pl.col("start") + pl.min_horizontal("to", ends) - pl.col("at") - 1).alias("last_offset"),
    ).filter(pl.col("first_offset") <= pl.col("last_offset"))


def _met(pieces: pl.DataFrame, facts: Facts, known: State) -> pl.DataFrame:
    """Adds what is known of records in pieces: `is_read`, `has_records`, `is_vague`."""
    starts = facts.read_to.select(*_PLACE, "log_start")
    places = known["read"].join(starts, on=_PLACE, how="left").with_row_index("place")
    asked = pieces.join(places.with_columns(pl.col("place").cast(pl.Int64)), on=_PLACE, how="left").with_columns(
        is_read=(_certain_to() >= pl.col("last_offset")).fill_null(value=False)
    )
    single, last = _batches(asked, known)
    there = pl.concat([single, last.with_columns(pl.col("last_offset").alias("first_offset"))], how="diagonal")
    still_there = asked.with_columns(pl.max_horizontal("first_offset", "floor", "log_start").alias("first_offset"))
    is_plain = ~(asked["compacted"] | asked["shortened"])
    is_sure = (_meets(still_there, there.filter(pl.col("stream").is_not_null())) & is_plain).alias("has_records")
    maybe_there = pl.concat([single, last.with_columns(pl.lit(0).alias("first_offset"))], how="diagonal_relaxed")
    may_be = _meets(asked, maybe_there) | _meets(asked, maybe_there.filter(pl.col("stream").is_null()), is_any=True)
    is_gone = (asked["first_offset"] < asked["hole_to"]).fill_null(value=True)
    is_read = asked["is_read"] & ~_waits(asked, facts)
    return asked.with_columns(is_sure, (may_be | is_gone).alias("is_vague"), is_read.alias("is_read"))


def _waits(asked: pl.DataFrame, facts: Facts) -> pl.Series:
    """Returns whether there is something in pieces of which it is not decided yet whether readers get it."""
    places = asked.select(*_PLACE, "place").unique()
    undecided = facts.undecided.join(places, on=_PLACE).with_columns(batches=pl.lit(1))
    return _meets(asked, undecided) | _meets(asked, undecided.filter(pl.col("stream").is_null()), is_any=True)


def _certain_to() -> pl.Expr:
    is_settled = pl.col("waiting").fill_null(0) <= 0
    return (
        pl.when(is_settled).then("read_to").otherwise(pl.min_horizontal("read_to", pl.col("placed_to").fill_null(-1)))
    )


def _batches(asked: pl.DataFrame, known: State) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns the batches at the places that are asked for, and the last offsets of those that are not kept."""
    places = asked.select(*_PLACE, "place").unique()
    single, last = batches_of(known["run"].join(places, on=_PLACE)), known["tail"].join(places, on=_PLACE)
    return single.with_columns(batches=pl.lit(1)), last.with_columns(batches=pl.lit(1))


def _meets(ranges: pl.DataFrame, batches: pl.DataFrame, *, is_any: bool = False) -> pl.Series:
    """Returns whether each range meets a batch of its stream, or of any there."""
    key = pl.col("place") if is_any else pl.col("place") * (1 << 32) + pl.col("stream")
    keyed = batches.with_columns(key=key).filter(pl.col("key").is_not_null())
    return sums_within(ranges.with_columns(key=key), keyed, ["batches"])["batches_met"] > 0
