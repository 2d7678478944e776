"""HAND-OVER (8): whoever reads on for a group is told where the group had left off, and not behind that.

A partition that passes from one member of a group to the next is read on from the group's commit. The next member asks
for it (OffsetFetch), and Kordon answers with what the coordinator has. Where a group has nothing left to read, Kordon
tells it the end of the partition instead (OWN-END). So each offset that a client is told is held against what stands
in the topic, and against the commits that are on record. A stream is a virtual partition, or ~q for clients of the
dialect.

    what is told                                                         verdict
    what the coordinator has, and no more than the group has committed   pass
    a later offset, and the stream has no record in between              pass
    a later offset, and the stream has records in between                fail     told-ahead
    an earlier offset                                                    fail     told-behind
    a later offset, and it is not known what is in between               unknown
    the coordinator has more than anybody is known to have committed     unknown, if no such commit comes on record
    the coordinator has less than it had accepted before it was asked    unknown
    the coordinator has no commit; or the first that is heard of         not judged

What fails does so by one decision of one worker, which has both offsets, and by the topic: no order of decisions
matters, nor a decision that is missing. So no client can cause it, however it behaves.

What cannot be told:

- Whether a reader then begins where it was told. It may seek, or keep its offsets elsewhere, and a Fetch names no
  group. Nothing says which connection of a client's fetches for which group, as it asks its coordinator on another one,
  maybe through another worker; client ids need not differ. From where a reader begins on, NO-SKIP judges, and whether
  it goes back, KEY-ORDER.
- Whether a group had done what it has committed. That is the word of its members.
- Who is right where the coordinator has more than is on record: the commit went around Kordon, or through a worker that
  keeps no log, or that was killed before it wrote down the last half minute. So records may be skipped there, and it is
  no finding.
- Why the coordinator has less than what it had accepted: somebody has set the group back, around Kordon or through
  another worker, or the coordinator has lost the commit. Between workers there is no order. What a worker has seen
  accepted before it was asked has a lower number, and with that alone it is compared. Records come again then; a group
  is promised no more than to get them at least once.
- What lies between where batches are of the dialect, went around Kordon, or are gone; what compaction may have taken.

Not a hand-over: resets of groups that have no commit (auto.offset.reset), readers without a group, and commits of a
topic from before it was managed, which its coordinator has under another name. A transaction's commits count as if it
had not aborted. Who only looks at a group, such as a monitor, is told the same as a member, and is judged like one.

The state is bounded:

- what each worker has seen committed of each group and stream, for a day of silence, and the newest `MOST_COMMITS`;
- what was told and waits, for at most `late_ms`: for a commit that comes on record, or for topics to be read;
- what streams have (`stream_records.py`).

What comes late: a commit is on record half a minute after it was accepted, or later if there are very many. Where the
log ends (`--once`), what was told in its last two minutes is not held against commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, TypeAlias

import msgspec
import polars as pl

from kordon.codecs import apis
from kordon.codecs.decision import Kind
from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.rule import FAIL, LATE, PASS, UNKNOWN, Rule, RuleOutcome, State
from kordon.spark_jobs.judging.rules import stream_records
from kordon.spark_jobs.judging.rules.stream_records import WAIT, between, records_of
from kordon.spark_jobs.judging.schema import FINDINGS, columns
from kordon.spark_jobs.judging.tables import QUIET_MS, checked, decision, evidence, findings, named, shaped, stacked

MOST_COMMITS: Final = 1_000_000
"""Rows of some 50 bytes."""
_OPEN_MS: Final = 120_000
"""How long commits may be on their way to the log, and a little."""
_OF: Final = ("topic", "group_id", "stream")
_NUMBER: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_LISTS: Final = msgspec.json.Decoder(list[list[_NUMBER]])
_OF_GROUP: Final = columns(topic=pl.String, group_id=pl.String, stream=pl.Int32, worker=pl.String, number=pl.Int64)
_COMMITS: Final = columns(_OF_GROUP, committed=pl.Int64, high=pl.Int64, at_ms=pl.Int64)
"""What a worker has seen: `committed` is the newest offset that was accepted, in the decision `number`; `high` the
highest. Worker "": what was told of a group without being held against anything."""
_TOLD: Final = columns(_OF_GROUP, committed=pl.Int64, at_ms=pl.Int64, seen_ms=pl.Int64)
"""The coordinator has an offset that nobody is known to have committed."""
_ASKED: Final = columns(_TOLD, asked_after=pl.Int64)
"""The same before it was held against anything. `asked_after`: the worker's newest decision when the client asked;
null: it was held against the worker's commits already."""
_CHANGED: Final = columns(
    _OF_GROUP,
    connection=pl.Int64,
    layout_epoch=pl.Int32,
    committed=pl.Int64,
    told=pl.Int64,
    partition=pl.Int32,
    move=pl.Int32,
    position=pl.Int64,
    seen_ms=pl.Int64,
)
"""Another offset was told than the one that is committed, which lies at `position` of a stay's partition."""


