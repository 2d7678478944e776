"""What FENCE-BARRIER says of a change: of each member, each cut, and of what was written at the wrong time."""

from __future__ import annotations

from typing import Final, Literal

import polars as pl

from kordon.codecs.decision import Kind
from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.rule import FAIL, PASS, UNKNOWN, State
from kordon.spark_jobs.judging.rules.fence_changes import BY_FENCE, commits_of, fields_of, of_kind
from kordon.spark_jobs.judging.rules.gaps import with_gaps
from kordon.spark_jobs.judging.schema import columns
from kordon.spark_jobs.judging.tables import decision, named, stacked

_JUDGED: Final = columns(
    fields_of("topic fence partition worker layout_epoch layouts_offset first_offset last_offset reason kind"),
    epoch=pl.Int32,
    verdict=pl.String,
    text=pl.String,
    decisions=pl.List(pl.String),
)
"""`reason` tells one thing that is judged from all others; `kind` null: there is no finding. `epoch`: of the change;
`layout_epoch`: that of what is found."""
_LOST: Final = "lost"
"""The reason of a LEASE decision."""
_UNACKNOWLEDGED: Final = "unacknowledged"
_TOO_EARLY: Final = "cut-too-early"
_OUT_OF_ORDER: Final = "cut-out-of-order"
_COMMIT: Final = decision("controller", "commit_number")
_MEMBER_TEXT: Final = (
    "Layout epoch {epoch} of {topic} was cut and committed %s the acknowledgement of worker {worker} was there: what it"
    " had under way may have landed behind the cut. Look at fence {fence} in its log and the controller's."
)
_CUT_TEXT: Final = (
    "Partition {partition} of {topic} was sealed by fence {fence} without a cut that was read between the fence and"
    " layout epoch {epoch}: where its segment ends is not proven. Look at the controller's decisions on this fence."
)
_FENCE_TEXT: Final = (
    "Layout epoch {epoch} of {topic} was committed by fence {fence}, and no decision tells of that fence: whether all"
    " workers held it, and which partitions it sealed, is not proven. Look for a worker that was killed at that time."
)
_WRONG_TEXT: Final = (
    "Worker {worker} acknowledged writes to partition {partition} of {topic} up to offset {last_offset} %s (fence"
    " {fence}, layout epoch {epoch}). Compare them with what the topic has: records may be lost, or out of their key's"
    " order."
)
_EARLY: Final = "early-admit"
_AFTER: Final = "write-after-fence"
_BEHIND: Final = "behind-cut"
_WRONG: Final = {
    _EARLY: _WRONG_TEXT % "under a layout that was not in force yet",
    _AFTER: _WRONG_TEXT % "under a layout whose fence it had acknowledged",
    _BEHIND: _WRONG_TEXT % "at or behind the cut, where no reader of the old layout looks",
}


def judged_of(facts: Facts, known: State) -> pl.DataFrame:
    """Returns what can be said of changes and was not said before, as `_JUDGED`."""
    commits = commits_of(known["step"])
    if commits.is_empty():
        return _JUDGED.to_frame()
    at_once = () if facts.decisions.is_empty() else (_cuts, _early, _late)  # the others may have been waited for
    return stacked(_JUDGED, *(part(facts, known, commits) for part in (_members, _unproven, *at_once)))


def _members(facts: Facts, known: State, commits: pl.DataFrame) -> pl.DataFrame:
    """Judges of each member whether it acknowledged before the cut; those that are waited for are left out."""
    owing = _untold(_owing(known["step"], commits), known, "member", *BY_FENCE, "worker")
    if owing.is_empty():
        return owing
    at, has_gone_on = pl.col("acknowledged_at"), pl.col("went_on").is_not_null()
    owing = _with_what_became(owing, facts, known).with_columns(
        pl.when(~pl.col("has_acknowledged") | (at > pl.col("cut")) | (at <= pl.col("fenced")))
        .then(pl.lit(_TOO_EARLY))
        .when(pl.col("ack_number").is_null() & pl.col("lease_then").ne_missing(_LOST))
        .then(pl.lit(_UNACKNOWLEDGED))
        .alias("kind")
    )
    is_too_early = pl.col("kind").eq_missing(_TOO_EARLY)
    is_answered = is_too_early | (pl.col("kind").is_null() & pl.col("ack_number").is_not_null())
    is_proven = is_answered | (has_gone_on & ~pl.col("across_gap"))
    proven = pl.when(pl.col("kind").is_null()).then(pl.lit(PASS)).when(is_proven).then(pl.lit(FAIL))
    how = pl.when(is_too_early).then(pl.lit(_MEMBER_TEXT % "before"))
    return owing.filter(is_proven | _is_waited(facts)).with_columns(
        proven.otherwise(pl.lit(UNKNOWN)).alias("verdict"),
        pl.when(is_proven | ~has_gone_on).then("kind").alias("kind"),  # where a gap may hide it, the gap is the finding
        how.otherwise(pl.lit(_MEMBER_TEXT % "and nothing tells whether")).alias("text"),
        named(_COMMIT, decision("worker", "ack_number")).alias("decisions"),
    )


