"""The audit of real clients on a real broker: each broken promise gives its finding, and nothing else gives one.

All plays are given one after the other on one cluster, each with a topic of its own and each fault with a Kordon of its
own, and one audit looks at all of them: so a fault must not be blamed on a topic beside it either.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

pytest.importorskip("pyspark", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

import polars as pl
from pyspark.sql import SparkSession

from kordon.codecs.decision import Entry
from kordon.spark_jobs import main
from kordon.spark_jobs.audit import Audit, Options
from kordon.spark_jobs.judging.rules import hand_over, no_skip, seq_image, source_owner, txn_witness
from kordon.spark_jobs.judging.rules.all_rules import ALL
from kordon.spark_jobs.metrics import AuditMetrics
from kordon.spark_jobs.report.verdicts import RuleVerdict
from kordon.spark_jobs.session import Setup, open_session
from kordon.spark_jobs.sources import Reading
from kordon.testing import short_leases
from kordon.testing.audits.fault_plays import (
    BYPASS,
    DELETED,
    DELETED_TO,
    INDIVIDUAL,
    PLAYS,
    TRANSACTIONAL,
    Stage,
    bypass,
    clean,
    deleted,
    individual_commits,
    sources,
    transactions,
)
from kordon.testing.audits.faults import Fault
from kordon.testing.broker_features import DESCRIBED_PRODUCERS
from kordon.testing.cluster import Cluster
from kordon.testing.proxy_process import ProxyProcess

pytestmark = [
    pytest.mark.beside,
    pytest.mark.spark,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(DESCRIBED_PRODUCERS.is_missing, reason=DESCRIBED_PRODUCERS.reason),
]

CLEAN: Final = "clean"
TRANSACTIONS: Final = "transactions"
ONE_BY_ONE: Final = "individual-commits"
SOURCES: Final = "sources"
HONEST: Final = {
    BYPASS: bypass,
    DELETED: deleted,
    CLEAN: clean,
    TRANSACTIONS: transactions,
    ONE_BY_ONE: individual_commits,
    SOURCES: sources,
}
"""Plays for one Kordon, which keeps its promises."""
EXPECTED: Final = {
    Fault.STALE_COUNT.value: ("COUNT-FENCE", "stale-count", "fail"),
    Fault.EARLY_CHILD.value: ("PARENT-FIRST", "early-child", "fail"),
    Fault.WRITE_AFTER_FENCE.value: ("FENCE-BARRIER", "write-after-fence", "fail"),
    Fault.DOUBLED_SEQUENCE.value: ("SEQ-IMAGE", "doubled-sequence", "fail"),
    Fault.SKIPPED_RANGE.value: ("NO-SKIP", "skipped-range", "fail"),
    Fault.UNCOMMITTED_RANGE.value: ("NO-SKIP", "uncommitted-range", "fail"),
    Fault.MISPLACED_KEY.value: ("KEY-HOME", "misplaced-key", "fail"),
    Fault.TOLD_AHEAD.value: ("HAND-OVER", "told-ahead", "fail"),
    Fault.UNWITNESSED.value: ("TXN-WITNESS", "unwitnessed", "fail"),
    Fault.HIDDEN_WRITE.value: ("TXN-WITNESS", "hidden-write", "fail"),
    Fault.PUSHED_AHEAD.value: ("IC-ALGEBRA", "pushed-ahead", "fail"),
    Fault.PUSHED_BACK.value: ("IC-ALGEBRA", "pushed-back", "fail"),
    Fault.CLAIMED_AFTER_END.value: ("IC-ALGEBRA", "claimed-after-end", "fail"),
    Fault.TWO_OWNERS.value: ("SOURCE-OWNER", "two-owners", "fail"),
    Fault.POINT_FELL.value: ("SOURCE-OWNER", "point-fell", "fail"),
    Fault.FORMER_OWNER.value: ("SOURCE-OWNER", "former-owner", "fail"),
    BYPASS: ("COUNT-FENCE", "bypass", "fail"),
}
"""By play: rule, kind and verdict of its only finding."""


class Finding(NamedTuple):
    """What tests look at."""

    name: str
    kind: str
    verdict: str
    topic: str | None
    decisions: tuple[str, ...]
    text: str


class Checked(NamedTuple):
    """What a rule has looked at in a partition."""

    rule: int
    topic: str | None
    first_offset: int | None
    verdict: str


class Played(NamedTuple):
    """What an audit looks at."""

    broker: str
    folder: Path
    workers: dict[str, str]
    """By incarnation, the last play that it was in."""


class Audited(NamedTuple):
    """What came of the audit."""

    verdict: RuleVerdict
    findings: list[Finding]
    workers: dict[str, str]
    """By incarnation, the last play that it was in."""
    checked: list[Checked]

    def of(self, play: str) -> list[Finding]:
        """Those about a play's topic, or about the worker that was in it."""
        by_worker = [each for each in self.findings if each.topic is None]
        return [each for each in self.findings if each.topic == topic_of(play)] + [
            each for each in by_worker if any(self.workers[name.split(":")[0]] == play for name in each.decisions)
        ]


