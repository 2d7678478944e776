"""What is new in a micro-batch, as rules are given it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import polars as pl

from kordon.codecs.decision import Kind
from kordon.spark_jobs.judging.schema import (
    BATCHES,
    DECISIONS,
    GAPS,
    KEYS,
    NUMBERS,
    PLACED,
    READ_TO,
    SEGMENTS,
    STAYS,
    WRITTEN,
)

_OF_ALL: Final = (Kind.CLOSE.value, Kind.LEASE.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a rule may look at; each is a table of `schema.py`, which it does not change.

    On a cluster each part has the decisions and batches of its own topics, and `of_all` and `numbers` of all workers.
    """

    decisions: pl.DataFrame
    """`DECISIONS`, new in this micro-batch only, each once. Those of one worker come in the order of their numbers over
    the micro-batches."""
    of_all: pl.DataFrame
    """`DECISIONS`: the ends of connections and what became of leases, which concern the topics of all parts."""
    numbers: pl.DataFrame
    """`NUMBERS`: which decisions there are, of all parts."""
    batches: pl.DataFrame
    """`BATCHES`, new only; per partition without gaps and in the order of offsets over the micro-batches."""
    placed: pl.DataFrame
    """`PLACED`: batches of which it has become certain in this micro-batch whose they are."""
    segments: pl.DataFrame
    """`SEGMENTS`, all, as of the newest layout that a decision has told."""
    stays: pl.DataFrame
    """`STAYS`, all, as of the same layouts."""
    read_to: pl.DataFrame
    """`READ_TO`: all partitions that are read, behind this micro-batch."""
    gaps: pl.DataFrame
    """`GAPS`: all numbers known to be missing."""
    newest_ms: int
    """Time of the newest decision so far: `found_ms` of findings, and what lateness is told by; 0: there was none."""
    keys: pl.DataFrame = field(default_factory=KEYS.to_frame)
    """`KEYS`: of new batches, as far as they were opened."""
    decided: pl.DataFrame = field(default_factory=WRITTEN.to_frame)
    """`WRITTEN`: batches of `placed`, now or before, of which it is known now what became of their transaction, or that
    nobody can say."""
    undecided: pl.DataFrame = field(default_factory=WRITTEN.to_frame)
    """`WRITTEN`: batches of `placed` that wait for that."""
    late_ms: int = 600_000
    """The time, by decisions, for which a rule waits for something before it judges without it."""
    is_last: bool = False
    """Nothing comes behind this micro-batch (`--once`): what waits still is judged as it is."""

    def is_late(self, seen_ms: str = "seen_ms") -> pl.Expr:
        """Returns whether a row that came at a time has waited long enough."""
        return pl.lit(value=True) if self.is_last else self.newest_ms - pl.col(seen_ms) >= self.late_ms


def of_all(decisions: pl.DataFrame) -> pl.DataFrame:
    """Returns those of some decisions that `Facts.of_all` has."""
    return decisions.filter(pl.col("kind").is_in(_OF_ALL))


def numbers_of(decisions: pl.DataFrame) -> pl.DataFrame:
    """Returns which decisions there are, in the shape of `NUMBERS`."""
    rests_on = pl.col("layouts_offset").cum_max().over("worker")
    told = (
        decisions.select("worker", "number", "host", "kind", "reason", "layouts_offset", "at_ms")
        .unique(["worker", "number"], maintain_order=True)
        .sort("worker", "number")
        .with_columns(rests_on.forward_fill().over("worker").alias("layouts_offset"))
    )
    follows = (pl.col("worker") == pl.col("worker").shift(1)) & (pl.col("number") == pl.col("number").shift(1) + 1)
    rests = pl.col("layouts_offset").eq_missing(pl.col("layouts_offset").shift(1))
    runs = told.with_columns((~(follows & rests)).fill_null(value=True).cum_sum().alias("run"))
    return (
        runs.group_by("run", maintain_order=True)
        .agg(
            pl.first("worker", "number", "host", "kind", "reason", "layouts_offset", "at_ms"),
            pl.last("number").alias("last_number"),
            pl.max("at_ms").alias("newest_ms"),
        )
        .select(NUMBERS.names())
        .cast(NUMBERS)
    )


def no_decisions() -> pl.DataFrame:
    """Returns an empty table of `DECISIONS`."""
    return DECISIONS.to_frame()


def nothing() -> Facts:
    """Returns the facts of a micro-batch that has nothing in it."""
    return Facts(
        decisions=no_decisions(),
        of_all=no_decisions(),
        numbers=NUMBERS.to_frame(),
        batches=BATCHES.to_frame(),
        placed=PLACED.to_frame(),
        segments=SEGMENTS.to_frame(),
        stays=STAYS.to_frame(),
        read_to=READ_TO.to_frame(),
        gaps=GAPS.to_frame(),
        newest_ms=0,
    )
