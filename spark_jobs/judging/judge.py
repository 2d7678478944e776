"""Judges one micro-batch for the topics of one part: new facts and the states before make findings and the next states.

    shipments ── GAPS, belonging ──> the other rules ──> summaries ──> shipments

It is a pure function. So a micro-batch that is repeated after its job died gives the same again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from kordon.spark_jobs.judging import layouts
from kordon.spark_jobs.judging.facts import Facts
from kordon.spark_jobs.judging.lives import Lives
from kordon.spark_jobs.judging.rule import LATE, UNKNOWN, Rule, RuleOutcome, State
from kordon.spark_jobs.judging.rules import belonging, gaps, transaction_outcomes
from kordon.spark_jobs.judging.schema import (
    BATCHES,
    CHECKED,
    DECISIONS,
    FINDINGS,
    KEYS,
    NUMBERS,
    PLACED,
    READ_TO,
    columns,
)
from kordon.spark_jobs.judging.shipments import Shipment, What, shipped, unpacked
from kordon.spark_jobs.judging.summaries.summary import Summary
from kordon.spark_jobs.judging.tables import stacked

SETTINGS: Final = columns(late_ms=pl.Int64, is_last=pl.Boolean)
"""One row: `Facts.late_ms` and `Facts.is_last`."""
TOTALS: Final = columns(newest_ms=pl.Int64, decisions=pl.Int64, batches=pl.Int64, bytes=pl.Int64, unreadable=pl.Int64)
"""One row: what was new. `newest_ms` is `Facts.newest_ms`."""
MANAGED: Final = columns(topic=pl.String)
RULE_CHECKED: Final = columns(columns(rule=pl.Int32), CHECKED, late=pl.Boolean)
"""What rules have looked at. `late` says why it is unknown."""

_OWN: Final = "audit"
_OWN_STATE: Final[Mapping[str, pl.Schema]] = {
    "layouts": layouts.TOLD,
    "read_to": READ_TO,
    "clock": columns(newest_ms=pl.Int64),
    **belonging.STATE,
    **transaction_outcomes.STATE,
}
"""What is kept besides the states of the rules. It is bounded by the managed topics and their partitions."""
_SUMMARY: Final = "summary"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Runs all rules on one part."""

    rules: tuple[Rule, ...]
    """Besides GAPS, which is always there."""
    summaries: tuple[Summary, ...]

    def judge(self, part: int, shipments: Iterable[Shipment]) -> Iterator[Shipment]:
        """Judges what is new in a micro-batch.

        Args:
            shipments: Those of the part, in any order: `What.SETTINGS`, what sources have read, and the states and
                summaries of the micro-batch before.

        Yields:
            The next states, summaries, findings, and what was looked at.
        """
        given = _Given(shipments)
        facts, own, lives, missing = _facts(given)
        judged = ((rule, lives.judged(rule, facts, given.state(rule.name, rule.state))) for rule in self.rules)
        outcomes = [(gaps.RULE, missing), *judged]
        found = pl.concat([each.findings for _, each in outcomes])
        yield from _states(part, _OWN, own)
        for rule, outcome in outcomes:
            yield from _states(part, rule.name, outcome.state)
        for summary in self.summaries:
            before = given.tables(What.SUMMARY, summary.state, summary.name)
            yield from shipped(part, What.SUMMARY, summary.fold(facts, found, before), summary.name)
        yield from shipped(part, What.FINDINGS, found)
        yield from shipped(part, What.CHECKED, _checked(outcomes))
        yield from shipped(part, What.TOTALS, _totals(facts, given.unreadable))
        yield from shipped(part, What.MANAGED, own["layouts"].filter(pl.col("layout").is_not_null()).select("topic"))


class _Given:
    """The shipments by what they have."""

    def __init__(self, shipments: Iterable[Shipment]) -> None:
        self._shipments: dict[tuple[str, str], list[Shipment]] = defaultdict(list)
        self.unreadable = 0
        for each in shipments:
            if each.what == What.UNREADABLE:
                self.unreadable += each.first
            is_kept = each.what in {What.STATE, What.SUMMARY}
            self._shipments[each.what, each.name if is_kept else ""].append(each)

    def tables(self, what: What, schema: pl.Schema, name: str = "") -> pl.DataFrame:
        """Returns one of the tables; their shipments are let go, as each is asked for once."""
        return unpacked(schema, self._shipments.pop((what, name), ()))

    def state(self, owner: str, tables: Mapping[str, pl.Schema]) -> State:
        """Returns what an owner of states has kept."""
        return {name: self.tables(What.STATE, schema, f"{owner}/{name}") for name, schema in tables.items()}


