"""IC-ALGEBRA (11): what Kordon told coordinators of groups that commit offset by offset follows from what members said.

An INDIVIDUAL_COMMIT decision has what was new in an accepted commit, and the stable offset that the coordinator got
with it. All of one group, partition and incarnation are joined, as a log of claims joins them.

    a stable offset with something undone before it          pushed-ahead: fail
    one that falls, by one worker in one incarnation         pushed-back: fail
    a claim of an incarnation that the worker knew to be
    over, as it had taken a claim of the next one            claimed-after-end: fail
    ranges that cannot be read, an incarnation whose
    beginning was not seen, decisions that are missing       unknown

What one worker says is judged in the order of its numbers, as soon as it is read. Claims of other workers may be told
later than what rests on them: a stable offset is held against all that was claimed until a minute after it, and waits
`late_ms` for that.

The state is bounded. Of each group, partition and incarnation it has the ranges; of each worker and place the newest
stable offset and `MOST_ENDED` names. Both go after a day of silence, and the oldest ranges as soon as all of them take
more than `MOST_BYTES`; their incarnations are unknown from then on. Of the claims that wait there are `MOST_CLAIMS`;
beyond that the oldest are judged at once.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import polars as pl

from kordon.codecs.decision import Kind
from kordon.codecs.ranges import NONE, Ranges, load_stored
from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.rule import FAIL, PASS, UNKNOWN, Rule, RuleOutcome, State
from kordon.spark_jobs.judging.schema import columns
from kordon.spark_jobs.judging.tables import QUIET_MS, checked, decision, evidence, findings, named, shaped, stacked

MOST_BYTES: Final = 16 << 20
"""Of the ranges that are kept."""
MOST_CLAIMS: Final = 50_000
MOST_ENDED: Final = 8
SETTLED_MS: Final = 60_000
"""A claim may be told so much later than what rests on it."""
NO_OFFSET: Final = -1
AHEAD, BACK, ENDED = "pushed-ahead", "pushed-back", "claimed-after-end"

_PLACE: Final = columns(topic=pl.String, group_id=pl.String, topic_id=pl.String, partition=pl.Int32)
_CLAIM: Final = columns(
    _PLACE,
    incarnation=pl.Int64,
    stable=pl.Int64,
    ranges=pl.String,
    known_ranges=pl.Int64,
    last_offset=pl.Int64,
    worker=pl.String,
    number=pl.Int64,
    at_ms=pl.Int64,
    seen_ms=pl.Int64,
)
"""A decision; `last_offset` is the stable offset that the coordinator got."""
_JUDGED: Final = columns(_CLAIM, first_offset=pl.Int64, kind=pl.String, verdict=pl.String)
"""`first_offset`: what it was held against."""
_UNION: Final = columns(
    _PLACE,
    incarnation=pl.Int64,
    stable=pl.Int64,
    ranges=pl.Binary,
    is_whole=pl.Boolean,
    workers=pl.List(pl.String),
    at_ms=pl.Int64,
)
"""All that was claimed in an incarnation; `is_whole`: from its beginning."""
_WORKER: Final = columns(
    _PLACE,
    worker=pl.String,
    incarnation=pl.Int64,
    pushed=pl.Int64,
    number=pl.Int64,
    ended=pl.List(pl.Int64),
    at_ms=pl.Int64,
)
"""The newest claim that a worker has told of a place, and the incarnations that it knows to be over."""

_Row: TypeAlias = dict[str, Any]
_Key: TypeAlias = tuple[Any, ...]

_WHERE: Final = "group {group_id} at {topic}-{partition}"
_TEXTS: Final = {
    AHEAD: f"The coordinator of {_WHERE} was given offset {{last_offset}}, and all was done only before"
    " {first_offset}: if the group begins there, records are skipped. Reset the group to that offset, and report what"
    " the worker logged.",
    BACK: f"The coordinator of {_WHERE} was given offset {{last_offset}}, and had {{first_offset}} from the same worker"
    " in the same incarnation: if the group begins there, records are done again. Report what the worker logged.",
    ENDED: f"A commit of {_WHERE} was taken in an incarnation that had ended: what was done before a reset counts as"
    " done after it. Compare what the group has done since the reset, and report what the worker logged.",
}


@dataclass(slots=True)
class _Union:
    """What was claimed in an incarnation, as far as it was read."""

    stable: int = NO_OFFSET
    ranges: Ranges = NONE
    is_whole: bool = False
    workers: set[str] = field(default_factory=set[str])
    at_ms: int = 0

    def add(self, row: _Row) -> None:
        """Joins a claim; one that cannot be read leaves the union with a hole."""
        self.workers.add(row["worker"])
        self.at_ms = max(self.at_ms, row["at_ms"])
        try:
            ranges = load_stored(b64decode(row["ranges"] or "", validate=True) or NONE.dump())
        except (ValueError, binascii.Error):
            self.is_whole = False
            return
        stable = max(self.stable, row["stable"] if row["stable"] is not None else NO_OFFSET)
        self.stable, self.ranges = self.ranges.joined(ranges).above(stable)

    def begin(self, row: _Row, *, follows: bool) -> None:
        """Takes the first claim that was seen of it; `follows`: that of an earlier incarnation was seen, too."""
        self.is_whole = follows or row["known_ranges"] == 0
        self.stable = row["last_offset"]


def _check(facts: Facts, state: State) -> RuleOutcome:
    new = _claims(facts)
    workers, wrong = _in_turn(_rows(state["worker"]), _rows(new.sort("worker", "number")))
    waiting = stacked(_CLAIM, state["claim"], new).sort("at_ms", "worker", "number")
    is_ready = waiting.select(facts.is_late() | (pl.int_range(pl.len(), 0, -1) > MOST_CLAIMS)).to_series()
    unions = {_key(row): _union_of(row) for row in _rows(state["union"])}
    judged = list(_against_unions(_rows(waiting.with_columns(is_ready=is_ready)), unions, _missing(facts)))
    told = pl.DataFrame(
        [*wrong, *judged], schema=columns(_CLAIM, first_offset=pl.Int64, kind=pl.String, verdict=pl.String)
    )
    return RuleOutcome(
        findings=_findings(told, facts),
        state={
            "claim": shaped(waiting.filter(~is_ready), _CLAIM),
            "union": _kept(unions, facts),
            "worker": _recent(shaped(pl.DataFrame(workers, schema=_WORKER), _WORKER), facts),
        },
        checked=checked(told.with_columns(first_offset="last_offset")),
    )


def _claims(facts: Facts) -> pl.DataFrame:
    is_told = pl.all_horizontal(pl.col("group_id", "partition", "last_offset").is_not_null())
    of_kind = facts.decisions.filter((pl.col("kind") == Kind.INDIVIDUAL_COMMIT.value) & is_told)
    told = of_kind.with_columns(
        evidence("$.topic_id").alias("topic_id"),
        *(
            evidence(f"$.{name}").cast(pl.Int64, strict=False).alias(name)
            for name in ("incarnation", "stable", "known_ranges")
        ),
        evidence("$.ranges").alias("ranges"),
        pl.lit(facts.newest_ms).alias("seen_ms"),
    )
    return shaped(told.filter(pl.col("incarnation").is_not_null()), _CLAIM)


def _rows(table: pl.DataFrame) -> list[_Row]:
    return table.to_dicts()


def _place(row: _Row) -> _Key:
    return tuple(row[name] for name in _PLACE)


def _key(row: _Row) -> _Key:
    return *_place(row), row["incarnation"]


def _in_turn(known: list[_Row], new: list[_Row]) -> tuple[list[_Row], list[_Row]]:
    """Compares each worker's claims with its earlier ones; returns its last claims, and what is wrong."""
    newest = {(row["worker"], *_place(row)): row for row in known}
    wrong: list[_Row] = []
    for row in new:
        key = row["worker"], *_place(row)
        before = newest.get(key)
        ended: list[int] = list(before["ended"] or []) if before is not None else []
        if before is not None and row["incarnation"] != before["incarnation"]:
            if row["incarnation"] in ended:
                wrong.append({**row, "first_offset": row["last_offset"], "kind": ENDED, "verdict": FAIL})
                continue
            ended = [*ended, before["incarnation"]][-MOST_ENDED:]
        elif before is not None and row["last_offset"] < before["pushed"]:
            wrong.append({**row, "first_offset": before["pushed"], "kind": BACK, "verdict": FAIL})
            continue
        newest[key] = {**row, "pushed": row["last_offset"], "ended": ended}
    return [{name: row[name] for name in _WORKER} for row in newest.values()], wrong