def topic_of(play: str) -> str:
    """The topic of a play."""
    return f"audited-{play}"


def workers_of(folder: Path) -> set[str]:
    """The incarnations that wrote decisions into a folder."""
    return {Entry.load(line).worker for path in folder.glob("*.jsonl") for line in path.read_bytes().splitlines()}


def perform(broker: str, folder: Path) -> dict[str, str]:
    """Gives all plays, with decisions in a folder; by incarnation of a worker, the last play that it was in."""
    decisions = {"to": "files", "folder": str(folder)}
    workers: dict[str, str] = {}
    for fault in (*Fault, None):
        plays = HONEST if fault is None else {fault.value: PLAYS[fault]}
        takes_transactions = fault is None or fault in TRANSACTIONAL
        ordering = {
            "transactions": takes_transactions,
            "individual_commits": fault is None or fault in INDIVIDUAL,
        }
        config = {"decisions": decisions, "ordering": ordering}
        # Each finds topics of those before it, and waits a lease before its first change (MISSING-WAITED).
        with ProxyProcess.start(broker, config=config, fault=fault, program=short_leases.PROGRAM) as proxy:
            for name, play in plays.items():
                play(Stage(proxy.bootstrap, broker, topic_of(name)))
        workers |= dict.fromkeys(workers_of(folder) - workers.keys(), [*plays][-1])
    return workers


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """All plays."""
    folder = tmp_path_factory.mktemp("decisions")
    with Cluster.start(brokers=1, config={"authorizer.class.name": ""}) as cluster:
        broker = cluster.bootstrap("PLAINTEXT")
        yield Played(broker, folder, perform(broker, folder))


