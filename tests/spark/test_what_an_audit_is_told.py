"""Folders, locks, lag and findings that wait: what a person is told, and what is not lost; without brokers."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from kordon.spark_jobs import lock
from kordon.spark_jobs.audit import Audit, Options
from kordon.spark_jobs.brokers import LATEST, PartitionKey
from kordon.spark_jobs.delivery import AGAIN_SECONDS, FILE, Delivery
from kordon.spark_jobs.engine import Engine, EngineParts
from kordon.spark_jobs.errors import CannotCheck, WithoutJavasStacks, cause_of, words_of
from kordon.spark_jobs.findings import FindingsTopic, Sinks, Table
from kordon.spark_jobs.judging.schema import FINDINGS
from kordon.spark_jobs.known import Totals
from kordon.spark_jobs.lag import Lag
from kordon.spark_jobs.metrics import AuditMetrics, Behind
from kordon.spark_jobs.sources import Reading
from kordon.spark_jobs.storage import Storage
from kordon.spark_jobs.tasks import COLUMNS
from kordon.testing.audits.judged import table
from kordon.testing.ports import free_ports

pytestmark = pytest.mark.spark


class Broken:
    """A topic and a table in one, that take nothing while they are out of order."""

    name = told = "the place"

    def __init__(self) -> None:
        self.is_well = False
        self.tries = 0
        self.got: list[tuple[str, int]] = []

    def write(self, rows: DataFrame, first: int = 0, last: int = 0) -> None:
        """See `Table.write`."""
        self.tries += 1
        if not self.is_well:
            raise PySparkException("org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized: [x]")
        self.got += sorted((row["finding_id"], row["batch"]) for row in rows.select("finding_id", "batch").collect())


def found(storage: Storage, batch_id: int, *ids: str) -> int:
    """Puts findings of a micro-batch into the folder; how many."""
    storage.put_table(table([{"finding_id": each} for each in ids], FINDINGS), "findings", batch_id)
    return len(ids)


def waiting(metrics: AuditMetrics) -> float | None:
    return metrics.registry.get_sample_value("kordon_audit_undelivered_findings", {"to": "topic"})


def test_what_a_topic_does_not_take_is_written_later(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also after a restart, and without being tried at every micro-batch; a line names cause and cure."""
    storage, metrics, topic, now = Storage(spark, str(tmp_path)), AuditMetrics({}), Broken(), [0.0]

    def delivery() -> Delivery:
        sinks: Any = Sinks(topic=topic)  # type: ignore[arg-type]
        return Delivery(storage, sinks, metrics, lambda: now[0])

    first = delivery()
    first.write(0, found(storage, 0, "a", "b"))
    assert "the place" in caplog.text
    assert "allow the auditor's user" in caplog.text
    assert waiting(metrics) == 2
    first.write(1, found(storage, 1, "c"))
    first.write_waiting(1)
    assert (topic.tries, waiting(metrics)) == (1, 3)
    now[0] += AGAIN_SECONDS
    first.write_waiting(1)
    assert (topic.tries, topic.got) == (2, [])
    assert len(caplog.records) == 1, "the same is said again and again"

    topic.is_well = True
    again = delivery()  # another process
    again.write_waiting(1)
    assert topic.got == [("a", 0), ("b", 0), ("c", 1)]
    assert (waiting(metrics), again.waiting) == (0, {})
    again.write(2, found(storage, 2))
    assert topic.tries == 3  # nothing was found, nothing is written
    (tmp_path / FILE).write_text('{"top')  # the machine died while it was written
    assert delivery().waiting == {"topic": 0}


def test_a_table_is_given_a_repeated_micro_batch_also_where_nothing_is_found(
    spark: SparkSession, tmp_path: Path
) -> None:
    """An earlier try may have found something."""
    storage, lake = Storage(spark, str(tmp_path)), Broken()
    lake.is_well = True
    sinks: Any = Sinks(table=lake)  # type: ignore[arg-type]
    delivery = Delivery(storage, sinks, AuditMetrics({}))
    delivery.write(3, found(storage, 3))
    delivery.write(4, found(storage, 4))
    assert lake.tries == 1