def _facts(given: _Given) -> tuple[Facts, State, Lives, RuleOutcome]:
    """Returns what rules are given, what is kept besides their states, and what GAPS says."""
    settings = given.tables(What.SETTINGS, SETTINGS).row(0, named=True)
    before, missing = given.state(_OWN, _OWN_STATE), given.state(gaps.RULE.name, gaps.RULE.state)
    seen = gaps.seen(missing)
    decisions, unreadable = layouts.readable(_new(given.tables(What.DECISIONS, DECISIONS), seen))
    given.unreadable += unreadable
    numbers = given.tables(What.NUMBERS, NUMBERS)
    told = layouts.newest(decisions, before["layouts"])
    lives = Lives.between(before["layouts"], told)
    clock = stacked(_OWN_STATE["clock"], before["clock"], numbers.select("newest_ms")).max().fill_null(0)
    segments, stays = layouts.expanded(told)
    facts = Facts(
        decisions=decisions,
        of_all=_new(given.tables(What.OF_ALL, DECISIONS), seen),
        numbers=numbers,
        batches=given.tables(What.BATCHES, BATCHES),
        placed=PLACED.to_frame(),
        keys=given.tables(What.KEYS, KEYS),
        segments=segments,
        stays=stays,
        read_to=_read_to(lives, before["read_to"], given.tables(What.READ_TO, READ_TO)),
        gaps=gaps.known(missing),
        newest_ms=clock.item(),
        **settings,
    )
    outcome = gaps.RULE.check(facts, missing)
    names = (*belonging.STATE, *transaction_outcomes.STATE)
    living, waiting = lives.living(facts, {name: before[name] for name in names})
    placed, waits = belonging.placed(living, waiting)
    facts, undecided = transaction_outcomes.with_outcomes(replace(facts, placed=placed), waiting)
    own = {"layouts": told, "read_to": facts.read_to, "clock": clock, **waits, **undecided}
    return replace(facts, gaps=gaps.known(outcome.state)), own, lives, outcome


def _new(decisions: pl.DataFrame, seen: pl.DataFrame) -> pl.DataFrame:
    """A record may stand in the log twice, as writing it is repeated when its answer is lost; it counts once."""
    if decisions.is_empty():
        return decisions
    known = decisions.join(seen, on="worker", how="left", maintain_order="left")
    new = known.filter(pl.col("seen").is_null() | (pl.col("number") > pl.col("seen"))).drop("seen")
    return new.unique(["worker", "number"], keep="first", maintain_order=True)


def _read_to(lives: Lives, before: pl.DataFrame, now: pl.DataFrame) -> pl.DataFrame:
    """Returns how far each partition was read, without topics that were let go since."""
    living = before.filter(~pl.col("topic").is_in(list(lives.now)))
    return stacked(READ_TO, living, now).group_by("topic", "partition", maintain_order=True).max()


def _states(part: int, owner: str, state: State) -> Iterator[Shipment]:
    for name, table in state.items():
        yield from shipped(part, What.STATE, table, f"{owner}/{name}")


def _checked(outcomes: Iterable[tuple[Rule, RuleOutcome]]) -> pl.DataFrame:
    numbered = [each.checked.with_columns(pl.lit(rule.number).alias("rule")) for rule, each in outcomes]
    is_late = pl.col("verdict") == LATE
    told = stacked(RULE_CHECKED, *numbered).with_columns(is_late.alias("late"))
    return told.with_columns(pl.when(is_late).then(pl.lit(UNKNOWN)).otherwise("verdict").alias("verdict"))


def _totals(facts: Facts, unreadable: int) -> pl.DataFrame:
    read = {"decisions": facts.decisions.height, "batches": facts.batches.height, "unreadable": unreadable}
    row = {"newest_ms": facts.newest_ms, "bytes": facts.batches.get_column("bytes").sum(), **read}
    return pl.DataFrame([row], schema=TOTALS)


def merged_findings(tables: pl.DataFrame) -> pl.DataFrame:
    """Returns the findings of all parts, each once: what concerns all parts is found by each of them."""
    return tables.unique("finding_id", keep="first", maintain_order=True).select(FINDINGS.names())