def _check(facts: Facts, state: State) -> RuleOutcome:
    records = records_of(facts, state)
    seen = pl.concat([state["commit"], _accepted(facts)])
    told = _held_against(seen, stacked(_ASKED, state["told"], _told(facts)), facts)
    changed = _looked_up(stacked(_CHANGED, state["changed"], _changed(facts)), facts, records)
    waits = pl.col("verdict") == WAIT
    return RuleOutcome(
        findings=_findings(changed, facts),
        state={
            "commit": _kept(pl.concat([seen, _taken_as_it_is(told)]), facts),
            "told": shaped(told.filter(waits), _TOLD),
            "changed": shaped(changed.filter(waits), _CHANGED),
            **records,
        },
        checked=checked(pl.concat([told, changed], how="diagonal")),
    )


def _rows(facts: Facts, kind: Kind, path: str, names: Sequence[str], schema: pl.Schema) -> pl.DataFrame:
    """Returns a row for each list of numbers in the evidence of decisions; `names` says what these are."""
    of_kind = facts.decisions.filter(pl.col("kind") == kind.value, pl.col("topic", "group_id").is_not_null())
    if of_kind.is_empty():
        return schema.to_frame()
    texts = of_kind.select(evidence(f"$.{path}")).to_series()
    lists = pl.Series("row", [_lists(text, len(names)) for text in texts], dtype=pl.List(pl.List(pl.Int64)))
    asked_after = evidence("$.asked_after").cast(pl.Int64, strict=False).alias("asked_after")
    told = of_kind.select(pl.exclude("evidence"), lists, asked_after).explode("row").filter(pl.col("row").is_not_null())
    numbers = (pl.col("row").list.get(place).alias(name) for place, name in enumerate(names))
    return shaped(told.with_columns(*numbers, pl.lit(facts.newest_ms).alias("seen_ms")), schema)


def _lists(text: str | None, count: int) -> list[list[int]]:
    """Returns lists of so many numbers; none, if the text has anything else."""
    try:
        lists = _LISTS.decode(text or "[]")
    except (msgspec.MsgspecError, ValueError):
        return []
    return lists if all(len(each) == count for each in lists) else []


def _accepted(facts: Facts) -> pl.DataFrame:
    schema = columns(_COMMITS, api_key=pl.Int32)
    rows = _rows(facts, Kind.OFFSET_COMMIT, "offsets", ("stream", "first", "high"), schema)
    is_sure = pl.col("api_key") != apis.TXN_OFFSET_COMMIT  # or its transaction aborts
    sure = rows.with_columns(pl.when(is_sure).then("high").alias("committed"), pl.when(is_sure).then("number"))
    return shaped(sure, _COMMITS)


def _told(facts: Facts) -> pl.DataFrame:
    return _rows(facts, Kind.OFFSET_FETCH, "offsets", ("stream", "committed"), _ASKED)


def _changed(facts: Facts) -> pl.DataFrame:
    names = ("stream", "committed", "told", "partition", "move", "position")
    return _rows(facts, Kind.OFFSET_FETCH, "told", names, _CHANGED)


