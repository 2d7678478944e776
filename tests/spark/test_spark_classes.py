"""Each Spark of tests begins with classes that one Spark has loaded before them: that is half of what it costs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kordon.testing.audits import spark_classes


def test_the_spark_of_tests_has_the_classes_in_its_memory(spark: SparkSession) -> None:
    """The kernel says which files a process has mapped."""
    jvm: Any = spark._jvm  # pyright: ignore[reportPrivateUsage]
    pid = int(jvm.java.lang.ProcessHandle.current().pid())
    found = spark_classes.archive()
    assert found is not None
    if not found.stat().st_size:
        pytest.skip("this Java keeps no classes")
    assert str(found) in Path(f"/proc/{pid}/maps").read_text()


def test_options_that_somebody_has_set_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is named behind them, once; Java does without one that is missing."""
    monkeypatch.setenv(spark_classes.OPTIONS, "-Xss8m")
    monkeypatch.setattr(spark_classes, "archive", lambda: Path("/classes.jsa"))
    for _ in range(2):
        spark_classes.use()
    assert os.environ[spark_classes.OPTIONS] == "-Xss8m -XX:SharedArchiveFile=/classes.jsa -Xlog:disable"


def test_nothing_is_told_or_made_where_java_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that need none run there."""
    monkeypatch.setenv(spark_classes.OPTIONS, "-Xss8m")
    monkeypatch.setenv("PATH", str(tmp_path))
    spark_classes.use()
    spark_classes.make()
    assert os.environ[spark_classes.OPTIONS] == "-Xss8m"
