"""Each Spark of tests begins with classes that one Spark has loaded before them: that is half of what it costs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kordon.testing import spark_classes

USE_TWICE = """
import os
from kordon.testing import spark_classes
spark_classes.use()
spark_classes.use()
print(os.environ[spark_classes.OPTIONS])
"""


def test_the_spark_of_tests_has_the_classes_in_its_memory(spark: SparkSession) -> None:
    """The kernel says which files a process has mapped."""
    jvm: Any = spark._jvm  # pyright: ignore[reportPrivateUsage]
    pid = int(jvm.java.lang.ProcessHandle.current().pid())
    found = spark_classes.archive()
    assert found is not None
    if not found.stat().st_size:
        pytest.skip("this Java keeps no classes")
    assert str(found) in Path(f"/proc/{pid}/maps").read_text()


def test_options_that_somebody_has_set_stay() -> None:
    """The file is named behind them, once; Java does without one that is missing."""
    environment = os.environ | {spark_classes.OPTIONS: "-Xss8m"}
    command = [sys.executable, "-c", USE_TWICE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["-Xss8m", f"-XX:SharedArchiveFile={spark_classes.archive()}", "-Xlog:disable"]
