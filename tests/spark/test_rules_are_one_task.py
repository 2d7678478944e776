"""On one machine all that a rule makes of a micro-batch is one task: nothing is shuffled, and nothing sent round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

from kordon.spark_jobs.frames import local_rows, stacked
from kordon.spark_jobs.rules import gaps
from kordon.spark_jobs.rules.all_rules import ALL
from kordon.spark_jobs.rules.belonging import PLACED, placed
from kordon.spark_jobs.rules.ranges import ROW
from kordon.spark_jobs.rules.rule import BATCHES, DECISIONS, READ_TO, SEGMENTS, STAYS, Facts, Rule

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

RULES = {rule.name: rule for rule in (gaps.RULE, *ALL)}
NO_BROADCAST = ("spark.sql.autoBroadcastJoinThreshold", "-1")


@pytest.fixture
def one_machine(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, with what an audit on one machine sets."""
    name, value = NO_BROADCAST
    spark.conf.set(name, value)
    yield spark
    spark.conf.unset(name)


def empty(spark: SparkSession, schema: StructType) -> DataFrame:
    """A table that plans do not know to be empty."""
    return local_rows(spark, [tuple(None for _ in schema.names)], schema).where("rand() < 0")


def facts_of(spark: SparkSession) -> Facts:
    """Facts of one partition each."""
    return Facts(
        decisions=empty(spark, DECISIONS),
        batches=empty(spark, BATCHES),
        segments=empty(spark, SEGMENTS),
        stays=empty(spark, STAYS),
        read_to=empty(spark, READ_TO),
        placed=empty(spark, PLACED),
        gaps=gaps.known(empty(spark, gaps.STATE)),
        batch_id=1,
        newest_ms=1,
    )


def exchanges(table: DataFrame) -> list[str]:
    """What a table's plan sends from one task to another."""
    plan: str = table._jdf.queryExecution().executedPlan().toString()  # pyright: ignore[reportPrivateUsage]
    return [line.strip() for line in plan.splitlines() if "Exchange" in line]


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_a_rule_is_one_task(one_machine: SparkSession, rule: Rule) -> None:
    """Findings, what was checked and the state behind it, out of decisions, topic data and the state before."""
    outcome = rule.check(facts_of(one_machine), empty(one_machine, rule.state))
    for table in (outcome.findings, outcome.checked, outcome.state):
        assert exchanges(table) == []


def test_whose_a_batch_is_needs_one_task(one_machine: SparkSession) -> None:
    """What is certain, and what waits."""
    facts = facts_of(one_machine)
    assert exchanges(stacked(*placed(facts, empty(one_machine, ROW)))) == []
