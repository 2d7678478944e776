"""SOURCE-OWNER (12): each source partition has one owner at a time, and its restart points only rise (KIP-509).

An ASSIGN decision has who owns what in a generation of a group, as its leader has told it. A POINT decision has a
restart point that the coordinator accepted: its number, who committed it in which generation, the worker's newest
decision when the client asked (`asked_after`), and what the coordinator had, if it was asked (`held`).

    one generation gives a partition to two members                                 two-owners: fail
    a number lower than one that the worker saw accepted before the client asked,
    and the coordinator was not asked; or lower than what it had                    point-fell: fail
    a member commits in a generation that is over, or what its generation has given
    to another one, after that one has committed the partition                      former-owner: fail
    a lower number behind missing decisions, or where the coordinator did not tell;
    two members of one generation, and no decision says who owns the partition      unknown

Restart points are compared within a worker. A client that asks after a decision of its worker has asked after what
that decision tells, so the coordinator took its commit later. Nothing orders decisions of several workers.

A group that is deleted begins with generation and number 1 again, and nothing tells. So a number may fall where the
coordinator had a lower one. And a lower generation proves nothing by itself: its member is to be known from before the
one of the newer generation. Members' names are used for one life of a group.

Not judged: owners in groups of KIP-848, whose brokers share partitions out; what a transaction that aborted had
committed, beside what was committed later; and records (SEQ-IMAGE and TXN-WITNESS judge the producers of these).

The state is bounded: the `MOST_SEEN` newest restart points, `MOST_MEMBERS` members' for each worker and partition; of
owners `MOST_BYTES`; and `MOST_WAITING` restart points that wait `late_ms` for owners. All go after a day of silence.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import polars as pl

from kordon.codecs import apis
from kordon.codecs.decision import Kind
from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.rule import FAIL, LATE, PASS, UNKNOWN, Rule, RuleOutcome, State
from kordon.spark_jobs.judging.schema import columns
from kordon.spark_jobs.judging.tables import QUIET_MS, checked, decision, evidence, findings, named, shaped, stacked

MOST_SEEN: Final = 50_000
MOST_MEMBERS: Final = 4
MOST_BYTES: Final = 16 << 20
MOST_WAITING: Final = 10_000
MOST_LIVES: Final = 4
"""Of a group, in each of which it comes to the same generation."""
TWO, FELL, FORMER = "two-owners", "point-fell", "former-owner"

_GROUP: Final = columns(topic=pl.String, group_id=pl.String, topic_id=pl.String)
_DECISION: Final = columns(worker=pl.String, number=pl.Int64, connection=pl.Int64, at_ms=pl.Int64)
_OWNERS: Final = columns(
    _GROUP, _DECISION, generation_id=pl.Int64, member_id=pl.String, api_key=pl.Int64, owners=pl.String
)
"""What the leader `member_id` told; `owners` is JSON: pairs of a member and its partitions."""
_POINT: Final = columns(
    _GROUP,
    _DECISION,
    partition=pl.Int32,
    member_id=pl.String,
    generation_id=pl.Int64,
    point=pl.Int64,
    held=pl.Int64,
    asked_after=pl.Int64,
)
"""`point` is the number of the restart point."""
_SEEN: Final = columns(_POINT, first=pl.Int64)
"""The newest of a member; `first` is the number of its first decision."""
_COMPARED: Final = columns(
    _POINT, other_number=pl.Int64, other_member=pl.String, other_generation=pl.Int64, other_point=pl.Int64
)
"""With what it was held against, of the same worker."""
_WAITING: Final = columns(_COMPARED, seen_ms=pl.Int64)

_PARTITIONS: Final = 2**31

_Row: TypeAlias = dict[str, Any]
_Owned: TypeAlias = dict[str, set[int]]
"""Partitions by member."""

_WHERE: Final = "source partition {partition} of {topic} in group {group_id}"
_COMPARE: Final = (
    " Compare the restart point with what the topics have of the source, and report what the worker logged."
)
_TEXTS: Final = {
    TWO: f"The members {{member_id}} and {{other_member}} were both given {_WHERE}, in generation {{generation_id}}:"
    " what both copy is in the topics twice. See which client leads the group and how it shares partitions out, and"
    " compare what the two have written.",
    FELL: f"Restart point {{point}} of {_WHERE} was taken, though the group had {{other_point}}: what lies between is"
    f" written again.{_COMPARE}",
    FORMER: f"{{member_id}} committed restart point {{point}} of {_WHERE}, in generation {{generation_id}}, after"
    " {other_member} had taken it over in generation {other_generation}: what both have copied is in the topics"
    f" twice.{_COMPARE}",
}


def _check(facts: Facts, state: State) -> RuleOutcome:
    told, points = _owners(facts), _points(facts)
    owners = _within_bytes(stacked(_OWNERS, state["owners"], told.filter(pl.col("api_key") == apis.SYNC_GROUP)), facts)
    seen, judged = _in_turn(state["seen"].to_dicts(), points.sort("worker", "number").to_dicts(), facts)
    doubtful = [row for row in judged if row["verdict"] is None]
    waiting = stacked(_WAITING, state["waiting"], pl.DataFrame(doubtful, schema=_WAITING))
    is_ready = waiting.select(facts.is_late() | (pl.int_range(pl.len(), 0, -1) > MOST_WAITING)).to_series()
    settled = list(_by_owners(waiting.with_columns(is_ready=is_ready).to_dicts(), owners.to_dicts()))
    left = pl.DataFrame([row for row in settled if row["verdict"] is None], schema=_WAITING)
    wrong = [*_twice_given(told.to_dicts()), *(row for row in [*judged, *settled] if row["verdict"] is not None)]
    rows = pl.DataFrame(wrong, schema=columns(_COMPARED, kind=pl.String, verdict=pl.String))
    return RuleOutcome(
        findings=_findings(rows, facts),
        state={"owners": owners, "seen": _newest(seen, facts), "waiting": left},
        checked=checked(rows),
    )


def _owners(facts: Facts) -> pl.DataFrame:
    told = facts.decisions.filter((pl.col("kind") == Kind.ASSIGN.value) & pl.col("group_id").is_not_null())
    said = told.with_columns(evidence("$.topic_id").alias("topic_id"), evidence("$.owners").alias("owners"))
    return shaped(said, _OWNERS)


def _points(facts: Facts) -> pl.DataFrame:
    is_told = pl.all_horizontal(pl.col("group_id", "partition", "generation_id").is_not_null())
    told = facts.decisions.filter((pl.col("kind") == Kind.POINT.value) & is_told)
    said = told.with_columns(
        evidence("$.topic_id").alias("topic_id"),
        *(
            evidence(f"$.{name}").cast(pl.Int64, strict=False).alias(column)
            for name, column in (("number", "point"), ("held", "held"), ("asked_after", "asked_after"))
        ),
    )
    return shaped(said.drop_nulls(["point", "asked_after"]), _POINT)


def _owned(owners: str | None) -> _Owned | None:
    """Reads who owns what; None: that is not told, or cannot be read."""
    owned: _Owned = {}
    try:
        for member, partitions in json.loads(owners or ""):
            owned.setdefault(str(member), set()).update(map(_partition, partitions))
    except (TypeError, ValueError, RecursionError):
        return None
    return owned


def _partition(number: object) -> int:
    if not isinstance(number, int) or not 0 <= number < _PARTITIONS:
        raise ValueError(f"{number!r} is no partition")
    return number


def _twice_given(told: list[_Row]) -> Iterator[_Row]:
    """Looks for partitions that one decision gives to two members."""
    for row in told:
        owned = _owned(row["owners"])
        if owned is None:
            yield {**row, "kind": None, "verdict": UNKNOWN}
            continue
        owner: dict[int, str] = {}
        twice = {
            partition: (owner[partition], member)
            for member, partitions in owned.items()
            for partition in partitions
            if owner.setdefault(partition, member) != member
        }
        if not twice:
            yield {**row, "kind": None, "verdict": PASS}
        for partition, (one, other) in sorted(twice.items())[:1]:
            found = {**row, "partition": partition, "member_id": one, "other_member": other}
            yield {**found, "kind": TWO, "verdict": FAIL}


def _in_turn(known: list[_Row], new: list[_Row], facts: Facts) -> tuple[list[_Row], list[_Row]]:
    """Compares each restart point with what its worker has seen before.

    Returns:
        What each worker has seen last, and the new ones with a verdict; None: owners have to be asked.
    """
    places: dict[tuple[Any, ...], dict[str, _Row]] = {}
    for row in known:
        places.setdefault(_place(row), {})[row["member_id"]] = row
    judged: list[_Row] = []
    for row in new:
        seen = places.setdefault(_place(row), {})
        judged.append({**_compared(row, seen, facts), "seen_ms": facts.newest_ms})
        if any(_is_of_another_life(row, each) for each in seen.values()):
            seen.clear()
        mine = seen.pop(row["member_id"], row)
        seen[row["member_id"]] = {**row, "first": mine.get("first", row["number"])}
        if len(seen) > MOST_MEMBERS:
            del seen[next(iter(seen))]
    return [row for seen in places.values() for row in seen.values()], judged


def _place(row: _Row) -> tuple[Any, ...]:
    return (row["worker"], *(row[name] for name in _GROUP), row["partition"])


def _compared(row: _Row, seen: Mapping[str, _Row], facts: Facts) -> _Row:
    """Returns a restart point with the point it was compared with, what is wrong with it, and a verdict."""
    if row["held"] is not None and row["held"] > row["point"]:
        return {**row, "other_point": row["held"], "kind": FELL, "verdict": FAIL}
    held = [each for each in seen.values() if not _is_of_another_life(row, each)]
    before = [each for each in held if each["number"] <= row["asked_after"]]
    highest = max(before, key=lambda each: each["number"], default=None)
    if highest is not None and row["point"] < highest["point"] and (row["held"] is None or row["held"] < 0):
        is_whole = not _is_gap_between(facts, row["worker"], highest["number"], row["number"])
        kind, verdict = (FELL, FAIL) if is_whole and row["held"] is None else (None, UNKNOWN)
        return {**_against(row, highest), "kind": kind, "verdict": verdict}
    heir = max((each for each in before if _is_heir(each, row)), key=lambda each: each["number"], default=None)
    if heir is None:
        return {**row, "kind": None, "verdict": PASS}
    told = _against(row, heir)
    if heir["generation_id"] == row["generation_id"]:
        return {**told, "kind": FORMER, "verdict": None}
    mine = seen.get(row["member_id"])
    is_known = mine is not None and mine["first"] <= heir["asked_after"]
    return {**told, "kind": FORMER if is_known else None, "verdict": FAIL if is_known else UNKNOWN}


def _is_of_another_life(row: _Row, other: _Row) -> bool:
    """Whether the coordinator has forgotten what it had, as far as the worker has asked it.

    Number n is committed behind n - 1, and may be aborted itself. Then the generation of whoever comes is no older.
    """
    if row["held"] is None or row["held"] < 0:
        return False
    is_older = 0 <= row["generation_id"] < other["generation_id"]
    return bool(row["held"] < other["point"] - (not is_older))


def _is_heir(other: _Row, row: _Row) -> bool:
    """Whether another member has committed the partition in the same generation, or a newer one."""
    is_other = other["member_id"] != row["member_id"]
    return is_other and bool(other["generation_id"] >= row["generation_id"] >= 0)


def _against(row: _Row, other: _Row) -> _Row:
    of_other = {"number": "number", "member_id": "member", "generation_id": "generation", "point": "point"}
    return {**row, **{f"other_{name}": other[column] for column, name in of_other.items()}}


def _is_gap_between(facts: Facts, worker: str, after: int, until: int) -> bool:
    is_between = (pl.col("worker") == worker) & (pl.col("last_number") > after) & (pl.col("first_number") < until)
    return not facts.gaps.filter(is_between).is_empty()


def _by_owners(waiting: Sequence[_Row], owners: Sequence[_Row]) -> Iterator[_Row]:
    """Judges what two members of one generation have committed, by who owns it; those that wait on have no verdict."""
    told = _by_generation(owners)
    for generation, rows in _by_generation(waiting).items():
        every = [_owned(each["owners"]) or {} for each in told.get(generation, ())[:MOST_LIVES]]
        for row in rows:
            both = [owned for owned in every if row["member_id"] in owned and row["other_member"] in owned]
            verdict = LATE if row.pop("is_ready") else None
            for owned in both[:1]:
                has, had = (row["partition"] in owned[row[name]] for name in ("member_id", "other_member"))
                verdict = FAIL if had and not has else PASS
            yield {**row, "kind": FORMER if verdict == FAIL else None, "verdict": verdict}


def _by_generation(rows: Sequence[_Row]) -> dict[tuple[Any, ...], list[_Row]]:
    found: dict[tuple[Any, ...], list[_Row]] = {}
    for row in rows:
        found.setdefault((*(row[name] for name in _GROUP), row["generation_id"]), []).append(row)
    return found


def _within_bytes(owners: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    """Returns the newest owners that there is room for."""
    newest = owners.filter(_is_recent(facts) & pl.col("owners").is_not_null()).sort("at_ms", descending=True)
    return newest.filter(pl.col("owners").str.len_bytes().cum_sum() <= MOST_BYTES)


def _newest(seen: list[_Row], facts: Facts) -> pl.DataFrame:
    recent = pl.DataFrame(seen, schema=_SEEN).filter(_is_recent(facts))
    return recent.sort("at_ms", "worker", "number").tail(MOST_SEEN)


def _is_recent(facts: Facts) -> pl.Expr:
    return pl.col("at_ms") > facts.newest_ms - QUIET_MS


def _findings(rows: pl.DataFrame, facts: Facts) -> pl.DataFrame:
    wrong = rows.filter(pl.col("kind").is_not_null())
    told = wrong.with_columns(
        pl.col("kind").replace_strict(_TEXTS, return_dtype=pl.String).alias("text"),
        named(decision("worker", "other_number"), decision()).alias("decisions"),
    )
    return findings(told, RULE.number, RULE.name, ("worker", "number", "partition"), facts)


RULE: Final = Rule(
    number=12,
    name="SOURCE-OWNER",
    proves="No source partition had two owners at once, nobody committed a restart point of a partition that others had"
    " taken over, and no restart point went back.",
    state={"owners": _OWNERS, "seen": _SEEN, "waiting": _WAITING},
    check=_check,
)
