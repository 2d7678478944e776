"""Builds programs that use real clients, once for each state of their sources, into the cache folder of the project.

Their sources stand in `tests/clients`.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kordon.testing.jars import PROJECT, cache_dir, copy_dependencies, kafka_version, locked, need, tools_dir
from kordon.testing.java_process import java_command
from kordon.testing.java_programs import java_program

_SOURCES: Final = PROJECT / "tests" / "clients"
_BUILD_SECONDS: Final = 600


def kafkajs(script: str) -> list[str]:
    """Returns the command of a script for kafkajs, which is installed from its lock file; needs `kafkajs_path`.

    Raises:
        MissingTool: Node.js or npm is missing.
    """
    node, source, folder = _need("node"), _SOURCES / "kafkajs", cache_dir() / "kafkajs"
    wanted = _digest(source / "package-lock.json")
    with locked("kafkajs"):
        mark = folder / "installed"
        if not mark.exists() or mark.read_text() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for name in ("package.json", "package-lock.json"):
                shutil.copy(source / name, folder)
            _build([_need("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder)
            mark.write_text(wanted)
    return [node, str(source / script)]


def kafkajs_path() -> str:
    return str(cache_dir() / "kafkajs" / "node_modules")


def franz_go(package: str = ".") -> list[str]:
    """Returns the command of a program with franz-go; raises MissingTool."""
    source = _SOURCES / "franz_go"
    files = [source / package / "main.go", source / "go.mod", source / "go.sum"]
    program = cache_dir() / f"franz_go-{_digest(*files)}"
    with locked("franz_go"):
        if not program.exists():
            _build([_need("go"), "build", "-o", str(program), f"./{package}"], source)
    return [str(program)]


def streams_word_count() -> list[str]:
    """Returns the command of the word count with Kafka Streams; raises MissingTool."""
    source = _SOURCES / "streams"
    end = java_program(source / "WordCount.java", jars_of(source / "pom.xml"))
    return [_need("java"), "-Xmx256m", "-XX:TieredStopAtLevel=1", *end]


def connect_worker(folder: Path, bootstrap: str, port: int, *, session_ms: int = 10_000) -> list[str]:
    """Returns the command of a distributed worker of Kafka Connect that writes exactly once; raises MissingTool.

    Its plugins are `Numbers`, which counts.

    Args:
        folder: For its configuration.
        port: Of its REST interface, on this machine.
        session_ms: After which the other workers take it for dead; the default is Connect's.
    """
    jars = tools_dir(kafka_version())
    end = java_program(_SOURCES / "connect" / "Numbers.java", jars)
    text = "org.apache.kafka.connect.storage.StringConverter"
    told = {
        "bootstrap.servers": bootstrap, "group.id": "connect", "exactly.once.source.support": "enabled",
        "key.converter": text, "value.converter": text, "listeners": f"http://127.0.0.1:{port}",
        "offset.flush.interval.ms": 500, "plugin.discovery": "only_scan", "scheduled.rebalance.max.delay.ms": 0,
        "producer.transaction.timeout.ms": 10_000, "session.timeout.ms": session_ms,
    }  # fmt: skip
    told |= {f"{name}.storage.topic": f"connect-{name}" for name in ("config", "offset", "status")}
    told |= {f"{name}.storage.replication.factor": 1 for name in ("config", "offset", "status")}
    file = folder / "worker.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in told.items()))
    begin = java_command(jars, folder, tool=True)
    return [*begin, *end[:-1], "org.apache.kafka.connect.cli.ConnectDistributed", str(file)]


def spark_copy(checkpoint: Path) -> list[str]:
    """Returns the command of Spark's copy of a topic, with the PySpark of the audit extra; raises MissingTool."""
    source = _SOURCES / "spark"
    _need("java")
    jars = sorted(map(str, jars_of(source / "pom.xml").glob("*.jar")))
    return [sys.executable, str(source / "copy_topic.py"), str(checkpoint), ",".join(jars)]


def jars_of(pom: Path) -> Path:
    """Returns the folder of what a POM depends on, which Maven fetches once; raises MissingTool and RuntimeError."""
    folder = cache_dir() / f"{pom.parent.name}-{_digest(pom)}"
    with locked(folder.name):
        if not (folder / "complete").exists():
            copy_dependencies(pom, folder)
            (folder / "complete").touch()
    return folder


def _need(program: str) -> str:
    return need(program, ", or leave its client out by KORDON_SKIP_CLIENTS")


def _build(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_BUILD_SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def _digest(*files: Path) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
