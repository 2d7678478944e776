"""Whose a batch is, by the layouts alone; and from when on that is certain.

The log of decisions and the topics are read side by side, and either may be ahead. A batch at the end of a log may be
behind a cut of which no decision has been read yet. So it waits until it is certain under which layout it stands:

- below a cut that is known, all is certain;
- what was acknowledged or delivered at an offset stands before the next cut, and all that is below it does, too;
- what has waited for `late_ms` of decisions' time is judged by the layouts that are known then.

So what waits is what was written in the seconds by which the log of decisions is behind; at most in `late_ms`. All of
it is worked out once per micro-batch, before the rules that ask for it.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so
from pyspark.sql.types import BooleanType, IntegerType, LongType, StringType, StructField, StructType

from kordon.spark_jobs.frames import stacked, worked_out
from kordon.spark_jobs.rules.ranges import FOR_EVER, ROW, rows, table
from kordon.spark_jobs.rules.rule import Facts

NO_V: Final = (1 << 15) - 2
"""In place of a virtual partition: a client of the dialect wrote it to the physical partition as such."""
JANITOR: Final = NO_V - 1
"""The same of a janitor's marker."""
MOVES: Final = 256
"""Moves in identities are counted modulo this."""

OWN: Final = "own"
"""Of a virtual partition that lives there."""
OPENED: Final = "opened"
"""Of a dialect client; readers of virtual partitions get its records one by one."""
BEFORE: Final = "before"
"""From before the topic was taken over: untagged is right, and all of it is its virtual partition's."""
BYPASS: Final = "bypass"
"""Untagged where batches are tagged."""
MARKER: Final = "marker"
"""Of the janitor; hidden from readers."""
CONTROL: Final = "control"
"""A control batch: nothing to deliver."""
STRAY: Final = "stray"
"""Tagged, and its stream does not live there."""
UNKNOWN_TOPIC: Final = "unmanaged"
"""No layout of its topic is known."""

PLACED: Final = StructType(
    [
        *ROW.fields,
        StructField("kind", StringType()),
        StructField("home_move", IntegerType()),
        StructField("home_start", LongType()),
        StructField("compacted", BooleanType()),
        StructField("given_as", IntegerType()),
    ]
)
"""Batches, and what they are; `stream` and `home_…` of those that are somebody's. `given_as`: the stream whose readers
get it, which is another one while a takeover shares old partitions (TAKEOVER-SHARES)."""


