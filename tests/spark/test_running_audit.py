"""`kordon audit run` as a process: what it tells of itself while it runs, how it ends, and where its findings go.

GAPS is its only rule here (`testing/audits/small_audit.py`); the rules have tests of their own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

pytest.importorskip("pyspark", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

import psutil
import pyarrow.parquet as pq
from prometheus_client.parser import text_string_to_metric_families

from kordon.testing.audits.spark_classes import OPTIONS
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import create_ordinary, read_to_ends, set_configs
from kordon.testing.ports import free_ports

_SECONDS: Final = 900.0
_TOO_SMALL: Final = "10"
_ENOUGH: Final = "1000000"

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1500)]


class Running(NamedTuple):
    """An audit that runs."""

    process: subprocess.Popen[str]
    port: int
    log: Path

    def metric(self, name: str, **labels: str) -> float | None:
        """What it tells of a metric; None: nothing."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=60) as answer:
                text = answer.read().decode()
        except OSError:
            return None
        samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
        return next((each.value for each in samples if each.name == name and each.labels == labels), None)

    def wait(self, what: str, told: Callable[[], bool]) -> None:
        """Waits until something holds."""
        until = time.monotonic() + _SECONDS
        while not told():
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            assert time.monotonic() < until, f"{what}: {self.log.read_text()[-3000:]}"
            time.sleep(0.2)

    def end(self, number: signal.Signals) -> str:
        """Sends a signal; its last line when it has ended."""
        self.process.send_signal(number)
        assert self.process.wait(_SECONDS) == 0, self.log.read_text()[-3000:]
        return self.log.read_text().splitlines()[-1]


ENVIRONMENT: Final = {**os.environ, OPTIONS: f"{os.environ.get(OPTIONS, '')} -XX:TieredStopAtLevel=1"}
"""Java of an audit that runs for days compiles much; here that would be most of what it does."""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "kordon.testing.audits.small_audit", "--master", "local[1]", *arguments]


@contextmanager
def running(log: Path, *arguments: str) -> Iterator[Running]:
    """An audit whose command is given where its log is; nothing of it is there at the end."""
    port = free_ports(1)
    with log.open("w") as out:
        told = command("--metrics-address", f"127.0.0.1:{port}", *arguments)
        process = subprocess.Popen(
            told, stdout=out, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT, cwd=log.parent
        )
    try:
        yield Running(process, port, log)
    finally:
        process.kill()
        process.wait()


def append(folder: Path, worker: str, numbers: Sequence[int]) -> None:
    """Writes decisions of a minute ago."""
    at_ms = int(time.time() * 1000) - 60_000
    told = ({"schema": 1, "at_ms": at_ms, "host": "h", "worker": worker, "number": n, "kind": "join"} for n in numbers)
    with (folder / f"decisions-{worker}-000000.jsonl").open("a") as lines:
        lines.write("".join(json.dumps(each) + "\n" for each in told))


def written(bootstrap: str, topic: str) -> dict[bytes, set[bytes]]:
    """All values of each key, as any consumer reads them."""
    found: dict[bytes, set[bytes]] = defaultdict(set)
    for message in read_to_ends({"bootstrap.servers": bootstrap}, topic):
        found[message.key() or b""].add(message.value() or b"")
    return dict(found)


