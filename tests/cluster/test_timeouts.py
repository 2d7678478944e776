"""What a test may take that waits for nobody is processor time: a busy machine lets none of them fail."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BODIES = {
    "is starved": "time.sleep(0.3)",
    "goes on for ever": "while True: pass",
    "waits for ever": "threading.Event().wait()",
}
MARKED = """
import threading, time
import pytest

@pytest.mark.{mark}
@pytest.mark.timeout(0.1)
def test_it():
    {body}
"""
ON_UVLOOP = """
import asyncio
import pytest
import uvloop

@pytest.mark.broker
@pytest.mark.timeout(0.5)
def test_it():
    uvloop.run(asyncio.Event().wait())
"""
NEVER, SOON = 1e6, 3
"""Times as long by the clock."""
BY_PROCESSOR = "Failed: The test has used more than 0.1 s of processor time."
BY_CLOCK = "Failed: The test has not come to its end in 0.3 s: it waits for something."
BY_PYTEST_TIMEOUT = "Failed: Timeout (>0.1s) from pytest-timeout."


@pytest.mark.parametrize(
    ("mark", "body", "times", "words"),
    [
        ("plain", "is starved", NEVER, "1 passed"),
        ("plain", "goes on for ever", NEVER, BY_PROCESSOR),
        ("plain", "waits for ever", SOON, BY_CLOCK),
        ("broker", "is starved", NEVER, BY_PYTEST_TIMEOUT),
        ("programs", "is starved", NEVER, BY_PYTEST_TIMEOUT),
    ],
)
def test_a_test_that_waits_for_nobody_has_its_processor_time(
    tmp_path: Path, mark: str, body: str, times: float, words: str
) -> None:
    """Others have time by the clock: what they wait for may be dead."""
    (tmp_path / "test_it.py").write_text(MARKED.format(mark=mark, body=BODIES[body]))
    done = run(tmp_path, f"timeouts.TIMES_BY_THE_CLOCK = {times}")
    assert words in done.stdout


def test_a_test_that_nothing_ends_ends_its_process(tmp_path: Path) -> None:
    """The event loop, uvloop, only logs what a timer raises; the process says where it stood."""
    (tmp_path / "test_it.py").write_text(ON_UVLOOP)
    done = run(tmp_path, "timeouts.GRACE_SECONDS = 0.2")
    assert done.returncode == 1
    assert '/test_it.py", line 9 in test_it\n' in done.stderr


def run(folder: Path, changed: str) -> subprocess.CompletedProcess[str]:
    """Has pytest run the tests of a folder."""
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    broker: x\n    programs: x\n    plain: x\n")
    (folder / "conftest.py").write_text(f"from kordon.testing import timeouts\n{changed}\n")
    command = [sys.executable, "-m", "pytest", "-p", "pytest_timeout", "-p", "kordon.testing.timeouts"]
    bare = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=folder, env=bare, capture_output=True, text=True, check=False, timeout=120)
