"""Kafka's jars, fetched by Maven once and kept in the cache folder of the project."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kordon.spark_jobs.jars import LISTED, sum_line, unlisted

PROJECT: Final = Path(__file__).resolve().parent.parent
NEWEST: Final = "4.4.0"
"""Whose messages the tables have; docs/kafka-versions.md says how another one is taken in."""
DEFAULT: Final = "4.3.0"
"""What tests run on where nobody says hint: the newest that is published with its tools."""
_WITHOUT_TOOLS: Final = frozenset({"4.4.0"})
"""Are published without their tools so far: those of `DEFAULT` go with them."""
VERSIONS: Final = {"4.4": NEWEST, "4.3": DEFAULT, "3.9": "3.9.2", "2.4": "2.4.1"}
"""Short names that `KAFKA=` takes."""
_DEPLOY: Final = PROJECT / "deploy"
_JDK: Final = "openjdk-17-jdk-headless"
_PACKAGES: Final = {"java": _JDK, "javac": _JDK, "mvn": "maven", "node": "nodejs", "go": "golang-go (1.26 or newer)"}
_FETCH_SECONDS: Final = 900
_QUICK_MAVEN: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a Maven that runs for seconds: else half of its processor time goes into optimising its classes."""


class MissingTool(RuntimeError):  # noqa: N818 - says what is missing
    """A program that is needed is not installed; the message names the package that brings it."""


def kafka_version() -> str:
    """Returns the Kafka version under test: that of the environment variable KAFKA, or `DEFAULT`."""
    asked = os.environ.get("KAFKA") or DEFAULT
    return VERSIONS.get(asked, asked)


def need(program: str, hint: str = "") -> str:
    """Returns the path of a program; raises MissingTool."""
    found = shutil.which(program)
    if found is None:
        package = _PACKAGES.get(program, program)
        raise MissingTool(f"{program} is missing: install {package} (Debian: apt install {package}){hint}")
    return found


def cache_dir() -> Path:
    folder = PROJECT / ".cache"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def locked(name: str) -> Generator[None]:
    """Keeps other processes out while something in the cache is made."""
    with (cache_dir() / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def jars_dir(version: str = DEFAULT) -> Path:
    """Returns the folder with the jars of a Kafka version, fetched if need be.

    Raises:
        MissingTool: Maven or a JDK is missing.
        RuntimeError: Maven failed; its output is in the message.
    """
    folder = cache_dir() / f"kafka-{version}"
    with locked(folder.name):
        if not (folder / "complete").exists():
            _fetch(version, folder)
    return folder


def class_archive(jars: Path) -> Path:
    """Returns the file with the classes of a folder of jars as this Java has loaded them once; it may be missing.

    A JVM that is given it starts at half the cost. `Cluster.start` makes it.
    """
    java = Path(need("java")).resolve()
    return jars.with_name(f"{jars.name}-{java.stat().st_mtime_ns:x}.jsa")


def tools_dir(version: str) -> Path:
    """Returns the folder with the jars of the tools that go with brokers of a version; hint as `jars_dir`."""
    return jars_dir(DEFAULT if version in _WITHOUT_TOOLS else version)


def kafka_clients_jar(version: str) -> Path:
    """Returns the kafka-clients jar of a version, which holds the message schemas in `common/message/`.

    Maven's own copy is taken if there is one: to have all jars of a version copied costs seconds of processor time.
    """
    name = f"kafka-clients-{version}.jar"
    mavens = Path.home() / ".m2" / "repository" / "org" / "apache" / "kafka" / "kafka-clients" / version / name
    if mavens.exists() and sum_line(mavens) in (_DEPLOY / LISTED).read_text().splitlines():
        return mavens
    return jars_dir(version) / name


def copy_dependencies(pom: Path, folder: Path, *options: str) -> None:
    """Has Maven fetch what a POM depends on; raises RuntimeError, and leaves nothing behind then."""
    what = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    command = [need("mvn"), "--batch-mode", "--quiet", "--file", str(pom), *options, *what]
    given = os.environ | {"MAVEN_OPTS": f"{_QUICK_MAVEN} {os.environ.get('MAVEN_OPTS', '')}"}
    result = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_SECONDS, env=given, check=False)
    if result.returncode:
        shutil.rmtree(folder, ignore_errors=True)
        raise RuntimeError(f"Maven could not fetch {folder.name}:\n{result.stdout[-3000:]}{result.stderr[-1000:]}")


def _fetch(version: str, folder: Path) -> None:
    need("java")
    print(f"fetching Kafka {version} (once, about 100 MB) …", flush=True)
    copy_dependencies(_DEPLOY / "pom.xml", folder, f"-Dkafka.version={version}")
    if version in VERSIONS.values() and (unknown := unlisted(folder, _DEPLOY / LISTED)):
        shutil.rmtree(folder, ignore_errors=True)
        raise RuntimeError(f"Maven fetched other jars than deploy/{LISTED} has: {', '.join(unknown)}")
    (folder / "complete").touch()
