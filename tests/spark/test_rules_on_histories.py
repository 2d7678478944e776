"""The rules on topic data find nothing in random histories in which all holds, however they are cut up."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

from kordon.spark_jobs.rules import count_fence, no_skip, seq_image
from kordon.testing.rule_batches import cut_up, layout_rows
from kordon.testing.rule_histories import History, numbered
from kordon.testing.rule_plays import MicroBatch, play

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kordon.spark_jobs.rules.rule import Rule


@pytest.mark.parametrize("rule", [count_fence.RULE, no_skip.RULE, seq_image.RULE], ids=lambda rule: str(rule.name))
def test_histories_in_which_all_holds_have_no_findings(spark: SparkSession, rule: Rule) -> None:
    """Growths, shrinks, renewals, takeovers, strays, retries and readers of 25 topics at once."""
    histories = [History(f"topic{seed}", seed) for seed in range(25)]
    whole = MicroBatch(
        **layout_rows(*(each.layout for each in histories)),
        batches=[row for each in histories for row in each.batches],
        decisions=numbered([row for each in histories for row in each.decisions]),
        read_to=[row for each in histories for row in each.read_to],
        is_last=True,
    )
    places = [Random(rule.number).random()]
    played = play(spark, rule, cut_up(whole, places))
    assert played.findings == []
    assert played.count("unknown") == 0
    assert played.count("pass") > 200
