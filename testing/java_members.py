"""A Java program that does what it is told, a line each, and says what comes of it."""

from __future__ import annotations

import subprocess
import threading
from abc import ABC, abstractmethod
from pathlib import Path

from kordon.testing.jars import PROJECT, jars_dir, kafka_version
from kordon.testing.java_process import DIES_WITH_PARENT, java_command
from kordon.testing.java_programs import java_program


class JavaMembers(ABC):
    """The running program, with all members of groups that it is told to have.

    Args:
        name: Of a class of `tests/clients/java`.
        bootstrap: host:port, which it is given.
        folder: For what Java logs.
        patience_seconds: For which its members may take to leave at the end.
    """

    def __init__(self, name: str, bootstrap: str, folder: Path, patience_seconds: float) -> None:
        jars = jars_dir(kafka_version())
        program = java_program(PROJECT / "tests" / "clients" / "java" / f"{name}.java", jars)
        command = [*DIES_WITH_PARENT, *java_command(jars, folder, tool=True), *program, bootstrap]
        self._patience_seconds = patience_seconds
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    @abstractmethod
    def hear(self, line: str) -> None:
        """Takes in what the program says; called in a thread of its own."""

    def tell(self, *words: str) -> None:
        """Has the program do something."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        """Has all members leave."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(self._patience_seconds)
        finally:
            self._process.kill()
            self._process.wait()
            self._listener.join()
            self._process.stdout.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.hear(line.rstrip())
