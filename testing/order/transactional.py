"""A run with transactions: writers that are killed and begin again, readers of both isolations, and a check."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from random import Random
from typing import Final, Self

from confluent_kafka import Message, Producer

from kordon.testing.client_programs import franz_go, kafkajs, kafkajs_path
from kordon.testing.folders import make_folder, remove_folder
from kordon.testing.jars import PROJECT, VERSIONS, jars_dir
from kordon.testing.java_process import DIES_WITH_PARENT, java_command
from kordon.testing.java_programs import java_program
from kordon.testing.order.client import key_of, now_us
from kordon.testing.order.history import SUFFIX, recorded
from kordon.testing.order.run import BROKEN
from kordon.testing.order.transact import LAST, Task
from kordon.testing.order.transactions import TransactionsVerdict, check_folder
from kordon.testing.waiting import wait_until

FOLDER_PREFIX: Final = "kordon-transactions-"
JAVA: Final = PROJECT / "tests" / "clients" / "java" / "Transactions.java"
CLIENTS: Final = ("librdkafka", "aiokafka", "java", "java-3.9", "kafkajs", "franz_go")
ISOLATIONS: Final = ("read_committed", "read_uncommitted")
_END_SECONDS: Final = 90.0


def _java(version: str, folder: Path) -> list[str]:
    jars = jars_dir(VERSIONS[version])
    own = folder / f"java-{version}"
    own.mkdir(exist_ok=True)
    return [*java_command(jars, own, tool=True), *java_program(JAVA, jars)]


_PROGRAMS: Final[Mapping[str, Callable[[Path], Sequence[str]]]] = {
    "librdkafka": lambda _: [sys.executable, "-m", "kordon.testing.order.transact_librdkafka"],
    "aiokafka": lambda _: [sys.executable, "-m", "kordon.testing.order.transact_aiokafka"],
    "dialect": lambda _: [sys.executable, "-m", "kordon.testing.order.transact_dialect"],
    "java": partial(_java, "4.3"),
    "java-3.9": partial(_java, "3.9"),
    "kafkajs": lambda _: kafkajs("transactions.js"),
    "franz_go": lambda _: franz_go("transactions"),
}
"""By client the beginning of the command of its program."""


class ProgramFailed(RuntimeError):  # noqa: N818 - says what happened
    """A client's program ended, or did not end; the message has what it wrote."""


