"""What FENCE-BARRIER knows of changes: the steps of fences, who wrote what under which layout, who was heard of.

What is known of a topic goes with the FORGET that lets it go, as far as it rests on earlier records of the layouts
topic. Workers and their leases concern all topics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, TypeAlias

import polars as pl
from pydantic import Field, TypeAdapter, ValidationError

from kordon.codecs.decision import Kind
from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.rule import State
from kordon.spark_jobs.judging.schema import DECISIONS, columns
from kordon.spark_jobs.judging.tables import shaped, stacked


def fields_of(names: str) -> pl.Schema:
    """Returns columns of decisions, by their names."""
    return pl.Schema({name: DECISIONS[name] for name in names.split()})


_MEMBERS: Final = pl.List(pl.Struct({"worker": pl.String, "has_acknowledged": pl.Boolean, "acknowledged_at": pl.Int64}))
STEP: Final = columns(
    fields_of("kind topic fence worker number layout_epoch layouts_offset partition last_offset at_ms"),
    members=_MEMBERS,
    sealed=pl.List(pl.Int32),
)
"""Decisions on fences, and of topics that were let go. `members`: who has to acknowledge; as a CUT has it, also whether
each did, and where that stands in the layouts topic."""
ADMIT: Final = fields_of("topic partition worker layout_epoch number first_offset last_offset layouts_offset at_ms")
"""What a worker admitted under a layout epoch: `number` and `first_offset` are those of the newest run, `last_offset`
is the largest, `layouts_offset` the smallest."""
TOLD: Final = fields_of("topic reason layouts_offset")
"""What was judged already."""
HEARD: Final = fields_of("worker number layouts_offset at_ms")
"""Those decisions of a worker that rest on more of the layouts topic than all before them."""
LEASE: Final = fields_of("worker number layouts_offset reason at_ms")
STATE: Final[Mapping[str, pl.Schema]] = {"step": STEP, "admit": ADMIT, "told": TOLD, "heard": HEARD, "lease": LEASE}
BY_FENCE: Final = ("topic", "fence")
IS_FORGET: Final = pl.col("kind") == Kind.FORGET.value

_OF_FENCES: Final = [each.value for each in (Kind.FENCE, Kind.ACKNOWLEDGE, Kind.CUT, Kind.COMMIT, Kind.CANCEL)]
_THAT_NAME: Final = {Kind.FENCE.value, Kind.CUT.value}
_PRODUCE: Final = 0
_REPEATED: Final = r'"repeated"\s*:\s*true'  # a path would parse the evidence of each write

_Partition: TypeAlias = Annotated[int, Field(ge=0, lt=1 << 31)]
_Offset: TypeAlias = Annotated[int, Field(ge=0, lt=1 << 63)]


@dataclass(frozen=True, slots=True)
class _Named:
    """What the evidence of a FENCE or a CUT names."""

    members: list[str] | None = None
    sealed: list[_Partition] | None = None
    acknowledged: list[str] | None = None
    acknowledged_at: dict[str, _Offset] = field(default_factory=dict[str, _Offset])

    def row(self) -> dict[str, Any]:
        return {"members": self.members and [self._member(each) for each in self.members], "sealed": self.sealed}

    def _member(self, worker: str) -> dict[str, Any]:
        has_acknowledged = None if self.acknowledged is None else worker in self.acknowledged
        at = self.acknowledged_at.get(worker)
        return {"worker": worker, "has_acknowledged": has_acknowledged, "acknowledged_at": at}


_NAMED: Final = TypeAdapter(_Named)


def known_of(facts: Facts, state: State, writes: pl.DataFrame) -> State:
    """Returns state and news together, without what a topic was before it was let go.

    Args:
        writes: Those of the facts, as `writes_of` has them.
    """
    step = pl.concat([state["step"], _steps(facts.decisions)])
    let_go = step.filter(IS_FORGET).group_by("topic").agg(pl.max("layouts_offset").alias("_let_go"))
    return {
        "step": _living(step, let_go),
        "admit": _summed(_living(state["admit"], let_go), _living(writes, let_go)),
        "told": _living(state["told"], let_go),
        "heard": _heard(facts, state["heard"]),
        "lease": stacked(LEASE, state["lease"], of_kind(facts.of_all, Kind.LEASE)).sort("number"),
    }


def of_kind(rows: pl.DataFrame, kind: Kind) -> pl.DataFrame:
    """Returns decisions of a kind."""
    return rows.filter(pl.col("kind") == kind.value)


def writes_of(decisions: pl.DataFrame) -> pl.DataFrame:
    """Returns what was admitted in some decisions, and was not there already, as `ADMIT`."""
    is_write = (pl.col("kind") == Kind.ADMIT.value) & (pl.col("api_key").fill_null(_PRODUCE) == _PRODUCE)
    is_placed = pl.all_horizontal(pl.col("topic", "partition", "layout_epoch").is_not_null())
    repeats = pl.col("evidence").str.contains(_REPEATED).fill_null(value=False)
    asked = decisions.select("kind", "api_key", "evidence", *ADMIT.names())
    return asked.filter(is_write & is_placed & ~repeats).select(ADMIT.names())


def commits_of(step: pl.DataFrame) -> pl.DataFrame:
    """Returns the changes that came to a COMMIT, with their fence."""
    commits = of_kind(step, Kind.COMMIT).select(
        *BY_FENCE,
        "layout_epoch",
        "layouts_offset",
        epoch="layout_epoch",
        commit="layouts_offset",
        controller="worker",
        commit_number="number",
        commit_ms="at_ms",
    )
    fences = of_kind(step, Kind.FENCE).select(
        *BY_FENCE, "members", "sealed", fenced="layouts_offset", fencer="worker", fence_number="number"
    )
    return commits.join(fences, on=BY_FENCE, how="left")


def oldest_of(step: pl.DataFrame) -> pl.DataFrame:
    """Returns from where on in the layouts topic changes of each topic are kept, as `oldest`; null: all it has had."""
    newest = pl.col("layouts_offset").unique().sort(descending=True)
    return of_kind(step, Kind.COMMIT).group_by("topic").agg(newest.get(1, null_on_oob=True).alias("oldest"))


def _steps(decisions: pl.DataFrame) -> pl.DataFrame:
    steps = decisions.filter((pl.col("kind").is_in(_OF_FENCES) & pl.col("fence").is_not_null()) | IS_FORGET)
    if steps.is_empty():
        return STEP.to_frame()
    named = [_named(text) if kind in _THAT_NAME else {} for kind, text in steps.select("kind", "evidence").rows()]
    schema = {name: STEP[name] for name in ("members", "sealed")}
    return shaped(steps.hstack(pl.DataFrame(named, schema=schema)), STEP)


def _named(text: str | None) -> dict[str, Any]:
    try:
        return _NAMED.validate_json(text or "{}").row()
    except ValidationError:  # Kordon writes no such thing
        return {}


def _living(rows: pl.DataFrame, let_go: pl.DataFrame) -> pl.DataFrame:
    if let_go.is_empty():
        return rows
    is_of_now = (pl.col("layouts_offset") > pl.col("_let_go")).fill_null(value=True)
    stays = is_of_now | IS_FORGET if "kind" in rows.columns else is_of_now
    return rows.join(let_go, on="topic", how="left").filter(stays).drop("_let_go")


def _summed(known: pl.DataFrame, new: pl.DataFrame) -> pl.DataFrame:
    if new.is_empty():
        return known
    by_epoch = pl.concat([known, new]).group_by("topic", "partition", "worker", "layout_epoch")
    newest = pl.col("first_offset").max_by("number")
    summed = by_epoch.agg(pl.max("number", "last_offset", "at_ms"), newest, pl.min("layouts_offset"))
    return summed.select(ADMIT.names())


def _heard(facts: Facts, known: pl.DataFrame) -> pl.DataFrame:
    new = facts.numbers.select(HEARD.names()).filter(pl.col("layouts_offset").is_not_null())
    before = pl.col("layouts_offset").cum_max().shift(1).over("worker")
    is_more = (pl.col("layouts_offset") > before).fill_null(value=True)
    return pl.concat([known, new]).sort("number").filter(is_more)
