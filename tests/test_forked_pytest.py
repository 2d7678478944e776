"""Tests run in forks: Kordon is imported anew in each, with another text where that is asked for."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

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


def test_a_file_that_no_test_imports_is_told(forked: ForkedPytest) -> None:
    """Nothing would be shown by tests that pass, or fail, without it."""
    code, _ = forked.run([TESTS], Replaced("kordon.proxy.no_such_module", ""))
    assert code == NEVER_IMPORTED