def placed(facts: Facts, state: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Works out whose new batches are, once for all rules that ask.

    Args:
        state: What this returned before; none at first.

    Returns:
        Batches of which it has become certain, as `Facts.placed` has them, and the state: those that wait still, and
        up to where layouts are certain. It is bounded by what is written while the log of decisions is behind.
    """
    certain = _certain_to(table(state, "certain"), facts)
    new = rows(facts.batches, "batch", batches=F.lit(1), seen_ms=F.lit(facts.newest_ms))
    done, waiting = _settled(_owned(stacked(table(state, "batch"), new), facts.stays), certain, facts)
    return done, stacked(certain, waiting)


def _owned(batches: DataFrame, stays: DataFrame) -> DataFrame:
    """Adds to batches what they are: `kind`, and the `stream` and `home_move` of those that are somebody's.

    Returns:
        The same rows, with `kind`, `stream`, `home_move`, `home_start`, `compacted` and `given_as`.
    """
    named = F.when(F.col("v") == NO_V, F.bitwise_not("partition")).when(F.col("v") < JANITOR, F.col("v"))
    asked = batches.drop("stream").withColumn("named", named)
    b, own, before = asked.alias("b"), _homes(stays, tagged=True), _homes(stays, tagged=False)
    known = stays.select(F.col("topic").alias("known_topic")).distinct()
    is_own = _here("own") & (F.col("own.stream") == F.col("named")) & _same_move()
    is_before = _here("before") & (F.col("before.stream") >= 0)
    joined = (
        b.join(own, is_own, "left")
        .join(before, is_before, "left")
        .join(known, F.col("b.topic") == F.col("known_topic"), "left")
    )
    kind = (
        F.when(F.col("known_topic").isNull(), UNKNOWN_TOPIC)
        .when(F.col("before.stream").isNotNull(), BEFORE)
        .when(F.coalesce("b.is_control", F.lit(False)), CONTROL)
        .when(F.col("b.v").isNull(), BYPASS)
        .when(F.col("b.v") == JANITOR, MARKER)
        .when(F.col("own.stream").isNull(), STRAY)
        .when(F.col("b.v") == NO_V, OPENED)
        .otherwise(OWN)
    )
    either = {name: F.coalesce(f"before.{name}", f"own.{name}") for name in ("move", "start", "compacted")}
    return joined.select(
        "b.*",
        kind.alias("kind"),
        F.coalesce("before.stream", "own.stream", "named").alias("stream"),
        either["move"].alias("home_move"),
        either["start"].alias("home_start"),
        F.coalesce(either["compacted"], F.lit(False)).alias("compacted"),
        F.when(_is_shared("own"), F.col("b.partition"))
        .otherwise(F.coalesce("before.stream", "own.stream", "named"))
        .alias("given_as"),
    ).drop("named")


def _certain_to(known: DataFrame, facts: Facts) -> DataFrame:
    """Returns up to which offset of each partition layouts are certain, as rows of state: `last_offset` is the last."""
    proven = facts.decisions.where(
        F.col("kind").isin("admit", "deliver") & F.col("last_offset").isNotNull() & F.col("partition").isNotNull()
    )
    ends = facts.stays.where("end is not null").select("topic", "partition", (F.col("end") - 1).alias("last_offset"))
    every = stacked(
        known.select("topic", "partition", "last_offset"), proven.select("topic", "partition", "last_offset"), ends
    )
    return rows(every.groupBy("topic", "partition").agg(F.max("last_offset").alias("last_offset")), "certain")


def is_late(facts: Facts) -> Column:
    """Whether a row of state has waited long enough."""
    return F.lit(facts.is_last) | (F.lit(facts.newest_ms) - F.col("seen_ms") >= facts.late_ms)


def _settled(batches: DataFrame, certain: DataFrame, facts: Facts) -> tuple[DataFrame, DataFrame]:
    """Parts batches, as `_owned` returns them, into those that can be judged and those that have to wait."""
    ends = certain.select(
        F.col("topic").alias("end_topic"), F.col("partition").alias("end_partition"), F.col("last_offset").alias("to")
    )
    same = (F.col("topic") == F.col("end_topic")) & (F.col("partition") == F.col("end_partition"))
    at_once = F.col("kind").isin(BEFORE, BYPASS, CONTROL, MARKER)
    is_settled = at_once | is_late(facts) | F.coalesce(F.col("base_offset") <= F.col("to"), F.lit(False))
    judged = batches.join(ends, same, "left").withColumn("is_settled", is_settled)
    judged = worked_out(judged)  # it goes several ways from here, each with a plan of its own
    done = judged.where("is_settled").drop("end_topic", "end_partition", "to", "is_settled")
    return done, rows(judged.where("not is_settled"), "batch")


def _homes(stays: DataFrame, *, tagged: bool) -> DataFrame:
    return stays.where(F.col("tagged") if tagged else ~F.col("tagged")).alias("own" if tagged else "before")


def _here(name: str) -> Column:
    """Whether the stay of that name holds a batch's first offset."""
    end = F.coalesce(F.col(f"{name}.kept_end"), F.lit(FOR_EVER))
    return (
        (F.col("b.topic") == F.col(f"{name}.topic"))
        & (F.col("b.partition") == F.col(f"{name}.partition"))
        & F.col("b.base_offset").between(F.col(f"{name}.start"), end - 1)
    )


def _is_shared(name: str) -> Column:
    """Whether a batch stands where all is given out as the virtual partition of the physical one's number."""
    to = F.coalesce(F.col(f"{name}.shared_to"), F.lit(FOR_EVER))
    return F.coalesce(F.col("b.base_offset").between(F.col(f"{name}.shared_from"), to - 1), F.lit(False))


def _same_move() -> Column:
    return F.pmod("own.move", F.lit(MOVES)) == F.col("b.move")