def _owing(step: pl.DataFrame, commits: pl.DataFrame) -> pl.DataFrame:
    """Returns who had to acknowledge each change, as its CUT has it, or else its FENCE."""
    cuts = of_kind(step, Kind.CUT).group_by(BY_FENCE, maintain_order=True)
    at_cut = cuts.agg(pl.min("layouts_offset").alias("cut"), pl.col("members").drop_nulls().first().alias("_at_cut"))
    joined = commits.join(at_cut, on=BY_FENCE, how="left").with_columns(members=pl.coalesce("_at_cut", "members"))
    return joined.explode("members").unnest("members").filter(pl.col("worker").is_not_null())


def _with_what_became(owing: pl.DataFrame, facts: Facts, known: State) -> pl.DataFrame:
    """Adds of each member its acknowledgement, its first decision that rests on the new layout, and its lease.

    Returns:
        With `ack_number`; `went_on`, the number of that decision, in front of which its acknowledgement would stand;
        `lease_then`, what its last decision on its lease says of those that it took before it had read the new layout.
    """
    heard = known["heard"].select("worker", commit="layouts_offset", went_on="number")
    leases = known["lease"].select("worker", commit="layouts_offset", lease_then="reason")
    owing = owing.join(_acknowledgements(known["step"]), on=[*BY_FENCE, "worker"], how="left")
    owing = _nearest(_nearest(owing, heard, "commit", "forward"), leases, "commit", "backward")
    return with_gaps(owing.with_columns(_none=pl.lit(None, pl.Int64)), facts.gaps, after="_none", until="went_on")


def _acknowledgements(step: pl.DataFrame) -> pl.DataFrame:
    """Returns the first acknowledgement of each fence by each worker."""
    return of_kind(step, Kind.ACKNOWLEDGE).group_by(*BY_FENCE, "worker").agg(pl.min("number").alias("ack_number"))


def _nearest(rows: pl.DataFrame, of: pl.DataFrame, on: str, way: Literal["forward", "backward"]) -> pl.DataFrame:
    """Adds to rows what lies nearest to each, or there, of the same worker."""
    in_order = of.drop_nulls(on).sort(on, maintain_order=True)
    return rows.sort(on).join_asof(in_order, on=on, by="worker", strategy=way, check_sortedness=False)


def _cuts(facts: Facts, known: State, commits: pl.DataFrame) -> pl.DataFrame:
    """Judges of each sealed partition whether its cut was read between fence and layout."""
    sealed = _untold(_sealed(commits), known, "cut", *BY_FENCE, "partition")
    if sealed.is_empty():
        return sealed
    place = (*BY_FENCE, "partition")
    cuts = of_kind(known["step"], Kind.CUT).select(
        *place, "last_offset", cut="layouts_offset", cutter="worker", cut_number="number"
    )
    joined = sealed.join(cuts, on=place, how="left").with_columns(worker="controller")
    number = pl.col("cut_number")
    is_in_order = pl.all_horizontal(
        number.is_not_null(),
        pl.col("cut").is_null() | pl.col("cut").is_between("fenced", "commit"),
        (pl.col("cutter") != pl.col("fencer")) | (number > pl.col("fence_number")),
        (pl.col("cutter") != pl.col("controller")) | (number < pl.col("commit_number")),
    )
    is_hidden = pl.col("across_gap") & number.is_null()
    verdict = pl.when(is_in_order).then(pl.lit(PASS)).when(is_hidden).then(pl.lit(UNKNOWN)).otherwise(pl.lit(FAIL))
    judged = with_gaps(joined, facts.gaps, after="fence_number", until="commit_number").with_columns(
        verdict.alias("verdict"),
        pl.lit(_CUT_TEXT).alias("text"),
        named(decision("fencer", "fence_number"), decision("cutter", "cut_number"), _COMMIT).alias("decisions"),
    )
    # what is unknown a gap may hide, and that is the finding
    return judged.with_columns(pl.when(pl.col("verdict") == FAIL).then(pl.lit("cut-out-of-order")).alias("kind"))


