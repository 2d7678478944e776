"""What a micro-batch costs Spark: two jobs, one shuffle, and always the same plan, so that Java compiles it once.

Hadoop has no other way to some things of a local file than a program that it starts: most micro-batches took more of
the processor for a hundred of those than for all else.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("pyspark", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

pytestmark = [pytest.mark.programs, pytest.mark.deep, pytest.mark.timeout(900)]

MICRO_BATCHES: Final = 14
EARLY: Final = 3
LATE: Final = 12
"""Behind the tenth, at which Spark puts logs of its own together."""
PROGRAMS: Final = ("chmod", "readlink", "stat", "ls")
MOST_PROGRAMS: Final = 16
"""In a micro-batch: one for each file and folder that Spark itself makes."""
_BATCH: Final = "streaming.sql.batchId"
_OF_ONE_RUN: Final = re.compile(r"#\d+L?|\[?plan_id=\d+\]?|(?<=/)\d+\b|\b\d+ paths?\b")
"""Numbers that Spark gives out, and that of the micro-batch in the names of folders."""


@dataclass
class Cost:
    """What Spark did for a micro-batch."""

    jobs: int = 0
    shuffles: int = 0
    plans: list[str] = field(default_factory=list[str])


def events(folder: Path) -> Iterator[dict[str, Any]]:
    """What Spark has logged."""
    for path in sorted(each for each in folder.rglob("*") if each.is_file() and not each.name.startswith(".")):
        for line in path.read_text().splitlines():
            if line.startswith("{"):
                yield json.loads(line)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of it all; `programs` has a line for each that Java has started."""
    return tmp_path_factory.mktemp("jobs")


def counted_programs(root: Path) -> dict[str, str]:
    """An environment in which each start of a program is written down."""
    folder = root / "bin"
    folder.mkdir()
    for name in PROGRAMS:
        script = f'#!/bin/sh\necho {name} >> {root / "programs"}\nexec {shutil.which(name)} "$@"\n'
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.fixture(scope="module")
def costs(root: Path) -> dict[int, Cost]:
    """By micro-batch."""
    files, out, logged = (root / name for name in ("files", "out", "events"))
    for folder in (files, logged):
        folder.mkdir()
    join = {"schema": 1, "at_ms": 1, "host": "h", "worker": "w", "kind": "join"}
    lines = (json.dumps({**join, "number": number}) + "\n" for number in range(MICRO_BATCHES))
    (files / "decisions-w-000000.jsonl").write_text("".join(lines))
    command = [sys.executable, "-m", "kordon.testing.audits.many_micro_batches", str(files), str(out), str(logged)]
    subprocess.run(command, check=True, timeout=800, env=counted_programs(root))
    found: dict[int, Cost] = defaultdict(Cost)
    for each in events(logged):
        batch = (each.get("Properties") or {}).get(_BATCH)
        if each["Event"] == "SparkListenerJobStart" and batch is not None:
            found[int(batch)].jobs += 1
            found[int(batch)].shuffles += len(each["Stage IDs"]) - 1
        if each["Event"].endswith("SparkListenerSQLExecutionStart") and "micro-batch" in each["description"]:
            number = int(each["description"].rpartition(" ")[2])
            found[number].plans.append(_OF_ONE_RUN.sub("_", each["physicalPlanDescription"]))
    return dict(found)


def test_a_micro_batch_is_two_jobs_and_one_shuffle(costs: dict[int, Cost]) -> None:
    """One judges and writes, one reads back what the driver is told."""
    assert len(costs) >= LATE
    assert {cost.jobs for cost in costs.values()} == {2}
    assert {cost.shuffles for cost in costs.values()} == {1}


def test_the_plan_stays_the_same(costs: dict[int, Cost]) -> None:
    """Whatever differs from one micro-batch to another travels as rows."""
    assert len(costs[EARLY].plans) == 2
    assert "MapInArrow" in costs[EARLY].plans[0]
    assert costs[EARLY].plans == costs[LATE].plans


def test_a_micro_batch_starts_few_programs(costs: dict[int, Cost], root: Path) -> None:
    """What the audit itself writes it writes without any."""
    started = (root / "programs").read_text().splitlines()
    assert len(costs) <= len(started) <= MOST_PROGRAMS * len(costs)
