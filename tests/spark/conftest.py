"""One Spark session for all tests of the auditor: local, one task at a time, one shuffle partition, UTC."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import chdir

import pytest

pytest.importorskip("pyspark", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

from pyspark import SparkContext
from pyspark.sql import SparkSession

SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC",
    "spark.python.sql.dataFrameDebugging.enabled": "false",  # a stack trace for every column: most of what a plan costs
    "spark.sql.dataFrameQueryContext.enabled": "false",
    "spark.sql.adaptive.enabled": "false",  # to compile a plan takes longer than to run it on a few rows
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

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
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Starts Spark when the first test asks for it, and its JVM is gone at the end."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # another one would not have Kordon
    builder = SparkSession.builder.master("local[1]").appName("kordon tests")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    with chdir(tmp_path_factory.mktemp("spark")):  # Spark makes folders where Java begins
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    gateway = SparkContext._gateway  # the JVM ends when its standard input does: at the end of Python, too late here
    session.stop()
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=30)
        SparkContext._gateway = SparkContext._jvm = None
