"""What the report draws: small tables that each micro-batch is folded into, whatever the audit has read so far.

A summary is kept like a rule's state: the table so far and what is new make the next one, which takes its place. So a
repeated micro-batch changes nothing, and none of them grows with the run: each says what bounds it. They are drawn by
the workers' clocks and prove nothing; verdicts come from the rules, which use none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so
from pyspark.sql.types import BooleanType, IntegerType, LongType, StringType, StructField, StructType

from kordon.codecs.decision import Kind
from kordon.spark_jobs.rules.rule import Facts

MOST_BUCKETS: Final = 240
"""Points in time of a chart: about what a page is wide."""
LEAST_BUCKETS: Final = 24
MOST_TRAFFIC_ROWS: Final = 100_000
"""With more than some 400 streams there are fewer points in time for each."""
NARROWEST_MS: Final = 1_000
MOST_FENCES: Final = 1_000
MOST_LAYOUTS: Final = 1_000
MOST_PAUSES: Final = 500
MOST_HOLDS: Final = 20_000
MOST_WORKERS: Final = 2_000
MOST_REASONS: Final = 2_000
MOST_STEPS: Final = 5_000
MOST_NAMED: Final = 2_000
MOST_RECENT: Final = 10_000
MOST_EVIDENCE: Final = 2_000
"""Characters of a decision's evidence that a proof shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One table of the report."""

    name: str
    """Of its folder."""
    state: StructType
    """Its columns; the first micro-batch is given an empty table."""
    fold: Callable[[Facts, DataFrame, DataFrame], DataFrame]
    """What is new, the findings of this micro-batch, and the table so far, to the next one."""


_TYPES: Final = {"string": StringType(), "int": IntegerType(), "bigint": LongType(), "boolean": BooleanType()}


def _columns(text: str) -> StructType:
    """Reads "name type, name type": Spark's own parser would need a session for it."""
    pairs = (each.split() for each in text.split(", "))
    return StructType([StructField(name, _TYPES[kind]) for name, kind in pairs])


def _at(kind: Kind, value: Column) -> Column:
    return F.when(F.col("kind") == kind.value, value)


def _newest(table: DataFrame, most: int, by: Column, within: tuple[str, ...] = ()) -> DataFrame:
    """Keeps the newest rows, so that a table stays bounded."""
    if not within:
        return table.orderBy(by.desc_nulls_last()).limit(most)
    window = Window.partitionBy(*within).orderBy(by.desc_nulls_last())
    return table.withColumn("_place", F.row_number().over(window)).where(F.col("_place") <= most).drop("_place")


_TRAFFIC: Final = _columns(
    "topic string, stream int, move int, partition int, bucket_ms bigint, width_ms bigint, "
    "admitted_batches bigint, admitted_records bigint, admitted_bytes bigint, repeated bigint, admitted_to bigint, "
    "delivered_records bigint, delivered_bytes bigint, delivered_to bigint, refused bigint"
)
_PLACES: Final = ("topic", "stream", "move", "partition")


def _traffic(facts: Facts, findings: DataFrame, state: DataFrame) -> DataFrame:
    """What was written and delivered per stream, home and bucket of time.

    Bounded: buckets double their width when there are more than `MOST_BUCKETS`, or more than `MOST_TRAFFIC_ROWS` rows.
    Sums stay exact, as nothing is ever dropped.
    """
    kinds = [Kind.ADMIT.value, Kind.DELIVER.value, Kind.REFUSE.value]
    told = facts.decisions.where(F.col("kind").isin(kinds) & F.col("topic").isNotNull() & F.col("stream").isNotNull())
    times = F.coalesce("batches", F.lit(1)).cast("bigint")
    is_repeated = F.coalesce(F.get_json_object("evidence", "$.repeated") == "true", F.lit(False))
    once = _at(Kind.ADMIT, F.lit(1)).isNotNull() & ~is_repeated
    new = told.select(
        *_PLACES,
        F.col("at_ms").alias("bucket_ms"),
        F.lit(NARROWEST_MS).cast("bigint").alias("width_ms"),
        F.when(once, times).alias("admitted_batches"),
        F.when(once, F.col("records")).alias("admitted_records"),
        F.when(once, F.col("bytes")).alias("admitted_bytes"),
        _at(Kind.ADMIT, F.when(is_repeated, times)).alias("repeated"),
        _at(Kind.ADMIT, F.col("last_offset")).alias("admitted_to"),
        _at(Kind.DELIVER, F.col("records")).alias("delivered_records"),
        _at(Kind.DELIVER, F.col("bytes")).alias("delivered_bytes"),
        _at(Kind.DELIVER, F.col("last_offset")).alias("delivered_to"),
        _at(Kind.REFUSE, times).alias("refused"),
    )
    both = state.unionByName(new)
    sums = [each for each in _TRAFFIC.names[6:] if not each.endswith("_to")]
    reach = [each for each in _TRAFFIC.names[6:] if each.endswith("_to")]
    start = (F.col("bucket_ms") - F.pmod("bucket_ms", "_width")).alias("bucket_ms")
    return (
        both.drop("width_ms")
        .crossJoin(F.broadcast(both.agg(_width().alias("_width"))))
        .groupBy(*_PLACES, start, F.col("_width").alias("width_ms"))
        .agg(*(F.sum(each).alias(each) for each in sums), *(F.max(each).alias(each) for each in reach))
        .select(*_TRAFFIC.names)
    )


