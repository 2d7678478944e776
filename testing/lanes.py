"""Every test, in two processes side by side: `python -m kordon.testing.lanes`, with what pytest takes as arguments.

Tests with real brokers mostly wait: for sessions to end, for groups to rebalance, for a broker to come up. Those that
need none are run meanwhile, at a lower priority (nice), so that nobody who waits for an answer waits for them. With
them go the tests marked `beside`, which have a cluster of their own.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Final

import pytest

from kordon.testing.java_process import DIES_WITH_PARENT

BROKERS: Final = "brokers"
BESIDE: Final = "beside"
_NOTHING_TO_RUN: Final = int(pytest.ExitCode.NO_TESTS_COLLECTED)
_LOWER_PRIORITY: Final = ("nice", "-n", "10")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Makes the lane known to pytest, whose plugin this module is."""
    parser.addoption("--lane", choices=[BROKERS, BESIDE], help="run the tests of this lane alone")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the tests of the other lane."""
    lane = config.getoption("--lane")
    left_out = [item for item in items if lane and lane_of(item) != lane]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if lane_of(item) == lane]


def lane_of(item: pytest.Item) -> str:
    """Says in which of the two a test is run."""
    return BROKERS if _needs_brokers(item) and not item.get_closest_marker("beside") else BESIDE


def _needs_brokers(item: pytest.Item) -> bool:
    """Says whether a test is marked so, gets a cluster, or stands in a module that starts one."""
    fixtures = getattr(item, "fixturenames", ())
    starts_one = hasattr(getattr(item, "module", None), "Cluster")
    return starts_one or bool(item.get_closest_marker("broker")) or any("cluster" in name for name in fixtures)


def main(arguments: Sequence[str]) -> int:
    """Runs both lanes; the words of the one beside come when both have ended.

    Returns:
        pytest's exit code; of two, the first that is not 0.
    """
    with tempfile.TemporaryFile() as words:
        beside = subprocess.Popen(
            [*_LOWER_PRIORITY, *_command(BESIDE, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=subprocess.STDOUT,
        )
        codes = [_ended(subprocess.Popen(_command(BROKERS, arguments))), _ended(beside)]
        words.seek(0)
        sys.stdout.buffer.write(words.read())
        sys.stdout.flush()
    told = [code for code in codes if code != _NOTHING_TO_RUN]
    return next((code for code in told if code), 0) if told else _NOTHING_TO_RUN


def _command(lane: str, arguments: Sequence[str]) -> list[str]:
    """The cache, which knows what failed last, is one of the lane's own."""
    options = ["-p", "kordon.testing.lanes", "--lane", lane, "-o", f"cache_dir=.pytest_cache/{lane}"]
    return [*DIES_WITH_PARENT, sys.executable, "-m", "pytest", *options, *arguments]


def _ended(process: subprocess.Popen[bytes]) -> int:
    """Waits for the end, of Ctrl-C too: that reaches both lanes, which clean up behind them."""
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
