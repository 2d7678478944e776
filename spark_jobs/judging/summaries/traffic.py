"""What was written and delivered, per stream and point in time."""

from __future__ import annotations

from typing import Final

import polars as pl

from kordon.codecs.decision import Kind
from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.schema import columns
from kordon.spark_jobs.judging.summaries.summary import Summary, at_kind, grouped, is_of
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
    bucket_ms=pl.Int64,
    width_ms=pl.Int64,
    admitted_batches=pl.Int64,
    admitted_records=pl.Int64,
    admitted_bytes=pl.Int64,
    repeated=pl.Int64,
    admitted_to=pl.Int64,
    delivered_records=pl.Int64,
    delivered_bytes=pl.Int64,
    delivered_to=pl.Int64,
    refused=pl.Int64,
)
_PLACE: Final = ("topic", "stream", "move", "partition")
_KEYS: Final = (*_PLACE, "bucket_ms", "width_ms")
_SUMS: Final = tuple(name for name in _TRAFFIC if name not in _KEYS and not name.endswith("_to"))


def _traffic(facts: Facts, findings: pl.DataFrame, state: pl.DataFrame) -> pl.DataFrame:
    """What was written and delivered per stream, home and bucket of time.

    A run is spread evenly over its time: two runs that end a little more than a bucket apart leave no bucket empty.
    Bounded: buckets double their width when there are more than `MOST_BUCKETS`, or more than `MOST_TRAFFIC_ROWS` rows.
    Sums stay exact, as nothing is ever dropped.
    """
    is_placed = pl.all_horizontal(pl.col("topic", "stream", "at_ms").is_not_null())
    told = facts.decisions.filter(is_of(Kind.ADMIT, Kind.DELIVER, Kind.REFUSE), is_placed)
    rows = stacked(_TRAFFIC, state, _counted(_pieces(told)))
    width = _width(rows)
    start = pl.col("bucket_ms") - pl.col("bucket_ms") % width
    return grouped(rows.with_columns(start, pl.lit(width, pl.Int64).alias("width_ms")), _KEYS, sums=_SUMS)


def _pieces(told: pl.DataFrame) -> pl.DataFrame:
    """Cuts each run where a second ends, or several where it is long.

    Adds when each piece begins (`bucket_ms`), and which share of the run is over before it and with it.
    """
    at, began, piece = pl.col("at_ms"), pl.col("began_ms"), pl.col("piece")
    length = at - began
    seconds = (pl.max_horizontal(length, 1) / (NARROWEST_MS * MOST_PIECES)).ceil().cast(pl.Int64)
    runs = told.with_columns(pl.min_horizontal(began, at)).with_columns((seconds * NARROWEST_MS).alias("piece"))
    first, last = began // piece, (at - 1) // piece
    cut = runs.with_columns(pl.int_ranges(first, pl.max_horizontal(first, last) + 1).alias("number")).explode("number")
    start, end = pl.max_horizontal(began, pl.col("number") * piece), (pl.col("number") + 1) * piece
    return cut.with_columns(
        start.alias("bucket_ms"),
        pl.when(length > 0).then((start - began) / length).otherwise(0.0).alias("before"),
        pl.when(end < at).then((end - began) / length).otherwise(1.0).alias("after"),
    )


def _counted(pieces: pl.DataFrame) -> pl.DataFrame:
    is_repeated = (evidence("$.repeated") == "true").fill_null(value=False)
    times, records, size = (_part(pl.col(name)) for name in ("batches", "records", "bytes"))
    return pieces.with_columns(pl.col("batches").fill_null(1)).select(
        *_PLACE,
        "bucket_ms",
        pl.lit(NARROWEST_MS).alias("width_ms"),
        at_kind(Kind.ADMIT, pl.when(~is_repeated).then(times)).alias("admitted_batches"),
        at_kind(Kind.ADMIT, pl.when(~is_repeated).then(records)).alias("admitted_records"),
        at_kind(Kind.ADMIT, pl.when(~is_repeated).then(size)).alias("admitted_bytes"),
        at_kind(Kind.ADMIT, pl.when(is_repeated).then(times)).alias("repeated"),
        at_kind(Kind.ADMIT, _reached()).alias("admitted_to"),
        at_kind(Kind.DELIVER, records).alias("delivered_records"),
        at_kind(Kind.DELIVER, size).alias("delivered_bytes"),
        at_kind(Kind.DELIVER, _reached()).alias("delivered_to"),
        at_kind(Kind.REFUSE, times).alias("refused"),
    )


def _part(count: pl.Expr) -> pl.Expr:
    """Returns how much of a run's count falls into a piece; that of all its pieces is the whole count."""
    return ((count * pl.col("after")).floor() - (count * pl.col("before")).floor()).cast(pl.Int64)


def _reached() -> pl.Expr:
    """Returns the offset that a run had reached at the end of a piece, null before its first."""
    first = pl.coalesce("first_offset", "last_offset")
    count = ((pl.col("last_offset") - first + 1) * pl.col("after")).floor().cast(pl.Int64)
    return pl.when(count > 0).then(first + count - 1)


def _width(rows: pl.DataFrame) -> int:
    """Returns the narrowest bucket, a power of two of seconds, with which the table stays within its bounds.

    It never falls, and depends on nothing but the rows: not on how they are divided among micro-batches and parts.
    """
    if rows.is_empty():
        return NARROWEST_MS
    low, high, width = rows.select(low=pl.min("bucket_ms"), high=pl.max("bucket_ms"), width=pl.max("width_ms")).row(0)
    streams = rows.select("topic", "stream").n_unique()
    most = max(LEAST_BUCKETS, min(MOST_BUCKETS, MOST_TRAFFIC_ROWS / streams))
    while high // width - low // width > most:
        width *= 2
    return int(width)


SUMMARIES: Final = (Summary(name="traffic", state=_TRAFFIC, fold=_traffic),)