def _width() -> Column:
    """The narrowest bucket, a power of two of seconds, with which the table stays within its bounds; it never falls."""
    streams = F.greatest(F.lit(1), F.approx_count_distinct(F.struct("topic", "stream")))  # no traffic: there are none
    most = F.greatest(F.lit(LEAST_BUCKETS), F.least(F.lit(MOST_BUCKETS), F.lit(MOST_TRAFFIC_ROWS) / streams))
    wished = (F.max("bucket_ms") - F.min("bucket_ms")) / most / NARROWEST_MS
    power = F.ceil(F.log2(F.greatest(wished, F.lit(1.0))))
    doubled = (F.pow(F.lit(2.0), power) * NARROWEST_MS).cast("bigint")
    return F.greatest(doubled, F.max("width_ms"), F.lit(NARROWEST_MS).cast("bigint"))


_FENCES: Final = _columns(
    "topic string, fence string, kind string, layout_epoch int, sealed string, members bigint, acknowledged bigint, "
    "fenced_ms bigint, acknowledged_ms bigint, cut_ms bigint, committed_ms bigint, cancelled_ms bigint, "
    "layouts_offset bigint"
)


def _fences(facts: Facts, findings: DataFrame, state: DataFrame) -> DataFrame:
    """When the steps of each fence were taken. Bounded: the newest `MOST_FENCES` of each topic."""
    at = F.col("at_ms")
    steps = [Kind.FENCE, Kind.ACKNOWLEDGE, Kind.CUT, Kind.COMMIT, Kind.CANCEL]
    told = facts.decisions.where(
        F.col("kind").isin([each.value for each in steps]) & F.col("fence").isNotNull() & F.col("topic").isNotNull()
    )
    new = told.select(
        "topic",
        "fence",
        F.get_json_object("evidence", "$.kind").alias("kind_of"),
        F.when(F.col("kind") != Kind.ACKNOWLEDGE.value, F.col("layout_epoch")).alias("layout_epoch"),
        _at(Kind.FENCE, F.get_json_object("evidence", "$.sealed")).alias("sealed"),
        _at(Kind.FENCE, F.json_array_length(F.get_json_object("evidence", "$.members")).cast("bigint")).alias(
            "members"
        ),
        _at(Kind.ACKNOWLEDGE, F.lit(1).cast("bigint")).alias("acknowledged"),
        _at(Kind.FENCE, at).alias("fenced_ms"),
        _at(Kind.ACKNOWLEDGE, at).alias("acknowledged_ms"),
        _at(Kind.CUT, at).alias("cut_ms"),
        _at(Kind.COMMIT, at).alias("committed_ms"),
        _at(Kind.CANCEL, at).alias("cancelled_ms"),
        _at(Kind.FENCE, F.col("layouts_offset")).alias("layouts_offset"),
    ).withColumnRenamed("kind_of", "kind")
    first = {"fenced_ms", "committed_ms", "cancelled_ms", "layouts_offset"}
    folds = [
        (F.sum if each == "acknowledged" else F.min if each in first else F.max)(each).alias(each)
        for each in _FENCES.names[2:]
    ]
    grouped = state.unionByName(new).groupBy("topic", "fence").agg(*folds).select(*_FENCES.names)
    latest = F.greatest("fenced_ms", "acknowledged_ms", "cut_ms", "committed_ms", "cancelled_ms")
    return _newest(grouped, MOST_FENCES, latest, ("topic",))


_LAYOUTS: Final = _columns(
    "topic string, layout_epoch int, n int, v_count int, u int, placement string, since_ms bigint, "
    "committed_ms bigint, adopted_ms bigint, adopted bigint, layouts_offset bigint, forgotten_ms bigint"
)
_LAYOUT_JSON: Final = (
    "layout struct<n: int, v_count: int, epochs: array<struct<number: int, u: int, placement: string>>>"
)


