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
- writers around Kordon, and identities that were misplaced, that wrote within `late_ms`: one row each per partition.
  Who comes back later is found again.

What comes late: a batch whose layout is not told within `late_ms` is judged by those that are; an acknowledgement under
such a layout is unknown, and counted as late. Retention and DeleteRecords take batches, but no acknowledgements: these
are held against the cuts in any case.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from kordon.codecs.decision import Kind
from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.rule import FAIL, LATE, PASS, UNKNOWN, Rule, RuleOutcome, State
from kordon.spark_jobs.judging.rules.belonging import BYPASS, MOVES, STRAY, UNKNOWN_TOPIC
from kordon.spark_jobs.judging.schema import CHECKED, columns
from kordon.spark_jobs.judging.tables import FOR_EVER, checked, decision, evidence, findings, named, stacked

_RULE: Final = 1, "COUNT-FENCE"
_STAY: Final = ("topic", "partition", "stream", "move")
_WRITER: Final = (*_STAY, "producer_id")
_WRITERS: Final = columns(
    topic=pl.String,
    partition=pl.Int32,
    stream=pl.Int32,
    move=pl.Int32,
    producer_id=pl.Int64,
    base_offset=pl.Int64,
    last_offset=pl.Int64,
    records=pl.Int64,
    is_known=pl.Boolean,
    seen_ms=pl.Int64,
)
"""What a writer has written where it should not. `is_known`: whether a layout tells where its stream lived then."""
_ACKED: Final = columns(
    topic=pl.String,
    partition=pl.Int32,
    stream=pl.Int32,
    move=pl.Int32,
    base_offset=pl.Int64,
    last_offset=pl.Int64,
    layout_epoch=pl.Int32,
    decision=pl.String,
    seen_ms=pl.Int64,
)
"""The last acknowledgement of a stay."""
_WAIT: Final = "wait"
_NOWHERE: Final = "nowhere"
_BEHIND: Final = "stray"
_BYPASS_TEXT: Final = (
    " wrote {record:records} to {topic}-{partition} round Kordon, at {offset:first_offset:last_offset}: no order holds"
    " for them. Have it connect to Kordon, and allow nobody else to write at the brokers."
)
_MISPLACED_TEXT: Final = (
    "Of stream {stream}, move {move}, {record:records} stand on {topic}-{partition} at"
    " {offset:first_offset:last_offset}, where that stream never lived under any layout: a proxy placed them by"
    " another layout. Readers do not see them; find the worker that wrote them by producer {producer_id}."
)
_STRAY_TEXT: Final = (
    "A write of stream {stream} to {topic}-{partition} was acknowledged at offset {last_offset}, behind the cut"
    " {end} at which move {move} ended there: it is hidden from readers, and lost. A worker did not keep the fence;"
    " see the decision and what its lease did then."
)
_NOWHERE_TEXT: Final = (
    "A write of stream {stream}, move {move}, was acknowledged on {topic}-{partition} at offset {last_offset},"
    " where that stream never lived: a proxy placed it by another layout. Restart that worker, and report it."
)
_COUNT_TEXT: Final = (
    "A dialect client that believed in {believed} partitions was admitted to {topic}-{partition} at"
    " {offset:first_offset:last_offset}, while {count} were in force: its keys may belong elsewhere. The worker did"
    " not refuse it with INVALID_PARTITION_METADATA; restart it, and report it."
)


def check(facts: Facts, state: State) -> RuleOutcome:
    """Judges new batches by where they stand, and new acknowledgements by the cuts."""
    hidden = _hidden(facts)
    bypassed = _grown(facts.placed.filter(pl.col("kind") == BYPASS), state["bypass"])
    misplaced = _grown(hidden.filter(~pl.col("has_lived")), state["misplaced"])
    acked = _held_against_stays(facts, state["acked"])
    broken = (_bypass(bypassed, facts), _misplaced(misplaced, facts), _acked(acked, facts), _stale_counts(facts))
    return RuleOutcome(
        findings=pl.concat(broken),
        state={
            "bypass": bypassed.filter(~facts.is_late()).select(_WRITERS.names()),
            "misplaced": misplaced.filter(~facts.is_late()).select(_WRITERS.names()),
            "acked": acked.filter(pl.col("verdict") == _WAIT).select(_ACKED.names()),
        },
        checked=_checked(facts, hidden, acked),
    )


