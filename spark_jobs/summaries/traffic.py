"""What was written and delivered, per stream and point in time."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so

from kordon.codecs.decision import Kind
from kordon.spark_jobs.frames import stacked
from kordon.spark_jobs.rules.rule import Facts
from kordon.spark_jobs.summaries.summary import Summary, at_kind, columns

MOST_BUCKETS: Final = 240
"""Points in time of a chart: about what a page is wide."""
LEAST_BUCKETS: Final = 24
MOST_TRAFFIC_ROWS: Final = 100_000
"""With more than some 400 streams there are fewer points in time for each."""
NARROWEST_MS: Final = 1_000
MOST_PIECES: Final = 64
"""Of one run, so that its length, which is the proxies' choice, does not count."""


_TRAFFIC: Final = columns(
    "topic string, stream int, move int, partition int, bucket_ms bigint, width_ms bigint, "
    "admitted_batches bigint, admitted_records bigint, admitted_bytes bigint, repeated bigint, admitted_to bigint, "
    "delivered_records bigint, delivered_bytes bigint, delivered_to bigint, refused bigint"
)
_PLACES: Final = ("topic", "stream", "move", "partition")


def _traffic(facts: Facts, findings: DataFrame, state: DataFrame) -> DataFrame:
    """What was written and delivered per stream, home and bucket of time.

    A run is spread evenly over its time: two runs that end a little more than a bucket apart leave no bucket empty.
    Bounded: buckets double their width when there are more than `MOST_BUCKETS`, or more than `MOST_TRAFFIC_ROWS` rows.
    Sums stay exact, as nothing is ever dropped.
    """
    kinds = [Kind.ADMIT.value, Kind.DELIVER.value, Kind.REFUSE.value]
    told = facts.decisions.where(F.col("kind").isin(kinds) & F.col("topic").isNotNull() & F.col("stream").isNotNull())
    times = F.coalesce("batches", F.lit(1)).cast("bigint")
    is_repeated = F.coalesce(F.get_json_object("evidence", "$.repeated") == "true", F.lit(False))
    once = at_kind(Kind.ADMIT, F.lit(1)).isNotNull() & ~is_repeated
    new = _pieces(told).select(
        *_PLACES,
        F.col("_from").alias("bucket_ms"),
        F.lit(NARROWEST_MS).cast("bigint").alias("width_ms"),
        F.when(once, _part(times)).alias("admitted_batches"),
        F.when(once, _part(F.col("records"))).alias("admitted_records"),
        F.when(once, _part(F.col("bytes"))).alias("admitted_bytes"),
        at_kind(Kind.ADMIT, F.when(is_repeated, _part(times))).alias("repeated"),
        at_kind(Kind.ADMIT, _reached()).alias("admitted_to"),
        at_kind(Kind.DELIVER, _part(F.col("records"))).alias("delivered_records"),
        at_kind(Kind.DELIVER, _part(F.col("bytes"))).alias("delivered_bytes"),
        at_kind(Kind.DELIVER, _reached()).alias("delivered_to"),
        at_kind(Kind.REFUSE, _part(times)).alias("refused"),
    )
    both = stacked(state, new)
    sums = [each for each in _TRAFFIC.names[6:] if not each.endswith("_to")]
    reach = [each for each in _TRAFFIC.names[6:] if each.endswith("_to")]
    start = (F.col("bucket_ms") - F.pmod("bucket_ms", "_width")).alias("bucket_ms")
    return (
        both.drop("width_ms")
        .crossJoin(both.agg(_width().alias("_width")))
        .groupBy(*_PLACES, start, F.col("_width").alias("width_ms"))
        .agg(*(F.sum(each).alias(each) for each in sums), *(F.max(each).alias(each) for each in reach))
        .select(*_TRAFFIC.names)
    )


def _pieces(told: DataFrame) -> DataFrame:
    """Cuts each run where a second ends, or several where it is long.

    Adds when each piece begins (`_from`), and which share of the run is over before it and with it.
    """
    began = F.least("at_ms", F.coalesce("began_ms", "at_ms"))
    length = F.col("at_ms") - F.col("_began")
    piece = F.ceil(F.greatest(length, F.lit(1)) / (NARROWEST_MS * MOST_PIECES)) * NARROWEST_MS
    first = F.floor(F.col("_began") / F.col("_piece"))
    last = F.greatest(first, F.floor((F.col("at_ms") - 1) / F.col("_piece")))
    start = F.greatest(F.col("_began"), F.col("_number") * F.col("_piece"))
    before = F.when(length > 0, (F.col("_from") - F.col("_began")) / length).otherwise(0.0)
    end = (F.col("_number") + 1) * F.col("_piece")
    after = F.when(end < F.col("at_ms"), (end - F.col("_began")) / length).otherwise(1.0)
    return (
        told.withColumn("_began", began)
        .withColumn("_piece", piece)
        .withColumn("_number", F.explode(F.sequence(first, last)))
        .withColumn("_from", start)
        .withColumns({"_before": before, "_after": after})
    )


def _part(count: Column) -> Column:
    """Returns how much of a run's count falls into a piece; that of all its pieces is the whole count."""
    return F.floor(count * F.col("_after")) - F.floor(count * F.col("_before"))


def _reached() -> Column:
    """Returns the offset that a run had reached at the end of a piece, null before its first."""
    first = F.coalesce("first_offset", "last_offset")
    count = F.floor((F.col("last_offset") - first + 1) * F.col("_after"))
    return F.when(count > 0, first + count - 1)


def _width() -> Column:
    """The narrowest bucket, a power of two of seconds, with which the table stays within its bounds; it never falls."""
    streams = F.greatest(F.lit(1), F.approx_count_distinct(F.struct("topic", "stream")))  # no traffic: there are none
    most = F.greatest(F.lit(LEAST_BUCKETS), F.least(F.lit(MOST_BUCKETS), F.lit(MOST_TRAFFIC_ROWS) / streams))
    wished = (F.max("bucket_ms") - F.min("bucket_ms")) / most / NARROWEST_MS
    power = F.ceil(F.log2(F.greatest(wished, F.lit(1.0))))
    doubled = (F.pow(F.lit(2.0), power) * NARROWEST_MS).cast("bigint")
    return F.greatest(doubled, F.max("width_ms"), F.lit(NARROWEST_MS).cast("bigint"))


SUMMARIES: Final = (Summary(name="traffic", state=_TRAFFIC, fold=_traffic),)
