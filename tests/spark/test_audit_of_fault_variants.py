"""The audit of promises that are broken in further ways: each gives the finding of its fault, and no other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

pytest.importorskip("pyspark", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

from pyspark.sql import SparkSession

from kordon.testing.audits.audited import findings_of, workers_of
from kordon.testing.audits.fault_plays import Stage
from kordon.testing.audits.fault_variants import VARIANTS
from kordon.testing.broker_features import DESCRIBED_PRODUCERS
from kordon.testing.cluster import Cluster
from kordon.testing.proxy_process import ProxyProcess

pytestmark = [
    pytest.mark.deep,
    pytest.mark.spark,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(DESCRIBED_PRODUCERS.is_missing, reason=DESCRIBED_PRODUCERS.reason),
]

PREFIX: Final = "varied-"


@pytest.fixture(scope="module")
def found(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[dict[str, Any]]]:
    """By variant, its findings: those of its topic, and those of its worker that name none."""
    assert spark.sparkContext is not None
    folder = tmp_path_factory.mktemp("decisions")
    decisions = {"to": "files", "folder": str(folder), "files": 1000}
    variants: dict[str, str] = {}
    with Cluster.start(brokers=1, config={"authorizer.class.name": ""}) as cluster:
        broker = cluster.bootstrap("PLAINTEXT")
        for name, variant in VARIANTS.items():
            config = {"decisions": decisions, "ordering": {"transactions": variant.has_transactions}}
            with ProxyProcess.start(broker, config=config, fault=variant.fault) as proxy:
                variant.play(Stage(proxy.bootstrap, broker, f"{PREFIX}{name}"))
            variants |= dict.fromkeys(workers_of(folder) - variants.keys(), name)
        rows = findings_of(broker, folder, tmp_path_factory.mktemp("audit"))
    by_variant: dict[str, list[dict[str, Any]]] = {name: [] for name in VARIANTS}
    for row in rows:
        worker = str((row["decisions"] or [""])[0]).split(":", maxsplit=1)[0]
        by_variant[str(row["topic"]).removeprefix(PREFIX) if row["topic"] else variants[worker]].append(row)
    return by_variant


@pytest.mark.parametrize("name", VARIANTS)
def test_each_variant_gives_the_finding_of_its_fault_and_no_other(
    name: str, found: Mapping[str, list[dict[str, Any]]]
) -> None:
    """By rule, kind and verdict."""
    variant = VARIANTS[name]
    told = {(row["name"], row["kind"], row["verdict"]) for row in found[name]}
    assert told == {(variant.rule, variant.kind, variant.verdict)}, found[name]