def _layouts(facts: Facts, findings: DataFrame, state: DataFrame) -> DataFrame:
    """Which layout was in force since when. Bounded: the newest `MOST_LAYOUTS` epochs of each topic."""
    kinds = [Kind.COMMIT.value, Kind.ADOPT.value, Kind.FORGET.value]
    is_sure = F.col("reason").isNull()  # a commit that may have failed is on record, too
    told = facts.decisions.where(F.col("kind").isin(kinds) & is_sure & F.col("topic").isNotNull())
    layout = F.from_json("evidence", _LAYOUT_JSON).getField("layout")
    at = F.col("at_ms")
    epoch = F.try_element_at(layout.getField("epochs"), F.lit(-1))
    new = told.select(
        "topic",
        F.coalesce("layout_epoch", F.lit(-1)).cast("int").alias("layout_epoch"),
        layout.getField("n").alias("n"),
        layout.getField("v_count").alias("v_count"),
        epoch.getField("u").alias("u"),
        epoch.getField("placement").alias("placement"),
        F.when(F.col("kind") != Kind.FORGET.value, at).alias("since_ms"),
        _at(Kind.COMMIT, at).alias("committed_ms"),
        _at(Kind.ADOPT, at).alias("adopted_ms"),
        _at(Kind.ADOPT, F.lit(1).cast("bigint")).alias("adopted"),
        F.when(F.col("layouts_offset") >= 0, F.col("layouts_offset")).alias("layouts_offset"),
        _at(Kind.FORGET, at).alias("forgotten_ms"),
    )
    first = {"since_ms", "committed_ms", "adopted_ms", "layouts_offset"}
    folds = [
        (F.sum if each == "adopted" else F.min if each in first else F.max)(each).alias(each)
        for each in _LAYOUTS.names[2:]
    ]
    grouped = state.unionByName(new).groupBy("topic", "layout_epoch").agg(*folds).select(*_LAYOUTS.names)
    return _newest(grouped, MOST_LAYOUTS, F.col("layout_epoch"), ("topic",))


_PAUSES: Final = _columns(
    "topic string, what string, reason string, worker string, stream int, connection bigint, number bigint, "
    "began_ms bigint, ended_ms bigint, holds bigint, longest_ms bigint"
)
_HELD: Final = ("worker", "topic", "stream", "connection")


def _pauses(facts: Facts, findings: DataFrame, state: DataFrame) -> DataFrame:
    """When writes, or dialect readers, of a topic waited, and for what.

    A worker that holds all of a fence goes on by a release, or by the layout that it adopts. A hold that has no end yet
    is a row of its own (`ended_ms` null); the others are merged where they overlap.
    Bounded: the newest `MOST_PAUSES` per topic and reason, and the newest `MOST_HOLDS` without an end.
    """
    kinds = [Kind.HOLD.value, Kind.RELEASE.value, Kind.ADOPT.value, Kind.FORGET.value]
    is_open = F.col("ended_ms").isNull()
    still = state.where(is_open).select(
        *_HELD, "number", "what", "reason", F.col("began_ms").alias("at_ms"), F.lit(Kind.HOLD.value).alias("kind")
    )
    new = facts.decisions.where(F.col("kind").isin(kinds)).select(
        *_HELD,
        "number",
        F.when(F.col("rule").startswith("KIP-253 8"), "readers").otherwise("writes").alias("what"),
        F.coalesce("reason", "rule", F.lit("")).alias("reason"),
        "at_ms",
        "kind",
    )
    following = F.lead("at_ms").over(Window.partitionBy(*_HELD).orderBy("number"))
    held = (
        still.unionByName(new)
        .withColumn("ended_ms", following)
        .where(F.col("kind") == Kind.HOLD.value)
        .withColumnRenamed("at_ms", "began_ms")
        .withColumn("holds", F.lit(1).cast("bigint"))
        .withColumn("ended_ms", _not_before("ended_ms"))
        .withColumn("longest_ms", F.col("ended_ms") - F.col("began_ms"))
    )
    opened = _newest(held.where(is_open), MOST_HOLDS, F.col("began_ms")).select(*_PAUSES.names)
    merged = _merged(state.where(~is_open).unionByName(held.where(~is_open), allowMissingColumns=True))
    return opened.unionByName(_newest(merged, MOST_PAUSES, F.col("began_ms"), ("topic", "what", "reason")))


