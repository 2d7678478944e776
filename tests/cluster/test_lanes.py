"""`make test` runs its tests in two processes; none is left out, and none that fails is overlooked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PLAIN = "def test_plain():\n    assert {}\n"
WITH_BROKER = """
import pytest

@pytest.fixture
def open_cluster():
    return None

@pytest.mark.broker
def test_marked():
    assert {0}

def test_with_cluster(open_cluster):
    assert {0}

@pytest.mark.beside
def test_beside(open_cluster):
    assert {0}
"""
STARTS_ONE = """
from kordon.testing.cluster import Cluster

def test_starts_one():
    assert Cluster
"""


def lanes(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the tests of a folder."""
    command = [sys.executable, "-m", "kordon.testing.lanes", "--strict-markers", "-v", *arguments]
    bare = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=folder, env=bare, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One with a configuration that knows the marks."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    broker: x\n    beside: x\n")
    return tmp_path


def test_each_test_is_run_once(folder: Path) -> None:
    """Those with brokers in the one lane, all others in the other, whichever file they stand in."""
    (folder / "test_a.py").write_text(PLAIN.format(True))
    (folder / "test_c.py").write_text(STARTS_ONE)
    (folder / "test_b.py").write_text(WITH_BROKER.format(True))
    done = lanes(folder)
    first, second = done.stdout.split("test session starts")[1:]
    passed = [
        sorted(line.split()[0].split("::")[1] for line in words.splitlines() if " PASSED" in line)
        for words in (first, second)
    ]
    assert passed == [["test_marked", "test_starts_one", "test_with_cluster"], ["test_beside", "test_plain"]]
    assert done.returncode == 0


@pytest.mark.parametrize(("plain", "with_broker"), [(True, False), (False, True)])
def test_a_failure_in_either_lane_is_one_of_the_run(folder: Path, plain: bool, with_broker: bool) -> None:
    """And is told."""
    (folder / "test_a.py").write_text(PLAIN.format(plain))
    (folder / "test_b.py").write_text(WITH_BROKER.format(with_broker))
    done = lanes(folder)
    assert done.returncode == 1
    assert ("FAILED test_a.py::test_plain" in done.stdout) is not plain
    assert ("FAILED test_b.py::test_marked" in done.stdout) is not with_broker


def test_a_lane_without_tests_is_no_failure(folder: Path) -> None:
    """`make test PYTEST_ARGS=FILE` may name tests of one kind; naming none is told as pytest tells it."""
    (folder / "test_a.py").write_text(PLAIN.format(True))
    assert lanes(folder).returncode == 0
    assert lanes(folder, "-k", "nothing").returncode == pytest.ExitCode.NO_TESTS_COLLECTED