def _held_against(seen: pl.DataFrame, told: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """Compares coordinators' commits with the record; `verdict` null: it is not judged."""
    if told.is_empty():
        return told.with_columns(verdict=pl.lit(None, pl.String))
    newest = pl.col("number").alias("accepted_in"), pl.col("committed").alias("accepted")
    accepted = seen.filter(pl.col("number").is_not_null()).select(*_OF, "worker", *newest).sort("accepted_in")
    rows = (
        told.sort("asked_after")
        .join_asof(accepted, left_on="asked_after", right_on="accepted_in", by=[*_OF, "worker"], check_sortedness=False)
        .join(seen.group_by(_OF).agg(pl.max("high")), on=_OF, how="left")
    )
    is_young = pl.lit(facts.is_last) & (pl.col("at_ms") > facts.newest_ms - _OPEN_MS)
    verdict = (
        pl.when(pl.col("accepted") > pl.col("committed"))
        .then(pl.lit(UNKNOWN))
        .when(pl.col("high").is_null())
        .then(None)
        .when(pl.col("committed") <= pl.col("high"))
        .then(pl.lit(PASS))
        .when(is_young)
        .then(None)
        .when(facts.is_late())
        .then(pl.lit(LATE))
        .otherwise(pl.lit(WAIT))
    )
    return rows.with_columns(verdict.alias("verdict"))


def _taken_as_it_is(told: pl.DataFrame) -> pl.DataFrame:
    """Returns what was told and held against nothing, so that what comes next can be held against it."""
    rows = told.filter(pl.col("verdict").is_null() | (pl.col("verdict") == LATE)).select(
        *_OF, pl.lit("").alias("worker"), pl.col("committed").alias("high"), "at_ms"
    )
    return shaped(rows, _COMMITS)


def _kept(commits: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """Returns the newest of what each worker has seen."""
    newest = commits.sort("number", nulls_last=False).group_by(*_OF, "worker", maintain_order=True)
    told = newest.agg(pl.last("number", "committed"), pl.max("high", "at_ms"))
    heard_of = shaped(told.filter(pl.col("at_ms") > facts.newest_ms - QUIET_MS), _COMMITS)
    return heard_of if heard_of.height <= MOST_COMMITS else heard_of.top_k(MOST_COMMITS, by="at_ms")


def _looked_up(changed: pl.DataFrame, facts: Facts, records: State) -> pl.DataFrame:
    """Compares with the topic what was answered in place of commits."""
    if changed.is_empty():
        return changed.with_columns(verdict=pl.lit(None, pl.String))
    rows = changed.with_columns(span=pl.col("told") - pl.col("committed"))
    ahead = between(rows.filter(pl.col("span") > 0), facts, records).with_columns(
        pl.lit("told-ahead").alias("kind"),
        pl.when((pl.col("verdict") == WAIT) & facts.is_late()).then(pl.lit(LATE)).otherwise("verdict").alias("verdict"),
    )
    behind = rows.filter(pl.col("span") < 0).with_columns(
        pl.lit("told-behind").alias("kind"), pl.lit(FAIL).alias("verdict")
    )
    return pl.concat([ahead, behind], how="diagonal")


_TOLD_ANOTHER: Final = (
    "Group {group_id} has committed offset {committed} of virtual partition {stream} of {topic}, and a client that"
    " asked for it was told {told}"
)
_AHEAD: Final = (
    f"{_TOLD_ANOTHER}, though there are records in between, at {{topic}}-{{partition}}"
    " {offset:first_offset:last_offset}: who reads on for the group does not get them. Reset the group to where it had"
    " committed, and report what the worker logged then."
)
_BEHIND: Final = (
    f"{_TOLD_ANOTHER}: who reads on for the group gets records again. Look for repeats in what it has processed, and"
    " report what the worker logged then."
)


def _findings(changed: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    wrong = changed.filter(pl.col("verdict") == FAIL)
    if wrong.is_empty():
        return FINDINGS.to_frame()
    rows = wrong.with_columns(
        pl.when(pl.col("kind") == "told-ahead").then(pl.lit(_AHEAD)).otherwise(pl.lit(_BEHIND)).alias("text"),
        named(decision()).alias("decisions"),
    )
    return findings(rows, RULE.number, RULE.name, ("worker", "number", "stream"), facts)


RULE: Final = Rule(
    number=8,
    name="HAND-OVER",
    proves="Whoever read on for a group was told where the group had left off, and not behind records that nobody of "
    "it had read.",
    is_of_one_life=True,
    state={"commit": _COMMITS, "told": _TOLD, "changed": _CHANGED, **stream_records.STATE},
    check=_check,
)