def _not_before(end: str) -> Column:
    return F.when(F.col(end).isNotNull(), F.greatest("began_ms", end))


def _merged(pauses: DataFrame) -> DataFrame:
    """One row for what overlaps in time, per topic and reason (gaps and islands)."""
    same = ("topic", "what", "reason")
    by_time = Window.partitionBy(*same).orderBy("began_ms", "ended_ms")
    reached = F.max("ended_ms").over(by_time.rowsBetween(Window.unboundedPreceding, -1))
    is_new = F.when(F.col("began_ms") <= reached, 0).otherwise(1)
    island = F.sum("_new").over(by_time.rowsBetween(Window.unboundedPreceding, 0))
    nothing = {"worker": "string", "stream": "int", "connection": "bigint", "number": "bigint"}
    return (
        pauses.withColumn("_new", is_new)
        .withColumn("_island", island)
        .groupBy(*same, "_island")
        .agg(
            F.min("began_ms").alias("began_ms"),
            F.max("ended_ms").alias("ended_ms"),
            F.sum("holds").alias("holds"),
            F.max("longest_ms").alias("longest_ms"),
        )
        .withColumns({name: F.lit(None).cast(kind) for name, kind in nothing.items()})
        .select(*_PAUSES.names)
    )


_WORKERS: Final = _columns(
    "worker string, host string, decisions bigint, first_number bigint, last_number bigint, first_ms bigint, "
    "last_ms bigint, leases_lost bigint, dropped bigint"
)


def _workers(facts: Facts, findings: DataFrame, state: DataFrame) -> DataFrame:
    """Who decided, how much, and what is missing of it. Bounded: the newest `MOST_WORKERS`."""
    at, number = F.col("at_ms"), F.col("number")
    lost = F.when((F.col("kind") == Kind.LEASE.value) & (F.col("reason") == "lost"), 1).otherwise(0)
    dropped = _at(Kind.GAP, F.col("last_number") - F.col("first_number") + 1)
    new = facts.decisions.groupBy("worker", "host").agg(
        F.count(F.lit(1)).alias("decisions"),
        F.min(number).alias("first_number"),
        F.max(number).alias("last_number"),
        F.min(at).alias("first_ms"),
        F.max(at).alias("last_ms"),
        F.sum(lost).cast("bigint").alias("leases_lost"),
        F.coalesce(F.sum(dropped), F.lit(0)).cast("bigint").alias("dropped"),
    )
    first = {"first_number", "first_ms"}
    last = {"last_number", "last_ms"}
    folds = [
        (F.min if each in first else F.max if each in last else F.sum)(each).alias(each) for each in _WORKERS.names[2:]
    ]
    return _newest(state.unionByName(new).groupBy("worker", "host").agg(*folds), MOST_WORKERS, F.col("last_ms"))


_REASONS: Final = _columns(
    "kind string, topic string, api_key int, rule string, reason string, times bigint, first_ms bigint, last_ms bigint"
)
_REASONED: Final = ("kind", "topic", "api_key", "rule", "reason")


def _reasons(facts: Facts, findings: DataFrame, state: DataFrame) -> DataFrame:
    """How often something was refused, held, limited or dropped, and why. Bounded: the newest `MOST_REASONS`."""
    kinds = [Kind.REFUSE, Kind.HOLD, Kind.LIMIT, Kind.CLOSE, Kind.GAP, Kind.LEASE, Kind.REWIND]
    new = facts.decisions.where(F.col("kind").isin([each.value for each in kinds])).select(
        *_REASONED,
        F.coalesce("batches", F.lit(1)).cast("bigint").alias("times"),
        F.col("at_ms").alias("first_ms"),
        F.col("at_ms").alias("last_ms"),
    )
    grouped = (
        state.unionByName(new)
        .groupBy(*_REASONED)
        .agg(F.sum("times").alias("times"), F.min("first_ms").alias("first_ms"), F.max("last_ms").alias("last_ms"))
    )
    return _newest(grouped, MOST_REASONS, F.col("last_ms"))


_READ_DECISIONS: Final = _columns(
    "log_partition int, kind string, decisions bigint, first_offset bigint, last_offset bigint, first_ms bigint, "
    "last_ms bigint"
)


