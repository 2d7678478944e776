"""FENCE-BARRIER (2): no write under a layout once its ends were read, nor under the next before it is in force.

    FENCE ──> every member's ACKNOWLEDGE ──> CUT of each sealed partition ──> COMMIT ──> ADMIT under the new layout
              └─ no ADMIT under the old one on these partitions by this worker, and none at or behind the cut by any

Only fences that came to a COMMIT count: attempts that were cancelled change nothing, and writes continue behind them.
Between workers the order is that of `__kordon.layouts`: a CUT names who had to acknowledge, where in that topic each
acknowledgement stands, and how far the controller had read. Within a worker it is that of its numbers. Found are:

    unacknowledged    a member did not acknowledge, though it continued under the new layout
    cut-too-early     the controller cut without a member's acknowledgement, or before it
    cut-out-of-order  a sealed partition has no CUT between FENCE and COMMIT
    early-admit       an ADMIT under the new layout rests on less than the COMMIT
    write-after-fence a worker admitted under the old layout behind its own acknowledgement
    behind-cut        what was admitted under the old layout lies at or behind the cut

What a worker admits behind its acknowledgement may be an answer that it had kept (LATE-ANSWER) if it had no lease when
it acknowledged, or has lost it since: that is unknown, unless it lies behind the cut. A lease that was lost and came
back before excuses nothing. A member that had lost its lease when the layout was written owes nothing. Where a member
is never heard of again, the controller's or its own decisions are missing, or no decision tells of the fence, it is
unknown. Cuts of a log that got shorter (BEYOND-LOSS) say nothing of what was admitted.

State: the steps of fences that are under way and of the two newest layouts per topic; per worker, partition and layout
epoch one row of what it admitted; per worker by which decisions it came to rest on more of the layouts, and its lease.
Bounded by the workers of a day (`QUIET_MS`) times the partitions, and times the changes of that day. Of a change that
was followed by two others no more is kept: an ADMIT that comes later than that is counted as unknown.

A gap of a worker makes unknown whether it acknowledged if it lies in front of the first decision by which the worker
continued under the new layout. It is known by then, as decisions of a worker come in order; what is missing behind that
cannot have been the acknowledgement. So it is the same whatever was read in one micro-batch. The gap itself is the
finding then (GAPS); here it only counts as unknown, as does a cut that the controller's gap may hide.

What comes late: acknowledgements and fences are waited for, `late_ms` from the COMMIT on; then they are missing, and it
is unknown.

`fence_changes.py` has what is known of changes, `fence_verdicts.py` what is said of them.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from kordon.codecs.decision import Kind
from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.rule import LATE, PASS, Rule, RuleOutcome, State
from kordon.spark_jobs.judging.rules import fence_changes
from kordon.spark_jobs.judging.rules.fence_changes import BY_FENCE, IS_FORGET, STATE, TOLD, oldest_of
from kordon.spark_jobs.judging.rules.fence_verdicts import judged_of
from kordon.spark_jobs.judging.schema import CHECKED
from kordon.spark_jobs.judging.tables import QUIET_MS, checked, findings, stacked


def _check(facts: Facts, state: State) -> RuleOutcome:
    writes = fence_changes.writes_of(facts.decisions)
    known = fence_changes.known_of(facts, state, writes)
    judged = judged_of(facts, known)
    found = judged.filter(pl.col("kind").is_not_null())
    return RuleOutcome(
        findings=findings(found, RULE.number, RULE.name, ("reason",), facts),
        state=_next_state(facts, {**known, "told": stacked(TOLD, known["told"], judged)}),
        checked=checked(stacked(CHECKED, _with_verdict(writes, oldest_of(state["step"])), judged)),
    )


def _with_verdict(writes: pl.DataFrame, oldest: pl.DataFrame) -> pl.DataFrame:
    """Adds to writes whether they come later than what is kept of changes."""
    is_late = (pl.col("layouts_offset") < pl.col("oldest")).fill_null(value=False)
    verdict = pl.when(is_late).then(pl.lit(LATE)).otherwise(pl.lit(PASS)).alias("verdict")
    return writes.join(oldest, on="topic", how="left").with_columns(verdict)


def _next_state(facts: Facts, known: State) -> State:
    is_fresh = pl.col("at_ms") > facts.newest_ms - 2 * facts.late_ms
    is_of_day = pl.col("at_ms") > facts.newest_ms - QUIET_MS
    is_recent = (pl.col("layouts_offset") >= pl.col("oldest")) | pl.col("oldest").is_null()
    is_commit = pl.col("kind") == Kind.COMMIT.value
    is_kept = (is_commit & is_recent).any().over(BY_FENCE)
    is_cancelled = (pl.col("kind") == Kind.CANCEL.value).any().over(BY_FENCE)
    of_fence = pl.when(is_commit).then(is_recent).otherwise(is_kept | (is_fresh & ~is_cancelled))
    stays = {
        "step": pl.when(IS_FORGET).then(is_of_day).otherwise(of_fence),
        "admit": is_of_day & (is_recent | is_fresh),
        "told": is_recent,
    }
    oldest = oldest_of(known["step"])
    of_topics = {name: known[name].join(oldest, on="topic", how="left").filter(each) for name, each in stays.items()}
    of_workers = {name: known[name].filter(is_of_day) for name in ("heard", "lease")}
    return {name: table.select(STATE[name].names()) for name, table in {**of_topics, **of_workers}.items()}


RULE: Final = Rule(
    number=2,
    name="FENCE-BARRIER",
    proves="Before a partition's end was read, every live proxy had acknowledged to write no more under the old "
    "layout, and none did; nothing was written under the new one before it was durable.",
    state=STATE,
    check=_check,
)
