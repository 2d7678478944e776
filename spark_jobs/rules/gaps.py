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

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from kordon.codecs.decision import Kind
from kordon.spark_jobs.rules.rule import UNKNOWN, Facts, Rule, RuleOutcome
from kordon.spark_jobs.rules.tables import checked, decision, findings, union

MOST_WORKERS: Final = 10_000
MOST_GAPS: Final = 10_000
STATE: Final = StructType(
    [
        StructField("worker", StringType()),
        StructField("first_number", LongType()),
        StructField("last_number", LongType()),
        StructField("at_ms", LongType()),
        StructField("is_gap", BooleanType()),
    ]
)
"""Of a worker, `last_number` is the last one that was read; of a gap, the numbers are those that are missing."""


def known(state: DataFrame) -> DataFrame:
    """Returns the gaps that a state tells of: worker, first_number, last_number."""
    return state.where("is_gap").select("worker", "first_number", "last_number")


def with_gaps(rows: DataFrame, gaps: DataFrame | None, *, after: str, until: str) -> DataFrame:
    """Adds whether a decision is missing between two of a worker, as the column `across_gap`.

    Args:
        rows: With `worker`.
        gaps: As `Facts` has them.
        after: A column: the number of the earlier decision; null: from the worker's first on.
        until: A column: the number of the later one; null: up to its last.
    """
    if gaps is None:
        return rows.withColumn("across_gap", F.lit(False))
    by_worker = gaps.groupBy("worker").agg(F.collect_list(F.struct("first_number", "last_number")).alias("_gaps"))
    joined = rows.join(by_worker, "worker", "left")
    lies_between = F.exists(
        "_gaps",
        lambda gap: (
            (F.coalesce(F.col(after), F.lit(-1)) < gap["last_number"])
            & (F.col(until).isNull() | (gap["first_number"] < F.col(until)))
        ),
    )
    return joined.withColumn("across_gap", F.coalesce(lies_between, F.lit(False))).drop("_gaps")


def _check(facts: Facts, state: DataFrame) -> RuleOutcome:
    new = _new_gaps(facts, state)
    rows = new.withColumns(
        {
            "kind": F.lit("gap"),
            "verdict": F.lit(UNKNOWN),
            "decisions": F.array("_following"),
            "text": F.format_string(
                "Decisions %d to %d of worker %s on %s are missing: %s. What they would have proven is unknown.",
                "first_number",
                "last_number",
                "worker",
                "host",
                "_why",
            ),
        }
    )
    told = findings(rows, RULE.number, RULE.name, ("worker", "first_number", "last_number"), facts)
    looked_at = facts.decisions.select("topic", F.lit("pass").alias("verdict"))
    return RuleOutcome(findings=told, state=_next_state(facts, state, new), checked=checked(looked_at))


def _new_gaps(facts: Facts, state: DataFrame) -> DataFrame:
    last = state.where(~F.col("is_gap")).select(F.col("worker"), F.col("last_number").alias("_last"))
    numbers = facts.decisions.select("worker", "host", "number", "kind", "reason", "at_ms").join(last, "worker", "left")
    in_order = Window.partitionBy("worker").orderBy("number")
    before = F.coalesce(F.lag("number").over(in_order), F.col("_last"), F.lit(-1))
    dropped = F.concat(F.lit("the worker dropped them ("), F.coalesce("reason", F.lit("no reason told")), F.lit(")"))
    retained = F.lit("they are older than what the log has kept, or than where this audit began to read")
    lost = F.lit("they were never written, or somebody has taken them out of the log")
    return (
        numbers.where(F.coalesce(F.col("number") > F.col("_last"), F.lit(True)))
        .withColumn("_before", before)
        .where(F.col("number") > F.col("_before") + 1)
        .select(
            "worker",
            F.coalesce("host", F.lit("an unknown host")).alias("host"),
            (F.col("_before") + 1).alias("first_number"),
            (F.col("number") - 1).alias("last_number"),
            "at_ms",
            F.lit(True).alias("is_gap"),
            decision().alias("_following"),
            F.when(F.col("kind") == Kind.GAP.value, dropped)
            .when(F.col("_before") < 0, retained)
            .otherwise(lost)
            .alias("_why"),
        )
    )


def _next_state(facts: Facts, state: DataFrame, new: DataFrame) -> DataFrame:
    heard = facts.decisions.select("worker", F.col("number").alias("last_number"), "at_ms")
    workers = union([state.where(~F.col("is_gap")), heard], STATE)
    newest = workers.groupBy("worker").agg(F.max("last_number").alias("last_number"), F.max("at_ms").alias("at_ms"))
    newest = newest.withColumn("is_gap", F.lit(False)).orderBy(F.desc("at_ms"), "worker").limit(MOST_WORKERS)
    gaps = union([state.where("is_gap"), new], STATE)
    kept = gaps.orderBy(F.desc("at_ms"), "worker", F.desc("first_number")).limit(MOST_GAPS)
    return union([newest, kept], STATE)


RULE: Final = Rule(
    number=0,
    name="GAPS",
    proves="No decision of a worker is missing between those that were read.",
    state=STATE,
    check=_check,
)
