"""Programs that copy the lines of files into a topic as producers in a group, and the files that they copy.

`SDK` is the example of the SDK. Those with stock clients stand in docs/sources.md, and are run as they stand there.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportPrivateImportUsage]

from kordon.testing.forked_program import ForkedProgram
from kordon.testing.jars import PROJECT, kafka_version, tools_dir
from kordon.testing.java_process import DIES_WITH_PARENT, java_command
from kordon.testing.java_programs import java_program
from kordon.testing.managed_clients import read_to_ends
from kordon.testing.pages.page_commands import blocks
from kordon.testing.proxy_process import ProxyProcess

SDK: Final = "sdk"
JAVA: Final = "TailFiles.java"
KIP_848: Final = "TailFiles.java consumer"
"""The same program with Java's new protocol for groups."""
LIBRDKAFKA: Final = "tail_librdkafka.py"
KAFKA_PYTHON: Final = "tail_kafka_python.py"
SESSION_MS: Final = 2_000
_PAGE: Final = PROJECT / "docs" / "sources.md"
_FILE: Final = "file: "
_SECONDS: Final = 60.0


class Program(Protocol):
    """One that runs."""

    def kill(self) -> None:
        """Ends it at once."""
        ...

    def wait(self, timeout: float, /) -> int:
        """Waits for its end."""
        ...

    def poll(self) -> int | None:
        """Returns its exit code; None while it runs."""
        ...

    def send_signal(self, number: signal.Signals, /) -> None:
        """Sends it a signal."""
        ...


class Tails:
    """Programs, and what is in their files.

    Args:
        bootstrap: host:port of the cluster or of a proxy.
        group: Also the name of the source topic.
        topic: Where lines go.
        folder: For files and what programs say.
        files: How many there are: source partitions.
        session_ms: After which the group takes a program for dead.
        is_growing: Whether programs of the SDK take as many files as the source topic has partitions.
    """

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topic: str,
        folder: Path,
        *,
        files: int = 3,
        session_ms: int = SESSION_MS,
        is_growing: bool = False,
    ) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.running: list[Program] = []
        self.written: list[int] = []
        """Lines, by file."""
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._group = group
        self._folder = folder
        self._session_ms = session_ms
        self._is_growing = is_growing
        self.grow(files)

    @property
    def files(self) -> list[Path]:
        return [self._folder / f"{number}.log" for number in range(len(self.written))]

    @property
    def said(self) -> Path:
        """What programs have said."""
        return self._folder / "said"

    def grow(self, files: int) -> None:
        """Has so many files."""
        self.written += [0] * (files - len(self.written))
        for file in self.files:
            file.touch()

    def start(self, kind: str = SDK) -> Program:
        """Starts another program."""
        started = self._started(kind)
        self.running.append(started)
        return started

    def add(self, count: int) -> None:
        """Adds lines to each file, each of which no other has."""
        for number, file in enumerate(self.files):
            with file.open("a") as opened:
                begin = self.written[number]
                opened.writelines(f"{number}:{line}\n" for line in range(begin, begin + count))
            self.written[number] += count

    def stop(self) -> None:
        """Kills those that run."""
        for each in self.running:
            each.send_signal(signal.SIGCONT)
            each.kill()
            each.wait(_SECONDS)

    @property
    def lines(self) -> Counter[bytes]:
        """What stands in the files."""
        return Counter(b"%d:%d" % (number, line) for number, count in enumerate(self.written) for line in range(count))

    def copied(self) -> Counter[bytes]:
        """Returns what readers of committed data get of the topic."""
        told = {"bootstrap.servers": self.bootstrap, "isolation.level": "read_committed"}
        return Counter(each.value() or b"" for each in read_to_ends(told, self.topic))

    def is_copied(self) -> bool:
        """Whether each line has come once, and nothing else."""
        return self.copied() == self.lines

    def shares(self) -> list[int]:
        """Returns how many source partitions each member has, as the group's coordinator tells, if there is one."""
        try:
            found = self._admin.describe_consumer_groups([self._group])[self._group].result(_SECONDS)
        except KafkaException:
            return []
        return [len(each.assignment.topic_partitions) for each in found.members]

    def _started(self, kind: str) -> Program:
        files = [str(self._folder / "{}.log")] if self._is_growing else [*map(str, self.files)]
        if kind == SDK:
            told = ["--bootstrap", self.bootstrap, "--group", self._group, "--topic", self.topic]
            session = ["--session-timeout-ms", str(self._session_ms)]
            module = ["kordon.client.examples.tail_files", *told, *session, *files]
            if ProxyProcess.is_forked:
                return ForkedProgram(module, self.said, os.environ)
            return self._run([sys.executable, "-m", *module])
        name, _, protocol = kind.partition(" ")
        told = [self.bootstrap, self._group, self.topic, protocol or str(self._session_ms), *files]
        return self._run([*stock_program(name, self._folder), *told])

    def _run(self, command: Sequence[str]) -> Program:
        with self.said.open("ab") as said:
            return subprocess.Popen([*DIES_WITH_PARENT, *command], stdout=said, stderr=said)


def stock_program(name: str, folder: Path) -> Sequence[str]:
    """Writes a program of docs/sources.md into a folder; returns its command, up to the arguments.

    Raises:
        MissingTool: A JDK is missing.
    """
    (text,) = [each.text for each in blocks(_PAGE.read_text()) if each.mark == _FILE + name]
    source = folder / name
    source.write_text(text)
    if source.suffix == ".java":
        jars = tools_dir(kafka_version())
        return [*java_command(jars, folder, tool=True)[:-2], *java_program(source, jars)]
    return [sys.executable, str(source)]
