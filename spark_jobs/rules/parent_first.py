"""PARENT-FIRST (3): nothing is given of a segment before all that its keys were in earlier is done (design §3).

    clients of the dialect   a DELIVER of segment (q, e) needs of each physical partition that held its keys before, as
                             far as there are predecessors of predecessors, that the group's position is at or behind
                             the end there: `evidence.positions` of this DELIVER, or of the reader's last RELEASE
    other clients            a DELIVER of stay k + 1 needs that the same connection has had stay k to its end, or has
                             begun in stay k + 1

Done is also what has nothing deliverable left between position and end; that is looked up in the topic's own batches.
Where they are gone, or carry no stream (bypass, clients of the dialect in a virtual partition), it is unknown. After a
rewind a reader's evidence is asked for again. Found is one kind, `early-child`.

Where `enable.ordered.delivery` is false (the evidence says so) nothing is promised to clients of the dialect.

What is needed of whom is worked out from the layouts anew; `positions` is what the proxy says it had of the group. A
rewind in a predecessor closes the proxy's gate once the group has told it, and shows as HOLD and RELEASE, whose
positions are judged like all others.

State: a row per reader, where it stands; what waits to be judged; of topics the last batch of each stream and stay, the
unbroken runs of batches that readers may see (holes are markers, control batches and what compaction took), and how far
they were read. Bounded: readers go with their CLOSE, or after `READERS_MS` of silence, as workers that were killed
close nothing; what waits is judged after `late_ms`; of runs there are the newest `MOST_RUNS` of a partition.

What comes late: decisions of a worker come in order; batches and layouts that are not read yet are waited for, for
`late_ms`, then it is unknown.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so
from pyspark.sql.types import BooleanType, IntegerType, LongType, MapType, StringType, StructField, StructType

from kordon.codecs.decision import Kind
from kordon.spark_jobs.rules.belonging import JANITOR, MOVES, NO_V
from kordon.spark_jobs.rules.gaps import with_gaps
from kordon.spark_jobs.rules.rule import FAIL, PASS, UNKNOWN, Facts, Outcome, Rule
from kordon.spark_jobs.rules.tables import checked, decision, findings, union, worked_out

READERS_MS: Final = 7 * 24 * 60 * 60 * 1000
MOST_RUNS: Final = 1_000
_READER: Final = ("worker", "connection", "topic", "stream")
_PLACE: Final = ("topic", "partition")
_WAIT: Final = "wait"
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
*tail* (the last batch of `v` and `move`), *run* (batches without a hole), *read* (from where and up to where)."""


def _check(facts: Facts, state: DataFrame) -> Outcome:
    events = worked_out(_events(facts, state))
    steps = worked_out(union([state.where("what = 'step'"), _steps(facts, events)], STATE))
    data = worked_out(_data(facts, state))
    judged = worked_out(_judged(facts, steps, data))
    done = judged.where(F.col("verdict") != _WAIT)
    waiting = judged.where(F.col("verdict") == _WAIT).withColumn("what", F.lit("step"))
    goes_on = events.where("what = 'deliver' and not is_step").withColumn("verdict", F.lit(PASS))
    looked_at = union([done, goes_on], _LOOKED_AT)
    return Outcome(
        findings=_findings(done, facts),
        state=union([_readers(facts, events), waiting, data], STATE),
        checked=checked(looked_at),
    )


_LOOKED_AT: Final = StructType(
    [
        *(each for each in STATE.fields if each.name in {"topic", "partition", "stream"}),
        *(each for each in STATE.fields if each.name in {"first_offset", "last_offset"}),
        StructField("verdict", StringType()),
    ]
)


def _events(facts: Facts, state: DataFrame) -> DataFrame:
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
    every = new.unionByName(readers.select(*columns, "is_rewind"), allowMissingColumns=True)
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
    """Where the reader stands behind it."""
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


def _steps(facts: Facts, events: DataFrame) -> DataFrame:
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


