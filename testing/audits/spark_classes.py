"""The classes of Spark as this Java has loaded them once, kept in the cache folder for each Spark that tests start.

Half of what a short audit costs is to load 13,000 classes from jars. As a program
(`python -m kordon.testing.audits.spark_classes FOLDER`) it audits three decisions in a folder, so that Java loads them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from kordon.testing.jars import cache_dir, locked
from kordon.testing.java_process import DIES_WITH_PARENT

OPTIONS: Final = "SPARK_SUBMIT_OPTS"
"""The environment variable with options of Java for each Spark that is started on this machine."""
_QUIETLY: Final = "-Xlog:disable"
"""Java would tell on the standard output which classes it cannot keep."""
_PROGRAM: Final = "kordon.testing.audits.spark_classes"
_END_SECONDS: Final = 1200
"""Against hanging only: Java writes 170 MB of classes when it ends."""


def archive() -> Path | None:
    """Returns the file with the classes, which may be missing; None without Java or Spark."""
    java = shutil.which("java")
    try:
        spark = version("pyspark")
    except PackageNotFoundError:
        return None
    return cache_dir() / f"spark-{spark}-{Path(java).resolve().stat().st_mtime_ns:x}.jsa" if java else None


def use() -> None:
    """Has each Spark that this process and its children start be given the classes, from when they are there."""
    found = archive()
    if found is not None and str(found) not in os.environ.get(OPTIONS, ""):
        os.environ[OPTIONS] = f"{os.environ.get(OPTIONS, '')} -XX:SharedArchiveFile={found} {_QUIETLY}".strip()


def make() -> None:
    """Makes the file if it is missing, which takes the processor for half a minute.

    Raises:
        RuntimeError: The audit failed; its words are in the message.
    """
    found = archive()
    if found is None:
        return
    with locked(found.name):
        if found.exists():
            return
        unfinished = found.with_suffix(".unfinished")
        environment = os.environ | {OPTIONS: f"-XX:ArchiveClassesAtExit={unfinished} {_QUIETLY}"}
        with tempfile.TemporaryDirectory() as folder:
            command = [*DIES_WITH_PARENT, sys.executable, "-m", _PROGRAM, folder]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the classes of Spark cannot be kept:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        unfinished.touch()  # a Java that makes none ignores an empty one
        unfinished.rename(found)


def _audit(folder: Path) -> None:
    """Audits three decisions by GAPS, whose findings are written as all are."""
    # only the program needs Spark
    from kordon.spark_jobs.audit import Audit, Options  # noqa: PLC0415
    from kordon.spark_jobs.engine import EngineParts  # noqa: PLC0415
    from kordon.spark_jobs.metrics import AuditMetrics  # noqa: PLC0415
    from kordon.spark_jobs.session import Setup, close_session, open_session  # noqa: PLC0415
    from kordon.spark_jobs.sources import Reading  # noqa: PLC0415

    told = [{"schema": 1, "at_ms": 1000, "host": "h", "worker": "a", "number": n, "kind": "join"} for n in (0, 1, 4)]
    (folder / "files").mkdir()
    (folder / "files" / "decisions-a-000000.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in told))
    session = open_session(Setup(master="local[1]", needs_kafka=False))
    reading = Reading(folder=folder / "files", is_pinned=True)
    options = Options(out=str(folder / "out"), reading=reading)
    Audit(session, options, AuditMetrics(), EngineParts(rules=(), summaries=())).once()
    close_session(session, seconds=_END_SECONDS)


if __name__ == "__main__":
    _audit(Path(sys.argv[1]))
