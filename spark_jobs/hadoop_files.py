"""Small files wherever Spark can write: Python has none of these file systems, but Spark's JVM knows them all."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from kordon.spark_jobs.local_files import LocalFiles


def files_of(spark: SparkSession, folder: str) -> HadoopFiles | LocalFiles:
    """Returns what reads and writes the small files of a folder, given as an absolute path or as an address."""
    files = HadoopFiles(spark)
    return LocalFiles() if "://" not in folder and files.scheme(folder) == "file" else files


class HadoopFiles:
    """Files by their addresses: paths, or those of another file system."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark.sparkContext._jvm  # pyright: ignore[reportPrivateUsage]
        context: Any = spark.sparkContext._jsc  # pyright: ignore[reportPrivateUsage]
        self._conf: Any = context.hadoopConfiguration()

    def exists(self, address: str) -> bool:
        """Returns whether there is a file or folder."""
        files, path = self._at(address)
        return bool(files.exists(path))

    def names(self, address: str) -> list[str]:
        """Returns what a folder has; a folder that is not there has nothing."""
        files, path = self._at(address)
        return [each.getPath().getName() for each in files.listStatus(path)] if files.exists(path) else []

    def read(self, address: str) -> bytes | None:
        """Returns what stands in a file; None: it is not there."""
        files, path = self._at(address)
        if not files.exists(path):
            return None
        stream = files.open(path)
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def write(self, address: str, told: bytes) -> None:
        """Writes a file, which may be half of it if the machine dies meanwhile."""
        files, path = self._at(address)
        stream = files.create(path, True)
        try:
            stream.write(bytearray(told))
        finally:
            stream.close()

    def replace(self, address: str, told: bytes) -> None:
        """Writes a file as Spark writes its own checkpoints: it is there whole, or as it was before."""
        files, path = self._at(address)
        files.mkdirs(path.getParent())
        manager = getattr(self._jvm.org.apache.spark.sql.execution.streaming.checkpointing, "CheckpointFileManager$")
        stream = manager.__getattr__("MODULE$").create(path, self._conf).createAtomic(path, True)
        try:
            stream.write(bytearray(told))
        except BaseException:
            stream.cancel()
            raise
        stream.close()

    def remove(self, address: str) -> None:
        """Removes a file, or a folder with all that it has."""
        files, path = self._at(address)
        files.delete(path, True)

    def scheme(self, address: str) -> str:
        """Returns which file system an address is of: `file`, `hdfs`."""
        files, _ = self._at(address)
        return str(files.getUri().getScheme())

    def _at(self, address: str) -> tuple[Any, Any]:
        path = self._jvm.org.apache.hadoop.fs.Path(address)
        return path.getFileSystem(self._conf), path