def _readers(facts: Facts, events: DataFrame) -> DataFrame:
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
        .join(F.broadcast(closed), ["worker", "connection"], "left_anti")
    )


def _is_back() -> Column:
    return F.when(F.col("what") == "reader", F.col("is_rewind")).otherwise(F.col("what") == Kind.REWIND.value)


def _data(facts: Facts, state: DataFrame) -> DataFrame:
    """Returns what is known of the topics' batches, with what is new; of a topic that was let go nothing is kept."""
    let_go = facts.decisions.where(F.col("kind") == Kind.FORGET.value).select("topic").distinct()
    old = state.where("what in ('tail', 'run', 'read')").join(F.broadcast(let_go), "topic", "left_anti")
    seen = facts.batches.where(f"not is_control and (v is null or v != {JANITOR})")
    tails = (
        union([old.where("what = 'tail'"), seen.select(*_PLACE, "v", "move", "last_offset")], STATE)
        .groupBy(*_PLACE, "v", "move")
        .agg(F.max("last_offset").alias("last_offset"))
        .withColumns({"what": F.lit("tail"), "first_offset": F.col("last_offset")})
    )
    read = facts.read_to.select(
        *_PLACE, F.col("log_start").alias("first_offset"), F.col("next_offset").alias("last_offset")
    )
    reads = (
        union([old.where("what = 'read'"), read], STATE)
        .groupBy(*_PLACE)
        .agg(F.min("first_offset").alias("first_offset"), F.max("last_offset").alias("last_offset"))
        .withColumn("what", F.lit("read"))
    )
    return union([tails, reads, _runs(old, seen)], STATE)


def _runs(old: DataFrame, seen: DataFrame) -> DataFrame:
    """Merges batches that follow on each other."""
    in_order = Window.partitionBy(*_PLACE).orderBy("first_offset")
    newest = Window.partitionBy(*_PLACE).orderBy(F.desc("first_offset"))
    new = seen.select(*_PLACE, F.col("base_offset").alias("first_offset"), "last_offset")
    reached = F.max("last_offset").over(in_order.rowsBetween(Window.unboundedPreceding, -1))
    return (
        union([old.where("what = 'run'"), new], STATE)
        .withColumn("_breaks", F.coalesce(F.col("first_offset") > reached + 1, F.lit(True)).cast("int"))
        .withColumn("_run", F.sum("_breaks").over(in_order))
        .groupBy(*_PLACE, "_run")
        .agg(F.min("first_offset").alias("first_offset"), F.max("last_offset").alias("last_offset"))
        .withColumn("_place", F.row_number().over(newest))
        .where(F.col("_place") <= MOST_RUNS)
        .withColumn("what", F.lit("run"))
    )


def _judged(facts: Facts, steps: DataFrame, data: DataFrame) -> DataFrame:
    """Adds a verdict to each step: the worst of what it needs; what is not known yet waits."""
    needs = _looked_up(_needs_of_segments(facts, steps).unionByName(_needs_of_stays(facts, steps)), data)
    identity = ["worker", "number"]
    worst = needs.groupBy(*identity).agg(
        F.max(
            F.when(F.col("_done") == FAIL, 3).when(F.col("_done") == _WAIT, 2).when(F.col("_done") == UNKNOWN, 1)
        ).alias("_worst"),
        F.max(F.when(F.col("_done") == FAIL, F.struct("_of", "_from", "_until"))).alias("_missing"),
    )
    is_late = F.lit(facts.is_last) | (F.col("at_ms") < facts.newest_ms - facts.late_ms)
    told = (
        F.when(F.col("_worst") == 3, F.when(F.col("across_gap") & F.col("_unproven"), UNKNOWN).otherwise(FAIL))
        .when(F.col("_worst") == 2, F.when(is_late, UNKNOWN).otherwise(_WAIT))
        .when((F.col("_worst") == 1) | (F.col("across_gap") & F.col("_unproven")), UNKNOWN)
        .otherwise(PASS)
    )
    unproven = (F.col("stream") >= 0) | F.col("positions").isNull()
    return steps.join(worst, identity, "left").withColumn("_unproven", unproven).withColumn("verdict", told)


