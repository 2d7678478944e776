"""FENCE-BARRIER (2): no write under a layout once its ends were read, nor under the next before it is in force.

    FENCE ──> every member's ACKNOWLEDGE ──> CUT of each sealed partition ──> COMMIT ──> ADMIT under the new layout
              └─ no ADMIT under the old one on these partitions by this worker, and none at or behind the cut by any

Only fences that came to a COMMIT count: attempts that were cancelled change nothing, and writes go on behind them.
Between workers the order is that of `__kordon.layouts`: a CUT names who had to acknowledge, where in that topic each
acknowledgement stands, and how far the controller had read. Within a worker it is that of its numbers. Found are:

    unacknowledged    a member did not acknowledge, though it went on under the new layout
    cut-too-early     the controller cut without a member's acknowledgement, or before it
    cut-out-of-order  a sealed partition has no CUT between FENCE and COMMIT
    early-admit       an ADMIT under the new layout rests on less than the COMMIT
    write-after-fence a worker admitted under the old layout behind its own acknowledgement
    behind-cut        what was admitted under the old layout lies at or behind the cut

What a worker admits behind its acknowledgement after it has lost its lease may be an answer that it had kept (rule C7):
that is unknown, unless it lies behind the cut. A member whose lease was lost in order owes nothing. Where a member is
never heard of again, or the controller's or its own decisions are missing, it is unknown. Cuts of a log that got
shorter (rule C10) say nothing of what was admitted.

State: the steps of fences that are under way and of the two newest layouts per topic; per worker, partition and layout
epoch one row of what it admitted; per worker how far it was heard of, and its lease. Bounded by the workers of a day
(`QUIET_MS`) times the partitions. Of a change that was followed by two others no more is kept: an ADMIT that comes
later than that is counted as unknown.

What is waited for: acknowledgements, `late_ms` from the COMMIT on; then they are missing.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so
from pyspark.sql.types import ArrayType, IntegerType, LongType, MapType, StringType, StructField, StructType

from kordon.codecs.decision import Kind
from kordon.spark_jobs.rules.gaps import with_gaps
from kordon.spark_jobs.rules.rule import FAIL, PASS, UNKNOWN, Facts, Outcome, Rule
from kordon.spark_jobs.rules.tables import QUIET_MS, checked, conform, decision, findings, union, worked_out

STATE: Final = StructType(
    [
        StructField("what", StringType()),
        StructField("topic", StringType()),
        StructField("fence", StringType()),
        StructField("worker", StringType()),
        StructField("number", LongType()),
        StructField("layout_epoch", IntegerType()),
        StructField("layouts_offset", LongType()),
        StructField("partition", IntegerType()),
        StructField("first_offset", LongType()),
        StructField("last_offset", LongType()),
        StructField("members", ArrayType(StringType())),
        StructField("sealed", ArrayType(IntegerType())),
        StructField("acknowledged", ArrayType(StringType())),
        StructField("acknowledged_at", MapType(StringType(), LongType())),
        StructField("reason", StringType()),
        StructField("at_ms", LongType()),
    ]
)
"""`what`: the kind of the decision; or *heard*: how far a worker was heard of; *told*: `reason` was judged already. Of
an *admit*, `number` and `first_offset` are those of the newest run, `last_offset` is the largest, `layouts_offset` the
smallest."""
_STEPS: Final = (Kind.FENCE, Kind.ACKNOWLEDGE, Kind.CUT, Kind.COMMIT, Kind.CANCEL, Kind.LEASE, Kind.FORGET)
_PRODUCE: Final = 0
_ADMIT_KEY: Final = ("topic", "partition", "worker", "layout_epoch")
_JUDGED: Final = StructType(
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


def _check(facts: Facts, state: DataFrame) -> Outcome:
    known = worked_out(_known(facts, state))
    commits = worked_out(_commits(known))
    admits = known.where("what = 'admit'")
    judged = union(
        [_members(facts, known, commits), _cuts(facts, known, commits), *_admits(facts, known, commits, admits)],
        _JUDGED,
    )
    told = known.where("what = 'told'").select("reason")
    new = worked_out(judged.join(F.broadcast(told), "reason", "left_anti"))
    kept = _oldest(_commits(state))
    new_admits = _new_admits(facts).join(F.broadcast(kept), "topic", "left")
    is_late = F.coalesce(F.col("layouts_offset") < F.col("_oldest"), F.lit(False))
    passed = new_admits.withColumn("verdict", F.when(is_late, UNKNOWN).otherwise(PASS))
    return Outcome(
        findings=findings(new.where(F.col("verdict") != PASS), RULE.number, RULE.name, ("reason",), facts),
        state=_next_state(facts, known, commits, new),
        checked=checked(conform(passed, _JUDGED).unionByName(new)),
    )


def _known(facts: Facts, state: DataFrame) -> DataFrame:
    """Returns state and news as one table in the shape of `STATE`, without what a topic was before it was let go."""
    text = F.col("evidence")
    steps = (
        facts.decisions.where(F.col("kind").isin(*(each.value for each in _STEPS)))
        .withColumn("what", F.col("kind"))
        .withColumn("members", F.from_json(F.get_json_object(text, "$.members"), "array<string>"))
        .withColumn("sealed", F.from_json(F.get_json_object(text, "$.sealed"), "array<int>"))
        .withColumn("acknowledged", F.from_json(F.get_json_object(text, "$.acknowledged"), "array<string>"))
        .withColumn("acknowledged_at", F.from_json(F.get_json_object(text, "$.acknowledged_at"), "map<string, bigint>"))
        .where("what not in ('commit', 'cut', 'fence', 'acknowledge', 'cancel') or fence is not null")
    )
    heard = facts.decisions.select("worker", "layouts_offset", "at_ms")
    every = union(
        [state, steps, _new_admits(facts), heard.withColumn("what", F.lit("heard"))],
        STATE,
    )
    let_go = every.where("what = 'forget'").groupBy("topic").agg(F.max("layouts_offset").alias("_let_go"))
    living = every.join(F.broadcast(let_go), "topic", "left").where(
        "what = 'forget' or _let_go is null or layouts_offset is null or layouts_offset > _let_go"
    )
    others = living.where("what not in ('admit', 'heard')")
    admits = (
        living.where("what = 'admit'")
        .groupBy("what", *_ADMIT_KEY)
        .agg(
            F.max("number").alias("number"),
            F.max_by("first_offset", "number").alias("first_offset"),
            F.max("last_offset").alias("last_offset"),
            F.min("layouts_offset").alias("layouts_offset"),
            F.max("at_ms").alias("at_ms"),
        )
    )
    workers = (
        living.where("what = 'heard'")
        .groupBy("what", "worker")
        .agg(F.max("layouts_offset").alias("layouts_offset"), F.max("at_ms").alias("at_ms"))
    )
    return union([others, admits, workers], STATE)


def _new_admits(facts: Facts) -> DataFrame:
    is_write = (F.col("kind") == Kind.ADMIT.value) & (F.coalesce("api_key", F.lit(_PRODUCE)) == _PRODUCE)
    repeats = F.coalesce(F.get_json_object("evidence", "$.repeated") == "true", F.lit(False))
    named = F.col("topic").isNotNull() & F.col("partition").isNotNull() & F.col("layout_epoch").isNotNull()
    new = facts.decisions.where(is_write & ~repeats & named)
    return conform(new.withColumn("what", F.lit("admit")), STATE)


def _commits(known: DataFrame) -> DataFrame:
    """Returns the changes that came to a COMMIT, with their fence: `place` 1 is the newest of its topic."""
    newest = Window.partitionBy("topic").orderBy(F.desc("layouts_offset"))
    commits = known.where("what = 'commit'").select(
        "topic",
        "fence",
        F.col("layout_epoch").alias("_epoch"),
        F.col("layouts_offset").alias("_commit"),
        F.col("worker").alias("_controller"),
        F.col("number").alias("_commit_number"),
        F.col("at_ms").alias("_commit_ms"),
        F.dense_rank().over(newest).alias("place"),
    )
    fences = known.where("what = 'fence'").select(
        "topic",
        "fence",
        F.col("layouts_offset").alias("_fence"),
        F.col("worker").alias("_fencer"),
        F.col("number").alias("_fence_number"),
        F.col("members").alias("_fence_members"),
        F.col("sealed").alias("_sealed"),
    )
    return commits.join(fences, ["topic", "fence"], "left")


def _oldest(commits: DataFrame) -> DataFrame:
    """Returns from where on in the layouts topic changes are kept, of topics that have had more than two."""
    kept = commits.where("place <= 2").groupBy("topic")
    return kept.agg(F.min("_commit").alias("_oldest"), F.max("place").alias("_place")).where("_place = 2")


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
        .join(_acknowledgements(known), ["topic", "fence", "worker"], "left")
        .join(_heard(known), "worker", "left")
    )
    owing = with_gaps(owing, facts.gaps, after="_nothing", until="_nothing")
    own = "try_element_at(_acknowledged_at, worker)"
    too_early = f"not array_contains(_acknowledged, worker) or {own} > _cut or {own} <= _fence"
    kind = F.expr(
        f"case when {too_early} then 'cut-too-early' when _ack_number is not null then null"
        " when _lease = 'lost' then null else 'unacknowledged' end"
    )
    proven = "kind is null or kind = 'cut-too-early' or (_heard >= _commit and not across_gap)"
    return (
        owing.withColumn("kind", kind)
        .where(f"({proven}) or ({_waited(facts)})")
        .withColumn(
            "verdict", F.expr(f"case when kind is null then '{PASS}' when {proven} then '{FAIL}' else '{UNKNOWN}' end")
        )
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


def _acknowledgements(known: DataFrame) -> DataFrame:
    return (
        known.where("what = 'acknowledge'")
        .groupBy("topic", "fence", "worker")
        .agg(F.min("number").alias("_ack_number"))
    )


def _heard(known: DataFrame) -> DataFrame:
    """Returns of each worker how far it was heard of, and its lease."""
    return (
        known.where("what in ('heard', 'lease')")
        .groupBy("worker")
        .agg(
            F.max(F.when(F.col("what") == "heard", F.col("layouts_offset"))).alias("_heard"),
            F.max_by(
                F.when(F.col("what") == "lease", F.col("reason")), F.when(F.col("what") == "lease", F.col("number"))
            ).alias("_lease"),
            F.min(F.when(F.expr("what = 'lease' and reason = 'lost'"), F.col("number"))).alias("_lost"),
            F.lit(None).cast("bigint").alias("_nothing"),
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
        .withColumn("kind", F.when(~F.col("_in_order"), "cut-out-of-order"))
        .withColumn(
            "verdict",
            F.when(F.col("_in_order"), PASS)
            .when(F.col("across_gap") & F.col("_cut_number").isNull(), UNKNOWN)
            .otherwise(FAIL),
        )
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


def _admits(facts: Facts, known: DataFrame, commits: DataFrame, admits: DataFrame) -> list[DataFrame]:
    """Finds what was admitted too early, behind an acknowledgement, or behind a cut."""
    shortened = facts.segments.where("kept_end < `end`").select("topic", "partition").distinct()
    written = admits.select(*_ADMIT_KEY, "number", "first_offset", "last_offset", "layouts_offset")
    old = commits.withColumn("partition", F.explode("_sealed")).join(written, ["topic", "partition"])
    old = old.where("layout_epoch < _epoch")
    acknowledged = _acknowledgements(known).withColumnRenamed("fence", "_of")
    early = commits.join(written, "topic").where("layout_epoch = _epoch and layouts_offset < _commit")
    after = (
        old.join(acknowledged, ["topic", "worker"])
        .where("_of = fence and number > _ack_number")
        .join(_heard(known).select("worker", "_lost"), "worker", "left")
        .withColumn("verdict", F.when(F.col("_lost") < F.col("number"), UNKNOWN).otherwise(FAIL))
    )
    cuts = known.where("what = 'cut'").select(
        "topic", F.col("fence").alias("_of"), "partition", F.col("last_offset").alias("_end")
    )
    behind = (
        old.join(cuts, ["topic", "partition"])
        .where("_of = fence and last_offset >= _end")
        .join(F.broadcast(shortened), ["topic", "partition"], "left_anti")
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


def _next_state(facts: Facts, known: DataFrame, commits: DataFrame, new: DataFrame) -> DataFrame:
    told = new.select("topic", "reason", "layouts_offset", "at_ms", F.lit("told").alias("what"))
    committed = commits.where("place <= 2").select("topic", "fence", F.lit(True).alias("_committed"))
    cancelled = known.where("what = 'cancel'").select("topic", "fence", F.lit(True).alias("_cancelled"))
    fresh = f"at_ms > {facts.newest_ms - 2 * facts.late_ms}"
    of_a_day = f"at_ms > {facts.newest_ms - QUIET_MS}"
    return conform(
        union([known, told], STATE)
        .join(F.broadcast(_oldest(commits)), "topic", "left")
        .join(F.broadcast(committed), ["topic", "fence"], "left")
        .join(F.broadcast(cancelled), ["topic", "fence"], "left")
        .where(
            "case"
            f" when what in ('heard', 'lease', 'forget') then {of_a_day}"
            f" when what in ('admit') then {of_a_day} and (_oldest is null or layouts_offset >= _oldest or {fresh})"
            " when what in ('told', 'commit') then _oldest is null or layouts_offset >= _oldest"
            f" else _committed or (not coalesce(_cancelled, false) and {fresh}) end"
        ),
        STATE,
    )


RULE: Final = Rule(
    number=2,
    name="FENCE-BARRIER",
    proves="Before a partition's end was read, every live proxy had acknowledged to write no more under the old "
    "layout, and none did; nothing was written under the new one before it was durable.",
    state=STATE,
    check=_check,
)
