"""`kordon audit run` on a real broker, killed at moments of chance: it finds what one finds that was not killed."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("pyspark", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

import pyarrow.parquet as pq

from kordon.spark_jobs.cli import BROKEN, NOT_CHECKED
from kordon.testing.audits.fault_plays import BYPASS, PLAYS, Stage, clean
from kordon.testing.audits.faults import Fault
from kordon.testing.broker_features import DESCRIBED_PRODUCERS
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import read_to_ends
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = [
    pytest.mark.deep,
    pytest.mark.spark,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(DESCRIBED_PRODUCERS.is_missing, reason=DESCRIBED_PRODUCERS.reason),
]

KILLS: Final = 8
STEPS_SECONDS: Final = 300.0
_SMALL: Final = ("--trigger-seconds", "0", "--max-decisions", "6", "--max-mb", "1")
"""Many micro-batches of what there is."""


class Auditor:
    """`kordon audit run`, with a folder and a topic of findings of its own."""

    def __init__(self, broker: str, folder: Path) -> None:
        self.folder = folder
        self.topic = f"findings-{folder.name}"
        self._broker = broker
        self._log = folder.with_suffix(".log")

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        """Starts it."""
        command = [str(Path(sys.executable).with_name("kordon")), "audit", "run", "--master=local[2]", *_SMALL, *more]
        told = ["--bootstrap", self._broker, "--out", str(self.folder), "--findings-topic", self.topic]
        with self._log.open("ab") as log:
            return subprocess.Popen([*command, *told], stdout=log, stderr=subprocess.STDOUT)

    def finish(self) -> int:
        """Judges what is left; returns the exit code."""
        code = self.start("--once").wait()
        assert code != NOT_CHECKED, self._log.read_text()
        return code

    def kill(self, seconds: float) -> None:
        """Starts it, and kills it so long after it has written something."""
        written = self.written
        process = self.start()
        try:
            wait_until("a table", lambda: self.written != written or process.poll() is not None, STEPS_SECONDS)
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            process.kill()  # its JVM finds out a moment later, when the next one may be starting
        assert process.wait() == -signal.SIGKILL, self._log.read_text()

    @property
    def written(self) -> int:
        """How many tables it has written."""
        return sum(1 for _ in self.folder.rglob("_SUCCESS"))

    @property
    def found(self) -> dict[str, dict[str, Any]]:
        """The newest of each finding, by its id, without when it was found."""
        folders = sorted((self.folder / "findings").iterdir(), key=lambda each: int(each.name.removeprefix("batch=")))
        rows = [row for each in folders for file in each.glob("*.parquet") for row in pq.read_table(file).to_pylist()]
        return {row["finding_id"]: {**row, "found_ms": None} for row in rows}

    @property
    def told(self) -> dict[str, dict[str, Any]]:
        """The same as the topic has it."""
        records = read_to_ends({"bootstrap.servers": self._broker}, self.topic)
        rows = {(each.key() or b"").decode(): json.loads(each.value() or b"") for each in records}
        return {key: {**row, "found_ms": None} for key, row in rows.items()}

    @property
    def totals(self) -> dict[str, int]:
        """What was read."""
        told = json.loads((self.folder / "progress.json").read_text())
        return {name: told[name] for name in ("decisions", "batches", "bytes", "newest_ms", "unreadable")}


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    """With the decisions of a clean run, and of three in which a promise is broken."""
    plays = {name: PLAYS[name] for name in (Fault.DOUBLED_SEQUENCE.value, Fault.DROPPED_DECISION.value, BYPASS)}
    with Cluster.start(brokers=1, config={"authorizer.class.name": ""}) as cluster:
        bootstrap = cluster.bootstrap("PLAINTEXT")
        for name, play in {**plays, "clean": clean}.items():
            fault = name if name in set(Fault) else None
            with ProxyProcess.start(bootstrap, config={"decisions": {"to": "topic"}}, fault=fault) as proxy:
                play(Stage(proxy.bootstrap, bootstrap, f"killed-{name}"))
        yield bootstrap


def test_an_audit_that_is_killed_again_and_again_finds_the_same_once(broker: str, tmp_path: Path) -> None:
    """Behind `KILLS` kills the folder and the topic hold what those of an undisturbed run hold."""
    undisturbed, killed = Auditor(broker, tmp_path / "undisturbed"), Auditor(broker, tmp_path / "killed")
    assert undisturbed.finish() == BROKEN
    assert {row["kind"] for row in undisturbed.found.values()} == {"doubled-sequence", "gap", "bypass"}
    chance = random.Random(6)
    for _ in range(KILLS):
        killed.kill(chance.uniform(0, 10))
    assert killed.finish() == BROKEN
    assert killed.totals == undisturbed.totals
    assert killed.found == undisturbed.found
    assert set(killed.told) == set(killed.found)
    assert set(undisturbed.told) == set(undisturbed.found)
    shutil.rmtree(tmp_path)
