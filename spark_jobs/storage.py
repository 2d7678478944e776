"""The folder of an audit, wherever Spark can write: tables by micro-batch, and small JSON files for people and reports.

    checkpoint/                 Spark's own: how far the sources were read
    state/<rule>/<id>           what a rule keeps behind a micro-batch
    findings/batch=<id>         found in it
    checked/batch=<id>          looked at in it
    summaries/<name>/<id>       what the report draws
    about.json, progress.json   what is audited, and how far it has come

A table is written whole and over what an earlier try has left, so that a micro-batch can be repeated.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

KEPT_VERSIONS: Final = 2
"""Of a state: the newest, and the one that a repetition of its micro-batch begins with."""


class Storage:
    """One audit's folder.

    Args:
        spark: Reads and writes.
        folder: A path, or the address of a folder in a file system that Spark knows.
    """

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self.folder = folder.rstrip("/")

    def write(self, rows: DataFrame, table: str, batch_id: int, *, files: int | None = None) -> None:
        """Writes the version of a table behind a micro-batch.

        Args:
            rows: All of it.
            table: Its folder, as `state/count-fence`.
            batch_id: The micro-batch.
            files: At most so many files; None: as Spark has divided the rows.
        """
        few = rows if files is None else rows.coalesce(files)
        few.write.mode("overwrite").parquet(self._path(table, batch_id))

    def read(self, table: str, batch_id: int, schema: StructType) -> DataFrame:
        """Returns a version of a table; empty for what was before the first micro-batch, or for a table that is new."""
        path = self._path(table, batch_id)
        if batch_id < 0 or not self._exists(f"{path}/_SUCCESS"):
            return self._spark.createDataFrame([], schema)
        return self._spark.read.schema(schema).parquet(path)

    def forget(self, tables: Iterable[str], batch_id: int) -> None:
        """Removes versions of states that no repetition can ask for any more."""
        for table in tables:
            for each in self._numbers(table):
                if each <= batch_id - KEPT_VERSIONS:
                    self._remove(self._path(table, each))

    def last_begun(self) -> int:
        """Returns the number of the newest micro-batch that was begun; -1: none was."""
        return max(self._numbers("checkpoint/offsets"), default=-1)

    def begun(self) -> list[str] | None:
        """Returns the offsets of the newest micro-batch that was begun, JSON for each source; None: none was.

        Spark writes them down before anything else, and begins with them again.
        """
        last = self.last_begun()
        if last < 0:
            return None
        whole = self.get_text(f"checkpoint/offsets/{last}") or ""
        _, _, *sources = whole.splitlines()
        return sources

    def get_text(self, name: str) -> str | None:
        """Returns what stands in a small file; None: it is not there."""
        path = self._hadoop_path(f"{self.folder}/{name}")
        files = self._files(path)
        if not files.exists(path):
            return None
        stream = files.open(path)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def put_json(self, name: str, told: Mapping[str, Any]) -> None:
        """Writes a small file."""
        path = self._hadoop_path(f"{self.folder}/{name}")
        stream = self._files(path).create(path, True)
        try:
            stream.write(bytearray(json.dumps(told, indent=2).encode()))
        finally:
            stream.close()

    def _path(self, table: str, batch_id: int) -> str:
        number = f"batch={batch_id}" if table in {"findings", "checked"} else str(batch_id)
        return f"{self.folder}/{table}/{number}"

    def _numbers(self, table: str) -> list[int]:
        path = self._hadoop_path(f"{self.folder}/{table}")
        files = self._files(path)
        if not files.exists(path):
            return []
        names: list[str] = [each.getPath().getName() for each in files.listStatus(path)]
        return sorted(int(name) for name in names if name.isdigit())

    def _exists(self, address: str) -> bool:
        path = self._hadoop_path(address)
        return bool(self._files(path).exists(path))

    def _remove(self, address: str) -> None:
        path = self._hadoop_path(address)
        self._files(path).delete(path, True)

    # Spark's Python side has no file systems of its own; those of its JVM know what Spark knows
    def _hadoop_path(self, address: str) -> Any:
        jvm: Any = self._spark.sparkContext._jvm  # pyright: ignore[reportPrivateUsage]
        return jvm.org.apache.hadoop.fs.Path(address)

    def _files(self, path: Any) -> Any:
        context: Any = self._spark.sparkContext._jsc  # pyright: ignore[reportPrivateUsage]
        return path.getFileSystem(context.hadoopConfiguration())
