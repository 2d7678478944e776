"""What PARENT-FIRST asks of a delivery that begins something: what has to be done before it, and whether it is."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so

from kordon.spark_jobs.frames import stacked
from kordon.spark_jobs.rules.belonging import MOVES, NO_V
from kordon.spark_jobs.rules.rule import FAIL, LATE, PASS, UNKNOWN, Facts

WAIT: Final = "wait"
"""Not a verdict yet: something has not been read so far."""


def judged_of(facts: Facts, steps: DataFrame, data: DataFrame) -> DataFrame:
    """Adds a verdict to each step: the worst of what it needs; what is not known yet waits."""
    needs = _looked_up(stacked(_needs_of_segments(facts, steps), _needs_of_stays(facts, steps)), data)
    identity = ["worker", "number"]
    worst = needs.groupBy(*identity).agg(
        F.max(
            F.when(F.col("_done") == FAIL, 3).when(F.col("_done") == WAIT, 2).when(F.col("_done") == UNKNOWN, 1)
        ).alias("_worst"),
        F.max(F.when(F.col("_done") == FAIL, F.struct("_of", "_from", "_until"))).alias("_missing"),
    )
    is_late = F.lit(facts.is_last) | (F.col("at_ms") < facts.newest_ms - facts.late_ms)
    told = (
        F.when(F.col("_worst") == 3, F.when(F.col("across_gap") & F.col("_unproven"), UNKNOWN).otherwise(FAIL))
        .when(F.col("_worst") == 2, F.when(is_late, LATE).otherwise(WAIT))
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
        ),
        F.max("compacted").alias("_compacted"),
    )
    needs = line.select("topic", "_compacted", F.expr(_ALL_NEEDS).alias("_needs"))
    asked = steps.where("stream < 0").join(needs, "topic", "left")
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
            "_compacted",
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
            F.coalesce("_compacted", F.lit(False)).alias("_compacted"),
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
            F.lit(False).alias("_compacted"),
        )
    )
    nothing = {name: F.lit(None) for name in ("_from", "_until", "_v", "_move")}
    untold = (
        asked.where("_newest is null or _newest < move")
        .select("worker", "number", "topic")
        .withColumns({"_of": F.lit(-1), **nothing, "_what": F.lit("tail"), "_compacted": F.lit(False)})
    )
    return stacked(told, untold)


def _looked_up(needs: DataFrame, data: DataFrame) -> DataFrame:
    """Adds to each need whether it is done: by the position, or as nothing is left between it and the end."""
    ranges = data.where("what in ('run', 'forgotten', 'tail')").select(
        F.when(F.col("what") == "tail", "tail").otherwise("run").alias("_what"),
        "topic",
        F.col("partition").alias("_of"),
        F.col("v").alias("_batch_v"),
        F.col("move").alias("_batch_move"),
        F.col("first_offset").alias("_first"),
        F.col("last_offset").alias("_last"),
    )
    is_read = F.col("what") == "read"
    reads = (
        data.where("what in ('read', 'forgotten')")
        .groupBy("topic", F.col("partition").alias("_of"))
        .agg(
            F.max(F.when(is_read, F.col("first_offset")).otherwise(F.col("last_offset") + 1)).alias("_known_from"),
            F.max(F.when(is_read, F.col("last_offset"))).alias("_read_to"),
        )
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
        f"case when _until is null then '{WAIT}' when _from >= _until then '{PASS}'"
        f" when _left then if(_compacted, '{UNKNOWN}', '{FAIL}')"
        f" when _read_to is null or _read_to < _until then '{WAIT}'"
        f" when _doubt or _known_from > greatest(_from, 0) then '{UNKNOWN}' else '{PASS}' end"
    )
    return needs.join(found, keys, "left").join(reads, ["topic", "_of"], "left").withColumn("_done", done)
