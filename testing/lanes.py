"""Every test, in six processes side by side: `python -m kordon.testing.lanes`, with what pytest takes as arguments.

One pytest collects the tests, and the processes are forks of it (`forks.py`).

Tests with real brokers mostly wait: for sessions to end, for groups to rebalance, for a broker to come up. So four
processes share them. What they share of clusters each starts anew, so three of them begin with the tests on clusters
that the others leave alone, and one with those that have clusters of their own: first with those marked `beside`, of
which some files take minutes. A cluster ends with its lane: three brokers that nobody uses are a tenth of a processor.
Tests that need no broker are run meanwhile by two others, at a lower priority (nice), so that nobody who waits for an
answer waits for them: those that run programs, and what is quick. The former begins with the tests that share a Spark,
as each process that had one would spend 15 s of processor time on its start, and goes on with those marked `beside`. A
process that is done with its lane helps with the next, file by file, and with those that would need a cluster of
another process last.

With `--quick` only those are run that need no broker, Spark, Java or browser, and are not marked `slow`, by three
processes. With `--at-most MINUTES` a run that takes longer has failed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from _pytest.doctest import DoctestModule

from kordon.testing.forks import Forks, outlasted
from kordon.testing.java_process import DIES_WITH_PARENT
from kordon.testing.seconds import record

LED: Final = "led"
SPARE: Final = "spare"
STRICT: Final = "strict"
ORDINARY: Final = "ordinary"
SECURE: Final = "secure"
THREE: Final = "three"
OWN: Final = "own"
SPARK: Final = "spark"
BESIDE: Final = "beside"
PLAIN: Final = "plain"
_LANES_OF_CLUSTERS: Final = {
    "spare_cluster": SPARE,
    "strict_cluster": STRICT,
    "open_cluster": LED,
    "cluster": ORDINARY,
    "cluster3": THREE,
    "secure_cluster": SECURE,
}
"""By fixture, the lane of its tests; the first one that a test has says it."""
_PROCESSES: Final = {
    LED: [LED, OWN, BESIDE, STRICT, THREE, SECURE, SPARE, ORDINARY, SPARK, PLAIN],
    SPARE: [SPARE, STRICT, OWN, BESIDE, THREE, SECURE, ORDINARY, LED, SPARK, PLAIN],
    ORDINARY: [ORDINARY, SECURE, THREE, OWN, BESIDE, STRICT, SPARE, LED, SPARK, PLAIN],
    OWN: [BESIDE, OWN, STRICT, THREE, SECURE, SPARE, ORDINARY, LED, SPARK, PLAIN],
    BESIDE: [SPARK, BESIDE, PLAIN],
    PLAIN: [PLAIN],
}
"""The lanes that each runs tests of, in this order; what the first says is shown as it comes."""
_QUICK: Final = {"quick": [PLAIN], "quick beside": [PLAIN], "quick too": [PLAIN]}
"""The same where only what is quick is run."""
_LONG: Final = ("beside", SPARK)
"""Marks of tests that take minutes: each lane begins with their files."""
_LONGEST: Final = ("test_audit_of_faults.py", "test_simulation.py", "test_service.py")
"""Files of which one process has long to do: if they were begun late, all others would wait for them."""
_NEVER_QUICK: Final = re.compile(
    rb"^pytestmark = [^\]\n]*(?:\n [^\]]*)?mark\.(?:broker|deep|programs|slow)\b", re.MULTILINE
)
"""How a file of tests says that none of them is quick."""
_STARTS: Final = ("Cluster.start(", "Secured.start(", "without_authorizer(")
"""How a test starts brokers of its own."""
_TESTS: Final = Path("tests")
_PYTEST: Final = (
    *DIES_WITH_PARENT,
    *(sys.executable, "-m", "pytest", "-p", "kordon.testing.lanes", "-p", "no:cacheprovider"),
)
"""The command of pytest, with this module as its plugin."""
_NICENESS: Final = {BESIDE: 5, PLAIN: 10}
"""Of processes that run at a lower priority."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Makes the processes known to pytest, whose plugin this module is."""
    parser.addoption("--quick", action="store_true", help="run only what needs no broker and no other program")
    parser.addoption("--between", type=Path, help="run the tests in processes that share this empty folder")


