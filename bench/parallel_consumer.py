"""Confluent's Parallel Consumer, in a Java process of its own (`java/parallel-consumer/ParallelLoad.java`)."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kordon.testing.client_programs import jars_of
from kordon.testing.java_process import DIES_WITH_PARENT, java_command
from kordon.testing.java_programs import java_program

_FOLDER: Final = Path(__file__).parent / "java" / "parallel-consumer"
_END_SECONDS: Final = 30.0


@contextmanager
def parallel_consumer(
    told: Sequence[str],
) -> Generator[tuple[Callable[[str], None], Callable[[], tuple[int, ...]]]]:
    """Runs one with these arguments; yields what takes orders, and what tells its counts.

    The counts are those of `peers.Handled`: records, those of other keys, inversions and repeats.

    Raises:
        MissingTool: A JDK or Maven is missing.
        RuntimeError: Maven or the compiler failed.
    """
    counted = [tuple[int, ...]((0, 0, 0, 0))]
    with tempfile.TemporaryDirectory(prefix="kordon-bench-") as folder:
        jars = jars_of(_FOLDER / "pom.xml")
        begin = [word for word in java_command(jars, Path(folder), tool=True) if "TieredStopAtLevel" not in word]
        command = [*DIES_WITH_PARENT, *begin, *java_program(_FOLDER / "ParallelLoad.java", jars), *told]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            orders, lines = process.stdin, process.stdout

            def listen() -> None:
                for line in lines:
                    each = json.loads(line)
                    counted[0] = tuple(each[name] for name in ("records", "others", "inversions", "repeats"))

            def tell(order: str) -> None:
                orders.write(order + "\n")
                orders.flush()

            listener = threading.Thread(target=listen, daemon=True)
            listener.start()
            try:
                yield tell, lambda: counted[0]
            finally:
                orders.close()
                try:
                    process.wait(_END_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                listener.join()
