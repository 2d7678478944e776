"""Java programs of one file for tests, compiled once for each state of their source, into the cache folder."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path
from typing import Final

from kordon.testing.jars import cache_dir, locked, need

_COMPILE_SECONDS: Final = 300
_QUICK: Final = ("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC")
"""For a compiler that runs for a second: else half of its processor time goes into optimising its classes."""


def java_program(source: Path, jars: Path) -> list[str]:
    """Returns the end of a Java command line: class path and class of a program, up to its arguments.

    Raises:
        MissingTool: A JDK is missing.
        RuntimeError: It does not compile; the compiler's words are in the message.
    """
    digest = hashlib.sha256(source.read_bytes() + jars.name.encode()).hexdigest()[:16]
    classes = cache_dir() / f"{source.stem}-{digest}"
    with locked(source.stem):
        if not (classes / f"{source.stem}.class").exists():
            command = [need("javac"), *_QUICK, "-proc:none", "-cp", f"{jars}/*", "-d", str(classes), str(source)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_SECONDS, check=False)
            if done.returncode:
                raise RuntimeError(f"{source.name} does not compile:\n{done.stderr[-3000:]}")
    return ["-cp", f"{jars}/*:{classes}", source.stem]  # its classes last: an archive of classes is of the jars
