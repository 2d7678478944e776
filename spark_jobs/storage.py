"""The folder of an audit, wherever Spark can write: tables by micro-batch, and small JSON files for people and reports.

    checkpoint/                 Spark's own: how far the sources were read
    state/<id>                  shipments behind a micro-batch: `kept=true` states, `kept=false` what the driver is told
    state/_known/<id>           what the audit itself knows
    findings/batch=<id>         found in it
    checked/batch=<id>          looked at in it
    summaries/<name>/<id>       what the report draws
    about.json, progress.json   what is audited, and how far it has come

A table is written whole and over what an earlier try has left, so that a micro-batch can be repeated. An empty one is
not written.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import polars as pl
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so

from kordon.spark_jobs.batches_source import places_of
from kordon.spark_jobs.brokers import PartitionKey
from kordon.spark_jobs.errors import CannotCheck
from kordon.spark_jobs.hadoop_files import files_of
from kordon.spark_jobs.job import KEPT
from kordon.spark_jobs.judging.shipments import Shipment, of_arrow
from kordon.spark_jobs.tasks import COLUMNS

NOT_BEGUN: Final = "-"
"""What Spark writes as the offsets of a source that had not begun."""
_STATE: Final = "state"
_OFFSET_LINES: Final = 3
"""Of Spark's offset files: their version, metadata of the micro-batch, a line for each source."""
_LARGE_ROWS: Final = {
    "compression": "none",  # tables are compressed already
    "parquet.enable.dictionary": "false",
    "parquet.block.size": str(8 << 20),
    # its writer looks for the first time behind 100 rows whether it holds too much, which may be 100 MiB
    **{f"parquet.{part}.size.row.check.{end}": "1" for part in ("page", "block") for end in ("min", "max")},
}
"""How Parquet writes shipments."""
KEPT_VERSIONS: Final = 2
"""Of a state: the newest, and the one that a repetition of its micro-batch begins with."""


def absolute(address: str) -> str:
    """Returns where a folder is, whatever Java's working folder is; an address of another file system as it is."""
    return address if "://" in address else str(Path(address).resolve())


