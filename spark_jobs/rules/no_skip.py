"""NO-SKIP: what a reader was given, from where it began, is all that there was.

A DELIVER decision says that a connection was given all that a stream has in offsets [first, last] of one stay.

- Ranges of one connection and stream follow on each other: behind one comes the next offset, or the beginning of the
  next stay that is not empty. A REWIND begins anew: the client asked for it. Where something was passed over, the topic
  tells whether it mattered: if the stream has records there it is a skipped-range.
- The records that were handed over are as many as the stream has in that range: fewer, or more, is a wrong-count.
  Counted are batches of the stream; not strays, markers and control batches, which nobody gets. Batches of dialect
  clients and those that went round Kordon are given to readers of virtual partitions record by record, by key: how
  many of theirs are a stream's cannot be told, so a count is unknown where it would be right with some of them. A
  batch that lies across the end of a range may count or not.

Where retention, DeleteRecords or compaction may have taken records before they were counted here, or before the reader
got there (the decision names such holes), it is unknown; so is what lies between two decisions of a worker that has
dropped some in between.

State, all of it bounded:

- per connection and stream, where it stands, until the connection closes, or for a day without news of it;
- what was delivered and not read here yet, at most `late_ms`, then unknown;
- what each stream has: batch by batch for a minute of decisions' time, then one row per stream and 65,536 offsets,
  until retention has taken them. Who reads what is older than a minute is judged by these: a count that is impossible
  is found, one that lies between what is wholly and what is partly within its range is unknown.

What comes late: a delivery whose records have not been read from the topic within `late_ms` is unknown, and counted as
late. Decisions of a worker come in the order of their numbers.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so

from kordon.spark_jobs.frames import stacked, worked_out
from kordon.spark_jobs.rules.belonging import (
    BEFORE,
    BYPASS,
    OPENED,
    OWN,
    is_late,
)
from kordon.spark_jobs.rules.gaps import with_gaps
from kordon.spark_jobs.rules.ranges import FOR_EVER, ROW, read_so_far, rows, sentence, table
from kordon.spark_jobs.rules.rule import FAIL, LATE, PASS, UNKNOWN, Facts, Rule, RuleOutcome
from kordon.spark_jobs.rules.tables import QUIET_MS, checked, decision, findings

_RULE: Final = 5, "NO-SKIP"
_READER: Final = ("worker", "connection", "topic", "stream")
_EXACT_MS: Final = 60_000
_COARSE: Final = 65_536
_BIN: Final = 4_096
_EVERY: Final = -1
_NOBODY: Final = -2
"""In place of a stream: ranges of a client of the dialect meet all, and all meet what has no stream."""
_ONE: Final = 1
"""Batch; a row of more is several that were joined."""
_DELIVERED: Final = 1
_PASSED_OVER: Final = 0
"""What a range is: its count is held against the topic, or it should hold nothing."""


def check(facts: Facts, state: DataFrame) -> RuleOutcome:
    """Judges new deliveries, as far as the topics have been read."""
    read = read_so_far(table(state, "read"), facts)
    has = worked_out(stacked(table(state, "has"), _has(facts.placed)))
    steps = worked_out(_steps(facts, table(state, "reader")))
    ranges = stacked(table(state, "range"), _delivered(steps), _passed_over(steps, facts))
    verdicts = worked_out(_verdicts(ranges, has, read, facts))
    kept = stacked(
        read,
        _coarse(has, facts),
        _readers(steps, facts),
        rows(verdicts.where("verdict = 'wait'"), "range"),
    )
    return RuleOutcome(findings=_broken(verdicts, facts), state=kept, checked=_checked(verdicts))


def _has(judged: DataFrame) -> DataFrame:
    """Returns what streams have; a batch that virtual partitions get record by record has no stream."""
    is_hidden = F.coalesce("is_control", F.lit(False)) & (F.col("kind") != BEFORE)
    return rows(
        judged.where(F.col("kind").isin(OWN, OPENED, BEFORE, BYPASS) & ~is_hidden),
        "has",
        stream=F.when(F.col("kind").isin(OWN, BEFORE), F.col("given_as")),
        is_control=F.coalesce("is_control", F.lit(False)),
        batches=F.lit(_ONE),
    )


def _coarse(has: DataFrame, facts: Facts) -> DataFrame:
    """Leaves out what retention has taken, and joins what is older than a minute."""
    starts = facts.read_to.select("topic", "partition", "log_start")
    joined = has.join(starts, ["topic", "partition"], "left")
    there = joined.where(F.col("log_start").isNull() | (F.col("last_offset") >= F.col("log_start")))
    is_old = F.lit(facts.newest_ms) - F.col("seen_ms") >= _EXACT_MS
    bucket = F.when(is_old, F.floor(F.col("base_offset") / _COARSE)).otherwise(-1 - F.col("base_offset"))
    summed = there.groupBy("topic", "partition", "stream", "is_control", bucket.alias("bucket")).agg(
        F.min("base_offset").alias("base_offset"),
        F.max("last_offset").alias("last_offset"),
        F.sum("records").alias("records"),
        F.sum("batches").alias("batches"),
        F.max("seen_ms").alias("seen_ms"),
    )
    return rows(summed, "has")


def _steps(facts: Facts, readers: DataFrame) -> DataFrame:
    """Returns new deliveries and rewinds in the order of each reader, each with where the reader stood before."""
    # the reader's numbers stand where batches have producer ids: a row of state has no other place for them
    told_of = "connection is not null and stream is not null and partition is not null"
    new = facts.decisions.where(f"kind in ('deliver', 'rewind') and {told_of}").dropDuplicates(["worker", "number"])
    began = F.when(F.col("kind") == "deliver", F.col("first_offset"))
    is_whole = F.get_json_object("evidence", "$.holes").isNull()
    named = rows(
        new.withColumn("decision", decision()),
        "step",
        base_offset=began,
        records=F.when(is_whole, F.col("records")),
        producer_id=F.col("number"),
        seen_ms=F.lit(facts.newest_ms),
    )
    order = Window.partitionBy(*_READER).orderBy("producer_id")
    return stacked(named, readers).withColumns(
        {
            "stood": F.when(F.lag("base_offset").over(order).isNotNull(), F.lag("last_offset").over(order)),
            "stood_move": F.lag("move").over(order),
            "stood_number": F.lag("producer_id").over(order),
            "is_newest": F.lead("producer_id").over(order).isNull(),
        }
    )


def _readers(steps: DataFrame, facts: Facts) -> DataFrame:
    """Returns where readers stand whose connections are open, as far as is known."""
    closed = facts.decisions.where("kind = 'close'").select("worker", "connection").distinct()
    is_quiet = F.lit(facts.newest_ms) - F.col("seen_ms") >= QUIET_MS
    return rows(
        steps.where(F.col("is_newest") & ~is_quiet).join(closed, ["worker", "connection"], "left_anti"), "reader"
    )


def _delivered(steps: DataFrame) -> DataFrame:
    new = steps.where("what = 'step' and base_offset is not null and base_offset <= last_offset")
    return rows(new, "range", v=F.lit(_DELIVERED))


def _passed_over(steps: DataFrame, facts: Facts) -> DataFrame:
    """Returns the ranges between where readers stood and where they were given something next."""
    homes = (
        facts.stays.groupBy("topic", "stream", "partition", "move")
        .agg(
            F.max("floor").alias("floor"),
            F.min("start").alias("start"),
            F.max(F.coalesce("kept_end", F.lit(FOR_EVER))).alias("end"),
        )
        .alias("h")
    )
    new = steps.where("what = 'step' and base_offset is not null and stood is not null")
    s = with_gaps(new, facts.gaps, after="stood_number", until="producer_id").alias("s")
    between = F.col("h.move").between(F.col("s.stood_move"), F.col("s.move"))
    joined = s.join(homes, (F.col("s.topic") == F.col("h.topic")) & (F.col("s.stream") == F.col("h.stream")) & between)
    begin = F.when(F.col("h.move") == F.col("s.stood_move"), F.col("s.stood") + 1).otherwise(F.col("h.start"))
    last = F.when(F.col("h.move") == F.col("s.move"), F.col("s.base_offset")).otherwise(F.col("h.end")) - 1
    same = ("what", "topic", "stream", "worker", "connection", "group_id", "layout_epoch", "decision", "seen_ms")
    ranges = joined.select(
        *(f"s.{name}" for name in same),
        "h.partition",
        "h.move",
        F.greatest(begin, "h.floor").alias("base_offset"),
        last.alias("last_offset"),
        F.when(~F.col("s.across_gap"), 0).alias("records"),
    )
    is_over = F.col("base_offset") <= F.col("last_offset")
    is_ended = F.col("last_offset") < FOR_EVER - 1  # or a layout is not known yet, or never was
    return rows(ranges.where(is_over & is_ended), "range", v=F.lit(_PASSED_OVER))


def _verdicts(ranges: DataFrame, has: DataFrame, read: DataFrame, facts: Facts) -> DataFrame:
    """Holds ranges against what streams have in them."""
    starts = facts.read_to.select("topic", "partition", "log_start")
    compacted = facts.stays.groupBy("topic").agg(F.max("compacted").alias("compacted"))
    far = read.selectExpr("topic", "partition", "base_offset as hole_to", "last_offset as read_to")
    known = ranges.join(far, ["topic", "partition"], "left").join(starts, ["topic", "partition"], "left")
    meets = F.when(F.col("stream") < 0, F.array(F.lit(_EVERY))).otherwise(F.array("stream", F.lit(_NOBODY)))
    r = _binned(known.join(compacted, ["topic"], "left"), meets).alias("r")
    b = _binned(has, F.array(F.coalesce("stream", F.lit(_NOBODY)), F.lit(_EVERY))).alias("b")
    meet = F.greatest("r.base_offset", "b.base_offset")  # in one bin only, however many both are in
    there = (
        (F.col("r.bin") == F.col("b.bin"))
        & (F.col("r.meets") == F.col("b.meets"))
        & (F.floor(meet / _BIN) == F.col("r.bin"))
        & (F.col("r.topic") == F.col("b.topic"))
        & (F.col("r.partition") == F.col("b.partition"))
        & (F.col("b.base_offset") <= F.col("r.last_offset"))
        & (F.col("b.last_offset") >= F.col("r.base_offset"))
    )
    inside = (F.col("b.base_offset") >= F.col("r.base_offset")) & (F.col("b.last_offset") <= F.col("r.last_offset"))
    is_opened = F.col("b.topic").isNotNull() & F.col("b.stream").isNull() & (F.col("r.stream") >= 0)
    key = ("r.decision", "r.v", "r.partition", "r.move")
    columns = [name for name in known.columns if name not in {"decision", "v", "partition", "move"}]
    counted = r.join(b, there, "left").groupBy(*key)
    summed = counted.agg(
        *(F.first(f"r.{name}").alias(name) for name in (*columns, "compacted")),
        F.sum(F.when(inside & ~F.col("b.is_control") & ~is_opened, F.col("b.records")).otherwise(0)).alias("least"),
        F.sum(F.coalesce("b.records", F.lit(0))).alias("most"),
        F.max(F.coalesce(is_opened, F.lit(False))).alias("is_opened"),
        F.max(F.coalesce(~inside & (F.col("b.batches") > 1), F.lit(False))).alias("is_vague"),
    )
    return summed.withColumn("verdict", _verdict(facts))


def _binned(ranges: DataFrame, meets: Column) -> DataFrame:
    """Gives ranges numbers by which those that may meet are found without trying all: a row for each."""
    bins = F.sequence(F.floor(F.col("base_offset") / _BIN), F.floor(F.col("last_offset") / _BIN))
    return ranges.withColumn("bin", F.explode(bins)).withColumn("meets", F.explode(meets))


def _verdict(facts: Facts) -> Column:
    is_read = F.coalesce(F.col("read_to") >= F.col("last_offset"), F.lit(False))
    is_gone = F.col("base_offset") < F.greatest("hole_to", "log_start")
    is_counted = F.col("v") == _DELIVERED
    is_untold = F.col("records").isNull() & (is_counted | (F.col("most") > 0))
    return (
        F.when(~is_read, F.when(is_late(facts), LATE).otherwise("wait"))
        .when(is_gone | is_untold | (is_counted & F.col("compacted")), UNKNOWN)
        .when(F.col("records") < F.col("least"), "skipped-range")
        .when(F.col("records") > F.col("most"), "doubled-range")
        .when((F.col("is_vague") | F.col("is_opened")) & (F.col("least") != F.col("most")), UNKNOWN)
        .otherwise(PASS)
    )


def _broken(verdicts: DataFrame, facts: Facts) -> DataFrame:
    who = "Connection {connection} was given "
    where = " of stream {stream} at {topic}-{partition} {offset:base_offset:last_offset}"
    passed_over = sentence(
        "Connection {connection} was led past" + where + " without a rewind, and {record:least} of it are there: it did"
        " not get them. Restart the consumer from its last commit, and report what the worker logged then."
    )
    fewer = sentence(
        who + "{record:records}" + where + ", and there are {least}: it did not get all. Restart the consumer from its"
        " last commit, and report what the worker logged then."
    )
    more = sentence(
        who + "{record:records}" + where + ", and there are no more than {most}: it got some twice, or others'. Report"
        " what the worker logged then."
    )
    is_passed = F.col("v") == _PASSED_OVER
    shown = verdicts.where(F.col("verdict").isin("skipped-range", "doubled-range")).withColumns(
        {
            "kind": F.col("verdict"),
            "text": F.when(is_passed, passed_over).when(F.col("verdict") == "skipped-range", fewer).otherwise(more),
            "first_offset": F.col("base_offset"),
            "decisions": F.array("decision"),
        }
    )
    return findings(shown.withColumn("verdict", F.lit(FAIL)), *_RULE, ("decision", "v", "partition", "move"), facts)


def _checked(verdicts: DataFrame) -> DataFrame:
    return checked(verdicts.withColumn("first_offset", F.col("base_offset")))


RULE: Final = Rule(
    number=_RULE[0],
    name=_RULE[1],
    proves="A reader was given all that its streams have, from where it began.",
    is_of_one_life=True,
    state=ROW,
    check=check,
)
