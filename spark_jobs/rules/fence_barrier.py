"""FENCE-BARRIER (2): no write under a layout once its ends were read, nor under the next before it is in force.

    FENCE ──> every member's ACKNOWLEDGE ──> CUT of each sealed partition ──> COMMIT ──> ADMIT under the new layout
              └─ no ADMIT under the old one on these partitions by this worker, and none at or behind the cut by any

Only fences that came to a COMMIT count: attempts that were cancelled change nothing, and writes go on behind them.
Between workers the order is that of `__kordon.layouts`: a CUT names who had to acknowledge, where in that topic each
acknowledgement stands, and how far the controller had read. Within a worker it is that of its numbers. Found are:

    unacknowledged    a member did not acknowledge, though it went on under the new layout
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
went on under the new layout. It is known by then, as decisions of a worker come in order; what is missing behind that
cannot have been the acknowledgement. So it is the same whatever was read in one micro-batch. The gap itself is the
finding then (GAPS); here it only counts as unknown, as does a cut that the controller's gap may hide.

What comes late: acknowledgements and fences are waited for, `late_ms` from the COMMIT on; then they are missing, and it
is unknown.

`fence_changes.py` has what is known of changes, `fence_verdicts.py` what is said of them.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so

from kordon.spark_jobs.frames import stacked, worked_out
from kordon.spark_jobs.rules.fence_changes import STATE, commits_of, known_of, oldest, writes_of
from kordon.spark_jobs.rules.fence_verdicts import JUDGED, judged_of
from kordon.spark_jobs.rules.rule import LATE, PASS, Facts, Rule, RuleOutcome
from kordon.spark_jobs.rules.tables import QUIET_MS, checked, findings, union


def _check(facts: Facts, state: DataFrame) -> RuleOutcome:
    known = worked_out(known_of(facts, state))
    commits = worked_out(commits_of(known))
    judged = judged_of(facts, known, commits)
    told = known.where("what = 'told'").select("reason")
    new = worked_out(judged.join(told, "reason", "left_anti"))
    kept = oldest(commits_of(state))
    admits = writes_of(facts).join(kept, "topic", "left")
    is_late = F.coalesce(F.col("layouts_offset") < F.col("_oldest"), F.lit(False))
    passed = admits.withColumn("verdict", F.when(is_late, LATE).otherwise(PASS))
    return RuleOutcome(
        findings=findings(new.where(F.col("kind").isNotNull()), RULE.number, RULE.name, ("reason",), facts),
        state=_next_state(facts, known, commits, new),
        checked=checked(stacked(passed.to(JUDGED), new)),
    )


def _next_state(facts: Facts, known: DataFrame, commits: DataFrame, new: DataFrame) -> DataFrame:
    told = new.select("topic", "reason", "layouts_offset", "at_ms", F.lit("told").alias("what"))
    committed = commits.where("place <= 2").select("topic", "fence", F.lit(True).alias("_committed"))
    cancelled = known.where("what = 'cancel'").select("topic", "fence", F.lit(True).alias("_cancelled"))
    fresh = f"at_ms > {facts.newest_ms - 2 * facts.late_ms}"
    of_a_day = f"at_ms > {facts.newest_ms - QUIET_MS}"
    return (
        union([known, told], STATE)
        .join(oldest(commits), "topic", "left")
        .join(committed, ["topic", "fence"], "left")
        .join(cancelled, ["topic", "fence"], "left")
        .where(
            "case"
            f" when what in ('heard', 'lease', 'forget') then {of_a_day}"
            f" when what in ('admit') then {of_a_day} and (_oldest is null or layouts_offset >= _oldest or {fresh})"
            " when what in ('told', 'commit') then _oldest is null or layouts_offset >= _oldest"
            f" else _committed or (not coalesce(_cancelled, false) and {fresh}) end"
        )
        .to(STATE)
    )


RULE: Final = Rule(
    number=2,
    name="FENCE-BARRIER",
    proves="Before a partition's end was read, every live proxy had acknowledged to write no more under the old "
    "layout, and none did; nothing was written under the new one before it was durable.",
    state=STATE,
    check=_check,
)
