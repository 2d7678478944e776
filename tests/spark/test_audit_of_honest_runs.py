"""The audit of hard days on which Kordon keeps its promises: it finds nothing, and nothing is unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

pytest.importorskip("pyspark", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

from pyspark.sql import SparkSession

from kordon.testing.audits.audited import findings_of
from kordon.testing.audits.honest_plays import PLAYS, Scene
from kordon.testing.broker_features import DESCRIBED_PRODUCERS, NEW_GROUPS
from kordon.testing.cluster import Cluster

pytestmark = [
    pytest.mark.deep,
    pytest.mark.spark,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(DESCRIBED_PRODUCERS.is_missing, reason=DESCRIBED_PRODUCERS.reason),
    pytest.mark.skipif(NEW_GROUPS.is_missing, reason=NEW_GROUPS.reason),
]

OPEN: Final = {"authorizer.class.name": "", "log.cleaner.backoff.ms": "100"}


def test_nothing_is_found_on_hard_days_on_which_all_promises_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    """Restarts, kills, leaders that change, requests that are repeated, groups that go back, topics made again."""
    assert spark.sparkContext is not None
    folder = tmp_path / "decisions"
    folder.mkdir()
    config = {"decisions": {"to": "files", "folder": str(folder), "files": 1000}}
    with Cluster.start(brokers=3, config=OPEN) as cluster:
        for name, play in PLAYS.items():
            play(Scene(cluster, f"honest-{name}", config))
        broker = cluster.bootstrap("PLAINTEXT")
        found = findings_of(broker, folder, tmp_path / "audit")
    assert [(row["name"], row["kind"], row["verdict"], row["topic"], row["text"]) for row in found] == []
