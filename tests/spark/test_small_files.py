"""Small files are the same to an audit whoever writes them, and workers have the driver's own modules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession

from kordon.spark_jobs.hadoop_files import HadoopFiles, files_of
from kordon.spark_jobs.local_files import LocalFiles


@pytest.fixture(params=["hadoop", "local"])
def files(request: pytest.FixtureRequest, spark: SparkSession) -> HadoopFiles | LocalFiles:
    """Both kinds."""
    return HadoopFiles(spark) if request.param == "hadoop" else LocalFiles()


def test_small_files_are_written_read_and_removed(files: HadoopFiles | LocalFiles, tmp_path: Path) -> None:
    """Folders are made, what is not there is None or empty, and removing it is no error."""
    folder, name = str(tmp_path / "a" / "b"), str(tmp_path / "a" / "b" / "file")
    assert (files.exists(folder), files.names(folder), files.read(name)) == (False, [], None)
    files.remove(name)
    files.write(name, b"one")
    assert (files.exists(name), files.read(name)) == (True, b"one")
    files.write(name, b"two")
    files.replace(name, b"three")
    files.replace(f"{folder}/other", b"")
    assert (files.read(name), files.read(f"{folder}/other")) == (b"three", b"")
    assert {each for each in files.names(folder) if not each.startswith(".")} == {"file", "other"}
    files.remove(name)
    assert not files.exists(name)
    files.remove(folder)
    assert files.names(str(tmp_path / "a")) == []


def test_a_file_that_cannot_be_replaced_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full, say, when half of it is written."""
    files, name = LocalFiles(), str(tmp_path / "file")
    files.replace(name, b"whole")

    def full(path: Path, told: bytes) -> None:
        with path.open("wb") as half:
            half.write(told[:1])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        files.replace(name, b"new")
    assert files.read(name) == b"whole"


def test_only_local_folders_are_written_without_hadoop(spark: SparkSession, tmp_path: Path) -> None:
    """A path is of the file system that Spark takes it for; an address says so itself."""
    assert isinstance(files_of(spark, str(tmp_path)), LocalFiles)
    assert isinstance(files_of(spark, f"file://{tmp_path}"), HadoopFiles)


def test_workers_have_the_drivers_pyspark(spark: SparkSession) -> None:
    """Spark's own archive of it holds sources, which each process would compile anew."""

    def where(_: Any) -> Iterator[Any]:
        yield pa.RecordBatch.from_pydict({"file": [pyspark.__file__]})

    rows = spark.range(1).mapInArrow(where, "file string").collect()
    assert [row["file"] for row in rows] == [pyspark.__file__]
