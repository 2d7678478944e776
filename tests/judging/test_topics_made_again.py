"""A managed topic is deleted, and another one gets its name: nothing of the former is held against the new one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

pytest.importorskip("polars", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

import polars as pl

from kordon.spark_jobs.judging.facts import Facts, nothing
from kordon.spark_jobs.judging.layouts import TOLD, newest
from kordon.spark_jobs.judging.lives import Lives
from kordon.spark_jobs.judging.rule import Rule, RuleOutcome, State
from kordon.spark_jobs.judging.schema import DECISIONS, FINDINGS, columns
from kordon.spark_jobs.judging.tables import checked
from kordon.testing.audits.judged import table
from kordon.testing.audits.rule_plays import decided

STATE: Final = columns(topic=pl.String, layouts_offset=pl.Int64)
LET_GO: Final = 20


def _given(facts: Facts, state: State) -> RuleOutcome:
    """Keeps what it was given."""
    kept = pl.concat([state["kept"], facts.decisions.select(STATE.names())])
    return RuleOutcome(findings=FINDINGS.to_frame(), state={"kept": kept}, checked=checked(facts.decisions.clear()))


def lives(now: frozenset[str] = frozenset()) -> Lives:
    """Where one topic had its name before."""
    return Lives(let_go=pl.DataFrame({"topic": ["again"], "_since": [LET_GO]}), now=now)


def judged(lives: Lives, *, is_of_one_life: bool) -> tuple[set[tuple[str, int]], list[tuple[str, int]]]:
    """What a rule is left with, as topic and layouts_offset; and what counts as unknown."""
    state = {"kept": STATE}
    rule = Rule(number=9, name="R", proves="Nothing.", state=state, is_of_one_life=is_of_one_life, check=_given)
    about: dict[str, Any] = {"layout_epoch": 0, "stream": 1}
    decisions = [
        decided("admit", 0, topic="again", layouts_offset=3, **about),
        decided("forget", 1, topic="again", layouts_offset=LET_GO),
        decided("admit", 2, topic="again", layouts_offset=22, **about),
        decided("deliver", 3, topic="other", layouts_offset=3, **about),
        decided("join", 4),
    ]
    facts = replace(nothing(), decisions=table(decisions, DECISIONS))
    kept = [{"topic": "again", "layouts_offset": 1}, {"topic": "other", "layouts_offset": 1}]
    outcome = lives.judged(rule, facts, {"kept": table(kept, STATE)})
    left = set(outcome.state["kept"].filter(pl.col("topic").is_not_null()).rows())
    return left, outcome.checked.filter(verdict="unknown").select("topic", "count").rows()


def test_rules_on_topics_are_given_the_topic_that_has_the_name_now() -> None:
    """What they kept of the former goes when it is let go; what nobody judges any more is unknown."""
    now = lives(frozenset({"again"}))
    assert judged(now, is_of_one_life=True) == ({("again", 22), ("other", 1), ("other", 3)}, [("again", 1)])
    assert judged(lives(), is_of_one_life=True)[0] == {("again", 1), ("again", 22), ("other", 1), ("other", 3)}


def test_rules_on_changes_are_given_all() -> None:
    """They heed it themselves."""
    everything = {("again", offset) for offset in (1, 3, LET_GO, 22)} | {("other", 1), ("other", 3)}
    assert judged(lives(frozenset({"again"})), is_of_one_life=False) == (everything, [])


def test_where_a_topic_was_let_go_stays_known_when_its_name_is_given_again() -> None:
    """In whatever order workers tell."""
    before = table([{"topic": "again", "layouts_offset": 3, "layout_epoch": 0, "layout": "{}"}], TOLD)
    gone = decided("forget", 0, topic="again", layouts_offset=LET_GO, layout_epoch=1)
    again = decided("adopt", 1, topic="again", layouts_offset=22, layout_epoch=0, evidence={"layout": {}})
    for told in ([gone, again], [again, gone]):
        known = before
        for each in told:
            after = newest(table([each], DECISIONS), known)
            assert Lives.between(known, after).now == ({"again"} if each is gone else set())
            known = after
        assert known.select("layout", "let_go").rows() == [("{}", LET_GO)]
        assert Lives.between(known, known).now == set()