@pytest.mark.deep
@pytest.mark.broker
def test_a_running_audit_tells_of_its_lag_and_findings_and_goes_on_where_it_was(
    cluster: Cluster, tmp_path: Path
) -> None:
    """A topic that takes no findings does not stop it: they are written when it does, under one key and value.

    A table of Delta, by an option and Maven's jars, is given a micro-batch that is repeated. Nothing of Spark's own is
    left where the command was given.
    """
    bootstrap, topic = cluster.bootstrap(), f"findings-{uuid.uuid4().hex[:8]}"
    files, out = tmp_path / "files", tmp_path / "out"
    files.mkdir()
    append(files, "a", [0, 1, 4])
    admin = create_ordinary(bootstrap, topic, 1, {"max.message.bytes": _TOO_SMALL})
    told = ["--bootstrap", bootstrap, "--files", str(files), "--out", str(out), "--findings-topic", topic]

    with running(tmp_path / "first.log", *told, "--trigger-seconds", "3600") as first:
        first.wait("a micro-batch", lambda: first.metric("kordon_audit_batch_seconds_count") == 1)
        assert first.metric("kordon_audit_decisions_total") == 3
        assert first.metric("kordon_audit_gaps_total") == 1
        assert first.metric("kordon_audit_findings_total", rule="GAPS", verdict="unknown") == 1
        assert first.metric("kordon_audit_undelivered_findings", to="topic") == 1
        first.wait("no lag", lambda: first.metric("kordon_audit_lag_decisions") == 0)
        append(files, "a", [*range(5, 25)])  # the next micro-batch is an hour away
        first.wait("lag", lambda: first.metric("kordon_audit_lag_decisions") == 20)
        assert (first.metric("kordon_audit_lag_seconds") or 0.0) >= 59.0
        refused = subprocess.run(command(*told), capture_output=True, text=True, timeout=_SECONDS, check=False)
        assert (refused.returncode, f"process {first.process.pid} on" in refused.stderr) == (2, True), refused.stderr
        assert first.end(signal.SIGINT).startswith("ended: 1 unknown of GAPS; 3 decisions")
    line = next(each for each in first.log.read_text().splitlines() if "findings cannot be written" in each)
    assert f"the topic {topic}" in line
    assert "RecordTooLargeException" in line
    assert written(bootstrap, topic) == {}

    set_configs(admin, topic, {"max.message.bytes": _ENOUGH}).result(60)
    for each in (out / "checkpoint" / "commits").iterdir():
        each.unlink()  # as if it had been killed before its micro-batch was complete: it is repeated
    with running(tmp_path / "second.log", *told, "--table", "tables/found", "--trigger-seconds", "1") as second:
        second.wait("the rest", lambda: second.metric("kordon_audit_decisions_total") == 20)
        second.wait("no lag", lambda: second.metric("kordon_audit_lag_decisions") == 0)
        assert second.metric("kordon_audit_lag_seconds") == 0
        assert second.metric("kordon_audit_undelivered_findings", to="topic") == 0
        assert second.end(signal.SIGTERM).startswith("ended: 1 unknown of GAPS; 23 decisions")
    (key, values), *others = written(bootstrap, topic).items()
    (finding,) = (json.loads(value) for value in values)
    assert (others, finding["finding_id"], finding["kind"]) == ([], key.decode(), "gap")
    assert not json.loads((out / "undelivered.json").read_text())
    assert kinds_in_delta(tmp_path / "tables" / "found") == ["gap"]
    assert {each.name for each in tmp_path.iterdir()} == {"files", "first.log", "out", "second.log", "tables"}


def ended(tmp_path: Path, *arguments: str, program: Sequence[str] | None = None) -> subprocess.CompletedProcess[Any]:
    """An audit of three decisions with a gap, run to its end."""
    files = tmp_path / "files"
    files.mkdir(exist_ok=True)
    append(files, "a", [0, 1, 4])
    told = [*(program or command()), "--once", "--files", "files", "--out", "out", *arguments]
    # the environment that Kordon is installed in, as `activate` makes it
    place = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run(told, capture_output=True, text=True, timeout=_SECONDS, check=False, env=place, cwd=tmp_path)


def kinds_in_delta(table: Path) -> list[str]:
    """What stands in a table of Delta, as other programs read it: the files that its log adds and does not remove."""
    files: dict[str, bool] = {}
    for version in sorted(table.glob("_delta_log/*.json")):
        for action in map(json.loads, version.read_text().splitlines()):
            for name in ("add", "remove"):
                if name in action:
                    files[action[name]["path"]] = name == "add"
    tables = [pq.ParquetFile(table / path).read(["kind"]) for path, is_there in files.items() if is_there]
    return [kind for each in tables for kind in each.column("kind").to_pylist()]


