"""A managed topic is deleted, and another one gets its name: nothing of the former is held against the new one."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

pytest.importorskip("pyspark", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so
from pyspark.sql.types import LongType, StringType, StructField, StructType

from kordon.spark_jobs.known import KnownState, Read, Told
from kordon.spark_jobs.lives import Lives
from kordon.spark_jobs.rules.belonging import PLACED
from kordon.spark_jobs.rules.rule import Facts, Rule, RuleOutcome
from kordon.spark_jobs.rules.tables import checked
from kordon.spark_jobs.schema import BATCHES, DECISIONS, FINDINGS, READ_TO, SEGMENTS, STAYS
from kordon.testing.rule_plays import decided, table

STATE: Final = StructType([StructField("topic", StringType()), StructField("layouts_offset", LongType())])
LET_GO: Final = 20


def _given(facts: Facts, state: DataFrame) -> RuleOutcome:
    """Keeps what it was given."""
    kept = state.unionByName(facts.decisions.select(*STATE.names))
    nothing = facts.decisions.where("false")
    return RuleOutcome(findings=table(facts.decisions.sparkSession, [], FINDINGS), state=kept, checked=checked(nothing))


def judged(
    spark: SparkSession, lives: Lives, *, is_of_one_life: bool
) -> tuple[set[tuple[str, int]], list[tuple[str, int]]]:
    """What a rule is left with, as topic and layouts_offset; and what counts as unknown."""
    rule = Rule(number=9, name="R", proves="Nothing.", state=STATE, is_of_one_life=is_of_one_life, check=_given)
    about: dict[str, Any] = {"layout_epoch": 0, "stream": 1}
    decisions = [
        decided("admit", 0, topic="again", layouts_offset=3, **about),
        decided("forget", 1, topic="again", layouts_offset=LET_GO),
        decided("admit", 2, topic="again", layouts_offset=22, **about),
        decided("deliver", 3, topic="other", layouts_offset=3, **about),
        decided("join", 4),
    ]
    facts = Facts(
        decisions=table(spark, decisions, DECISIONS),
        batches=table(spark, [], BATCHES),
        segments=table(spark, [], SEGMENTS),
        stays=table(spark, [], STAYS),
        read_to=table(spark, [], READ_TO),
        placed=table(spark, [], PLACED),
        batch_id=1,
        newest_ms=0,
    )
    state = table(spark, [{"topic": "again", "layouts_offset": 1}, {"topic": "other", "layouts_offset": 1}], STATE)
    outcome = lives.judged(rule, facts, state)
    left = {(row.topic, row.layouts_offset) for row in outcome.state.where(F.col("topic").isNotNull()).collect()}
    return left, [(row.topic, row["count"]) for row in outcome.checked.where("verdict = 'unknown'").collect()]


def test_rules_on_topics_are_given_the_topic_that_has_the_name_now(spark: SparkSession) -> None:
    """What they kept of the former goes when it is let go; what nobody judges any more is unknown."""
    now = Lives(let_go={"again": LET_GO}, now=frozenset({"again"}))
    assert judged(spark, now, is_of_one_life=True) == ({("again", 22), ("other", 1), ("other", 3)}, [("again", 1)])
    later = Lives(let_go={"again": LET_GO})
    assert judged(spark, later, is_of_one_life=True)[0] == {("again", 1), ("again", 22), ("other", 1), ("other", 3)}


def test_rules_on_changes_are_given_all(spark: SparkSession) -> None:
    """They heed it themselves."""
    now = Lives(let_go={"again": LET_GO}, now=frozenset({"again"}))
    everything = {("again", offset) for offset in (1, 3, LET_GO, 22)} | {("other", 1), ("other", 3)}
    assert judged(spark, now, is_of_one_life=False) == (everything, [])


def test_where_a_topic_was_let_go_stays_known_when_its_name_is_given_again() -> None:
    """In whatever order workers tell; and what was read of it is not said of the new one."""
    gone, again = Told("again", LET_GO, 1, None, LET_GO), Told("again", 22, 0, "{}")
    for told in ([gone, again], [again, gone]):
        known = KnownState(layouts={"again": Told("again", 3, 0, "{}")}, read_to=(Read("again", 0, 0, 9),))
        for each in told:
            known = KnownState(layouts=known.with_layouts([each]), read_to=known.read_to)
        assert known.layouts["again"].layout == "{}"
        assert known.let_go == {"again": LET_GO}
        assert KnownState.load(json.dumps(known.dump())) == known
        assert known.without({"again"}).read_to == ()
        assert known.without({"other"}).read_to == known.read_to
