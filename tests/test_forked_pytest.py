"""Tests run in forks: Kordon is imported anew in each, with another text where that is asked for."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import FrameType

import pytest

from kordon.testing import forked_pytest
from kordon.testing.forked_pytest import NEVER_IMPORTED, ForkedPytest, Replaced
from kordon.testing.mutations import ROOT

LEASE = "proxy/member/lease.py"
TESTS = "tests/member/test_lease.py"
FAILED = int(pytest.ExitCode.TESTS_FAILED)


@pytest.fixture(scope="module")
def forked() -> Iterator[ForkedPytest]:
    with closing(ForkedPytest(ROOT)) as started:
        yield started


def test_a_replaced_file_is_imported_in_its_run_alone(forked: ForkedPytest) -> None:
    """Runs before and behind it see what stands on the disk."""
    text = (ROOT / LEASE).read_text()
    broken = Replaced.of(LEASE, text.replace("max(self.expires, sent + self.seconds)", "0.0"))
    codes = [forked.run([TESTS], replaced)[0] for replaced in (None, broken, None)]
    assert codes == [0, FAILED, 0]
    assert (ROOT / LEASE).read_text() == text


def test_a_failure_is_told_with_what_pytest_says(forked: ForkedPytest, tmp_path: Path) -> None:
    """Its code, and its words."""
    (tmp_path / "test_failing.py").write_text("def test_fails():\n    assert 'this' == 'that'\n")
    code, words = forked.run([str(tmp_path / "test_failing.py")])
    assert code == FAILED
    assert "'this' == 'that'" in words


def test_a_failed_test_that_leaves_something_open_has_failed(forked: ForkedPytest, tmp_path: Path) -> None:
    """Whatever pytest says of that at its end; else a mutation would seem not to have been tried."""
    (tmp_path / "conftest.py").write_text("def pytest_unconfigure():\n    raise RuntimeError('left open')\n")
    (tmp_path / "test_two.py").write_text("def test_fails():\n    assert 0\n\ndef test_passes():\n    pass\n")
    codes = [forked.run([f"{tmp_path}/test_two.py::{name}"])[0] for name in ("test_fails", "test_passes")]
    assert codes == [FAILED, int(pytest.ExitCode.INTERNAL_ERROR)]


def test_a_file_that_no_test_imports_is_told(forked: ForkedPytest) -> None:
    """Nothing would be shown by tests that pass, or fail, without it."""
    code, _ = forked.run([TESTS], Replaced("kordon.proxy.no_such_module", ""))
    assert code == NEVER_IMPORTED


def child(does: Callable[[], object]) -> int:
    """Starts a process that does something and ends."""
    if process := os.fork():
        return process
    signal.signal(signal.SIGABRT, signal.SIG_DFL)
    does()
    os._exit(7)


def ended_by(_: int, __: FrameType | None) -> None:
    """Has `signal.pause` return."""


def test_a_run_that_waits_for_ever_ends() -> None:
    """By a signal at which Python tells where it stands."""
    assert forked_pytest.end_of(child(signal.pause), 0.0) == -signal.SIGABRT


def test_a_run_that_others_keep_from_the_processor_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a mutation would seem to be noticed, and a test to fail as it is."""
    asked: list[int] = []

    def kept(process: int) -> float:
        asked.append(process)
        os.kill(process, signal.SIGUSR1)
        return time.monotonic()

    monkeypatch.setattr(forked_pytest, "kept_from_processor", kept)
    before = signal.signal(signal.SIGUSR1, ended_by)
    try:
        process = child(signal.pause)
        assert forked_pytest.end_of(process, 0.0) == 7
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert asked == [process]