def test_a_second_audit_is_told_who_is_at_work(tmp_path: Path) -> None:
    """The lock goes with its process, and a folder that cannot be made is told as such."""
    holds = "import sys; from kordon.spark_jobs import lock\nwith lock.held(sys.argv[1]): print(1, flush=True); input()"
    out = str(tmp_path / "out")
    with subprocess.Popen(
        [sys.executable, "-c", holds, out], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "1\n"
        with (
            pytest.raises(CannotCheck, match=f"process {other.pid} on .* is at work in .*--out of its own"),
            lock.held(out),
        ):
            pass
        other.kill()
    with lock.held(out):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(CannotCheck, match="cannot be written to"), lock.held(str(tmp_path / "file")):
        pass
    with lock.held("s3a://bucket/audit"):
        pass


def refused(make: Callable[[], Any]) -> str:
    with pytest.raises(CannotCheck) as error:
        make()
    return str(error.value)


def test_what_cannot_be_gone_on_with_is_told(spark: SparkSession, tmp_path: Path) -> None:
    """Brokers that are not there, a table without a catalog, a checkpoint and a state that are broken."""
    port, out = free_ports(1), str(tmp_path)
    reading = Reading(bootstrap=f"127.0.0.1:{port}")
    assert f"127.0.0.1:{port}: [Errno 111]" in refused(
        Audit(spark, Options(out=out, reading=reading), AuditMetrics()).once
    )
    lake = Sinks(table=Table(name="lake.kordon.findings", format="iceberg"))
    options = Options(out=out, reading=Reading(folder=tmp_path), sinks=lake)
    assert "spark.sql.catalog.lake=" in refused(Audit(spark, options, AuditMetrics()).once)
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    (tmp_path / "checkpoint" / "offsets" / "7").write_text("v1\n")
    assert "checkpoint/offsets/7 is not what Spark wrote" in refused(Storage(spark, out).begun)
    engine = Engine(spark, Storage(spark, out), EngineParts(rules=(), summaries=()))
    rows = spark.createDataFrame([], COLUMNS)
    assert "state/_known/7 is missing or damaged" in refused(lambda: engine.run(rows, 8))
    engine.run(rows, 0)
    (tmp_path / "state" / "0" / "_SUCCESS").unlink()
    assert "state/0 is missing or was not written to its end" in refused(lambda: engine.run(rows, 1))
    (tmp_path / "state" / "_known" / "0").write_text('{"workers": {}}')
    assert "another version of Kordon" in refused(lambda: engine.resume(0))


def test_causes_have_cures() -> None:
    """What Spark and Java say around them is left out."""
    text = "An error:\n\tat some.Where(x)\nCaused by: java.io.IOException: No space left on device\n\tat y"
    assert cause_of(text).startswith("java.io.IOException: No space left on device (make room where --out is")
    assert cause_of("just words") == "just words"


def test_an_error_whose_java_has_ended_is_told_all_the_same() -> None:
    """It asks Java for what it says; that this fails must not make an exit code of it that means a finding."""

    class OfJava(Exception):  # noqa: N818 - as Py4J's
        def __str__(self) -> str:
            raise ConnectionRefusedError

    assert words_of(OfJava()).startswith("OfJava: Java has ended")
    assert words_of(ValueError("is told")) == "is told"


def test_lag_of_files_is_what_is_not_judged(tmp_path: Path) -> None:
    """Whole lines count, by the time of the oldest; half of one does not."""
    line = json.dumps({"at_ms": 5_000}) + "\n"
    file = tmp_path / "decisions-a-000000.jsonl"
    file.write_text(line * 4)
    lag = Lag(Reading(folder=tmp_path), None, lambda: 65.0)
    judged = json.dumps({file.name: len(line) * 2})
    assert lag.measure([judged], [], Totals(decisions=2)) == Behind(2, 60.0, 0)
    assert lag.measure(None, [], Totals()).seconds == 60.0
    all_of_it = json.dumps({file.name: len(line) * 4})
    assert lag.measure([all_of_it], [], Totals(decisions=4)) == Behind(0, 0.0, 0)
    file.write_text(line * 4 + '{"at_ms": 9')
    assert lag.measure([all_of_it], [], Totals(decisions=4)) == Behind(0, 0.0, 0)


class Logs:
    """Brokers with a log of decisions from 10 to 30, and topic data to 100."""

    def partitions(self, topics: Any) -> list[PartitionKey]:
        """See `Cluster`."""
        return [PartitionKey(topic, 0) for topic in topics]

    def ends(self, places: list[PartitionKey], timestamp: int) -> dict[PartitionKey, int]:
        """See `Cluster`."""
        last = {"__kordon.decisions": (10, 30)}
        return {place: last.get(place.topic, (0, 100))[timestamp == LATEST] for place in places}


def test_lag_of_topics_begins_where_their_logs_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """What retention took is nothing that could be judged."""
    cluster: Any = Logs()
    lag = Lag(Reading(bootstrap="x:1"), cluster, lambda: 65.0)
    monkeypatch.setattr(Lag, "_age", lambda _self, _place, start: float(start))
    assert lag.measure(None, ["t"], Totals()) == Behind(20, 10.0, 0)
    judged = [json.dumps({"__kordon.decisions": {"0": 25}}), json.dumps({"t": {"0": 40}})]
    assert lag.measure(judged, ["t"], Totals(decisions=15, bytes=400)) == Behind(5, 25.0, 600)
    judged = [json.dumps({"__kordon.decisions": {"0": 30}}), "-"]
    assert lag.measure(judged, [], Totals(decisions=20)) == Behind(0, 0.0, 0)


def test_sinks_have_names_for_messages() -> None:
    """So that it is known which of them takes nothing."""
    assert FindingsTopic(name="t", options={}).told == "the topic t"
    assert Table(name="/t", format="delta").told == "the table /t"


def test_of_an_error_of_spark_the_log_has_pythons_trace_and_the_causes_but_not_how_java_came_there() -> None:
    """A full disk was two thousand lines in front of the one that says so."""
    raised = (
        "An error occurred while calling o1.save.\n: org.apache.spark.SparkException: Job aborted.\n"
        "\tat org.apache.spark.A$.b(A.scala:1)\n\t\tat java.base/java.util.C.d(C.java:2)\n\t... 36 more\n"
        "Caused by: java.io.IOException: No space left on device\n\tat e.F.g(Native Method)\n"
    )
    try:
        raise PySparkException(raised)
    except PySparkException:
        record = logging.LogRecord("py4j", logging.ERROR, __file__, 1, "it failed", None, sys.exc_info())
    lines = WithoutJavasStacks("%(message)s").format(record).splitlines()
    assert lines[:2] == ["it failed", "Traceback (most recent call last):"]
    assert lines[-2:] == [
        ": org.apache.spark.SparkException: Job aborted.",
        "Caused by: java.io.IOException: No space left on device",
    ]
