"""Jars that pyspark does not bring (the Kafka connector, Delta, Iceberg): found, or fetched by Maven once.

Maven puts them into the project's cache. Who has no checkout names a folder, or has Spark fetch them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from kordon.spark_jobs.errors import CannotCheck, MissingPart

VARIABLE: Final = "KORDON_SPARK_JARS"
"""Environment variable that names the folder with the jars."""
_PROJECT: Final = Path(__file__).resolve().parent.parent
LISTED: Final = "jars.sha256"
"""Beside the POMs: the sums of all jars that the project fetches (`make lock`)."""
_FETCH_SECONDS: Final = 600

TableFormat: TypeAlias = Literal["delta", "iceberg"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JarSet:
    """Something of Spark's that comes in jars of its own."""

    name: str
    """What messages call it."""
    jar: str
    """Pattern of its main jar's name."""
    proof: str
    """A class that is there when the jars are."""
    packages: str
    """Maven coordinates for who has a direct way to Maven's repository (`--packages`)."""
    folder: str
    """Its folder in the cache."""
    maven: tuple[str, ...] = ()
    """Which dependencies of `deploy/spark-pom.xml` it is."""
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    """The jars of Spark that it needs."""


CONNECTOR: Final = JarSet(
    name="Spark's Kafka connector",
    jar="spark-sql-kafka-0-10_*.jar",
    proof="org.apache.spark.sql.kafka010.KafkaSourceProvider",
    packages="org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3",
    folder="spark-connector-4.1.3",
)
TABLES: Final[Mapping[TableFormat, JarSet]] = MappingProxyType(
    {
        "delta": JarSet(
            name="Delta",
            jar="delta-spark_*.jar",
            proof="io.delta.sql.DeltaSparkSessionExtension",
            packages="io.delta:delta-spark_4.1_2.13:4.4.0",
            folder="spark-delta-4.4.0",
            maven=("-Pdelta", "-DincludeGroupIds=io.delta"),
            settings={
                "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
                "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
                # findings are few: 50, the default, are 50 tasks for nothing at every write
                "spark.databricks.delta.snapshotPartitions": "1",
            },
        ),
        "iceberg": JarSet(
            name="Iceberg",
            jar="iceberg-spark-runtime-*.jar",
            proof="org.apache.iceberg.spark.SparkCatalog",
            packages="org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
            folder="spark-iceberg-1.12.0",
            maven=("-Piceberg", "-DincludeGroupIds=org.apache.iceberg"),
            settings={"spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"},
        ),
    }
)


def jars_of(
    parts: Iterable[JarSet], folder: Path | None, spark_home: Path, environment: Mapping[str, str] = os.environ
) -> list[Path]:
    """Returns the jars that a session has to be given.

    Args:
        folder: The folder of jars that the user names; None: the environment variable may name it.
        spark_home: The home of pyspark. Where its own jars have a part, as in the auditor's image, nothing is added.
        environment: The environment variables, of which `VARIABLE` is used.

    Raises:
        CannotCheck: The named folder lacks the connector.
        MissingPart: A part is missing, and it cannot be fetched.
    """
    named = folder or (Path(environment[VARIABLE]) if environment.get(VARIABLE) else None)
    found: set[Path] = set()
    for part in parts:
        if named is not None and list(named.glob(part.jar)):
            found |= set(named.glob("*.jar"))
        elif named is not None and part is CONNECTOR:
            raise CannotCheck(f"{named} has no {part.jar}: see docs/audit.md for the jars that Spark needs")
        elif not list((spark_home / "jars").glob(part.jar)):
            found |= set(_cached(part, _PROJECT / "deploy" / "spark-pom.xml", _PROJECT / ".cache").glob("*.jar"))
    return sorted(found)


def _cached(part: JarSet, pom: Path, cache: Path) -> Path:
    """Returns the folder in the cache of a checkout; who installed a wheel has none."""
    if not pom.exists():
        raise MissingPart(
            f"{part.name} is missing: name a folder with its jars by --jars or {VARIABLE}, "
            f"or let Spark fetch it by --packages {part.packages}"
        )
    cache.mkdir(exist_ok=True)
    folder = cache / part.folder
    with (cache / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            _fetch(part, pom, folder)
    return folder


def unlisted(folder: Path, listed: Path) -> list[str]:
    """Returns the names of the jars in a folder that differ from those that the project knows.

    Args:
        listed: The SHA-256 sums with names, as `sha256sum` writes them.
    """
    known = set(listed.read_text(encoding="utf-8").splitlines())
    return [jar.name for jar in sorted(folder.glob("*.jar")) if sum_line(jar) not in known]


def sum_line(jar: Path) -> str:
    """Returns the line of `sha256sum` for a file."""
    with jar.open("rb") as file:
        return f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {jar.name}"


def _fetch(part: JarSet, pom: Path, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingPart(f"mvn is missing, and fetches {part.name}: install maven, or use --jars")
    command = [maven, "--batch-mode", "--quiet", "--file", str(pom), *part.maven, "dependency:copy-dependencies"]
    result = subprocess.run(
        [*command, f"-DoutputDirectory={folder}"], capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False
    )
    if result.returncode:
        shutil.rmtree(folder, ignore_errors=True)
        raise CannotCheck(f"Maven could not fetch {part.name}:\n{result.stdout[-2000:]}")
    if unknown := unlisted(folder, pom.with_name(LISTED)):
        shutil.rmtree(folder, ignore_errors=True)
        raise CannotCheck(f"Maven fetched other jars than {LISTED} has: {', '.join(unknown)}")
    (folder / "complete").touch()