@pytest.fixture(scope="module")
def audited(spark: SparkSession, played: Played, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    """One audit of them."""
    assert spark.sparkContext is not None
    session = open_session(Setup(master="local[1]", needs_kafka=False))
    reading = Reading(bootstrap=played.broker, folder=played.folder, one_in=1, is_pinned=True)
    out = str(tmp_path_factory.mktemp("audit"))
    audit = Audit(session, Options(out=out, reading=reading), AuditMetrics())
    verdict = audit.once()
    has_place = pl.col("first_offset").is_not_null() | pl.col("rule").is_in(
        [hand_over.RULE.number, source_owner.RULE.number]
    )
    looked = pl.read_parquet(f"{out}/checked/*/*.parquet").filter(has_place)
    checked = [Checked(*row) for row in looked.select(Checked._fields).rows()]
    return Audited(verdict, findings_in(out), played.workers, checked)


def findings_in(out: str) -> list[Finding]:
    """The findings that an audit has left behind, each as it was told last."""
    found = pl.read_parquet(f"{out}/findings/*/*.parquet").unique("finding_id", keep="last")
    rows = found.select(Finding._fields).to_dicts()
    return [Finding(**{**row, "decisions": tuple(row["decisions"] or ())}) for row in rows]


@pytest.mark.parametrize("play", EXPECTED)
def test_each_broken_promise_gives_its_finding_and_no_other(play: str, audited: Audited) -> None:
    """Rule, kind and verdict are those of the fault, and the text says something to a person."""
    found = audited.of(play)
    assert {(each.name, each.kind, each.verdict) for each in found} == {EXPECTED[play]}, found
    assert all(len(each.text) > 20 for each in found)


def test_a_dropped_decision_is_a_gap_and_unknown(audited: Audited) -> None:
    """It is nobody's fault by itself, and nothing else is blamed on it."""
    found = audited.of(Fault.DROPPED_DECISION.value)
    assert {(each.kind, each.verdict) for each in found} == {("gap", "unknown")}, found


def test_a_clean_run_gives_none(audited: Audited) -> None:
    """Growth, shrink, stock and dialect readers: nothing to be found."""
    assert audited.of(CLEAN) == []


def test_a_run_with_transactions_gives_none(audited: Audited) -> None:
    """Commits, aborts and a growth, readers by both isolation levels, and a group: nothing is left unknown."""
    assert audited.of(TRANSACTIONS) == []
    seen = [each for each in audited.checked if each.topic == topic_of(TRANSACTIONS)]
    told = {rule.number: {each.verdict for each in seen if each.rule == rule.number} for rule in ALL}
    assert {verdict for verdicts in told.values() for verdict in verdicts} == {"pass"}
    assert all(told[rule.number] for rule in (txn_witness.RULE, no_skip.RULE, hand_over.RULE))


def test_a_source_that_changes_hands_gives_none(audited: Audited) -> None:
    """Owners and restart points are judged, and what was copied into a managed topic, and all is right."""
    assert [each for each in audited.findings if (each.topic or "").startswith(topic_of(SOURCES))] == []
    seen = [
        each.verdict
        for each in audited.checked
        if each.topic == topic_of(SOURCES) and each.rule == source_owner.RULE.number
    ]
    assert set(seen) == {"pass"}


def test_a_run_with_individual_commits_gives_none(audited: Audited) -> None:
    """Two members and a reset: all that coordinators got is judged, and right."""
    assert audited.of(ONE_BY_ONE) == []
    seen = [each.verdict for each in audited.checked if each.topic == topic_of(ONE_BY_ONE) and each.rule == 11]
    assert set(seen) == {"pass"}


def test_what_was_deleted_before_the_audit_came_is_unknown(audited: Audited) -> None:
    """Writes and deliveries of it are neither wrong nor right; what is left is judged."""
    seen = [each for each in audited.checked if each.topic == topic_of(DELETED)]
    assert audited.of(DELETED) == []
    for rule in (seq_image.RULE, no_skip.RULE):
        told = {(each.verdict, (each.first_offset or 0) < DELETED_TO) for each in seen if each.rule == rule.number}
        assert ("unknown", True) in told
        assert ("pass", True) not in told
    assert ("pass", 3) in {(each.verdict, each.first_offset) for each in seen if each.rule == seq_image.RULE.number}


def test_all_findings_are_about_a_play_and_the_verdict_is_fail(audited: Audited) -> None:
    """No finding is left over, and the exit code of `--once` tells of them."""
    told = [each for play in (*PLAYS, CLEAN, DELETED, TRANSACTIONS, ONE_BY_ONE) for each in audited.of(play)]
    assert sorted(told) == sorted(audited.findings)
    assert audited.verdict is RuleVerdict.FAIL


@pytest.mark.deep
def test_on_a_cluster_of_spark_the_same_is_found(
    spark: SparkSession, played: Played, audited: Audited, tmp_path: Path
) -> None:
    """By `spark-submit`, where executors are processes of their own, and tables have several partitions."""
    where = ["--master", "local-cluster[2,1,1024]", "--conf", "spark.sql.shuffle.partitions=3"]
    what = ["--files", str(played.folder), "--bootstrap", played.broker, "--findings-topic", "", "--out", str(tmp_path)]
    what += ["--sample-batches", "1"]
    submitted = [str(Path(sys.executable).with_name("spark-submit")), *where, str(main.__file__), "--once", *what]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(submitted, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 1, done.stderr[-3000:]
    assert sorted(findings_in(str(tmp_path))) == sorted(audited.findings)
