"""The folder of an audit, wherever Spark can write: tables by micro-batch, and small JSON files for people and reports.

    checkpoint/                 Spark's own: how far the sources were read
    state/<rule>/<id>           what a rule keeps behind a micro-batch
    state/_waiting/<id>         batches of which it is not certain yet whose they are
    state/_known/<id>           layouts, workers, and how far was read
    findings/batch=<id>         found in it
    checked/batch=<id>          looked at in it
    summaries/<name>/<id>       what the report draws
    about.json, progress.json   what is audited, and how far it has come

A table is written whole and over what an earlier try has left, so that a micro-batch can be repeated.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from kordon.spark_jobs.errors import CannotCheck
from kordon.spark_jobs.frames import gathered, local_rows

_OFFSET_LINES: Final = 3
"""Of Spark's offset files: their version, metadata of the micro-batch, a line for each source."""
KEPT_VERSIONS: Final = 2
"""Of a state: the newest, and the one that a repetition of its micro-batch begins with."""


def absolute(address: str) -> str:
    """Returns where a folder is, whatever Java's working folder is; an address of another file system as it is."""
    return address if "://" in address else str(Path(address).resolve())


class Storage:
    """One audit's folder.

    Args:
        folder: A path, or the address of a folder in a file system that Spark knows.
    """

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        jvm: Any = spark.sparkContext._jvm  # pyright: ignore[reportPrivateUsage]
        self._path_class: Any = jvm.org.apache.hadoop.fs.Path
        self.folder = absolute(folder.rstrip("/"))

    def write(self, rows: DataFrame, table: str, batch_id: int, *, files: int | None = None) -> None:
        """Writes the version of a table behind a micro-batch.

        Args:
            rows: All of it.
            table: Its folder, as `state/count-fence`.
            files: At most so many files; None: as Spark has divided the rows.
        """
        few = rows if files is None else rows.coalesce(files)
        few.write.mode("overwrite").parquet(self._path(table, batch_id))

    def read(self, table: str, batch_id: int, schema: StructType) -> DataFrame:
        """Returns a version of a table; empty for what was before the first micro-batch, or for a table that is new."""
        path = self._path(table, batch_id)
        if batch_id < 0 or not self._exists(f"{path}/_SUCCESS"):
            return local_rows(self._spark, [], schema)
        return gathered(self._spark.read.schema(schema).parquet(path))

    def read_all(self, table: str, first: int, last: int, schema: StructType) -> DataFrame:
        """Returns what micro-batches from `first` to `last` have left in a table, their numbers in a column `batch`."""
        numbered = StructType([*schema.fields, StructField("batch", LongType())])
        paths = [self._path(table, number) for number in range(first, last + 1)]
        whole = [path for path in paths if self._exists(f"{path}/_SUCCESS")]
        if not whole:
            return local_rows(self._spark, [], numbered)
        return self._spark.read.schema(numbered).option("basePath", f"{self.folder}/{table}").parquet(*whole)

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

        Raises:
            CannotCheck: They cannot be read.
        """
        return self.offsets(self.last_begun())

    def offsets(self, batch_id: int) -> list[str] | None:
        """Returns the offsets behind a micro-batch, JSON for each source; None: there was none of this number.

        Raises:
            CannotCheck: They cannot be read.
        """
        name = f"checkpoint/offsets/{batch_id}"
        whole = self.get_text(name) if batch_id >= 0 else None
        if whole is None:
            return None
        lines = whole.splitlines()
        if len(lines) < _OFFSET_LINES or not lines[0].startswith("v"):
            raise CannotCheck(
                f"{self.folder}/{name} is not what Spark wrote, so the auditor does not know how far it has read: "
                f"restore the folder from a copy, or begin again with another --out"
            )
        return lines[2:]

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
        """Writes a small file, so that it is there whole or as it was before."""
        path = self._hadoop_path(f"{self.folder}/{name}")
        self._files(path).mkdirs(path.getParent())
        stream = self._atomic(path).createAtomic(path, True)
        try:
            stream.write(bytearray(json.dumps(told, indent=2).encode()))
        except BaseException:
            stream.cancel()
            raise
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
        return self._path_class(address)

    def _atomic(self, path: Any) -> Any:
        """Returns what Spark writes its own checkpoints by."""
        jvm: Any = self._spark.sparkContext._jvm  # pyright: ignore[reportPrivateUsage]
        manager = getattr(jvm.org.apache.spark.sql.execution.streaming, "CheckpointFileManager$")
        context: Any = self._spark.sparkContext._jsc  # pyright: ignore[reportPrivateUsage]
        return manager.__getattr__("MODULE$").create(path, context.hadoopConfiguration())

    def _files(self, path: Any) -> Any:
        context: Any = self._spark.sparkContext._jsc  # pyright: ignore[reportPrivateUsage]
        return path.getFileSystem(context.hadoopConfiguration())