def _needs_of_segments(facts: Facts, steps: DataFrame) -> DataFrame:
    """Returns what steps of clients of the dialect need: of other partitions, up to where; null: not known yet."""
    line = facts.segments.groupBy("topic").agg(
        F.sort_array(F.collect_list(F.struct("layout_epoch", "partition", "start", "kept_end", "predecessors"))).alias(
            "_line"
        )
    )
    needs = line.select("topic", F.expr(_ALL_NEEDS).alias("_needs"))
    asked = steps.where("stream < 0").join(F.broadcast(needs), "topic", "left")
    key = F.concat_ws("/", F.col("partition"), F.col("move"))
    of_it = asked.withColumn("_of_it", F.try_element_at("_needs", key))
    none = F.expr("map(cast(-1 as int), cast(null as bigint))")
    return (
        of_it.select(
            "worker",
            "number",
            "topic",
            "partition",
            "positions",
            F.explode(F.coalesce("_of_it", none)).alias("_of", "_until"),
        )
        .where("_of != partition")
        .select(
            "worker",
            "number",
            "topic",
            "_of",
            F.coalesce(F.try_element_at("positions", "_of"), F.lit(-1)).alias("_from"),
            "_until",
            F.lit(None).cast("int").alias("_v"),
            F.lit(None).cast("int").alias("_move"),
            F.lit("run").alias("_what"),
        )
    )


_ALL_NEEDS: Final = """
    aggregate(
        _line,
        cast(map() as map<string, map<int, bigint>>),
        (known, s) -> map_concat(known, map(
            concat_ws('/', s.partition, s.layout_epoch),
            aggregate(
                coalesce(s.predecessors, cast(array() as array<struct<partition: int, epoch: int>>)),
                cast(map() as map<int, bigint>),
                (needs, p) -> map_zip_with(
                    map_zip_with(
                        needs,
                        coalesce(
                            try_element_at(known, concat_ws('/', p.partition, p.epoch)),
                            cast(map() as map<int, bigint>)
                        ),
                        (q, one, other) -> greatest(one, other)
                    ),
                    map_from_entries(transform(
                        filter(
                            _line,
                            t -> t.partition = p.partition and t.layout_epoch = p.epoch and t.kept_end > t.start
                        ),
                        t -> struct(t.partition, t.kept_end)
                    )),
                    (q, one, other) -> greatest(one, other)
                )
            )
        ))
    )
"""
"""By segment (`partition/layout epoch`), of each physical partition that held its keys, up to where it must be done:
its predecessors' ends, where they have records, and what these need. Segments come in the order of their epochs."""


def _needs_of_stays(facts: Facts, steps: DataFrame) -> DataFrame:
    """Returns what steps of other clients need: the rest of the stay they left, and all of those between."""
    stays = facts.stays.where("stream >= 0").select(
        "topic",
        "stream",
        F.col("move").alias("_stay"),
        F.col("partition").alias("_of"),
        F.col("start").alias("_start"),
        F.col("floor").alias("_floor"),
        F.col("kept_end").alias("_until"),
        "tagged",
    )
    known = stays.groupBy("topic", "stream").agg(F.max("_stay").alias("_newest"))
    asked = steps.where("stream >= 0").join(known, ["topic", "stream"], "left")
    begin = F.greatest("_start", "_floor", F.when(F.col("_stay") == F.col("from_move"), F.col("position")))
    told = (
        asked.where("_newest >= move")
        .join(stays, ["topic", "stream"])
        .where("_stay >= from_move and _stay < move")
        .select(
            "worker",
            "number",
            "topic",
            "_of",
            begin.alias("_from"),
            "_until",
            F.when(F.col("tagged"), F.col("stream")).alias("_v"),
            F.when(F.col("tagged"), F.pmod("_stay", F.lit(MOVES))).cast("int").alias("_move"),
            F.lit("tail").alias("_what"),
        )
    )
    nothing = {name: F.lit(None) for name in ("_from", "_until", "_v", "_move")}
    untold = (
        asked.where("_newest is null or _newest < move")
        .select("worker", "number", "topic")
        .withColumns({"_of": F.lit(-1), **nothing, "_what": F.lit("tail")})
    )
    return told.unionByName(untold)


