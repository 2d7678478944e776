"""`make test` runs its tests in six processes; none is left out, and none that fails is overlooked."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kordon.testing.lanes import compiling_ahead

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
WITH_SPARK = """
import pytest

@pytest.fixture
def spark():
    return None

def test_with_spark(spark):
    assert {0}

@pytest.mark.programs
def test_in_a_browser():
    assert {0}
"""
STARTS_ONE = """
def test_starts_one():
    "Cluster.start()"
"""
SLOW = """
import time
import pytest

@pytest.fixture
def open_cluster():
    time.sleep(0.2)
    yield
    time.sleep(0.2)

def test_slow(open_cluster):
    pass
"""


def lanes(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kordon.testing.lanes", *arguments, "--strict-markers", "-v"]
    bare = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=folder, env=bare, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One with a configuration that knows the marks."""
    marks = "".join(f"    {each}: x\n" for each in ("broker", "beside", "programs", "slow"))
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nmarkers =\n{marks}")
    return tmp_path


def passed(words: str) -> list[str]:
    """Names of the tests that have passed, by what pytest says."""
    return sorted(line.split()[0].split("::")[1] for line in words.splitlines() if " PASSED" in line)


def test_each_test_is_run_once(folder: Path) -> None:
    """By one of the processes, whichever file it stands in; that beside those with brokers runs none of theirs."""
    (folder / "test_a.py").write_text(PLAIN.format(True))
    (folder / "test_c.py").write_text(STARTS_ONE)
    (folder / "test_b.py").write_text(WITH_BROKER.format(True))
    for number in range(6):
        (folder / f"test_d{number}.py").write_text(WITH_BROKER.format(True).replace("test_", f"test_{number}_"))
    done = lanes(folder)
    many = [f"test_{number}_{name}" for number in range(6) for name in ("marked", "with_cluster", "beside")]
    everything = ["test_marked", "test_starts_one", "test_with_cluster", "test_beside", "test_plain", *many]
    assert passed(done.stdout) == sorted(everything)
    beside = passed(done.stdout.split("= beside =")[1])
    assert [name for name in beside if not name.endswith(("beside", "plain"))] == []
    assert done.returncode == 0


ONE_PROCESS = """
from kordon.testing import lanes

lanes._PROCESSES.clear()
lanes._PROCESSES["one"] = [lanes.LED, lanes.PLAIN]
"""
SHARES = """
from pathlib import Path

import pytest

HERE = Path(__file__).parent

@pytest.fixture(scope="session")
def open_cluster():
    with (HERE / "told").open("a") as told:
        told.write("begins ")
    yield
    with (HERE / "told").open("a") as told:
        told.write("ends ")
"""
SHARED = """
from conftest import HERE

def test_with_cluster(open_cluster):
    assert (HERE / "told").read_text() == "begins "

def test_plain():
    assert (HERE / "told").read_text() == "begins ends "
"""


def test_what_a_lane_shares_ends_with_the_lane(folder: Path) -> None:
    """The tests of the lane share it, files apart; those of the next lane find it gone."""
    (folder / "conftest.py").write_text(ONE_PROCESS + SHARES)
    for name in ("test_a.py", "test_b.py"):
        (folder / name).write_text(SHARED)
    done = lanes(folder)
    assert passed(done.stdout) == ["test_plain", "test_plain", "test_with_cluster", "test_with_cluster"], done.stdout


def test_what_is_quick_can_be_run_alone(folder: Path) -> None:
    """By three processes: no test that needs brokers or Spark, that runs other programs or takes long.

    Examples in docstrings are among them.
    """
    (folder / "examples.py").write_text("'>>> 1 + 1\\n2'\n")
    (folder / "test_a.py").write_text(PLAIN.format(True))
    (folder / "test_b.py").write_text(WITH_BROKER.format(True))
    (folder / "test_c.py").write_text(STARTS_ONE)
    (folder / "test_d.py").write_text(WITH_SPARK)
    (folder / "test_f.py").write_text("import pytest\n\n@pytest.mark.slow\n" + PLAIN.format(True))
    marked = "import pytest\n\npytestmark = [\n    pytest.mark.timeout(9),\n    pytest.mark.slow,\n]\n"
    (folder / "test_g.py").write_text(f"{marked}raise AssertionError('it is read, and none of it is quick')\n")
    for number in range(6):
        (folder / f"test_e{number}.py").write_text(PLAIN.format(True).replace("test_", f"test_{number}_"))
    done = lanes(folder, "--quick", "--doctest-modules")
    assert passed(done.stdout) == sorted(["examples", "test_plain", *(f"test_{number}_plain" for number in range(6))])
    assert re.findall("^=+ (quick.*?) =+$", done.stdout, re.MULTILINE) == ["quick", "quick beside", "quick too"]
    assert done.returncode == 0


@pytest.mark.parametrize("is_fresh", [True, False])
def test_tests_that_are_collected_last_are_compiled_ahead_in_a_fresh_clone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_fresh: bool
) -> None:
    """Beside the process that collects them all; where tests were run before, nothing is left to compile."""
    first, last = tmp_path / "tests" / "first", tmp_path / "tests" / "last"
    for each in (first, last):
        each.mkdir(parents=True)
        (each / f"test_{each.name}.py").write_text(PLAIN.format(True))
    if not is_fresh:
        (first / "__pycache__").mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    monkeypatch.chdir(tmp_path)
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with compiling_ahead(["--quick"], bare | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}):
        pass
    assert (last / "__pycache__").exists() is is_fresh
    assert (first / "__pycache__").exists() is not is_fresh