def _grown(new: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """Adds up what writers have written, before and now; `is_new` where there is more of it."""
    both = pl.concat(
        [stacked(_WRITERS, each).with_columns(is_new=is_new) for each, is_new in ((known, False), (new, True))]
    )
    return both.group_by(_WRITER, maintain_order=True).agg(
        pl.min("base_offset"), pl.max("last_offset"), pl.sum("records"), pl.min("is_known"), pl.max("seen_ms", "is_new")
    )


def _bypass(bypassed: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    who = pl.when(pl.col("producer_id") < 0).then(pl.lit("A producer without an id"))
    told_of = bypassed.filter("is_new").with_columns(
        pl.lit("bypass").alias("kind"),
        pl.lit(FAIL).alias("verdict"),
        (who.otherwise(pl.lit("Producer {producer_id}")) + _BYPASS_TEXT).alias("text"),
        pl.col("base_offset").alias("first_offset"),
    )
    return findings(told_of, *_RULE, ("topic", "partition", "producer_id", "base_offset"), facts)


def _hidden(facts: Facts) -> pl.DataFrame:
    """Returns batches that are hidden from readers as they do not stand where their stream lived then.

    Adds `has_lived`, whether the stream has lived here under that move at any time, and `is_known`, whether a layout
    tells where the stream lived under that move. Streams of physical partitions are taken as one.
    """
    tagged = facts.stays.filter("tagged").with_columns((pl.col("move") % MOVES).alias("_move"))
    here = tagged.select("topic", "partition", "stream", "_move").unique().with_columns(has_lived=True)
    virtual = pl.when(pl.col("stream") >= 0).then("stream").alias("_virtual")
    somewhere = tagged.select("topic", "_move", virtual).unique().with_columns(is_known=True)
    strays = facts.placed.filter(pl.col("kind") == STRAY).with_columns(virtual, pl.col("move").alias("_move"))
    return (
        strays.join(here, on=["topic", "partition", "stream", "_move"], how="left")
        .join(somewhere, on=["topic", "_move", "_virtual"], how="left", nulls_equal=True)
        .with_columns(pl.col("has_lived", "is_known").fill_null(value=False))
    )


def _misplaced(misplaced: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    told_of = misplaced.filter("is_new").with_columns(
        pl.lit("stale-count").alias("kind"),
        pl.when("is_known").then(pl.lit(FAIL)).otherwise(pl.lit(UNKNOWN)).alias("verdict"),
        pl.lit(_MISPLACED_TEXT).alias("text"),
        pl.col("base_offset").alias("first_offset"),
    )
    return findings(told_of, *_RULE, (*_WRITER, "base_offset"), facts)


def _held_against_stays(facts: Facts, known: pl.DataFrame) -> pl.DataFrame:
    """Returns the last acknowledgement of each stay with a verdict: pass, wait (it is open), stray or nowhere."""
    last = stacked(_ACKED, known, _last_acked(facts)).sort("last_offset").group_by(_STAY, maintain_order=True).last()
    ends = (
        facts.stays.filter("tagged")
        .group_by(_STAY)
        .agg(pl.col("end").fill_null(FOR_EVER).max().alias("end"), pl.max("shortened"))
    )
    epochs = facts.segments.group_by("topic").agg(pl.max("layout_epoch").alias("_newest"))
    joined = last.join(ends, on=_STAY, how="left").join(epochs, on="topic", how="left")
    is_known = (pl.col("_newest") >= pl.col("layout_epoch")).fill_null(value=False)
    waits = pl.when(facts.is_late()).then(pl.lit(LATE)).otherwise(pl.lit(_WAIT))
    verdict = (
        pl.when(pl.col("end").is_null() & is_known)
        .then(pl.lit(_NOWHERE))
        .when(pl.col("end").is_null())
        .then(waits)
        .when(pl.col("end") == FOR_EVER)
        .then(pl.lit(_WAIT))
        .when((pl.col("last_offset") < pl.col("end")) | pl.col("shortened"))
        .then(pl.lit(PASS))
        .otherwise(pl.lit(_BEHIND))
    )
    return joined.with_columns(verdict.alias("verdict"))


def _last_acked(facts: Facts) -> pl.DataFrame:
    """Returns the last of the new acknowledgements of each stay."""
    told = facts.decisions.select("kind", *_STAY, "first_offset", "last_offset", "layout_epoch", "worker", "number")
    new = told.filter(
        pl.col("kind") == Kind.ADMIT.value, pl.col("move").is_not_null(), pl.col("last_offset").is_not_null()
    )
    last = new.group_by(_STAY, maintain_order=True).agg(pl.all().get(pl.col("last_offset").arg_max()))
    seen_ms = pl.lit(facts.newest_ms).alias("seen_ms")
    return last.with_columns(pl.col("first_offset").alias("base_offset"), decision().alias("decision"), seen_ms)


def _acked(acked: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    is_stray = pl.col("verdict") == _BEHIND
    told_of = acked.filter(pl.col("verdict").is_in([_BEHIND, _NOWHERE])).with_columns(
        pl.when(is_stray).then(pl.lit("acknowledged-stray")).otherwise(pl.lit("stale-count")).alias("kind"),
        pl.when(is_stray).then(pl.lit(_STRAY_TEXT)).otherwise(pl.lit(_NOWHERE_TEXT)).alias("text"),
        pl.max_horizontal("base_offset", "end").alias("first_offset"),
        named(pl.col("decision")).alias("decisions"),
        pl.lit(FAIL).alias("verdict"),
    )
    return findings(told_of, *_RULE, _STAY, facts)


def _stale_counts(facts: Facts) -> pl.DataFrame:
    """Finds dialect writes that were admitted although their client chose partitions by another count (KIP-253)."""
    admits = facts.decisions.filter(pl.col("kind") == Kind.ADMIT.value, pl.col("stream") < 0)
    asked = admits.with_columns(
        evidence("$.undeleted_partition_count").cast(pl.Int64, strict=False).alias("believed"),
        evidence("$.sent_epoch").cast(pl.Int32, strict=False).fill_null(pl.col("layout_epoch")).alias("sent"),
    ).filter(pl.col("believed").is_not_null() & pl.col("sent").is_not_null())
    counts = (
        facts.segments.select("topic", pl.col("layout_epoch").alias("_epoch"), "undeleted_partition_count")
        .unique()
        .sort("_epoch")
        .rename({"undeleted_partition_count": "count"})
    )
    counted = asked.sort("sent").join_asof(
        counts, left_on="sent", right_on="_epoch", by="topic", check_sortedness=False
    )
    told_of = counted.filter(pl.col("count") != pl.col("believed")).with_columns(
        pl.lit("stale-count").alias("kind"),
        pl.lit(FAIL).alias("verdict"),
        pl.lit(_COUNT_TEXT).alias("text"),
        pl.col("sent").alias("layout_epoch"),
        named(decision()).alias("decisions"),
        pl.lit(None, dtype=pl.String).alias("group_id"),
    )
    return findings(told_of, *_RULE, ("worker", "number"), facts)


def _checked(facts: Facts, hidden: pl.DataFrame, acked: pl.DataFrame) -> pl.DataFrame:
    right = facts.placed.filter(~pl.col("kind").is_in([BYPASS, STRAY]))
    verdict = pl.when(pl.col("kind") == UNKNOWN_TOPIC).then(pl.lit(UNKNOWN)).otherwise(pl.lit(PASS)).alias("verdict")
    passed = pl.concat([right, hidden.filter("has_lived").select(right.columns)]).with_columns(verdict)
    waited = acked.filter(pl.col("verdict") == LATE)
    looked = (each.with_columns(pl.col("base_offset").alias("first_offset")) for each in (passed, waited))
    return checked(stacked(CHECKED, *looked))


RULE: Final = Rule(
    number=_RULE[0],
    name=_RULE[1],
    proves="Every batch stands where the layout of its time puts it, or it was never acknowledged.",
    is_of_one_life=True,
    state={"bypass": _WRITERS, "misplaced": _WRITERS, "acked": _ACKED},
    check=check,
)