class Program:
    """A client's program with one task."""

    def __init__(self, client: str, task: Task) -> None:
        self.task = task
        self.history = task.folder / (
            f"{task.name}.{task.life}{SUFFIX}" if task.role == "write" else task.name + SUFFIX
        )
        self._client = client
        self._errors = task.folder / f"{task.name}.errors"
        command = [*DIES_WITH_PARENT, *_PROGRAMS[client](task.folder), *task.arguments()]
        environment = {**os.environ, "NODE_PATH": kafkajs_path()}
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=errors, stderr=errors, env=environment
            )

    def has_said(self, event: str) -> int:
        """Returns how many such events are in its history; raises ProgramFailed if it has ended in trouble."""
        if self._process.poll():
            raise ProgramFailed(f"{self.task.name} ended with {self._process.returncode}: {self.complaints()}")
        return self.history.read_text().count(f'"e":"{event}"') if self.history.exists() else 0

    def has_failed(self) -> str | None:
        """Returns what is wrong if it has ended by itself."""
        code = self._process.poll()
        return None if code is None else f"{self.task.name} ended with {code}: {self.complaints()}"

    def killed(self) -> Program:
        """Kills it (SIGKILL), and begins its next life."""
        self._process.kill()
        self._process.wait()
        self._close()
        return Program(self._client, replace(self.task, life=self.task.life + 1))

    def finish(self) -> None:
        """Tells a writer to come to an end."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def wait(self, seconds: float = _END_SECONDS) -> str | None:
        """Waits for its end, and kills it if none comes; returns what is wrong."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return f"{self.task.name} did not end in {seconds:g} s: {self.complaints()}"
        finally:
            self._close()
        return f"{self.task.name} ended with {code}: {self.complaints()}" if code else None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._close()

    def complaints(self) -> str:
        return self._errors.read_text(errors="replace")[-2000:]

    def _close(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is run."""

    bootstraps: Sequence[str]
    """Ways to the cluster; what happens meanwhile may cut all but the first."""
    topic: str
    partitions: int = 3
    writers: Sequence[str] = ("librdkafka",)
    readers: Sequence[str] = ("librdkafka",)
    """Each reads by both isolations, and librdkafka from anywhere, too."""
    transactions: int = 20
    """That each life of a writer ends at least."""
    kills: int = 1
    """Of each writer."""
    seed: int = 1
    task: Mapping[str, int] = field(default_factory=dict[str, int])
    """Further values of each writer's `Task`."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run."""

    checked: TransactionsVerdict
    problems: Sequence[str]
    folder: Path
    """Where the histories are if anything is wrong."""

    @property
    def told(self) -> str:
        """What is wrong; "" if nothing is."""
        return "\n".join([*self.problems, *str(self.checked.verdict.findings).splitlines()])


class Run:
    """One run; use as a context manager, so that no program is left behind."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._folder = make_folder(FOLDER_PREFIX)
        self._writers: list[Program] = []
        self._readers: list[Program] = []
        self._problems: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for program in (*self._writers, *self._readers):
            program.kill()
        remove_folder(self._folder)

    def run(self, meanwhile: Callable[[], None] = lambda: None) -> Outcome:
        """Runs it.

        Args:
            meanwhile: What happens while all writers are at work.

        Raises:
            ProgramFailed: A program did not get to work.
        """
        plan = self._plan
        for client in plan.writers:
            self._writers.append(self._program(client, "write", client, **plan.task))
        for client, isolation in product(plan.readers, ISOLATIONS):
            self._readers.append(self._reader(client, isolation))
        self._wait_for_work()
        meanwhile()
        for _ in range(plan.kills):
            self.kill_writers()
            self._wait_for_work()
        for writer in self._writers:
            writer.finish()
        self._end(self._writers)
        ends = self._write_last()
        for isolation in ISOLATIONS:
            self._readers.append(self._reader("librdkafka", isolation, ends))
        self._end(self._readers)
        return self._judge()

    def kill_writers(self) -> int:
        """Kills all writers (SIGKILL), and begins their next lives; returns how many these are.

        One that had ended by itself is a problem of the run.
        """
        self._problems += [wrong for wrong in [writer.has_failed() for writer in self._writers] if wrong is not None]
        self._writers = [writer.killed() for writer in self._writers]
        return len(self._writers)

    def _judge(self) -> Outcome:
        checked = check_folder(self._folder)
        kept = self._folder
        if self._problems or not checked.verdict.passed:
            kept = BROKEN / f"{self._plan.topic}-{now_us()}"
            shutil.copytree(self._folder, kept)
        return Outcome(checked, self._problems, kept)

    def _program(self, client: str, role: str, name: str, **more: str | int) -> Program:
        turn = (len(self._writers) + 1 + len(self._readers)) % len(self._plan.bootstraps)
        ways = [*self._plan.bootstraps[turn:], *self._plan.bootstraps[:turn]]
        # aiokafka never goes back to its bootstrap addresses, so it is given only the one that nobody cuts
        bootstrap = self._plan.bootstraps[0] if client == "aiokafka" else ",".join(ways)
        told = Task(
            bootstrap=bootstrap, topic=self._plan.topic, folder=self._folder, role=role, name=name,
            seed=self._plan.seed, partitions=self._plan.partitions,
        )  # fmt: skip
        return Program(client, replace(told, **more))  # type: ignore[arg-type]

    def _reader(self, client: str, isolation: str, ends: Sequence[int] = ()) -> Program:
        name = f"{client}-{isolation}"
        if not ends:
            return self._program(client, "read", name, isolation=isolation)
        chance = Random(self._plan.seed)  # noqa: S311 - chance that can be repeated
        begins = ",".join(str(chance.randint(0, end)) for end in ends)
        return self._program(client, "read", f"{name}-from-anywhere", isolation=isolation, begins=begins)

    def _wait_for_work(self) -> None:
        for writer in self._writers:
            what = f"{writer.task.name} ends {self._plan.transactions} transactions"
            wait_until(what, lambda w=writer: w.has_said("over") >= self._plan.transactions, 240)  # type: ignore[misc]

    def _end(self, programs: Sequence[Program]) -> None:
        self._problems += [wrong for wrong in [program.wait() for program in programs] if wrong is not None]

    def _write_last(self) -> list[int]:
        """Writes the last record of each partition, outside of transactions; returns their offsets."""
        producer = Producer({"bootstrap.servers": self._plan.bootstraps[0], "enable.idempotence": True})
        ends: dict[int, int] = {}
        with recorded(self._folder, "last", producer="last") as recorder:

            def answered(error: object, message: Message) -> None:
                partition, offset = message.partition(), message.offset()
                if error is not None or partition is None or offset is None:
                    self._problems.append(f"the last record of a partition was not written: {error}")
                    return
                ends[partition] = offset
                told = {"n": partition, "k": key_of(message.key()), "s": 0, "sent": 0, "p": partition, "o": offset}
                recorder.note("acked", now_us(), **told)

            for partition in range(self._plan.partitions):
                producer.produce(self._plan.topic, "0 last", f"{LAST}{partition}", partition, on_delivery=answered)
            producer.flush(_END_SECONDS)
            recorder.note("ended", now_us())
        return [ends.get(partition, 0) for partition in range(self._plan.partitions)]
