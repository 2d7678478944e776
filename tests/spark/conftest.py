"""One Spark session for all tests of the auditor, opened as `kordon audit` does: one task at a time, one partition."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

from pyspark.sql import SparkSession

from kordon.spark_jobs.session import Setup, close_session, open_session
from kordon.testing.audits import spark_classes

_SECONDS = 900.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Lets py4j leave sockets to the garbage collector: it closes none of those that rows come by.

    A rule's test is seconds of CPU for each plan, and comes beside others that go first (`testing/lanes.py`).
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(_SECONDS))
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure() -> None:
    """Looks for sockets that nobody closed before pytest does, at the very end."""
    _let_go()


@pytest.fixture(scope="module", autouse=True)
def sockets_let_go() -> Iterator[None]:
    """Leaves none of py4j's sockets to be found in the tests of others."""
    yield
    _let_go()


def _let_go() -> None:
    if "py4j" in sys.modules:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Starts Spark when the first test asks for it, and its JVM is gone at the end."""
    spark_classes.make()
    session = open_session(Setup(master="local[1]", needs_kafka=False))
    yield session
    close_session(session)
