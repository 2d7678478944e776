"""Programs that are forked behave as those that are started."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from kordon.testing.forked_program import ForkedProgram
from kordon.testing.waiting import wait_until

SAYS = """
import json, os, sys
print(json.dumps([__name__, sys.argv[1:], dict(os.environ)]), flush=True)
print("an error", file=sys.stderr, flush=True)
sys.exit(7)
"""
SLEEPS = "import time; print('begun', flush=True); time.sleep(600)"


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that modules are imported from."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "says_for_a_test.py").write_text(SAYS)
    (tmp_path / "sleeps_for_a_test.py").write_text(SLEEPS)
    return tmp_path


def test_arguments_environment_words_and_exit_code(modules: Path) -> None:
    """Are those of `python -m`; what was in the log before stays."""
    log = modules / "log"
    log.write_text("before\n")
    program = ForkedProgram(["says_for_a_test", "one", "two"], log, {"ONLY": "this"})
    assert program.wait(60) == program.poll() == 7
    before, told, error = log.read_text().splitlines()
    assert (before, error) == ("before", "an error")
    assert json.loads(told) == ["__main__", ["one", "two"], {"ONLY": "this"}]


def test_a_program_that_is_killed_has_the_signal_for_a_code(modules: Path) -> None:
    """Whoever waits for one that goes on is told so."""
    program = ForkedProgram(["sleeps_for_a_test"], modules / "log", os.environ)
    assert program.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        program.wait(0.01)
    program.kill()
    assert program.wait(60) == -signal.SIGKILL
    program.send_signal(signal.SIGTERM)  # nobody is hit by it
    assert not psutil.pid_exists(program.pid)


def test_it_dies_with_who_has_started_it(modules: Path) -> None:
    """Whatever that has died of."""
    starts = (
        "import os, time; from pathlib import Path; from kordon.testing.forked_program import ForkedProgram\n"
        "print(ForkedProgram(['sleeps_for_a_test'], Path('log'), os.environ).pid, flush=True); time.sleep(600)"
    )
    environment = {**os.environ, "PYTHONPATH": f"{modules}:{os.environ.get('PYTHONPATH', '')}"}
    with subprocess.Popen(
        [sys.executable, "-c", starts], cwd=modules, env=environment, stdout=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        wait_until("it has begun", lambda: (modules / "log").exists() and "begun" in (modules / "log").read_text(), 60)
        starter.kill()
    wait_until("it is gone", lambda: not psutil.pid_exists(pid), 60)
