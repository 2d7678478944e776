"""Plays a rule of the auditor over micro-batches, with its state carried from one to the next, as an audit does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from kordon.spark_jobs.judging.facts import Facts, numbers_of, of_all
from kordon.spark_jobs.judging.layouts import segments_table
from kordon.spark_jobs.judging.rule import Rule, State
from kordon.spark_jobs.judging.rules import belonging, transaction_outcomes
from kordon.spark_jobs.judging.schema import BATCHES, DECISIONS, GAPS, KEYS, PLACED, READ_TO, STAYS
from kordon.testing.audits.rule_plays import MicroBatch, Played, Row, gaps_in


def play(rule: Rule, micro_batches: Iterable[MicroBatch | Sequence[Row]]) -> Played:
    """Runs a rule over micro-batches; gaps are found as the audit's first rule would.

    Args:
        micro_batches: Decisions alone, or all that is new.
    """
    played = Played()
    segments: Sequence[Row] = ()
    stays: Sequence[Row] = ()
    gaps: list[Row] = []
    numbers: dict[str, int] = {}
    newest_ms = 0
    waiting = empty(belonging.STATE)
    undecided = empty(transaction_outcomes.STATE)
    state = empty(rule.state)
    for each in micro_batches:
        batch = each if isinstance(each, MicroBatch) else MicroBatch(decisions=each)
        segments = batch.segments if batch.segments is not None else segments
        stays = batch.stays if batch.stays is not None else stays
        gaps += gaps_in(batch.decisions, numbers)
        newest_ms = max(newest_ms, *(row["at_ms"] for row in batch.decisions), 0)
        decisions = table(batch.decisions, DECISIONS)
        facts = Facts(
            decisions=decisions,
            of_all=of_all(decisions),
            numbers=numbers_of(decisions),
            batches=table(batch.batches, BATCHES),
            placed=PLACED.to_frame(),
            segments=segments_table(segments),
            stays=table(stays, STAYS),
            read_to=table(batch.read_to, READ_TO),
            gaps=table(gaps, GAPS),
            keys=table(batch.keys, KEYS),
            newest_ms=newest_ms,
            is_last=batch.is_last,
        )
        placed, waiting = belonging.placed(facts, waiting)
        facts, undecided = transaction_outcomes.with_outcomes(replace(facts, placed=placed), undecided)
        outcome = rule.check(facts, state)
        state = outcome.state
        assert {name: each.schema for name, each in state.items()} == dict(rule.state)
        played.findings += outcome.findings.to_dicts()
        played.checked += outcome.checked.to_dicts()
    played.state = rows_of(state)
    played.waiting = rows_of(waiting)
    return played


def table(rows: Iterable[Row], schema: pl.Schema) -> pl.DataFrame:
    """Makes a table; columns that rows do not name are null."""
    return pl.DataFrame([{name: row.get(name) for name in schema} for row in rows], schema=schema)


def empty(schemas: Mapping[str, pl.Schema]) -> State:
    """Returns a state of which there is nothing yet."""
    return {name: schema.to_frame() for name, schema in schemas.items()}


def rows_of(state: State) -> list[dict[str, Any]]:
    """Returns the rows of all tables, `what` telling of which."""
    return [{"what": name, **row} for name, rows in state.items() for row in rows.to_dicts()]
