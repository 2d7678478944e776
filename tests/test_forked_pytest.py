"""Tests run in forks: Kordon is imported anew in each, with another text where that is asked for."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import FrameType

import pytest

from kordon.testing import bounded_runs
from kordon.testing.forked_pytest import NEVER_IMPORTED, ForkedPytest, Replaced
from kordon.testing.mutations import ROOT

pytestmark = pytest.mark.slow
LEASE = "proxy/member/lease.py"
TESTS = "tests/member/test_lease.py"
FAILED = int(pytest.ExitCode.TESTS_FAILED)
EXPIRY = """
from pathlib import Path
from kordon.proxy.member.lease import Lease

with Path("{imports}").open("a") as file:
    file.write("imported")

def test_expiry():
    lease = Lease(20.0)
    lease.renew(5.0)
    assert lease.expires == 25.0
    assert not Path("{file}").exists()
"""


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


def test_tests_of_one_file_are_collected_once(forked: ForkedPytest, tmp_path: Path) -> None:
    """Kordon's functions are changed in place; what is not noticed so is tried anew, and so is what fails as it is."""
    file = tmp_path / "test_expiry.py"
    file.write_text(EXPIRY.format(imports=str(tmp_path / "imports"), file=str(tmp_path / "fails")))
    text = (ROOT / LEASE).read_text()
    broken = Replaced.of(LEASE, text.replace("max(self.expires, sent + self.seconds)", "0.0"))
    harmless = Replaced.of(LEASE, text.replace("max(self.expires, sent + self.seconds)", "self.seconds + sent"))

    def runs(*replaced: Replaced | None) -> tuple[list[int], int]:
        codes = [forked.run([f"{file}::test_expiry"], each)[0] for each in replaced]
        return codes, (tmp_path / "imports").read_text().count("imported")

    assert runs(None, broken, None, broken) == ([0, FAILED, 0, FAILED], 1)
    assert runs(harmless) == ([0], 2)
    (tmp_path / "fails").touch()
    assert runs(None) == ([FAILED], 3)


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
    (tmp_path / "test_other.py").write_text("def test_other():\n    pass\n")
    other = f"{tmp_path}/test_other.py"  # tests of several files are run to the end of pytest
    codes = [forked.run([f"{tmp_path}/test_two.py::{name}", other])[0] for name in ("test_fails", "test_passes")]
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
    assert bounded_runs.end_of(child(signal.pause), 0.0) == FAILED


def test_a_run_that_others_keep_from_the_processor_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a mutation would seem to be noticed, and a test to fail as it is."""
    asked: list[int] = []

    def kept(process: int) -> float:
        asked.append(process)
        os.kill(process, signal.SIGUSR1)
        return time.monotonic()

    monkeypatch.setattr(bounded_runs, "kept_from_processor", kept)
    before = signal.signal(signal.SIGUSR1, ended_by)
    try:
        process = child(signal.pause)
        assert bounded_runs.end_of(process, 0.0) == 7
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert asked == [process]