def _read_decisions(facts: Facts, findings: DataFrame, state: DataFrame) -> DataFrame:
    """Which decisions were read. Bounded by the log's partitions and the kinds of decisions."""
    new = facts.decisions.select(
        "log_partition",
        "kind",
        F.lit(1).cast("bigint").alias("decisions"),
        F.col("log_offset").alias("first_offset"),
        F.col("log_offset").alias("last_offset"),
        F.col("at_ms").alias("first_ms"),
        F.col("at_ms").alias("last_ms"),
    )
    return (
        state.unionByName(new)
        .groupBy("log_partition", "kind")
        .agg(
            F.sum("decisions").alias("decisions"),
            F.min("first_offset").alias("first_offset"),
            F.max("last_offset").alias("last_offset"),
            F.min("first_ms").alias("first_ms"),
            F.max("last_ms").alias("last_ms"),
        )
    )


_READ_BATCHES: Final = _columns(
    "topic string, partition int, batches bigint, records bigint, bytes bigint, untagged bigint, control bigint, "
    "first_offset bigint, last_offset bigint, log_start bigint, next_offset bigint, first_ms bigint, last_ms bigint"
)


def _read_batches(facts: Facts, findings: DataFrame, state: DataFrame) -> DataFrame:
    """Which topic data was read, and of what kind. Bounded by the topics' partitions."""
    time = F.when(F.col("max_timestamp_ms") > 0, F.col("max_timestamp_ms"))
    one = F.lit(1).cast("bigint")
    nothing = F.lit(None).cast("bigint")
    read = facts.batches.select(
        "topic",
        "partition",
        one.alias("batches"),
        "records",
        "bytes",
        F.when(F.col("v").isNull() & ~F.col("is_control"), one).alias("untagged"),
        F.when(F.col("is_control"), one).alias("control"),
        F.col("base_offset").alias("first_offset"),
        "last_offset",
        nothing.alias("log_start"),
        nothing.alias("next_offset"),
        time.alias("first_ms"),
        time.alias("last_ms"),
    )
    reached = facts.read_to.select("topic", "partition", "log_start", "next_offset")
    both = state.unionByName(read).unionByName(reached, allowMissingColumns=True)
    first = {"first_offset", "first_ms"}
    sums = {"batches", "records", "bytes", "untagged", "control"}
    folds = [
        (F.min if each in first else F.sum if each in sums else F.max)(each).alias(each)
        for each in _READ_BATCHES.names[2:]
    ]
    return both.groupBy("topic", "partition").agg(*folds)


_PROOFS: Final = _columns("worker string, number bigint, at_ms bigint, held string, decision string")
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
    told = facts.decisions.join(F.broadcast(named), ["worker", "number"], "left").withColumn("held", _held())
    others = told.where("held = 'recent'").orderBy(F.col("at_ms").desc()).limit(MOST_RECENT)
    new = told.where("held != 'recent'").unionByName(others)
    new = new.select("worker", "number", "at_ms", "held", _as_json(facts.decisions).alias("decision"))
    before = state.join(F.broadcast(named), ["worker", "number"], "left")
    before = before.withColumn("held", F.when(F.col("_named"), "named").otherwise(F.col("held"))).drop("_named")
    newest = F.row_number().over(Window.partitionBy("held").orderBy(F.col("at_ms").desc_nulls_last()))
    most = F.expr(f"case held when 'named' then {MOST_NAMED} when 'step' then {MOST_STEPS} else {MOST_RECENT} end")
    both = before.unionByName(new).dropDuplicates(["worker", "number"])
    return both.withColumn("_place", newest).where(F.col("_place") <= most).select(*_PROOFS.names)


def _held() -> Column:
    is_step = F.col("kind").isin([each.value for each in _STEPS])
    return F.when(F.col("_named"), "named").when(is_step, "step").otherwise("recent")


def _as_json(decisions: DataFrame) -> Column:
    shown = [name for name in decisions.columns if name not in ("evidence", "log_partition", "log_offset")]
    evidence = F.substring("evidence", 1, MOST_EVIDENCE).alias("evidence")
    return F.to_json(F.struct(*shown, evidence))


SUMMARIES: Final = (
    Summary(name="traffic", state=_TRAFFIC, fold=_traffic),
    Summary(name="fences", state=_FENCES, fold=_fences),
    Summary(name="layouts", state=_LAYOUTS, fold=_layouts),
    Summary(name="pauses", state=_PAUSES, fold=_pauses),
    Summary(name="workers", state=_WORKERS, fold=_workers),
    Summary(name="reasons", state=_REASONS, fold=_reasons),
    Summary(name="read_decisions", state=_READ_DECISIONS, fold=_read_decisions),
    Summary(name="read_batches", state=_READ_BATCHES, fold=_read_batches),
    Summary(name="proofs", state=_PROOFS, fold=_proofs),
)
"""All tables of the report besides the findings and what was checked."""
