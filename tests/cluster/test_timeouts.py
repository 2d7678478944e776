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
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    broker: x\n    programs: x\n    plain: x\n")
    (tmp_path / "conftest.py").write_text(
        f"from kordon.testing import timeouts\ntimeouts.TIMES_BY_THE_CLOCK = {times}\n"
    )
    (tmp_path / "test_it.py").write_text(MARKED.format(mark=mark, body=BODIES[body]))
    command = [sys.executable, "-m", "pytest", "-p", "pytest_timeout", "-p", "kordon.testing.timeouts"]
    bare = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=bare, capture_output=True, text=True, check=False)
    assert words in done.stdout