def pytest_configure(config: pytest.Config) -> None:
    """Has the tests run by the processes."""
    between: Path | None = config.getoption("--between")
    if between:
        processes = _QUICK if config.getoption("--quick") else _PROCESSES
        config.pluginmanager.register(Forks(processes, between, lane_of, _NICENESS))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Does not read a file of which nothing is quick, where that is asked for: a quarter of all tests are in those."""
    is_file = config.getoption("--quick") and collection_path.suffix == ".py"
    return True if is_file and _NEVER_QUICK.search(collection_path.read_bytes()) else None


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Looks for examples in docstrings only where there are some: a few files of hundreds."""
    found = yield
    return [each for each in found if not isinstance(each, DoctestModule) or b">>> " in file_path.read_bytes()]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is not quick, where that is asked for; puts files with long tests first."""
    if config.getoption("--quick"):
        config.hook.pytest_deselected(items=[item for item in items if not _is_quick(item)])
        items[:] = filter(_is_quick, items)
    long = {item.path for item in items if any(map(item.get_closest_marker, _LONG))}
    items.sort(key=lambda item: (item.path.name not in _LONGEST, item.path not in long))


def _is_quick(item: pytest.Item) -> bool:
    return lane_of(item) == PLAIN and not item.get_closest_marker("slow")


_LANE: Final = pytest.StashKey[str]()


def lane_of(item: pytest.Item) -> str:
    """Says in which of them a test is run."""
    if (known := item.stash.get(_LANE, None)) is None:  # it is asked for several times a test
        known = item.stash[_LANE] = _lane_of(item)
    return known


def _lane_of(item: pytest.Item) -> str:
    fixtures = getattr(item, "fixturenames", ())
    if item.get_closest_marker("beside") or not _needs_brokers(item):
        kinds = {SPARK: "spark" in fixtures, BESIDE: _needs_programs(item)}
        return next((lane for lane, is_of_it in kinds.items() if is_of_it), PLAIN)
    return next((lane for cluster, lane in _LANES_OF_CLUSTERS.items() if cluster in fixtures), OWN)


def _needs_brokers(item: pytest.Item) -> bool:
    """Says whether a test is marked so, gets a cluster, or stands in a module whose tests start brokers."""
    fixtures = getattr(item, "fixturenames", ())
    gets_one = any("cluster" in name for name in fixtures)
    return gets_one or bool(item.get_closest_marker("broker")) or _starts_brokers(item.path)


def _needs_programs(item: pytest.Item) -> bool:
    """Says whether a test is marked as a long one or as one that runs other programs."""
    return any(map(item.get_closest_marker, (*_LONG, "programs")))


@cache
def _starts_brokers(file: Path) -> bool:
    text = file.read_text()
    return any(each in text for each in _STARTS)


def main(arguments: Sequence[str]) -> int:
    """Runs all processes; the words of all but the first come when they have ended, and then which tests were slow.

    Args:
        arguments: `--quick`, `--at-most` and what pytest takes.

    Returns:
        pytest's exit code; of several, the first that is not 0.
    """
    parser = argparse.ArgumentParser(prog="python -m kordon.testing.lanes", allow_abbrev=False, add_help=False)
    parser.add_argument("--at-most", type=float, metavar="MINUTES")
    told, for_pytest = parser.parse_known_args(arguments)
    began = time.monotonic()
    code = _run(for_pytest)
    minutes = (time.monotonic() - began) / 60
    if told.at_most is not None and minutes > told.at_most:
        print(f"FAILED the tests took {minutes:.1f} minutes; AT_MOST={told.at_most:g} allows no more", flush=True)
        return code or int(pytest.ExitCode.TESTS_FAILED)
    return code


@contextmanager
def compiling_ahead(arguments: Sequence[str], environment: Mapping[str, str]) -> Generator[None]:
    """In a fresh clone, compiles the tests that are collected last while the first ones are collected.

    A single process collects, beside which a processor is idle: it takes 15 s of its own there, and 21 s without this.

    Args:
        arguments: Of the run; if they name tests, nothing is compiled ahead.
        environment: Of pytest.
    """
    folders = sorted(each for each in _TESTS.glob("*") if each.is_dir() and each.name[0] != "_")
    is_compiled = any((each / "__pycache__").exists() for each in folders)
    if is_compiled or not folders or not {*arguments} <= {"--quick"}:
        yield
        return
    last_first = map(str, reversed(folders[len(folders) // 2 :]))
    command = [*_PYTEST, "--collect-only", "--quiet", *arguments, *last_first]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment):
        yield


def _run(arguments: Sequence[str]) -> int:
    """Has one pytest collect the tests and go on in the processes; tells which were slow; returns its exit code."""
    with tempfile.TemporaryDirectory() as folder:
        # As one word: pytest takes a folder that stands alone for one of tests until it has read its plugins.
        command = [*_PYTEST, f"--between={folder}", *arguments]
        # Hundreds of programs are started: half of what one costs is compiling its modules where that is not kept.
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        with compiling_ahead(arguments, environment):
            code = outlasted(subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment).wait)
        print(f"\n{record(sorted(Path(folder).glob('*.seconds')))}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
