"""What the keys of batches that were opened say: of each known partitioner, whether it would have put them there.

Of stock clients, the virtual partition that a batch names has to be the partitioner's choice among V. Of clients of the
dialect, that choice has to live on the partition. Clients that see N partitions choose among these, as all do until a
takeover is over.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.partitioners import PARTITIONERS, Partitioner
from kordon.spark_jobs.judging.rules.belonging import OPENED, OWN, UNKNOWN_TOPIC
from kordon.spark_jobs.judging.schema import KEYS, columns
from kordon.spark_jobs.judging.tables import FOR_EVER

BATCH: Final = ("topic", "partition", "base_offset")
"""What tells a batch from others."""
_PLACED: Final = columns(
    last_offset=pl.Int64,
    records=pl.Int64,
    kind=pl.String,
    stream=pl.Int32,
    client_producer_id=pl.Int64,
    seen_ms=pl.Int64,
)
OPENED_BATCHES: Final = columns(
    columns(topic=pl.String, partition=pl.Int32, base_offset=pl.Int64),
    _PLACED,
    v_count=pl.Int32,
    is_before_cut=pl.Boolean,
    keys=pl.Int64,
    marks=pl.UInt64,
    is_old_view=pl.Boolean,
    **{f"{each.name}_home": pl.Boolean for each in PARTITIONERS},
    **{f"{each.name}_place": pl.Int32 for each in PARTITIONERS},
)
"""One row per batch. `is_before_cut`: from when its topic was taken over; `is_old_view`: all keys are where a client
that saw N partitions would have put them. `keys`: how many are known. `marks`: bits that mostly tell different keys
apart. `<partitioner>_home`: whether it puts all keys there; `<partitioner>_place`: the one virtual partition
into which it puts them all, or null."""
_JUDGED: Final = (OWN, OPENED, UNKNOWN_TOPIC)
_BITS: Final = pl.Series([1 << bit for bit in range(64)], dtype=pl.UInt64)
_TOP_BITS: Final = 1 << 26


def opened(facts: Facts, keys: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns what keys say of the batches of which it is certain now whose they are.

    Args:
        keys: `KEYS`, of batches of which that is certain now, or will be.

    Returns:
        `OPENED_BATCHES`, and those keys whose batches are not certain yet.
    """
    offsets = keys.get_column("base_offset").unique()
    placed = facts.placed.filter(pl.col("base_offset").is_in(offsets.implode()))
    judged = placed.filter(pl.col("kind").is_in(_JUDGED)).select(*BATCH, *_PLACED)
    rows = judged.join(keys.select(KEYS.names()), on=BATCH, how="inner")
    waiting = keys.join(placed, on=BATCH, how="anti", maintain_order="left")
    if rows.is_empty():
        return OPENED_BATCHES.to_frame(), waiting
    known, is_dialect = _with_topics(rows, facts), pl.col("kind") == OPENED
    homes = [_of_stock(known.filter(~is_dialect)), _of_dialect(known.filter(is_dialect), facts.stays)]
    return _summed(pl.concat(homes)), waiting


def v_counts(facts: Facts) -> pl.DataFrame:
    """Returns V of each topic as `v_count`, and as `n` the partitions that it had before it was taken over, or null."""
    highest = pl.col("stream").max()
    before = pl.col("stream").filter(~pl.col("tagged")).max()
    stays = facts.stays.filter(pl.col("stream") >= 0)
    return stays.group_by("topic").agg((highest + 1).alias("v_count"), (before + 1).alias("n"))


def _with_topics(rows: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    linear = facts.segments.filter(pl.col("undeleted_partition_count") >= 0)
    cuts = linear.group_by("topic", "partition").agg(pl.min("start").alias("cut"))
    joined = rows.join(v_counts(facts), on="topic", how="left").join(cuts, on=["topic", "partition"], how="left")
    is_before = pl.col("n").is_not_null() & (pl.col("base_offset") < pl.col("cut").fill_null(FOR_EVER))
    return joined.with_columns(is_before.alias("is_before_cut")).drop("cut")


def _of_stock(rows: pl.DataFrame) -> pl.DataFrame:
    """Adds `<partitioner>_home` and `<partitioner>_old`: whether the key is at home among V, and among N."""
    return rows.with_columns(
        *((each.partition(pl.col("v_count")) == pl.col("stream")).alias(f"{each.name}_home") for each in PARTITIONERS),
        *((each.partition(pl.col("n")) == pl.col("stream")).alias(f"{each.name}_old") for each in PARTITIONERS),
    )


def _of_dialect(rows: pl.DataFrame, stays: pl.DataFrame) -> pl.DataFrame:
    """Adds the same columns."""
    for each in PARTITIONERS:
        rows = _with_homes(rows, stays, each)
    return rows.with_columns(
        (each.partition(pl.col("n")) == pl.col("partition")).alias(f"{each.name}_old") for each in PARTITIONERS
    )


def _with_homes(rows: pl.DataFrame, stays: pl.DataFrame, partitioner: Partitioner) -> pl.DataFrame:
    lived = stays.filter(pl.col("stream") >= 0, pl.col("start") < pl.col("end").fill_null(FOR_EVER)).sort("start")
    homes = lived.select("topic", "partition", pl.col("stream").alias("v"), "start", pl.col("end").fill_null(FOR_EVER))
    asked = rows.with_columns(partitioner.partition(pl.col("v_count")).alias("v")).sort("base_offset")
    by = ["topic", "partition", "v"]
    found = asked.join_asof(homes, left_on="base_offset", right_on="start", by=by, check_sortedness=False)
    is_home = (pl.col("base_offset") < pl.col("end")).alias(f"{partitioner.name}_home")
    return found.with_columns(is_home).drop("v", "start", "end", strict=False)


def _summed(rows: pl.DataFrame) -> pl.DataFrame:
    bit = (pl.col("murmur2") // _TOP_BITS) ^ (pl.col("crc32") // _TOP_BITS)
    places = [each.partition(pl.col("v_count")).alias(f"{each.name}_place") for each in PARTITIONERS]
    marked = rows.with_columns(pl.lit(_BITS).gather(bit).alias("marks"), *places)
    batches = marked.group_by(BATCH, maintain_order=True).agg(
        pl.first(*_PLACED, "v_count", "is_before_cut"),
        pl.col("murmur2").count().alias("keys"),
        pl.col("marks").bitwise_or(),
        pl.any_horizontal(_all(f"{each.name}_old") for each in PARTITIONERS).alias("is_old_view"),
        *(_all(f"{each.name}_home") for each in PARTITIONERS),
        *(_only(f"{each.name}_place") for each in PARTITIONERS),
    )
    return batches.select(OPENED_BATCHES.names()).cast(OPENED_BATCHES)


def _all(name: str) -> pl.Expr:
    return pl.col(name).fill_null(value=False).all()


def _only(name: str) -> pl.Expr:
    place = pl.col(name)
    return pl.when(place.min() == place.max()).then(place.min()).alias(name)
