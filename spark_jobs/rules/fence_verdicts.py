"""What FENCE-BARRIER says of a change: of each member, each cut, and of what was written at the wrong time."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from kordon.spark_jobs.rules.fence_changes import ADMIT_KEY, STATE, acknowledgements, heard
from kordon.spark_jobs.rules.gaps import with_gaps
from kordon.spark_jobs.rules.rule import FAIL, PASS, UNKNOWN, Facts
from kordon.spark_jobs.rules.tables import decision, union

JUDGED: Final = StructType(
    [
        *(
            each
            for each in STATE.fields
            if each.name not in {"what", "members", "sealed", "acknowledged", "acknowledged_at"}
        ),
        StructField("kind", StringType()),
        StructField("verdict", StringType()),
        StructField("text", StringType()),
        StructField("decisions", ArrayType(StringType())),
    ]
)


_WENT_ON: Final = "try_element_at(filter(_heard, h -> h.layouts_offset >= _commit), 1).number"
"""Number of a member's first decision that rests on the new layout: its acknowledgement would stand before that."""
_LEASE_THEN: Final = "try_element_at(filter(_leases, l -> l.layouts_offset <= _commit), -1).reason"
"""What the last decision of a member on its lease says of those that it took before it had read the new layout."""
_MAY_BE_KEPT: Final = (
    "try_element_at(filter(_leases, l -> l.number < _ack_number), -1).reason = 'lost'"
    " or exists(_leases, l -> l.reason = 'lost' and l.number between _ack_number and number)"
)
"""Whether a worker had no lease at its acknowledgement, or lost it between that and what it admitted (LATE-ANSWER)."""


def judged_of(facts: Facts, known: DataFrame, commits: DataFrame) -> DataFrame:
    """Returns what can be said of all changes that are known, as rows of `JUDGED`; once more what was said before."""
    parts = [_members, _cuts, _unproven]
    return union([*(part(facts, known, commits) for part in parts), *_admits(facts, known, commits)], JUDGED)


def _waited(facts: Facts) -> str:
    return "true" if facts.is_last else f"_commit_ms < {facts.newest_ms - facts.late_ms}"


def _members(facts: Facts, known: DataFrame, commits: DataFrame) -> DataFrame:
    """Judges of each member whether it acknowledged before the cut; those that are waited for are left out."""
    cuts = (
        known.where("what = 'cut'")
        .groupBy("topic", "fence")
        .agg(
            F.min("layouts_offset").alias("_cut"),
            F.first("members", ignorenulls=True).alias("_cut_members"),
            F.first("acknowledged", ignorenulls=True).alias("_acknowledged"),
            F.first("acknowledged_at", ignorenulls=True).alias("_acknowledged_at"),
            F.min(F.struct("number", "worker")).alias("_by"),
        )
    )
    owing = (
        commits.join(cuts, ["topic", "fence"], "left")
        .withColumn("worker", F.explode(F.coalesce("_cut_members", "_fence_members")))
        .join(acknowledgements(known), ["topic", "fence", "worker"], "left")
        .join(heard(known), "worker", "left")
    )
    owing = owing.withColumn("_went_on", F.expr(_WENT_ON))
    owing = with_gaps(owing, facts.gaps, after="_nothing", until="_went_on")
    own = "try_element_at(_acknowledged_at, worker)"
    too_early = f"not array_contains(_acknowledged, worker) or {own} > _cut or {own} <= _fence"
    kind = F.expr(
        f"case when {too_early} then 'cut-too-early' when _ack_number is not null then null"
        f" when {_LEASE_THEN} = 'lost' then null else 'unacknowledged' end"
    )
    answered = "kind = 'cut-too-early' or (kind is null and _ack_number is not null)"
    proven = f"{answered} or (_went_on is not null and not across_gap)"
    return (
        owing.withColumn("kind", kind)
        .where(f"({proven}) or ({_waited(facts)})")
        .withColumn(
            "verdict", F.expr(f"case when kind is null then '{PASS}' when {proven} then '{FAIL}' else '{UNKNOWN}' end")
        )
        # where a gap may hide it, the gap is the finding
        .withColumn("kind", F.when((F.col("verdict") != UNKNOWN) | F.col("_went_on").isNull(), F.col("kind")))
        .select(
            "topic",
            "kind",
            "verdict",
            "worker",
            F.col("_epoch").alias("layout_epoch"),
            F.col("_commit").alias("layouts_offset"),
            F.concat_ws("/", F.lit("member"), "topic", "fence", "worker").alias("reason"),
            F.format_string(
                "Layout epoch %d of %s was cut and committed %s the acknowledgement of worker %s was there: what it "
                "had under way may have landed behind the cut. Look at fence %s in its log and the controller's.",
                "_epoch",
                "topic",
                F.when(F.col("kind") == "cut-too-early", "before").otherwise("and nothing tells whether"),
                "worker",
                "fence",
            ).alias("text"),
            F.array_compact(
                F.array(
                    decision("_controller", "_commit_number"),
                    F.when(F.col("_ack_number").isNotNull(), decision("worker", "_ack_number")),
                )
            ).alias("decisions"),
            F.col("_commit_ms").alias("at_ms"),
        )
    )


