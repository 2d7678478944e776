"""What was written and delivered, per stream and point in time."""

from __future__ import annotations

from typing import Final

import polars as pl

from kordon.codecs.decision import Kind
from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.schema import columns
from kordon.spark_jobs.judging.summaries.summary import Summary, at_kind, grouped, is_of, longs
from kordon.spark_jobs.judging.tables import evidence, stacked

MOST_BUCKETS: Final = 240
"""Points in time of a chart: about what a page is wide."""
LEAST_BUCKETS: Final = 24
MOST_TRAFFIC_ROWS: Final = 100_000
"""With more than some 400 streams there are fewer points in time for each."""
NARROWEST_MS: Final = 1_000
MOST_PIECES: Final = 64
"""Of one run, so that its length, which is the proxies' choice, does not count."""


_TRAFFIC: Final = columns(
    topic=pl.String,
    stream=pl.Int32,
    move=pl.Int32,
    partition=pl.Int32,
    **longs("bucket_ms", "width_ms"),
    **longs("admitted_batches", "admitted_records", "admitted_bytes", "repeated", "admitted_to"),
    **longs("delivered_records", "delivered_bytes", "delivered_to", "refused"),
)
_STREAM: Final = ("topic", "stream")
_PLACE: Final = (*_STREAM, "move", "partition")
_KEYS: Final = (*_PLACE, "bucket_ms", "width_ms")
_SUMS: Final = tuple(name for name in _TRAFFIC if name not in _KEYS and not name.endswith("_to"))
_COUNTS: Final = ("times", "records", "bytes")
_REPEATED: Final = "repeated"
"""Stands for the kind of what had been admitted before."""


def _traffic(facts: Facts, findings: pl.DataFrame, state: pl.DataFrame) -> pl.DataFrame:
    """What was written and delivered per stream, home and bucket of time.

    A run is spread evenly over its time: two runs that end a little more than a bucket apart leave no bucket empty.
    Bounded: buckets double their width when there are more than `MOST_BUCKETS`, or more than `MOST_TRAFFIC_ROWS` rows.
    Sums stay exact, as nothing is ever dropped.
    """
    runs = _runs(facts.decisions)
    width = _width(state, runs)
    if runs.is_empty() and (state.get_column("width_ms") == width).all():
        return state
    told = grouped(_pieces(runs, width), (*_PLACE, "kind", "bucket_ms"), sums=_COUNTS)
    start = pl.col("bucket_ms") - pl.col("bucket_ms") % width
    rows = stacked(_TRAFFIC, state, _by_kind(told)).with_columns(start, pl.lit(width, pl.Int64).alias("width_ms"))
    return grouped(rows, _KEYS, sums=_SUMS)


