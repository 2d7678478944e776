"""Spark's Kafka connector, which pyspark does not bring: found, or fetched by Maven once into the project's cache."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kordon.spark_jobs.errors import CannotCheck, MissingPart

VARIABLE: Final = "KORDON_SPARK_JARS"
"""Environment variable that names the folder with the connector's jars."""
PACKAGE: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"
"""What Ivy would fetch, for who has a direct way to Maven's repository (`--packages`)."""
_CONNECTOR: Final = "spark-sql-kafka-0-10_*.jar"
_PROJECT: Final = Path(__file__).resolve().parent.parent
_FETCH_SECONDS: Final = 600


def connector_jars(folder: Path | None, spark_home: Path, environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Returns the jars that a session has to be given.

    Args:
        folder: Where the user says they are; else the environment variable does.
        spark_home: Of pyspark; where its own jars have the connector, as in the auditor's image, nothing is added.
        environment: For `VARIABLE`.

    Raises:
        CannotCheck: There is no connector in the folder named.
        MissingPart: Nobody has it, and it cannot be fetched.
    """
    named = folder or (Path(environment[VARIABLE]) if environment.get(VARIABLE) else None)
    if named is not None:
        if not list(named.glob(_CONNECTOR)):
            raise CannotCheck(f"{named} has no {_CONNECTOR}: see docs/audit.md for the jars that Spark needs")
        return sorted(named.glob("*.jar"))
    if list((spark_home / "jars").glob(_CONNECTOR)):
        return []
    return sorted(_cached(_PROJECT / "deploy" / "spark-pom.xml", _PROJECT / ".cache").glob("*.jar"))


def _cached(pom: Path, cache: Path) -> Path:
    """Returns the folder in the cache of a checkout; who installed a wheel has none."""
    if not pom.exists():
        raise MissingPart(
            f"Spark's Kafka connector is missing: name a folder with its jars by --jars or {VARIABLE}, "
            f"or have Spark fetch it by --packages {PACKAGE}"
        )
    cache.mkdir(exist_ok=True)
    folder = cache / "spark-connector-4.0.0"
    with (cache / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            _fetch(pom, folder)
    return folder


def _fetch(pom: Path, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingPart("mvn is missing, which fetches Spark's Kafka connector: install maven, or use --jars")
    command = [maven, "--batch-mode", "--quiet", "--file", str(pom), "dependency:copy-dependencies"]
    result = subprocess.run(
        [*command, f"-DoutputDirectory={folder}"], capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False
    )
    if result.returncode:
        shutil.rmtree(folder, ignore_errors=True)
        raise CannotCheck(f"Maven could not fetch Spark's Kafka connector:\n{result.stdout[-2000:]}")
    (folder / "complete").touch()