def _union_of(row: _Row) -> _Union:
    return _Union(row["stable"], load_stored(row["ranges"]), row["is_whole"], set(row["workers"] or ()), row["at_ms"])


def _missing(facts: Facts) -> set[str]:
    """Returns the workers of which decisions are missing."""
    return set(facts.gaps.get_column("worker").to_list())


def _against_unions(claims: list[_Row], unions: dict[_Key, _Union], missing: set[str]) -> Iterator[_Row]:
    """Holds the stable offsets of claims that are ready against all that was claimed; `unions` continues with these."""
    by_key: dict[_Key, list[_Row]] = {}
    for row in claims:  # in the order of their times
        by_key.setdefault(_key(row), []).append(row)
    places = {key[:-1] for key in unions}
    for key, rows in by_key.items():
        if not any(row["is_ready"] for row in rows):
            continue
        if key not in unions:
            unions[key] = _Union()
            unions[key].begin(rows[0], follows=key[:-1] in places)
        places.add(key[:-1])
        yield from _judged(rows, unions[key], missing)


def _judged(rows: list[_Row], union: _Union, missing: set[str]) -> Iterator[_Row]:
    joined = 0
    for row in rows:
        if not row["is_ready"]:
            continue
        while joined < len(rows) and rows[joined]["at_ms"] <= row["at_ms"] + SETTLED_MS:
            union.add(rows[joined])
            joined += 1
        is_unsure = not union.is_whole or bool(union.workers & missing)
        is_ahead = row["last_offset"] > union.stable
        verdict = UNKNOWN if is_unsure else FAIL if is_ahead else PASS
        kind = AHEAD if is_ahead and not is_unsure else None
        told = {name: row[name] for name in _CLAIM}
        yield {**told, "first_offset": union.stable, "kind": kind, "verdict": verdict}