def kinds_in_iceberg(table: Path) -> list[str]:
    """What stands in a table of Iceberg: as many rows as its newest snapshot counts."""
    newest = max(table.glob("metadata/v*.metadata.json"), key=lambda path: int(path.name[1:].partition(".")[0]))
    told = json.loads(newest.read_text())
    newest_id = told["current-snapshot-id"]
    (summary,) = (each["summary"] for each in told["snapshots"] if each["snapshot-id"] == newest_id)
    (kinds,) = {
        tuple(pq.ParquetFile(path).read(["kind"])["kind"].to_pylist()) for path in table.glob("data/**/*.parquet")
    }
    return list(kinds) * int(summary["total-records"])


@pytest.mark.deep
@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_repeated_micro_batch_does_not_double_the_rows_of_a_table(table_format: str, tmp_path: Path) -> None:
    """Iceberg's is in a catalog that the user sets up."""
    lake = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop", ".warehouse": str(tmp_path / "lake")}
    settings = [word for name, value in lake.items() for word in ("--conf", f"spark.sql.catalog.lake{name}={value}")]
    of_iceberg = ["--table", "lake.kordon.findings", "--table-format", "iceberg", *settings]
    told = of_iceberg if table_format == "iceberg" else ["--table", str(tmp_path / "table")]
    for _ in range(2):
        done = ended(tmp_path, *told)
        assert done.returncode == 3, done.stderr[-3000:]
        for each in (tmp_path / "out" / "checkpoint" / "commits").iterdir():
            each.unlink()
    in_lake = tmp_path / "lake" / "kordon" / "findings"
    kinds = kinds_in_iceberg(in_lake) if table_format == "iceberg" else kinds_in_delta(tmp_path / "table")
    assert kinds == ["gap"]


@pytest.mark.deep
@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,1024]"])
def test_spark_submit_runs_the_same_job(master: str, tmp_path: Path) -> None:
    """The whole of it, also where its executors are processes of their own."""
    from kordon.spark_jobs import main  # noqa: PLC0415

    done = ended(tmp_path, program=["spark-submit", "--master", master, str(main.__file__)])
    assert done.returncode == 3, done.stderr[-3000:]
    assert "unknown: 1 unknown of GAPS; 3 decisions" in done.stdout


def executors_below(pid: int) -> list[psutil.Process]:
    """The processes in which Spark's executors run."""
    below = psutil.Process(pid).children(recursive=True)
    return [each for each in below if "CoarseGrainedExecutorBackend" in " ".join(_words(each))]


def _has_read(audit: Running, decisions: int) -> bool:
    return audit.metric("kordon_audit_decisions_total") == decisions


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


@pytest.mark.deep
def test_an_executor_that_is_killed_costs_no_finding_and_doubles_none(tmp_path: Path) -> None:
    """Spark has another one do its tasks; the audit is not begun again for that."""
    files, out = tmp_path / "files", tmp_path / "out"
    files.mkdir()
    append(files, "a", [0, 1, 4])
    told = ["--files", str(files), "--out", str(out), "--trigger-seconds", "0"]
    told += ["--master", "local-cluster[2,1,1024]", "--conf", "spark.sql.shuffle.partitions=2"]
    with running(tmp_path / "log", *told) as audit:
        audit.wait("a micro-batch", lambda: audit.metric("kordon_audit_decisions_total") == 3)
        for number in range(1, 4):
            for each in executors_below(audit.process.pid)[:1]:
                each.kill()
            append(files, "a", [4 + number * 2])  # each leaves a gap
            audit.wait("the rest", partial(_has_read, audit, 3 + number))
        assert audit.metric("kordon_audit_gaps_total") == 4
        assert audit.end(signal.SIGTERM).startswith("ended: 4 unknown of GAPS; 6 decisions")
    assert "begins again" not in (tmp_path / "log").read_text()