def _runs(decisions: pl.DataFrame) -> pl.DataFrame:
    """Returns what was written, delivered and refused, how long a piece of it is, and when the last one begins.

    Pieces are seconds that are doubled until there are few of them, so that they fit into buckets.
    """
    is_repeated = (pl.col("kind") == Kind.ADMIT.value) & (evidence("$.repeated") == "true")
    began, piece = pl.min_horizontal("began_ms", "at_ms"), pl.col("piece")
    length = pl.col("at_ms") - began
    is_placed = pl.all_horizontal(pl.col(_STREAM).is_not_null(), length >= 0)  # or it is too long for a number
    doubled = (length / (NARROWEST_MS * MOST_PIECES)).log(2).ceil().clip(0)
    told = decisions.lazy().filter(is_of(Kind.ADMIT, Kind.DELIVER, Kind.REFUSE), is_placed)
    runs = told.select(
        *_PLACE,
        "at_ms",
        "records",
        "bytes",
        "last_offset",
        pl.when(is_repeated).then(pl.lit(_REPEATED)).otherwise("kind").alias("kind"),
        pl.col("batches").fill_null(1).alias("times"),
        pl.coalesce("first_offset", "last_offset").alias("first_offset"),
        began.alias("began_ms"),
        (pl.lit(2.0).pow(doubled) * NARROWEST_MS).cast(pl.Int64).alias("piece"),
    )
    last = pl.max_horizontal("began_ms", (pl.col("at_ms") - 1) // piece * piece)
    return runs.with_columns(last.alias("last_ms")).collect()


def _width(state: pl.DataFrame, runs: pl.DataFrame) -> int:
    """Returns the narrowest bucket, a power of two of seconds, with which the table stays within its bounds.

    It never falls. It depends on nothing but what is counted: not on the micro-batches and parts in which that comes.
    """
    counted = state.select(*_STREAM, pl.col("bucket_ms").alias("began_ms"), pl.col("bucket_ms").alias("last_ms"))
    rows = pl.concat([counted, runs.select(counted.columns)])
    low, high = rows.select(pl.min("began_ms"), pl.max("last_ms")).row(0)
    streams = rows.group_by(_STREAM).len().height
    most = max(LEAST_BUCKETS, min(MOST_BUCKETS, MOST_TRAFFIC_ROWS / max(1, streams)))
    width: int = state.select(pl.max("width_ms").fill_null(NARROWEST_MS)).item()
    while rows.height and high // width - low // width > most:
        width *= 2
    return width


def _pieces(runs: pl.DataFrame, width: int) -> pl.DataFrame:
    """Cuts runs where buckets end, with the counts of each piece, and the offset that its run had `reached` with it."""
    piece = pl.max_horizontal("piece", width)
    placed = runs.with_columns(piece, first=pl.col("began_ms") // piece, last=pl.col("last_ms") // piece)
    is_whole = pl.col("first") == pl.col("last")
    reached = pl.when(pl.col("last_offset") >= pl.col("first_offset")).then("last_offset").alias("reached")
    whole = placed.filter(is_whole).select(*_PLACE, "kind", *_COUNTS, reached, pl.col("began_ms").alias("bucket_ms"))
    both = pl.concat([whole, _cut(placed.filter(~is_whole))])
    return both.with_columns(pl.col("bucket_ms") - pl.col("bucket_ms") % width)


def _cut(runs: pl.DataFrame) -> pl.DataFrame:
    """Cuts runs into pieces, of which the counts add up to those of the run."""
    began, number, piece = pl.col("began_ms"), pl.col("number"), pl.col("piece")
    start = pl.max_horizontal(began, number * piece)
    end = pl.min_horizontal("at_ms", (number + 1) * piece)
    reached = _until(pl.col("last_offset") - pl.col("first_offset") + 1, end)
    pieces = runs.with_columns(pl.int_ranges("first", pl.col("last") + 1).alias("number")).explode("number")
    return pieces.select(
        *_PLACE,
        "kind",
        *(_until(pl.col(name), end) - _until(pl.col(name), start) for name in _COUNTS),
        pl.when(reached > 0).then(pl.col("first_offset") + reached - 1).alias("reached"),
        start.alias("bucket_ms"),
    )


def _until(count: pl.Expr, time: pl.Expr) -> pl.Expr:
    """Returns how much of a run's count was there at a time: in whole numbers, so that all cuts come to the same."""
    over, length = time - pl.col("began_ms"), pl.col("at_ms") - pl.col("began_ms")
    return (count.cast(pl.Int128) * over // length).cast(pl.Int64)


def _by_kind(told: pl.DataFrame) -> pl.DataFrame:
    is_repeated = pl.col("kind") == _REPEATED
    return told.select(
        *_PLACE,
        "bucket_ms",
        at_kind(Kind.ADMIT, "times").alias("admitted_batches"),
        at_kind(Kind.ADMIT, "records").alias("admitted_records"),
        at_kind(Kind.ADMIT, "bytes").alias("admitted_bytes"),
        pl.when(is_repeated).then("times").alias("repeated"),
        pl.when(is_repeated).then("reached").otherwise(at_kind(Kind.ADMIT, "reached")).alias("admitted_to"),
        at_kind(Kind.DELIVER, "records").alias("delivered_records"),
        at_kind(Kind.DELIVER, "bytes").alias("delivered_bytes"),
        at_kind(Kind.DELIVER, "reached").alias("delivered_to"),
        at_kind(Kind.REFUSE, "times").alias("refused"),
    )


SUMMARIES: Final = (Summary(name="traffic", state=_TRAFFIC, fold=_traffic),)
