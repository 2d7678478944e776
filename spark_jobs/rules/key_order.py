"""KEY-ORDER (4): what a connection is given of a stream goes on, but for rewinds that are on record.

A stream is given in the order of its stays, and within a stay by offset; so each DELIVER begins behind the one before,
or where the reader has asked to go on. A reader is a connection and a stream, where ~q stands for a physical partition
as clients of the dialect see it, whose stays are its segments. That one stay is not begun before the last is done is
PARENT-FIRST; that nothing is left out is NO-SKIP.

Readers are compared with themselves alone, also where the group is known. A partition that passes from one member to
the next is read on from the group's commit, which no decision names. The numbers of a worker are those of runs when
they ended, so they do not say which of two connections was given something first; between workers there is nothing
but the record of the layouts topic that both rest on. And what a killed worker gave last is not on record, so that a
hole between two members proves nothing.

State: a row per reader, with where it stands. Bounded by the connections that are open: it goes with its CLOSE, and
after `QUIET_MS` of silence, as workers that were killed close nothing. A reader that comes back later begins anew.

What comes late: nothing does, as decisions of a worker come in the order of their numbers.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from kordon.codecs.decision import Kind
from kordon.spark_jobs.frames import stacked
from kordon.spark_jobs.rules.gaps import with_gaps
from kordon.spark_jobs.rules.rule import FAIL, PASS, UNKNOWN, Facts, Rule, RuleOutcome
from kordon.spark_jobs.rules.tables import QUIET_MS, checked, decision, findings, union

STATE: Final = StructType(
    [
        StructField("worker", StringType()),
        StructField("connection", LongType()),
        StructField("topic", StringType()),
        StructField("stream", IntegerType()),
        StructField("number", LongType()),
        StructField("move", IntegerType()),
        StructField("next_offset", LongType()),
        StructField("at_ms", LongType()),
    ]
)
"""Where a reader stands behind its newest decision."""
_READER: Final = ("worker", "connection", "topic", "stream")


def _check(facts: Facts, state: DataFrame) -> RuleOutcome:
    steps = _steps(facts, state)
    given = steps.where((F.col("kind") == Kind.DELIVER.value) & F.col("_before").isNotNull())
    began = steps.where((F.col("kind") == Kind.DELIVER.value) & F.col("_before").isNull())
    judged = with_gaps(given, facts.gaps, after="_before_number", until="number")
    went_back = F.struct("move", F.col("first_offset").alias("next_offset")) < F.col("_before")
    judged = judged.withColumn(
        "verdict",
        F.when(went_back & ~F.col("across_gap"), FAIL).when(F.col("across_gap"), UNKNOWN).otherwise(PASS),
    ).withColumn("_went_back", went_back)
    passed = union([judged, began.withColumn("verdict", F.lit(PASS))], _LOOKED_AT)
    return RuleOutcome(
        findings=_findings(judged.where("_went_back"), facts),
        state=_next_state(facts, steps),
        checked=checked(passed),
    )


_LOOKED_AT: Final = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("stream", IntegerType()),
        StructField("first_offset", LongType()),
        StructField("last_offset", LongType()),
        StructField("verdict", StringType()),
    ]
)


def _steps(facts: Facts, state: DataFrame) -> DataFrame:
    """Returns what readers were given or asked for, and their states, each with where the reader stood before it."""
    is_step = F.col("kind").isin(Kind.DELIVER.value, Kind.REWIND.value)
    is_reader = F.col("stream").isNotNull() & F.col("connection").isNotNull() & F.col("topic").isNotNull()
    new = facts.decisions.where(is_step & is_reader).select(
        *_READER,
        "number",
        F.coalesce("move", F.lit(0)).alias("move"),
        F.when(F.col("kind") == Kind.DELIVER.value, F.col("last_offset") + 1)
        .otherwise(F.col("first_offset"))
        .alias("next_offset"),
        "at_ms",
        "kind",
        "partition",
        "group_id",
        "layout_epoch",
        "first_offset",
        "last_offset",
    )
    in_order = Window.partitionBy(*_READER).orderBy("number")
    return (
        stacked(state, new)
        .withColumn("_before", F.lag(F.struct("move", "next_offset")).over(in_order))
        .withColumn("_before_number", F.lag("number").over(in_order))
    )


def _findings(rows: DataFrame, facts: Facts) -> DataFrame:
    text = F.format_string(
        "A reader that stood at offset %d of move %d was given offset %d of move %d without a logged rewind%s. "
        "Look at what its worker logged at that time; the records were given out of order, or twice.",
        "_before.next_offset",
        "_before.move",
        "first_offset",
        "move",
        F.when(F.col("across_gap"), ", but decisions are missing in between").otherwise(""),
    )
    before = decision("worker", "_before_number")
    told = rows.withColumns(
        {"kind": F.lit("went-back"), "text": text, "decisions": F.array(before, decision("worker", "number"))}
    )
    return findings(told, RULE.number, RULE.name, ("worker", "number"), facts)


def _next_state(facts: Facts, steps: DataFrame) -> DataFrame:
    latest = Window.partitionBy(*_READER).orderBy(F.desc("number"))
    closed = facts.decisions.where(F.col("kind") == Kind.CLOSE.value).select("worker", "connection").distinct()
    newest = steps.withColumn("_place", F.row_number().over(latest)).where("_place = 1")
    heard_of = newest.where(F.col("at_ms") > F.lit(facts.newest_ms - QUIET_MS))
    return heard_of.join(closed, ["worker", "connection"], "left_anti").to(STATE)


RULE: Final = Rule(
    number=4,
    name="KEY-ORDER",
    proves="What a connection was given of a stream followed the order of its stays and offsets, "
    "but where the reader had asked to go back.",
    is_of_one_life=True,
    state=STATE,
    check=_check,
)
