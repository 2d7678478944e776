"""What PARENT-FIRST knows of readers: where each stands, what it has shown of its group, and what it begins.

The rule's state is of one shape, with its other tables: `parent_data.py` has what is known of the topics.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so
from pyspark.sql.types import BooleanType, IntegerType, LongType, MapType, StringType, StructField, StructType

from kordon.codecs.decision import Kind
from kordon.spark_jobs.frames import stacked
from kordon.spark_jobs.rules.gaps import with_gaps
from kordon.spark_jobs.rules.rule import Facts

READERS_MS: Final = 7 * 24 * 60 * 60 * 1000
_READER: Final = ("worker", "connection", "topic", "stream")
STATE: Final = StructType(
    [
        StructField("what", StringType()),
        StructField("worker", StringType()),
        StructField("connection", LongType()),
        StructField("topic", StringType()),
        StructField("stream", IntegerType()),
        StructField("group_id", StringType()),
        StructField("number", LongType()),
        StructField("before_number", LongType()),
        StructField("partition", IntegerType()),
        StructField("v", IntegerType()),
        StructField("from_move", IntegerType()),
        StructField("position", LongType()),
        StructField("move", IntegerType()),
        StructField("first_offset", LongType()),
        StructField("last_offset", LongType()),
        StructField("positions", MapType(IntegerType(), LongType())),
        StructField("is_rewind", BooleanType()),
        StructField("across_gap", BooleanType()),
        StructField("at_ms", LongType()),
    ]
)
"""`what`: *reader* (where one stands: `move`, `position`; `positions` of its last RELEASE), *step* (to be judged),
*tail* (the last batch of `v` and `move`), *run* (batches without a hole), *forgotten* (the newest run that is not kept
any more), *read* (from where and up to where)."""


def events_of(facts: Facts, state: DataFrame) -> DataFrame:
    """Returns what readers were given, asked for or waited for, each with where the reader stood and what it had shown.

    A RELEASE has its number at once, a run of deliveries when it ends: the newest one since a rewind counts.
    """
    kinds = (Kind.DELIVER.value, Kind.REWIND.value, Kind.RELEASE.value)
    is_reader = F.col("stream").isNotNull() & F.col("connection").isNotNull() & F.col("topic").isNotNull()
    new = facts.decisions.where(F.col("kind").isin(*kinds) & is_reader).select(
        F.col("kind").alias("what"),
        *_READER,
        "group_id",
        "number",
        "partition",
        F.coalesce("move", F.lit(0)).alias("move"),
        "first_offset",
        "last_offset",
        _position().alias("position"),
        _shown().alias("shown"),
        (F.coalesce(F.get_json_object("evidence", "$.ordered_delivery"), F.lit("true")) == "false").alias("is_ungated"),
        "at_ms",
    )
    readers = state.where("what = 'reader'").withColumn("shown", F.col("positions"))
    columns = (each for each in new.columns if each != "is_ungated")
    every = stacked(new, readers.select(*columns, "is_rewind"))
    by_reader = Window.partitionBy(*_READER).orderBy("number")
    before = by_reader.rowsBetween(Window.unboundedPreceding, -1)
    stood = F.when(
        (F.col("what") != Kind.RELEASE.value) & F.col("move").isNotNull(),  # of a reader that only waited it is null
        F.struct(
            "what", "move", "position", "number", F.coalesce("is_rewind", F.col("what") == "rewind").alias("back")
        ),
    )
    rewound = F.max(F.when(F.col("what") == Kind.REWIND.value, F.col("number"))).over(before)
    released = F.last(F.when(F.col("what").isin("release", "reader"), F.struct("number", "shown")), ignorenulls=True)
    return (
        every.withColumn("_stood", F.last(stood, ignorenulls=True).over(before))
        .withColumn("_rewound", rewound)
        .withColumn("_released", released.over(before))
        .withColumn(
            "_shown_before",
            F.when(
                F.col("_rewound").isNull() | (F.col("_released.number") > F.col("_rewound")), F.col("_released.shown")
            ),
        )
        .withColumn("is_step", (F.col("what") == Kind.DELIVER.value) & _needs_a_look())
    )


def _position() -> Column:
    """The reader's position after it."""
    return F.when(F.col("kind") == Kind.DELIVER.value, F.col("last_offset") + 1).otherwise(F.col("first_offset"))


def _shown() -> Column:
    """What the group's positions were, or where logs began, as a decision's evidence says."""
    positions, starts = _offsets("$.positions"), _offsets("$.log_starts")
    return F.when(
        positions.isNotNull() | starts.isNotNull(),
        F.map_zip_with(_or_empty(positions), _or_empty(starts), lambda _, one, other: F.greatest(one, other)),
    )


def _offsets(path: str) -> Column:
    told = F.from_json(F.get_json_object("evidence", path), "map<string, bigint>")
    return F.transform_keys(told, lambda partition, _: partition.cast("int"))


def _or_empty(values: Column) -> Column:
    return F.coalesce(values, F.expr("cast(map() as map<int, bigint>)"))


def _needs_a_look() -> Column:
    """Whether a DELIVER begins something: another stay, or of a physical partition what is to be shown again."""
    stood = F.col("_stood")
    moves = F.coalesce(F.col("move") > stood["move"], F.lit(False))
    shows = stood.isNull() | stood["back"] | (F.col("move") != stood["move"]) | F.col("shown").isNotNull()
    return F.when(F.col("stream") >= 0, moves).otherwise(shows & ~F.col("is_ungated"))


def steps_of(facts: Facts, events: DataFrame) -> DataFrame:
    """Returns the deliveries that begin something, in the shape of the state."""
    begun = (
        events.where("is_step")
        .withColumn("before_number", F.col("_stood.number"))
        .withColumn("from_move", F.col("_stood.move"))
        .withColumn("position", F.col("_stood.position"))
        .withColumn("positions", F.coalesce("shown", "_shown_before"))
        .withColumn("what", F.lit("step"))
    )
    return with_gaps(begun, facts.gaps, after="before_number", until="number")


def readers_of(facts: Facts, events: DataFrame) -> DataFrame:
    """Returns where readers stand whose connections are open, as far as is known, in the shape of the state."""
    latest = Window.partitionBy(*_READER).orderBy(F.desc("number"))
    closed = facts.decisions.where(F.col("kind") == Kind.CLOSE.value).select("worker", "connection").distinct()
    is_release = F.col("what") == Kind.RELEASE.value
    whole = Window.partitionBy(*_READER)
    newest = (
        events.withColumn("_place", F.row_number().over(latest))
        .withColumn("_at", F.max("at_ms").over(whole))
        .where("_place = 1")
    )
    return (
        newest.withColumn(
            "positions",
            F.when(F.col("what").isin("release", "reader"), F.col("shown")).when(
                F.col("what") != Kind.REWIND.value, F.col("_shown_before")
            ),
        )
        .withColumn("is_rewind", F.when(is_release, F.col("_stood.back")).otherwise(_is_back()))
        .withColumn("move", F.when(is_release, F.col("_stood.move")).otherwise(F.col("move")))
        .withColumn("position", F.when(is_release, F.col("_stood.position")).otherwise(F.col("position")))
        .withColumn("what", F.lit("reader"))
        .where(F.col("_at") > F.lit(facts.newest_ms - READERS_MS))
        .join(closed, ["worker", "connection"], "left_anti")
    )


def _is_back() -> Column:
    return F.when(F.col("what") == "reader", F.col("is_rewind")).otherwise(F.col("what") == Kind.REWIND.value)
