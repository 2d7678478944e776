"""PARENT-FIRST (3): nothing is given of a segment before all that its keys were in earlier is done.

    clients of the dialect   a DELIVER of segment (q, e) needs of each physical partition that held its keys before, as
                             far as there are predecessors of predecessors, that the group's position is at or behind
                             the end there: `evidence.positions` of this DELIVER, or of the reader's last RELEASE
    other clients            a DELIVER of stay k + 1 needs that the same connection has had stay k to its end, or has
                             begun in stay k + 1

Done is also what has nothing deliverable left between position and end; that is looked up in the topic's own batches.
Where they are gone, or carry no stream (bypass, clients of the dialect in a virtual partition), it is unknown; so is
what is left before a dialect reader in a compacted topic, as it may have been taken before its turn came. After a
rewind a reader's evidence is asked for again. Found is one kind, `early-child`.

Where `enable.ordered.delivery` is false (the evidence says so) nothing is promised to clients of the dialect.

What is needed of whom is worked out from the layouts anew; `positions` is what the proxy says it had of the group. A
rewind in a predecessor closes the proxy's gate once the group has told it, and shows as HOLD and RELEASE, whose
positions are judged like all others.

State: a row per reader, where it stands; what waits to be judged; of topics the last batch of each stream and stay, the
unbroken runs of batches that readers may see (holes are markers, control batches and what compaction took), and how far
they were read. Bounded: readers go with their CLOSE, or after `READERS_MS` of silence, as workers that were killed
close nothing; what waits is judged after `late_ms`; of runs there are the newest `MOST_RUNS` of a partition, and what
a position below them has left is unknown.

`parent_readers.py` has what is known of readers, `parent_data.py` of topics, `parent_needs.py` what has to be done.

What comes late: decisions of a worker come in order; batches and layouts that are not read yet are waited for, for
`late_ms`, then it is unknown.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so
from pyspark.sql.types import StringType, StructField, StructType

from kordon.spark_jobs.frames import worked_out
from kordon.spark_jobs.rules.parent_data import data_of
from kordon.spark_jobs.rules.parent_needs import WAIT, judged_of
from kordon.spark_jobs.rules.parent_readers import STATE, events_of, readers_of, steps_of
from kordon.spark_jobs.rules.rule import FAIL, PASS, UNKNOWN, Facts, Rule, RuleOutcome
from kordon.spark_jobs.rules.tables import checked, decision, findings, union


def _check(facts: Facts, state: DataFrame) -> RuleOutcome:
    events = worked_out(events_of(facts, state))
    steps = worked_out(union([state.where("what = 'step'"), steps_of(facts, events)], STATE))
    data = worked_out(data_of(facts, state))
    judged = worked_out(judged_of(facts, steps, data))
    done = judged.where(F.col("verdict") != WAIT)
    waiting = judged.where(F.col("verdict") == WAIT).withColumn("what", F.lit("step"))
    goes_on = events.where("what = 'deliver' and not is_step").withColumn("verdict", F.lit(PASS))
    looked_at = union([done, goes_on], _LOOKED_AT)
    return RuleOutcome(
        findings=_findings(done, facts),
        state=union([readers_of(facts, events), waiting, data], STATE),
        checked=checked(looked_at),
    )


_LOOKED_AT: Final = StructType(
    [
        *(each for each in STATE.fields if each.name in {"topic", "partition", "stream"}),
        *(each for each in STATE.fields if each.name in {"first_offset", "last_offset"}),
        StructField("verdict", StringType()),
    ]
)


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
