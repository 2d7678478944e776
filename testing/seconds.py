"""How long each test takes, and waits for leases: recorded by each process of a run, and told at its end."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from kordon.testing.lease_waits import LEASE_WAITS

RECORD: Final = Path(".cache", "test-seconds.json")
"""What each test took when it was last run, in the folder of the run."""
SLOWEST: Final = 20


class Seconds:
    """A plugin of pytest that records what each test took, with the fixtures that were made and ended for it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._taken: defaultdict[str, float] = defaultdict(float)
        self._waited: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Adds a part of a test: its fixtures, itself, or the end of its fixtures."""
        self._taken[report.nodeid] += report.duration
        if (waited := LEASE_WAITS.take()) > 0:
            self._waited[report.nodeid] += waited

    def pytest_sessionfinish(self) -> None:
        self._file.write_text(json.dumps({"taken": self._taken, "waited": self._waited}))


def record(files: list[Path]) -> str:
    """Puts what processes have recorded into `RECORD`; returns the slowest tests, and those that waited for leases."""
    taken: dict[str, float] = {}
    waited: dict[str, float] = {}
    for file in files:
        told = json.loads(file.read_text())
        taken |= told["taken"]
        waited |= told["waited"]
    RECORD.parent.mkdir(exist_ok=True)
    before: dict[str, float] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    RECORD.write_text(json.dumps(before | taken, indent=0, sort_keys=True))
    told_slowest = f"The slowest tests ({RECORD} has all):\n{_lines(taken, SLOWEST)}"
    return told_slowest + (f"Waited for leases, {sum(waited.values()):.0f} s:\n{_lines(waited)}" if waited else "")


def _lines(seconds: Mapping[str, float], most: int | None = None) -> str:
    ranked = sorted(seconds.items(), key=lambda each: -each[1])[:most]
    return "".join(f"{each:7.1f} s  {name}\n" for name, each in ranked)
