"""What each test takes, by the clock and of the processor, and waits for leases: each process of a run records it."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from kordon.testing.lease_waits import LEASE_WAITS
from kordon.testing.processor_seconds import used_below

RECORD: Final = Path(".cache", "test-seconds.json")
"""What each test took when it was last run, in the folder of the run."""
USED: Final = Path(".cache", "test-processor-seconds.json")
"""The same of the processor, with all programs that ran for it; who is quick is left out, and counted with the next."""
SLOWEST: Final = 20
_QUICK_SECONDS: Final = 0.02
"""A part of a test that took less has used next to nothing, and to look costs a part of that."""


class Seconds:
    """A plugin of pytest that records what each test took, with the fixtures that were made and ended for it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._taken: defaultdict[str, float] = defaultdict(float)
        self._waited: defaultdict[str, float] = defaultdict(float)
        self._used: defaultdict[str, float] = defaultdict(float)
        self._used_before = used_below(os.getpid())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Adds a part of a test: its fixtures, itself, or the end of its fixtures."""
        self._taken[report.nodeid] += report.duration
        if (waited := LEASE_WAITS.take()) > 0:
            self._waited[report.nodeid] += waited
        if report.duration >= _QUICK_SECONDS:
            used = used_below(os.getpid())
            self._used[report.nodeid] += max(0.0, used - self._used_before)
            self._used_before = used

    def pytest_sessionfinish(self) -> None:
        self._file.write_text(json.dumps({"taken": self._taken, "used": self._used, "waited": self._waited}))


def record(files: list[Path]) -> str:
    """Puts what processes have recorded into `RECORD` and `USED`.

    Returns:
        The slowest tests, those that used most of the processor, and those that waited for leases.
    """
    parts: dict[str, dict[str, float]] = {"taken": {}, "used": {}, "waited": {}}
    for file in files:
        for name, seconds in json.loads(file.read_text()).items():
            parts[name] |= seconds
    taken, used, waited = parts.values()
    for kept, seconds in (RECORD, taken), (USED, used):
        _keep(kept, seconds)
    told = f"The slowest tests ({RECORD} has all):\n{_lines(taken, SLOWEST)}"
    told += f"Most of the processor, of {sum(used.values()):.0f} s ({USED}):\n{_lines(used, SLOWEST)}"
    return told + (f"Waited for leases, {sum(waited.values()):.0f} s:\n{_lines(waited)}" if waited else "")


def _keep(file: Path, seconds: Mapping[str, float]) -> None:
    """Adds to what earlier runs have recorded."""
    file.parent.mkdir(exist_ok=True)
    before: dict[str, float] = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(before | dict(seconds), indent=0, sort_keys=True))


def _lines(seconds: Mapping[str, float], most: int | None = None) -> str:
    ranked = sorted(seconds.items(), key=lambda each: -each[1])[:most]
    return "".join(f"{each:7.1f} s  {name}\n" for name, each in ranked)