def test_the_time_of_each_test_is_recorded_and_the_slowest_is_told(folder: Path) -> None:
    """Whichever process has run it; the time of its fixtures is its own."""
    (folder / "test_a.py").write_text(PLAIN.format(True))
    (folder / "test_b.py").write_text(SLOW)
    done = lanes(folder)
    seconds = json.loads((folder / ".cache" / "test-seconds.json").read_text())
    assert seconds.keys() == {"test_a.py::test_plain", "test_b.py::test_slow"}
    assert seconds["test_b.py::test_slow"] >= 0.4
    told = done.stdout.split("The slowest tests")[1].splitlines()
    assert told[1].endswith(f"s  {max(seconds, key=lambda test: seconds[test])}")


BURNS = """
import subprocess
import sys
import time

SPIN = "import time\\nwhile time.process_time() < 0.5: pass\\nprint(flush=True)\\ntime.sleep(60)"

def test_burns():
    program = subprocess.Popen([sys.executable, "-c", SPIN], stdout=subprocess.PIPE)
    program.stdout.readline()

def test_sleeps():
    time.sleep(0.7)
"""


def test_what_each_test_uses_of_the_processor_is_recorded(folder: Path) -> None:
    """With what a program has used that goes on; who only waits uses none."""
    (folder / "test_a.py").write_text(BURNS)
    done = lanes(folder, "-p", "no:unraisableexception")
    used = json.loads((folder / ".cache" / "test-processor-seconds.json").read_text())
    assert used["test_a.py::test_burns"] > 0.4
    assert used["test_a.py::test_sleeps"] < 0.4
    assert "test_a.py::test_burns" in done.stdout.split("Most of the processor")[1].splitlines()[1]


WAITED = """
from kordon.testing.lease_waits import LEASE_WAITS

def test_waits(tmp_path):
    log = tmp_path / "kordon.log"
    log.write_text('{"event":"change_waits","topic":"orders","seconds":19.5}\\n{"event":"layout_changed"}\\n')
    LEASE_WAITS.follow(log)
    LEASE_WAITS.look(log)
    log.unlink()

def test_does_not():
    pass
"""


def test_waits_for_leases_are_told(folder: Path) -> None:
    """With the tests that waited, as the logs of their Kordons say, though these have been removed by then."""
    (folder / "test_a.py").write_text(WAITED)
    told = lanes(folder, "--quick").stdout.split("Waited for leases, 20 s:")[1]
    assert told.split() == ["19.5", "s", "test_a.py::test_waits"]


def test_a_run_that_takes_too_long_has_failed(folder: Path) -> None:
    """Though all of its tests have passed; and says how long it took."""
    (folder / "test_a.py").write_text(PLAIN.format(True))
    assert lanes(folder, "--quick", "--at-most", "60").returncode == 0
    done = lanes(folder, "--quick", "--at-most", "0")
    assert done.returncode == 1
    assert "minutes; AT_MOST=0 allows no more" in done.stdout


@pytest.mark.parametrize(("plain", "with_broker"), [(True, False), (False, True)])
def test_a_failure_in_either_lane_is_one_of_the_run(folder: Path, plain: bool, with_broker: bool) -> None:
    """And is told."""
    (folder / "test_a.py").write_text(PLAIN.format(plain))
    (folder / "test_b.py").write_text(WITH_BROKER.format(with_broker))
    done = lanes(folder)
    assert done.returncode == 1
    assert ("FAILED test_a.py::test_plain" in done.stdout) is not plain
    assert ("FAILED test_b.py::test_marked" in done.stdout) is not with_broker


DIES = """
import os

def test_dies():
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_that_is_killed_is_a_failure_of_the_run(folder: Path) -> None:
    """Though nobody could say which test it was, and all that were run by others have passed."""
    (folder / "test_a.py").write_text(DIES)
    (folder / "test_b.py").write_text(WITH_BROKER.format(True))
    done = lanes(folder)
    assert passed(done.stdout) == ["test_beside", "test_marked", "test_with_cluster"]
    assert done.returncode != 0


def test_a_file_that_cannot_be_read_is_told_once_and_nothing_is_run(folder: Path) -> None:
    (folder / "test_a.py").write_text("def test_unfinished(:\n")
    (folder / "test_b.py").write_text(PLAIN.format(True))
    done = lanes(folder)
    assert done.stdout.count("ERROR collecting test_a.py") == 1
    assert passed(done.stdout) == []
    assert done.returncode == pytest.ExitCode.INTERRUPTED


WRITES = """
import os

def test_{0}():
    for _ in range(200):
        os.system("echo {0}")
    assert False
"""


def test_what_a_test_writes_is_told_with_it_and_with_no_other(folder: Path) -> None:
    """Programs that it starts included, while tests of other processes write as well."""
    for name in ("first", "second"):
        (folder / f"test_{name}.py").write_text(WRITES.format(name))
    told = re.findall("- Captured stdout call -+\n((?:first\n|second\n)*)", lanes(folder, "--quick").stdout)
    assert sorted(told) == ["first\n" * 200, "second\n" * 200]


def test_a_lane_without_tests_is_no_failure(folder: Path) -> None:
    """`make test PYTEST_ARGS=FILE` may name tests of one kind; naming none is told as pytest tells it."""
    (folder / "test_a.py").write_text(PLAIN.format(True))
    assert lanes(folder).returncode == 0
    assert lanes(folder, "--quick", "-k", "nothing").returncode == pytest.ExitCode.NO_TESTS_COLLECTED
