"""The decisions that findings name, kept while they may be named."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so

from kordon.codecs.decision import Kind
from kordon.spark_jobs.frames import stacked
from kordon.spark_jobs.rules.rule import Facts
from kordon.spark_jobs.summaries.summary import Summary, columns

MOST_STEPS: Final = 5_000
MOST_NAMED: Final = 2_000
MOST_RECENT: Final = 10_000
MOST_EVIDENCE: Final = 2_000
"""Characters of a decision's evidence that a proof shows."""


_PROOFS: Final = columns("worker string, number bigint, at_ms bigint, held string, decision string")
_STEPS: Final = (Kind.FENCE, Kind.ACKNOWLEDGE, Kind.CUT, Kind.COMMIT, Kind.CANCEL, Kind.ADOPT, Kind.LEASE, Kind.GAP)


def _proofs(facts: Facts, findings: DataFrame, state: DataFrame) -> DataFrame:
    """The decisions that findings name, as far as they are at hand.

    A finding may name what was read before: a write is judged once the topic has been read, too. So the newest
    decisions are kept for a while, those about layouts for longer. Bounded: `MOST_NAMED` that were named by findings,
    `MOST_STEPS` about layouts and `MOST_RECENT` others.
    """
    place = F.split(F.col("_name"), ":(?=[0-9]+$)")
    named = (
        findings.select(F.explode("decisions").alias("_name"))
        .select(place.getItem(0).alias("worker"), F.try_element_at(place, F.lit(2)).try_cast("bigint").alias("number"))
        .distinct()
        .withColumn("_named", F.lit(True))
    )
    told = facts.decisions.join(named, ["worker", "number"], "left").withColumn("held", _held())
    others = told.where("held = 'recent'").orderBy(F.col("at_ms").desc()).limit(MOST_RECENT)
    new = stacked(told.where("held != 'recent'"), others)
    new = new.select("worker", "number", "at_ms", "held", _as_json(facts.decisions).alias("decision"))
    before = state.join(named, ["worker", "number"], "left")
    before = before.withColumn("held", F.when(F.col("_named"), "named").otherwise(F.col("held"))).drop("_named")
    newest = F.row_number().over(Window.partitionBy("held").orderBy(F.col("at_ms").desc_nulls_last()))
    most = F.expr(f"case held when 'named' then {MOST_NAMED} when 'step' then {MOST_STEPS} else {MOST_RECENT} end")
    both = stacked(before, new).dropDuplicates(["worker", "number"])
    return both.withColumn("_place", newest).where(F.col("_place") <= most).select(*_PROOFS.names)


def _held() -> Column:
    is_step = F.col("kind").isin([each.value for each in _STEPS])
    return F.when(F.col("_named"), "named").when(is_step, "step").otherwise("recent")


def _as_json(decisions: DataFrame) -> Column:
    shown = [name for name in decisions.columns if name not in ("evidence", "log_partition", "log_offset")]
    evidence = F.substring("evidence", 1, MOST_EVIDENCE).alias("evidence")
    return F.to_json(F.struct(*shown, evidence))


SUMMARIES: Final = (Summary(name="proofs", state=_PROOFS, fold=_proofs),)
