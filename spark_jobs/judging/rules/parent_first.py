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

What is needed of whom is worked out from the layouts again; `positions` is what the proxy says it had of the group. A
rewind in a predecessor closes the proxy's gate once the group has told it, and shows as HOLD and RELEASE, whose
positions are judged like all others.

The state is bounded:

- where each reader stands, until its connection closes, or for `READERS_MS` of silence, as workers that were killed
  close nothing;
- what waits to be judged, for at most `late_ms`;
- of topics the last batch of each stream and stay, how far they were read, and the unbroken runs of batches that
  readers may see (holes are markers, control batches and what compaction took): the newest `MOST_RUNS` of a partition.
  What a position below them has left is unknown.

`parent_readers.py` has what is known of readers, `parent_data.py` of topics, `parent_segments.py` of what was before a
segment, `parent_needs.py` what has to be done.

What comes late: decisions of a worker come in order. Batches and layouts that are not read yet are waited for, for
`late_ms`; then it is unknown.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.rule import FAIL, PASS, UNKNOWN, Rule, RuleOutcome, State
from kordon.spark_jobs.judging.rules import parent_data
from kordon.spark_jobs.judging.rules.parent_data import data_of
from kordon.spark_jobs.judging.rules.parent_needs import WAIT, judged_of
from kordon.spark_jobs.judging.rules.parent_readers import READERS, READERS_MS, STEPS, deliveries_of, steps_in
from kordon.spark_jobs.judging.rules.readers import still_open
from kordon.spark_jobs.judging.tables import checked, decision, findings, named, shaped


def _check(facts: Facts, state: State) -> RuleOutcome:
    deliveries, readers = deliveries_of(facts, state["reader"])
    data = data_of(facts, state)
    judged = judged_of(facts, pl.concat([state["step"], steps_in(deliveries, facts)]), data)
    is_done = pl.col("verdict") != WAIT
    goes_on = deliveries.filter(~pl.col("begins")).with_columns(pl.lit(PASS).alias("verdict"))
    return RuleOutcome(
        findings=_findings(judged.filter(is_done), facts),
        state={
            "reader": shaped(still_open(readers, facts, READERS_MS), READERS),
            "step": shaped(judged.filter(~is_done), STEPS),
            **data,
        },
        checked=checked(pl.concat([judged.filter(is_done), goes_on], how="diagonal")),
    )


_EARLY: Final = (
    "Offsets from {first_offset} on of partition {partition} of {topic} were delivered while partition {of}, which held"
    " their keys before, was read to offset {reached} of {until} only"
)
_WHAT_TO_DO: Final = (
    ". Records of a key may have been processed before earlier ones of it; look at why the gate was open."
)


def _findings(judged: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    across_gap = pl.lit(f"{_EARLY}, but decisions are missing in between{_WHAT_TO_DO}")
    wrong = judged.filter(pl.col("done") == FAIL).with_columns(
        pl.lit("early-child").alias("kind"),
        pl.when(pl.col("verdict") == UNKNOWN).then(across_gap).otherwise(pl.lit(_EARLY + _WHAT_TO_DO)).alias("text"),
        pl.col("reached").clip(lower_bound=0),
        pl.when(pl.col("stream") < 0).then("move").alias("layout_epoch"),
        named(decision("worker", "stood_before"), decision()).alias("decisions"),
    )
    return findings(wrong, RULE.number, RULE.name, ("worker", "number"), facts)


RULE: Final = Rule(
    number=3,
    name="PARENT-FIRST",
    proves="Each delivery from a segment came after the evidence that all segments which held its keys before were "
    "done, and again after each rewind.",
    is_of_one_life=True,
    state={"reader": READERS, "step": STEPS, **parent_data.STATE},
    check=_check,
)
