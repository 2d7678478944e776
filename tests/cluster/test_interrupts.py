"""Tests that send Ctrl-C to themselves pass wherever tests are run."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
IGNORING = ["sh", "-c", 'trap "" INT; exec "$0" "$@"']
"""What a shell does with all that it begins in the background."""


def test_ctrl_c_works_in_tests_that_a_shell_has_begun_in_the_background() -> None:
    """Otherwise a command that is to be interrupted goes on for ever."""
    tests = [str(ROOT / "tests" / "commands" / "test_topics_cli.py"), "-k", "ctrl_c"]
    command = [*IGNORING, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout", "20", *tests]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "2 passed" in done.stdout
