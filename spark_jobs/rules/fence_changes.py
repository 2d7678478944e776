"""What FENCE-BARRIER knows of changes: the steps of fences, who wrote what under which layout, who was heard of.

All is one table, the rule's state, with what is new in front of it; the functions here read single tables from it. What
is known of a topic goes with the FORGET that lets it go, as far as it rests on earlier records of the layouts topic.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so
from pyspark.sql.types import ArrayType, IntegerType, LongType, MapType, StringType, StructField, StructType

from kordon.codecs.decision import Kind
from kordon.spark_jobs.rules.rule import Facts
from kordon.spark_jobs.rules.tables import union

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
"""`what`: the kind of the decision; or *heard*: a worker's first that rests on so much of the layouts topic; *told*:
`reason` was judged already. Of an *admit*, `number` and `first_offset` are those of the newest run, `last_offset` is
the largest, `layouts_offset` the smallest."""
_STEPS: Final = (Kind.FENCE, Kind.ACKNOWLEDGE, Kind.CUT, Kind.COMMIT, Kind.CANCEL, Kind.LEASE, Kind.FORGET)
_PRODUCE: Final = 0
ADMIT_KEY: Final = ("topic", "partition", "worker", "layout_epoch")


def known_of(facts: Facts, state: DataFrame) -> DataFrame:
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
    heard = facts.decisions.select("worker", "number", "layouts_offset", "at_ms")
    every = union(
        [state, steps, writes_of(facts), heard.withColumn("what", F.lit("heard"))],
        STATE,
    )
    let_go = every.where("what = 'forget'").groupBy("topic").agg(F.max("layouts_offset").alias("_let_go"))
    living = every.join(let_go, "topic", "left").where(
        "what = 'forget' or _let_go is null or layouts_offset is null or layouts_offset > _let_go"
    )
    others = living.where("what not in ('admit', 'heard')")
    admits = (
        living.where("what = 'admit'")
        .groupBy("what", *ADMIT_KEY)
        .agg(
            F.max("number").alias("number"),
            F.max_by("first_offset", "number").alias("first_offset"),
            F.max("last_offset").alias("last_offset"),
            F.min("layouts_offset").alias("layouts_offset"),
            F.max("at_ms").alias("at_ms"),
        )
    )
    return union([others, admits, _steps(living.where("what = 'heard'"))], STATE)


def _steps(heard: DataFrame) -> DataFrame:
    """Returns those decisions of each worker that rest on more of the layouts topic than all before them."""
    before = Window.partitionBy("worker").orderBy("number").rowsBetween(Window.unboundedPreceding, -1)
    with_before = heard.withColumn("_before", F.max("layouts_offset").over(before))
    return with_before.where("layouts_offset > coalesce(_before, layouts_offset - 1)")


def writes_of(facts: Facts) -> DataFrame:
    """Returns what was admitted in this micro-batch, and was not there already, in the shape of `STATE`."""
    is_write = (F.col("kind") == Kind.ADMIT.value) & (F.coalesce("api_key", F.lit(_PRODUCE)) == _PRODUCE)
    repeats = F.coalesce(F.get_json_object("evidence", "$.repeated") == "true", F.lit(False))
    named = F.col("topic").isNotNull() & F.col("partition").isNotNull() & F.col("layout_epoch").isNotNull()
    new = facts.decisions.where(is_write & ~repeats & named)
    return new.withColumn("what", F.lit("admit")).to(STATE)


def commits_of(known: DataFrame) -> DataFrame:
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


def oldest(commits: DataFrame) -> DataFrame:
    """Returns from where on in the layouts topic changes are kept, of topics that have had more than two."""
    kept = commits.where("place <= 2").groupBy("topic")
    return kept.agg(F.min("_commit").alias("_oldest"), F.max("place").alias("_place")).where("_place = 2")


def acknowledgements(known: DataFrame) -> DataFrame:
    """Returns the first acknowledgement of each fence by each worker."""
    return (
        known.where("what = 'acknowledge'")
        .groupBy("topic", "fence", "worker")
        .agg(F.min("number").alias("_ack_number"))
    )


def heard(known: DataFrame) -> DataFrame:
    """Returns of each worker how far it had come by which decision, and what its lease did, both in order."""
    step = F.when(F.col("what") == "heard", F.struct("number", "layouts_offset"))
    lease = F.when(F.col("what") == Kind.LEASE.value, F.struct("number", "layouts_offset", "reason"))
    return (
        known.where("what in ('heard', 'lease')")
        .groupBy("worker")
        .agg(
            F.sort_array(F.collect_list(step)).alias("_heard"),
            F.sort_array(F.collect_list(lease)).alias("_leases"),
            F.lit(None).cast("bigint").alias("_nothing"),
        )
    )