def _looked_up(needs: DataFrame, data: DataFrame) -> DataFrame:
    """Adds to each need whether it is done: by the position, or as nothing is left between it and the end."""
    ranges = data.where("what in ('run', 'tail')").select(
        F.col("what").alias("_what"),
        "topic",
        F.col("partition").alias("_of"),
        F.col("v").alias("_batch_v"),
        F.col("move").alias("_batch_move"),
        F.col("first_offset").alias("_first"),
        F.col("last_offset").alias("_last"),
    )
    reads = data.where("what = 'read'").select(
        "topic",
        F.col("partition").alias("_of"),
        F.col("first_offset").alias("_read_from"),
        F.col("last_offset").alias("_read_to"),
    )
    open_needs = needs.where("_until is not null and _from < _until")
    own = "(_what = 'run' or (_batch_v <=> _v and _batch_move <=> _move))"
    mixed = f"(_what = 'tail' and _v is not null and (_batch_v is null or _batch_v = {NO_V}))"
    found = (
        open_needs.join(ranges, ["_what", "topic", "_of"])
        .groupBy("worker", "number", "_of", "_from", "_until")
        .agg(
            F.expr(f"bool_or({own} and _first < _until and _last >= _from)").alias("_left"),
            F.expr(f"bool_or(({mixed} and _last >= _from) or (_what = 'tail' and {own} and _last >= _until))").alias(
                "_doubt"
            ),
        )
    )
    keys = ["worker", "number", "_of", "_from", "_until"]
    done = F.expr(
        f"case when _until is null then '{_WAIT}' when _from >= _until then '{PASS}' when _left then '{FAIL}'"
        f" when _read_to is null or _read_to < _until then '{_WAIT}'"
        f" when _doubt or _read_from > greatest(_from, 0) then '{UNKNOWN}' else '{PASS}' end"
    )
    return needs.join(found, keys, "left").join(reads, ["topic", "_of"], "left").withColumn("_done", done)


def _findings(done: DataFrame, facts: Facts) -> DataFrame:
    wrong = done.where((F.col("verdict") == FAIL) | (F.col("_missing").isNotNull() & (F.col("verdict") == UNKNOWN)))
    text = F.format_string(
        "Offsets from %d on of partition %d of %s were delivered while partition %d, which held their keys before, was "
        "read to offset %d of %d only%s. Records of a key may have been processed before earlier ones of it; look at "
        "why the gate was open.",
        "first_offset",
        "partition",
        "topic",
        "_missing._of",
        F.greatest(F.col("_missing._from"), F.lit(0)),
        "_missing._until",
        F.when(F.col("verdict") == UNKNOWN, ", but decisions are missing in between").otherwise(""),
    )
    told = wrong.withColumns(
        {
            "kind": F.lit("early-child"),
            "layout_epoch": F.when(F.col("stream") < 0, F.col("move")),
            "text": text,
            "decisions": F.array_compact(
                F.array(
                    F.when(F.col("before_number").isNotNull(), decision("worker", "before_number")),
                    decision("worker", "number"),
                )
            ),
        }
    )
    return findings(told, RULE.number, RULE.name, ("worker", "number"), facts)


RULE: Final = Rule(
    number=3,
    name="PARENT-FIRST",
    proves="Each delivery from a segment came after the evidence that all segments which held its keys before were "
    "done, and again after each rewind.",
    state=STATE,
    check=_check,
)