def _kept(unions: dict[_Key, _Union], facts: Facts) -> pl.DataFrame:
    rows: list[_Row] = []
    size = 0
    for key, each in sorted(unions.items(), key=lambda item: item[1].at_ms, reverse=True):
        ranges = each.ranges.dump()
        size += len(ranges)
        is_kept = size <= MOST_BYTES
        told = dict(zip(_PLACE, key, strict=False))
        rows.append(
            {
                **told,
                "incarnation": key[-1],
                "stable": each.stable,
                "ranges": ranges if is_kept else NONE.dump(),
                "is_whole": each.is_whole and is_kept,
                "workers": sorted(each.workers),
                "at_ms": each.at_ms,
            }
        )
    return _recent(pl.DataFrame(rows, schema=_UNION), facts)


def _recent(table: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    return table.filter(pl.col("at_ms") > facts.newest_ms - QUIET_MS)


def _findings(told: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    wrong = told.filter(pl.col("kind").is_not_null())
    rows = wrong.with_columns(
        pl.col("kind").replace_strict(_TEXTS, return_dtype=pl.String).alias("text"),
        named(decision()).alias("decisions"),
    )
    return findings(rows, RULE.number, RULE.name, ("worker", "number"), facts)


RULE: Final = Rule(
    number=11,
    name="IC-ALGEBRA",
    proves="What coordinators got of groups that commit offset by offset follows from what their members said.",
    state={"claim": _CLAIM, "union": _UNION, "worker": _WORKER},
    check=_check,
)