def _sealed(commits: pl.DataFrame) -> pl.DataFrame:
    """Returns changes with each partition that they sealed."""
    return commits.explode("sealed").rename({"sealed": "partition"}).filter(pl.col("partition").is_not_null())


def _unproven(facts: Facts, known: State, commits: pl.DataFrame) -> pl.DataFrame:
    """Says of changes whose FENCE is on record nowhere that nothing tells whether all held, or what was sealed.

    It is no proof of a fault: who raised the fence may have been killed before its decisions were written.
    """
    untold = _untold(commits.filter(pl.col("fenced").is_null() & _is_waited(facts)), known, "fence", *BY_FENCE)
    return untold.with_columns(
        pl.lit(_UNACKNOWLEDGED).alias("kind"),
        pl.lit(UNKNOWN).alias("verdict"),
        pl.col("controller").alias("worker"),
        pl.lit(_FENCE_TEXT).alias("text"),
        named(_COMMIT).alias("decisions"),
    )


def _early(facts: Facts, known: State, commits: pl.DataFrame) -> pl.DataFrame:
    """Finds what was admitted under a layout before that was in force."""
    written = known["admit"].rename({"layouts_offset": "rests_on"})
    early = commits.join(written, on=["topic", "layout_epoch"]).filter(pl.col("rests_on") < pl.col("commit"))
    return _wrong(early, known, _EARLY)


def _late(facts: Facts, known: State, commits: pl.DataFrame) -> pl.DataFrame:
    """Finds writes that an old layout admitted after its worker's acknowledgement, or at or after the cut.

    Where a log got shorter, the latter says nothing.
    """
    step = known["step"]
    old = _sealed(commits).drop("layout_epoch").join(known["admit"].drop("layouts_offset"), on=["topic", "partition"])
    old = old.filter(pl.col("layout_epoch") < pl.col("epoch"))
    after = old.join(_acknowledgements(step), on=[*BY_FENCE, "worker"]).filter(pl.col("number") > pl.col("ack_number"))
    ends = of_kind(step, Kind.CUT).select(*BY_FENCE, "partition", cut="last_offset")
    behind = old.join(ends, on=[*BY_FENCE, "partition"]).filter(pl.col("last_offset") >= pl.col("cut"))
    shortened = facts.segments.filter(pl.col("kept_end") < pl.col("end"))
    behind = behind.join(shortened, on=["topic", "partition"], how="anti")
    kept_or_not = _with_kept(_wrong(after, known, _AFTER), known["lease"])
    return stacked(_JUDGED, kept_or_not, _wrong(behind, known, _BEHIND))


def _wrong(rows: pl.DataFrame, known: State, kind: str) -> pl.DataFrame:
    return _untold(rows, known, kind, *BY_FENCE, "partition", "worker", "layout_epoch").with_columns(
        pl.lit(kind).alias("kind"),
        pl.lit(FAIL).alias("verdict"),
        pl.lit(_WRONG[kind]).alias("text"),
        named(decision(), _COMMIT).alias("decisions"),
    )


def _with_kept(after: pl.DataFrame, leases: pl.DataFrame) -> pl.DataFrame:
    """Makes unknown what may be an answer that was kept (LATE-ANSWER).

    Its worker had no lease when it acknowledged, or has lost it between that and what it admitted.
    """
    before = leases.select("worker", ack_number=pl.col("number") + 1, lease_then="reason")
    losses = leases.filter(pl.col("reason") == _LOST).select("worker", ack_number="number", lost="number")
    rows = _nearest(_nearest(after, before, "ack_number", "backward"), losses, "ack_number", "forward")
    may_be_kept = (pl.col("lease_then") == _LOST) | (pl.col("lost") <= pl.col("number"))
    return rows.with_columns(pl.when(may_be_kept).then(pl.lit(UNKNOWN)).otherwise("verdict").alias("verdict"))


def _untold(rows: pl.DataFrame, known: State, what: str, *of: str) -> pl.DataFrame:
    """Leaves out what was judged before; adds the `reason` of the rest."""
    reason = pl.concat_str(pl.lit(what), *of, separator="/", ignore_nulls=True).alias("reason")
    return rows.with_columns(reason).join(known["told"], on="reason", how="anti")


def _is_waited(facts: Facts) -> pl.Expr:
    """Returns whether decisions that would tell have been waited for, from the COMMIT on, and no longer are."""
    return pl.lit(value=True) if facts.is_last else pl.col("commit_ms") < facts.newest_ms - facts.late_ms
