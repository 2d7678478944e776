"""The Spark session of the auditor: on this machine by default, or whatever `spark-submit` has set up."""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyspark
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.sql import SparkSession

from kordon.spark_jobs.batches_source import BatchesSource
from kordon.spark_jobs.errors import MissingPart
from kordon.spark_jobs.files_source import DecisionFilesSource
from kordon.spark_jobs.jars import CONNECTOR, TABLES, JarSet, TableFormat, jars_of

APP_NAME: Final = "kordon-audit"
_END_SECONDS: Final = 60
_SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.stateSchemaCheck": "true",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # what Spark's pages show of each plan is written whether somebody looks or not
    "spark.sql.ui.explainMode": "simple",
    # shipments are few and large
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
}
_CHECKPOINTS: Final = "org.apache.spark.sql.execution.streaming.checkpointing"
_LOCAL: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.adaptive.enabled": "false",
    # Hadoop runs a program (`chmod`, `readlink`) for most things that it does to a local file: these two do least of it
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpointFileManagerClass": f"{_CHECKPOINTS}.FileSystemBasedCheckpointFileManager",
}
"""Of a session on this machine: nobody else has to reach it, and files are local."""
_PYTHON: Final = "PYSPARK_PYTHON"
_THREADS: Final = "POLARS_MAX_THREADS"
_LOGGING: Final = Path(__file__).with_name("log4j2.properties")
_JAVA: Final = f"-Xss4m -Dlog4j2.configurationFile={_LOGGING.as_uri()}"
"""Spark looks through Python's traces with patterns that need a deep stack."""
_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_PARTS_PER_CORE: Final = 2
"""Parts are of different size, as topics are: a core that has done a small one takes another."""
_JAVA_HERE: Final = f"{_JAVA} -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xms64m -Xmn64m"
"""Of Java on this machine.

What Java does is little, and different each time: to compile it to the fastest code takes longer than that saves. What
it lets go of goes at once, so that it fills no memory first.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The settings of a session."""

    master: str | None = None
    """None: what `spark-submit` says, else as many threads as there are processors."""
    driver_memory: str = "640m"
    parts: int | None = None
    """Among how many parts topics are divided, each of which a task judges; None: what `spark-submit` says of
    `spark.sql.shuffle.partitions`, else one on this machine, elsewhere twice as many as Spark has cores."""
    jars: Path | None = None
    """Folder of the jars that Spark lacks; see `jars.py`."""
    packages: str | None = None
    """Maven coordinates that Spark itself fetches (Ivy); what is not among them is looked for as jars."""
    needs_kafka: bool = True
    """Whether decisions are read from a topic, or findings written to one."""
    table: TableFormat | None = None
    """The format of a table."""
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    """Further settings of Spark's."""


def open_session(setup: Setup) -> SparkSession:
    """Returns the session, with the auditor's sources made known to it.

    Raises:
        MissingPart: Java, the Kafka connector, or what the table needs, is missing.
        CannotCheck: The folder of jars that was named has no connector.
    """
    master = setup.master or ("" if _is_submitted() else "local[*]")
    parts = ([CONNECTOR] if setup.needs_kafka else []) + ([TABLES[setup.table]] if setup.table else [])
    settings = dict(_SETTINGS)
    if master.startswith("local"):
        _need_java()
        # in a container the host's own name may lead nowhere, and Spark looks it up before it reads a setting
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= {**_LOCAL, "spark.driver.memory": setup.driver_memory}
        settings["spark.sql.warehouse.dir"] = str(Path("spark-warehouse").absolute())
        settings["spark.driver.extraJavaOptions"] = _JAVA_HERE
    settings |= _brought(setup, parts) | dict(setup.settings)
    # a part is one task's, and so one core's
    os.environ.setdefault(_THREADS, "1")
    # memory that a micro-batch needed is given back when it is done
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    os.environ.setdefault("_RJEM_MALLOC_CONF", "dirty_decay_ms:0,muzzy_decay_ms:0")
    settings[f"spark.executorEnv.{_THREADS}"] = "1"
    builder = SparkSession.builder.appName(APP_NAME)
    builder = builder.master(master) if master else builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _away() if master.startswith("local") else nullcontext():
        # the workers' Python is the driver's: another one would not have Kordon
        os.environ.setdefault(_PYTHON, sys.executable)
        session = builder.getOrCreate()
    _need_classes(session, parts)
    usual = 1 if master.startswith("local") else session.sparkContext.defaultParallelism * _PARTS_PER_CORE
    submitted = session.sparkContext.getConf().get(_PARTITIONS)
    session.conf.set(_PARTITIONS, str(setup.settings.get(_PARTITIONS) or setup.parts or submitted or usual))
    session.dataSource.register(BatchesSource)
    session.dataSource.register(DecisionFilesSource)
    return session