def _cuts(facts: Facts, known: DataFrame, commits: DataFrame) -> DataFrame:
    """Judges of each sealed partition whether its cut was read between fence and layout."""
    cuts = known.where("what = 'cut'").select(
        "topic",
        "fence",
        "partition",
        F.col("number").alias("_cut_number"),
        F.col("worker").alias("_cutter"),
        F.col("layouts_offset").alias("_cut"),
        F.col("last_offset"),
    )
    sealed = with_gaps(
        commits.withColumn("partition", F.explode("_sealed"))
        .join(cuts, ["topic", "fence", "partition"], "left")
        .withColumn("worker", F.col("_controller")),
        facts.gaps,
        after="_fence_number",
        until="_commit_number",
    )
    in_order = (
        "_cut_number is not null and (_cut is null or _cut between _fence and _commit)"
        " and (_cutter != _fencer or _cut_number > _fence_number)"
        " and (_cutter != _controller or _cut_number < _commit_number)"
    )
    return (
        sealed.withColumn("_in_order", F.expr(in_order))
        .withColumn(
            "verdict",
            F.when(F.col("_in_order"), PASS)
            .when(F.col("across_gap") & F.col("_cut_number").isNull(), UNKNOWN)
            .otherwise(FAIL),
        )
        # unknown is what a gap may hide: that is the finding
        .withColumn("kind", F.when(F.col("verdict") == FAIL, "cut-out-of-order"))
        .select(
            "topic",
            "partition",
            "kind",
            "verdict",
            "worker",
            F.col("_epoch").alias("layout_epoch"),
            F.col("_commit").alias("layouts_offset"),
            "last_offset",
            F.concat_ws("/", F.lit("cut"), "topic", "fence", "partition").alias("reason"),
            F.format_string(
                "Partition %d of %s was sealed by fence %s without a cut that was read between the fence and layout "
                "epoch %d: where its segment ends is not proven. Look at the controller's decisions on this fence.",
                "partition",
                "topic",
                "fence",
                "_epoch",
            ).alias("text"),
            F.array_compact(
                F.array(
                    decision("_fencer", "_fence_number"),
                    F.when(F.col("_cut_number").isNotNull(), decision("_cutter", "_cut_number")),
                    decision("_controller", "_commit_number"),
                )
            ).alias("decisions"),
            F.col("_commit_ms").alias("at_ms"),
        )
    )


def _unproven(facts: Facts, known: DataFrame, commits: DataFrame) -> DataFrame:
    """Says of changes whose FENCE is on record nowhere that nothing tells whether all held, or what was sealed.

    It is no proof of a fault: who raised the fence may have been killed before its decisions were written.
    """
    untold = commits.where(f"_fence is null and ({_waited(facts)})")
    return untold.select(
        "topic",
        F.lit("unacknowledged").alias("kind"),
        F.lit(UNKNOWN).alias("verdict"),
        F.col("_controller").alias("worker"),
        F.col("_epoch").alias("layout_epoch"),
        F.col("_commit").alias("layouts_offset"),
        F.concat_ws("/", F.lit("fence"), "topic", "fence").alias("reason"),
        F.format_string(
            "Layout epoch %d of %s was committed by fence %s, and no decision tells of that fence: whether all workers "
            "held it, and which partitions it sealed, is not proven. Look for a worker that was killed at that time.",
            "_epoch",
            "topic",
            "fence",
        ).alias("text"),
        F.array(decision("_controller", "_commit_number")).alias("decisions"),
        F.col("_commit_ms").alias("at_ms"),
    )


def _admits(facts: Facts, known: DataFrame, commits: DataFrame) -> list[DataFrame]:
    """Finds what was admitted too early, behind an acknowledgement, or behind a cut."""
    shortened = facts.segments.where("kept_end < `end`").select("topic", "partition").distinct()
    written = known.where("what = 'admit'").select(
        *ADMIT_KEY, "number", "first_offset", "last_offset", "layouts_offset"
    )
    old = commits.withColumn("partition", F.explode("_sealed")).join(written, ["topic", "partition"])
    old = old.where("layout_epoch < _epoch")
    acknowledged = acknowledgements(known).withColumnRenamed("fence", "_of")
    early = commits.join(written, "topic").where("layout_epoch = _epoch and layouts_offset < _commit")
    after = (
        old.join(acknowledged, ["topic", "worker"])
        .where("_of = fence and number > _ack_number")
        .join(heard(known).select("worker", "_leases"), "worker", "left")
        .withColumn("verdict", F.when(F.expr(_MAY_BE_KEPT), UNKNOWN).otherwise(FAIL))
    )
    cuts = known.where("what = 'cut'").select(
        "topic", F.col("fence").alias("_of"), "partition", F.col("last_offset").alias("_end")
    )
    behind = (
        old.join(cuts, ["topic", "partition"])
        .where("_of = fence and last_offset >= _end")
        .join(shortened, ["topic", "partition"], "left_anti")
    )
    return [
        _wrong(early, "early-admit", "under a layout that was not in force yet"),
        _wrong(after, "write-after-fence", "under a layout whose fence it had acknowledged"),
        _wrong(behind, "behind-cut", "at or behind the cut, where no reader of the old layout looks"),
    ]


def _wrong(rows: DataFrame, kind: str, how: str) -> DataFrame:
    return rows.withColumns(
        {
            "kind": F.lit(kind),
            "verdict": F.col("verdict") if "verdict" in rows.columns else F.lit(FAIL),
            "reason": F.concat_ws("/", F.lit(kind), "topic", "fence", "partition", "worker", "layout_epoch"),
            "text": F.format_string(
                "Worker %s acknowledged writes to partition %d of %s up to offset %d %s (fence %s, layout epoch %d). "
                "Compare them with what the topic has: records may be lost, or out of their key's order.",
                "worker",
                "partition",
                "topic",
                "last_offset",
                F.lit(how),
                "fence",
                "_epoch",
            ),
            "decisions": F.array(decision("worker", "number"), decision("_controller", "_commit_number")),
            "at_ms": F.col("_commit_ms"),
            "layouts_offset": F.col("_commit"),
        }
    )
