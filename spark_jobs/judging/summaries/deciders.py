"""Who decided, and why clients were refused, held or limited."""

from __future__ import annotations

from typing import Final

import polars as pl

from kordon.codecs.decision import Kind
from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.schema import columns
from kordon.spark_jobs.judging.summaries.summary import Summary, at_kind, grouped, is_of, longs, newest_of
from kordon.spark_jobs.judging.tables import stacked

MOST_WORKERS: Final = 2_000
MOST_REASONS: Final = 2_000


_WORKERS: Final = columns(
    worker=pl.String,
    host=pl.String,
    **longs("decisions", "first_number", "last_number", "first_ms", "last_ms", "leases_lost", "dropped"),
)
_WORKER: Final = ("worker", "host")


def _workers(facts: Facts, findings: pl.DataFrame, state: pl.DataFrame) -> pl.DataFrame:
    """Returns which workers decided how much, and what is missing. Bounded: the newest `MOST_WORKERS`."""
    is_lost = (pl.col("kind") == Kind.LEASE.value) & (pl.col("reason") == "lost")
    dropped = at_kind(Kind.GAP, pl.col("last_number") - pl.col("first_number") + 1)
    new = facts.decisions.group_by(_WORKER).agg(
        pl.len().alias("decisions"),
        pl.min("number").alias("first_number"),
        pl.max("number").alias("last_number"),
        pl.min("at_ms").alias("first_ms"),
        pl.max("at_ms").alias("last_ms"),
        is_lost.sum().alias("leases_lost"),
        dropped.sum().alias("dropped"),
    )
    sums, first = ("decisions", "leases_lost", "dropped"), ("first_number", "first_ms")
    workers = grouped(stacked(_WORKERS, state, new), _WORKER, sums=sums, least=first)
    return newest_of(workers, MOST_WORKERS, "last_ms", _WORKER)


_REASONS: Final = columns(
    kind=pl.String,
    topic=pl.String,
    api_key=pl.Int32,
    rule=pl.String,
    reason=pl.String,
    **longs("times", "first_ms", "last_ms"),
)
_REASONED: Final = ("kind", "topic", "api_key", "rule", "reason")


def _reasons(facts: Facts, findings: pl.DataFrame, state: pl.DataFrame) -> pl.DataFrame:
    """How often something was refused, held, limited or dropped, and why. Bounded: the newest `MOST_REASONS`."""
    kinds = (Kind.REFUSE, Kind.HOLD, Kind.LIMIT, Kind.CLOSE, Kind.GAP, Kind.LEASE, Kind.REWIND)
    new = facts.decisions.filter(is_of(*kinds)).select(
        *_REASONED,
        pl.col("batches").fill_null(1).alias("times"),
        pl.col("at_ms").alias("first_ms"),
        pl.col("at_ms").alias("last_ms"),
    )
    reasons = grouped(stacked(_REASONS, state, new), _REASONED, sums=["times"], least=["first_ms"])
    return newest_of(reasons, MOST_REASONS, "last_ms", _REASONED)


SUMMARIES: Final = (
    Summary(name="workers", state=_WORKERS, fold=_workers),
    Summary(name="reasons", state=_REASONS, fold=_reasons),
)