class Storage:
    """One audit's folder.

    Args:
        folder: The path of the folder, or its address in a file system that Spark knows.
    """

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self.folder = absolute(folder.rstrip("/"))
        self._files = files_of(spark, self.folder)

    def write_state(self, rows: DataFrame, batch_id: int) -> None:
        """Writes what the parts have made of a micro-batch.

        Args:
            rows: The parts' shipments, with the column `KEPT`.
        """
        rows.write.mode("overwrite").partitionBy(KEPT).options(**_LARGE_ROWS).parquet(self._path(_STATE, batch_id))

    def state(self, batch_id: int) -> DataFrame | None:
        """Returns all that `write_state` wrote; None: for what was before the first micro-batch.

        Raises:
            CannotCheck: The state is missing.
        """
        path = self._path(_STATE, batch_id)
        if batch_id < 0:
            return None
        if not self._files.exists(f"{path}/_SUCCESS"):
            raise CannotCheck(
                f"{path} is missing or was not written to its end, so the auditor does not know what it has judged: "
                f"restore the folder from a copy, or begin again with another --out"
            )
        return self._spark.read.schema(f"{COLUMNS}, {KEPT} boolean").parquet(path)

    def told(self, batch_id: int) -> Iterator[Shipment]:
        """Returns what `write_state` wrote for the driver."""
        path = f"{self._path(_STATE, batch_id)}/{KEPT}=false"
        yield from _shipments(self._spark.read.schema(COLUMNS).parquet(path))

    @staticmethod
    def told_of(rows: DataFrame) -> Iterator[Shipment]:
        """Returns the same of rows that are not written."""
        yield from _shipments(rows.where(~F.col(KEPT)).drop(KEPT))

    def put_table(self, rows: pl.DataFrame, table: str, batch_id: int) -> None:
        """Writes the version of a small table behind a micro-batch.

        Args:
            table: The folder of the table, such as `summaries/traffic`.
        """
        path = self._path(table, batch_id)
        self._files.remove(path)
        if rows.is_empty():
            return
        told = io.BytesIO()
        rows.write_parquet(told)
        self._files.write(f"{path}/part-0.parquet", told.getvalue())
        self._files.write(f"{path}/_SUCCESS", b"")

    def tables(self, table: str) -> Iterator[pl.DataFrame]:
        """Yields all versions of a small table, the oldest first."""
        for number in self._numbers(table):
            path = self._path(table, number)
            told = self._files.read(f"{path}/part-0.parquet") if self._files.exists(f"{path}/_SUCCESS") else None
            if told is not None:
                yield pl.read_parquet(io.BytesIO(told))

    def read_all(self, table: str, first: int, last: int, columns: str) -> DataFrame:
        """Returns what micro-batches from `first` to `last` have left in a table, their numbers in a column `batch`.

        Args:
            columns: The columns of the table, as Spark's DDL.
        """
        numbered = f"{columns}, batch bigint"
        paths = [self._path(table, number) for number in self._numbers(table) if first <= number <= last]
        whole = [path for path in paths if self._files.exists(f"{path}/_SUCCESS")]
        if not whole:
            return self._spark.createDataFrame([], numbered)
        return self._spark.read.schema(numbered).option("basePath", f"{self.folder}/{table}").parquet(*whole)

    def forget(self, tables: Iterable[str], batch_id: int) -> None:
        """Removes versions of states that no repetition can ask for any more."""
        for table in tables:
            for each in self._numbers(table):
                if each <= batch_id - KEPT_VERSIONS:
                    self._files.remove(self._path(table, each))

    def last_begun(self) -> int:
        """Returns the number of the newest micro-batch that was begun; -1: none was."""
        return max(self._numbers("checkpoint/offsets"), default=-1)

    def begun(self) -> list[str] | None:
        """Returns the offsets of the newest micro-batch that was begun, JSON for each source; None: none was.

        Spark writes them down before anything else, and begins with them again.

        Raises:
            CannotCheck: The offsets cannot be read.
        """
        return self.offsets(self.last_begun())

    def offsets(self, batch_id: int) -> list[str] | None:
        """Returns the offsets behind a micro-batch, JSON for each source; None: there was none of this number.

        Raises:
            CannotCheck: The offsets cannot be read.
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

    def reached(self, batch_id: int) -> list[Mapping[Any, int]]:
        """Returns how far each source is read behind a micro-batch: by partition, or by file."""
        told = self.offsets(batch_id) or []
        return [_places({} if each == NOT_BEGUN else json.loads(each)) for each in told]

    def get_text(self, name: str) -> str | None:
        """Returns what stands in a small file; None: it is not there."""
        told = self._files.read(f"{self.folder}/{name}")
        return None if told is None else told.decode()

    def put_json(self, name: str, told: Mapping[str, Any]) -> None:
        """Writes a small file, so that it is there whole or as it was before."""
        self._files.replace(f"{self.folder}/{name}", json.dumps(told, indent=2).encode())

    def _path(self, table: str, batch_id: int) -> str:
        number = f"batch={batch_id}" if table in {"findings", "checked"} else str(batch_id)
        return f"{self.folder}/{table}/{number}"

    def _numbers(self, table: str) -> list[int]:
        names = (name.removeprefix("batch=") for name in self._files.names(f"{self.folder}/{table}"))
        return sorted(int(name) for name in names if name.isdigit())


def _shipments(rows: DataFrame) -> Iterator[Shipment]:
    for table in rows.toArrow().to_batches():
        yield from of_arrow(table)


def _places(offsets: Mapping[str, Any]) -> Mapping[PartitionKey, int] | Mapping[str, int]:
    """Returns offsets of a source by partition, or by file."""
    return places_of(offsets) if any(isinstance(told, dict) for told in offsets.values()) else offsets
