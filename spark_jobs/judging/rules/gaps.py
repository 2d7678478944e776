"""GAPS: which decisions are missing. Every worker numbers its own, so a number that is not there was lost.

A gap is no broken promise: nobody knows what stood there. It is told once, as unknown, and other rules are given all
gaps: what they would conclude over one is unknown, too.

State: per worker the last number, and each gap. Bounded: the `MOST_WORKERS` workers and the `MOST_GAPS` gaps that were
heard of last. Of a worker that comes back after so many others, the numbers before are told as a gap once more.

What comes late: nothing does, as the log keeps the order of each worker's decisions. A decision whose number was
passed already (the log was read again) counts for nothing. Decisions that a worker lost when it was killed, behind the
last that it wrote, leave no gap: the rules that wait for them say so.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from kordon.codecs.decision import Kind
from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.rule import PASS, UNKNOWN, Rule, RuleOutcome, State
from kordon.spark_jobs.judging.schema import GAPS, columns
from kordon.spark_jobs.judging.tables import checked, decision, findings, named, stacked

MOST_WORKERS: Final = 10_000
MOST_GAPS: Final = 10_000
_WORKER: Final = columns(worker=pl.String, last_number=pl.Int64, at_ms=pl.Int64)
_GAP: Final = columns(GAPS, at_ms=pl.Int64)
_DROPPED: Final = "the worker dropped them ({_told})"
_RETAINED: Final = "they are older than what the log has kept, or than where this audit began to read"
_LOST: Final = "they were never written, or somebody has taken them out of the log"
_TEXT: Final = (
    "Decisions {first_number} to {last_number} of worker {worker} on {host} are missing: %s."
    " What they would have proven is unknown."
)


def known(state: State) -> pl.DataFrame:
    """Returns the gaps that a state tells of, as `GAPS`."""
    return state["gap"].select(GAPS.names())


def seen(state: State) -> pl.DataFrame:
    """Returns up to which number, `seen`, the decisions of each worker were read."""
    return state["worker"].select("worker", pl.col("last_number").alias("seen"))


def with_gaps(rows: pl.DataFrame, gaps: pl.DataFrame, *, after: str, until: str) -> pl.DataFrame:
    """Adds whether a decision is missing between two of a worker, as the column `across_gap`.

    Args:
        rows: Rows with `worker`.
        gaps: The gaps, as in `Facts`.
        after: A column: the number of the earlier decision; null: from the worker's first on.
        until: A column: the number of the later one; null: up to its last.
    """
    no = pl.lit(value=False).alias("across_gap")
    if gaps.is_empty() or rows.is_empty():
        return rows.with_columns(no)
    # gaps of a worker do not overlap: the first one that ends behind `after` lies nearest
    nearest = gaps.select("worker", "last_number", pl.col("first_number").alias("_gap")).sort("last_number")
    asked = rows.with_row_index("_row").with_columns((pl.col(after).fill_null(-1) + 1).alias("_from")).sort("_from")
    joined = asked.join_asof(
        nearest.rename({"last_number": "_to"}),
        left_on="_from",
        right_on="_to",
        by="worker",
        strategy="forward",
        check_sortedness=False,
    )
    lies_between = pl.col("_gap").is_not_null() & (pl.col(until).is_null() | (pl.col("_gap") < pl.col(until)))
    return joined.sort("_row").with_columns(lies_between.alias("across_gap")).drop("_row", "_from", "_to", "_gap")


def _check(facts: Facts, state: State) -> RuleOutcome:
    new = _new_gaps(facts, state["worker"])
    told = findings(new, RULE.number, RULE.name, ("worker", "first_number", "last_number"), facts)
    looked_at = facts.decisions.select("topic", pl.lit(PASS).alias("verdict"))
    return RuleOutcome(findings=told, state=_next_state(facts, state, new), checked=checked(looked_at))


def _new_gaps(facts: Facts, workers: pl.DataFrame) -> pl.DataFrame:
    before = workers.select("worker", pl.col("last_number").alias("_seen"))
    reached = pl.col("last_number").cum_max().shift(1).over("worker")
    runs = (
        facts.numbers.sort("worker", "number")
        .join(before, on="worker", how="left", maintain_order="left")
        .filter(pl.col("_seen").is_null() | (pl.col("last_number") > pl.col("_seen")))
        .with_columns(pl.max_horizontal(reached, "_seen").fill_null(-1).alias("_before"))
    )
    return runs.filter(pl.col("number") > pl.col("_before") + 1).select(
        "worker",
        "at_ms",
        pl.col("host").fill_null("an unknown host"),
        (pl.col("_before") + 1).alias("first_number"),
        (pl.col("number") - 1).alias("last_number"),
        pl.lit("gap").alias("kind"),
        pl.lit(UNKNOWN).alias("verdict"),
        named(decision()).alias("decisions"),
        pl.col("reason").fill_null("no reason told").alias("_told"),
        pl.when(pl.col("kind") == Kind.GAP.value)
        .then(pl.lit(_TEXT % _DROPPED))
        .when(pl.col("_before") < 0)
        .then(pl.lit(_TEXT % _RETAINED))
        .otherwise(pl.lit(_TEXT % _LOST))
        .alias("text"),
    )


def _next_state(facts: Facts, state: State, new: pl.DataFrame) -> State:
    heard = facts.numbers.select("worker", "last_number", pl.col("newest_ms").alias("at_ms"))
    workers = stacked(_WORKER, state["worker"], heard).group_by("worker").agg(pl.max("last_number", "at_ms"))
    gaps = stacked(_GAP, state["gap"], new)
    return {
        "worker": workers.sort(["at_ms", "worker"], descending=[True, False]).head(MOST_WORKERS),
        "gap": gaps.sort(["at_ms", "worker", "first_number"], descending=[True, False, True]).head(MOST_GAPS),
    }


RULE: Final = Rule(
    number=0,
    name="GAPS",
    proves="No decision of a worker is missing between those that were read.",
    state={"worker": _WORKER, "gap": _GAP},
    check=_check,
)