@contextmanager
def _away() -> Iterator[None]:
    """Lets Java begin in a folder that ends with this process: Spark makes folders (`artifacts`) there."""
    folder = TemporaryDirectory(prefix="kordon-audit-", ignore_cleanup_errors=True)
    atexit.register(folder.cleanup)
    os.environ.setdefault(_PYTHON, _python_of_workers(Path(folder.name)))
    with chdir(folder.name):
        yield


def _python_of_workers(folder: Path) -> str:
    """Returns a command that runs the driver's Python with the driver's own paths.

    Spark adds archives with the sources of pyspark, which each of seven processes would compile anew. That takes 4 s of
    processor time in all, and 30 MB of memory each.
    """
    command = folder / "python"
    paths = os.environ.get("PYTHONPATH", "")
    command.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(paths)} exec {shlex.quote(sys.executable)} "$@"\n')
    command.chmod(0o700)
    runs_here = os.access(command, os.X_OK)  # nothing does where the folder's file system is mounted `noexec`
    return str(command) if runs_here else sys.executable


def parts_of(session: SparkSession) -> int:
    """Returns among how many parts a session divides topics."""
    return int(session.conf.get(_PARTITIONS) or 1)


def close_session(session: SparkSession, seconds: float = _END_SECONDS) -> None:
    """Ends the session, and the JVM where it is this process's own, which otherwise lives as long as Python does.

    Args:
        seconds: The seconds that the JVM may take to end.

    Raises:
        subprocess.TimeoutExpired: The JVM took longer.
    """
    gateway: Any = SparkContext._gateway  # pyright: ignore[reportPrivateUsage]
    with suppress(Py4JError, OSError):  # a signal to all processes at once has ended Java already
        session.stop()
    process = getattr(gateway, "proc", None)
    if process is None:
        return
    with suppress(Py4JError, OSError):
        gateway.shutdown()
    process.stdin.close()
    process.wait(timeout=seconds)
    SparkContext._gateway = SparkContext._jvm = None  # pyright: ignore[reportPrivateUsage]


def _is_submitted() -> bool:
    return "SPARK_ENV_LOADED" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ


def _brought(setup: Setup, parts: Sequence[JarSet]) -> dict[str, str]:
    """Returns the settings by which the session gets parts that pyspark does not bring."""
    settings = {name: value for part in parts for name, value in part.settings.items()}
    if setup.packages:
        settings["spark.jars.packages"] = setup.packages
    if _is_submitted() and setup.jars is None:
        return settings  # what runs already gets no more jars: `spark-submit` was told of them
    wanted = [part for part in parts if part.packages.split(":")[1] not in (setup.packages or "")]
    jars = jars_of(wanted, setup.jars, Path(pyspark.__file__).parent)
    return settings | ({"spark.jars": ",".join(str(jar.absolute()) for jar in jars)} if jars else {})


def _need_classes(session: SparkSession, parts: Sequence[JarSet]) -> None:
    jvm: Any = session.sparkContext._jvm  # pyright: ignore[reportPrivateUsage]
    for part in parts:
        if not jvm.org.apache.spark.util.Utils.classIsLoadable(part.proof):
            close_session(session)
            told = "spark-submit" if _is_submitted() else "the audit"
            raise MissingPart(f"{part.name} is missing: give {told} --packages {part.packages}, or its jars by --jars")


def _need_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and (Path(home) / "bin" / "java").exists()):
        raise MissingPart(
            "java is missing, which Spark runs on: install openjdk-17-jre-headless (Debian), or set JAVA_HOME"
        )
