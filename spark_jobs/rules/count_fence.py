"""COUNT-FENCE: every batch stands in a segment whose layout puts it there, or it was never acknowledged.

    batch in segment (q, e)                       verdict
    tagged, its stream lives there                pass
    tagged, behind the cut of its stream's stay   pass: a stray. Whether it was acknowledged is seen from the decisions
    tagged, its stream lived elsewhere then       stale-count: it was placed by another layout than its own
    untagged, before the topic was taken over     pass
    untagged, otherwise                           bypass: its writer did not come through Kordon
    control batches, markers of the janitor       pass

    acknowledged write                            verdict
    within the stay that it names                 pass
    behind the cut at which that stay ended       acknowledged-stray; not where the log got shorter: SEQ-IMAGE has that
    of a stay that there never was                stale-count
    of the dialect, by another count than U       stale-count, by what its decision says that the client believed

State, all of it bounded:

- per stay that is still open, the last offset that was acknowledged and by which decision: when the cut comes, all
  that was acknowledged behind it lies up to there. Later decisions are held against the cut as they come;
- writers round Kordon, and identities that were misplaced, that wrote within `late_ms`: one row each per partition.
  Who comes back later is found anew.

What comes late: a batch whose layout is not told within `late_ms` is judged by those that are; an acknowledgement under
such a layout is unknown, and counted as late. Retention and DeleteRecords take batches, but no acknowledgements: these
are held against the cuts in any case.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so

from kordon.spark_jobs.frames import stacked
from kordon.spark_jobs.rules.belonging import (
    BYPASS,
    MOVES,
    STRAY,
    UNKNOWN_TOPIC,
    is_late,
)
from kordon.spark_jobs.rules.ranges import FOR_EVER, ROW, rows, sentence, table
from kordon.spark_jobs.rules.rule import FAIL, LATE, PASS, UNKNOWN, Facts, Rule, RuleOutcome
from kordon.spark_jobs.rules.tables import checked, decision, findings

_RULE: Final = 1, "COUNT-FENCE"
_STAY: Final = ("topic", "partition", "stream", "move")
_WRITER: Final = ("topic", "partition", "stream", "move", "producer_id")


def check(facts: Facts, state: DataFrame) -> RuleOutcome:
    """Judges new batches by where they stand, and new acknowledgements by the cuts."""
    bypassed = _grown(facts.placed.where(F.col("kind") == BYPASS), table(state, "bypass"), "bypass")
    misplaced = _grown(_misplaced(facts.placed, facts), table(state, "misplaced"), "misplaced")
    acked = _held_against_stays(facts, table(state, "acked"))
    broken = stacked(
        _bypass(bypassed.where("is_new"), facts),
        _stale_batches(misplaced.where("is_new"), facts),
        _behind_cuts(acked, facts),
        _stale_counts(facts),
    )
    kept = stacked(
        rows(bypassed.where(~is_late(facts)), "bypass"),
        rows(misplaced.where(~is_late(facts)), "misplaced"),
        rows(acked.where(F.col("verdict") == "wait"), "acked"),
    )
    return RuleOutcome(findings=broken, state=kept, checked=_checked(facts.placed, acked, facts))


def _grown(new: DataFrame, known: DataFrame, what: str) -> DataFrame:
    """Joins what writers have written with what is known of them; `is_new` where there is more of it."""
    marked = stacked(rows(new, what).withColumn("is_new", F.lit(True)), known.withColumn("is_new", F.lit(False)))
    return marked.groupBy(*_WRITER).agg(
        F.min("base_offset").alias("base_offset"),
        F.min("base_offset").alias("first_offset"),
        F.max("last_offset").alias("last_offset"),
        F.sum("records").alias("records"),
        F.sum("batches").alias("batches"),
        F.max("layout_epoch").alias("layout_epoch"),
        F.max("seen_ms").alias("seen_ms"),
        F.max("is_new").alias("is_new"),
    )


def _bypass(bypassed: DataFrame, facts: Facts) -> DataFrame:
    who = F.when(F.col("producer_id") < 0, "A producer without an id").otherwise(sentence("Producer {producer_id}"))
    text = F.concat(
        who,
        sentence(
            " wrote {record:records} to {topic}-{partition} round Kordon, at {offset:first_offset:last_offset}: no"
            " order holds for them. Have it connect to Kordon, and allow nobody else to write at the brokers."
        ),
    )
    told_of = bypassed.withColumns({"kind": F.lit("bypass"), "verdict": F.lit(FAIL), "text": text})
    return findings(told_of, *_RULE, ("topic", "partition", "producer_id", "base_offset"), facts)


def _lived(facts: Facts) -> tuple[DataFrame, Column, Column]:
    """Returns where streams have lived, whether that is where a hidden batch stands, and whether it is its stream."""
    lived = facts.stays.where("tagged").select(
        F.col("topic").alias("l_topic"),
        F.col("stream").alias("l_stream"),
        F.col("partition").alias("l_partition"),
        F.pmod("move", F.lit(MOVES)).alias("l_move"),
    )
    its_own = (F.col("topic") == F.col("l_topic")) & (F.col("move") == F.col("l_move"))
    here = its_own & (F.col("stream") == F.col("l_stream")) & (F.col("partition") == F.col("l_partition"))
    return lived, here, its_own


def _misplaced(judged: DataFrame, facts: Facts) -> DataFrame:
    """Returns hidden batches whose stream never lived here; `layout_epoch` -1 where no layout tells where it did."""
    lived, here, its_own = _lived(facts)
    any_physical = F.when(F.col("l_stream") >= 0, F.col("l_stream")).alias("l_stream")
    somewhere = lived.select("l_topic", any_physical, "l_move").distinct()
    of_it = F.when(F.col("stream") >= 0, F.col("stream")).eqNullSafe(F.col("l_stream"))
    hidden = judged.where(F.col("kind") == STRAY).drop("layout_epoch")
    asked = hidden.join(lived, here, "left_anti")
    known = F.when(F.col("l_topic").isNull(), -1).alias("layout_epoch")
    return asked.join(somewhere, its_own & of_it, "left").select(*asked.columns, known)


def _stale_batches(misplaced: DataFrame, facts: Facts) -> DataFrame:
    is_known = F.col("layout_epoch").isNull()
    text = sentence(
        "Of stream {stream}, move {move}, {record:records} stand on {topic}-{partition} at"
        " {offset:first_offset:last_offset}, where that stream never lived under any layout: a proxy placed them by"
        " another layout. Readers do not see them; find the worker that wrote them by producer {producer_id}."
    )
    verdict = F.when(is_known, FAIL).otherwise(UNKNOWN)
    told_of = misplaced.withColumns({"kind": F.lit("stale-count"), "verdict": verdict, "text": text})
    return findings(told_of.drop("layout_epoch"), *_RULE, (*_WRITER, "base_offset"), facts)


def _held_against_stays(facts: Facts, known: DataFrame) -> DataFrame:
    """Returns the last acknowledgement of each stay with a verdict: pass, wait (it is open), stray or nowhere."""
    new = facts.decisions.where("kind = 'admit' and move is not null and last_offset is not null")
    told_now = rows(
        new,
        "acked",
        base_offset=F.col("first_offset"),
        decision=decision(),
        seen_ms=F.lit(facts.newest_ms),
    )
    place = ("base_offset", "last_offset", "layout_epoch", "decision", "seen_ms")
    last = stacked(told_now, known).groupBy(*_STAY).agg(F.max_by(F.struct(*place), "last_offset").alias("last"))
    ends = (
        facts.stays.where("tagged")
        .groupBy(*_STAY)
        .agg(F.max(F.coalesce("end", F.lit(FOR_EVER))).alias("end"), F.max("shortened").alias("shortened"))
    )
    epochs = facts.segments.groupBy("topic").agg(F.max("layout_epoch").alias("newest_epoch"))
    joined = last.select(*_STAY, "last.*").join(ends, list(_STAY), "left").join(epochs, ["topic"], "left")
    is_known = F.coalesce(F.col("newest_epoch") >= F.col("layout_epoch"), F.lit(False))
    verdict = (
        F.when(F.col("end").isNull() & is_known, "nowhere")
        .when(F.col("end").isNull(), F.when(is_late(facts), LATE).otherwise("wait"))
        .when(F.col("end") == FOR_EVER, "wait")
        .when((F.col("last_offset") < F.col("end")) | F.col("shortened"), "pass")
        .otherwise("stray")
    )
    return joined.withColumn("verdict", verdict)


def _behind_cuts(acked: DataFrame, facts: Facts) -> DataFrame:
    is_stray = F.col("verdict") == "stray"
    stray = sentence(
        "A write of stream {stream} to {topic}-{partition} was acknowledged at offset {last_offset}, behind the cut"
        " {end} at which move {move} ended there: it is hidden from readers, and lost. A worker did not keep the fence;"
        " see the decision and what its lease did then."
    )
    nowhere = sentence(
        "A write of stream {stream}, move {move}, was acknowledged on {topic}-{partition} at offset {last_offset},"
        " where that stream never lived: a proxy placed it by another layout. Restart that worker, and report it."
    )
    told_of = acked.where(F.col("verdict").isin("stray", "nowhere")).withColumns(
        {
            "kind": F.when(is_stray, "acknowledged-stray").otherwise("stale-count"),
            "text": F.when(is_stray, stray).otherwise(nowhere),
            "first_offset": F.greatest("base_offset", "end"),
            "decisions": F.array("decision"),
        }
    )
    return findings(told_of.withColumn("verdict", F.lit(FAIL)), *_RULE, _STAY, facts)


def _stale_counts(facts: Facts) -> DataFrame:
    """Finds dialect writes that were admitted although their client chose partitions by another count (KIP-253)."""
    believed = F.get_json_object("evidence", "$.undeleted_partition_count").cast("int")
    sent = F.coalesce(F.get_json_object("evidence", "$.sent_epoch").cast("int"), F.col("layout_epoch"))
    admits = facts.decisions.where((F.col("kind") == "admit") & (F.col("stream") < 0))
    asked = admits.withColumn("believed", believed).withColumn("sent", sent).where("believed is not null")
    counts = facts.segments.select(
        F.col("topic").alias("c_topic"), F.col("layout_epoch").alias("c_epoch"), "undeleted_partition_count"
    ).distinct()
    in_force = (F.col("topic") == F.col("c_topic")) & (F.col("c_epoch") <= F.col("sent"))
    key = ("worker", "number")
    columns = ("topic", "partition", "stream", "connection", "believed", "sent", "first_offset", "last_offset")
    counted = (
        asked.join(counts, in_force)
        .groupBy(*key)
        .agg(
            F.max_by("undeleted_partition_count", "c_epoch").alias("count"),
            *(F.first(each).alias(each) for each in columns),
        )
    )
    text = sentence(
        "A dialect client that believed in {believed} partitions was admitted to {topic}-{partition} at"
        " {offset:first_offset:last_offset}, while {count} were in force: its keys may belong elsewhere. The worker did"
        " not refuse it with INVALID_PARTITION_METADATA; restart it, and report it."
    )
    told_of = counted.where("count <> believed").withColumns(
        {
            "kind": F.lit("stale-count"),
            "verdict": F.lit(FAIL),
            "text": text,
            "layout_epoch": F.col("sent"),
            "decisions": F.array(decision()),
        }
    )
    return findings(told_of, *_RULE, key, facts)


def _checked(judged: DataFrame, acked: DataFrame, facts: Facts) -> DataFrame:
    lived, here, _ = _lived(facts)
    strays = judged.where(F.col("kind") == STRAY).join(lived, here, "left_semi")
    right = stacked(judged.where(~F.col("kind").isin(BYPASS, STRAY)), strays)
    verdict = F.when(F.col("kind") == UNKNOWN_TOPIC, UNKNOWN).otherwise(PASS)
    columns = ("topic", "partition", "stream", F.col("base_offset").alias("first_offset"), "last_offset")
    waited = acked.where(F.col("verdict") == LATE).select(*columns, "verdict")
    return checked(stacked(right.select(*columns, verdict.alias("verdict")), waited))


RULE: Final = Rule(
    number=_RULE[0],
    name=_RULE[1],
    proves="Every batch stands where the layout of its time puts it, or it was never acknowledged.",
    is_of_one_life=True,
    state=ROW,
    check=check,
)
