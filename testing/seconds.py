"""How long each test takes: recorded by each process of a run, and the slowest told at its end."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest

RECORD: Final = Path(".cache", "test-seconds.json")
"""What each test took when it was last run, in the folder of the run."""
SLOWEST: Final = 20


class Seconds:
    """A plugin of pytest that records what each test took, with the fixtures that were made and ended for it.

    Args:
        file: Written when the process ends.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._taken: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Adds a part of a test: its fixtures, itself, or the end of its fixtures."""
        self._taken[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Writes what was recorded."""
        self._file.write_text(json.dumps(self._taken))


def record(files: list[Path]) -> str:
    """Puts what processes have recorded into `RECORD`; returns the slowest tests, a line each."""
    taken: dict[str, float] = {}
    for file in files:
        taken |= json.loads(file.read_text())
    RECORD.parent.mkdir(exist_ok=True)
    before: dict[str, float] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    RECORD.write_text(json.dumps(before | taken, indent=0, sort_keys=True))
    slowest = sorted(taken.items(), key=lambda each: -each[1])[:SLOWEST]
    return "".join(f"{seconds:7.1f} s  {name}\n" for name, seconds in slowest)
