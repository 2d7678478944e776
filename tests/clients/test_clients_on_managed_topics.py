"""Every client writes and reads managed topics while these grow and shrink: nothing lost, doubled or out of order.

The clients are programs that do one thing until their standard input ends. Producers number what they write under the
keys of their name, say `begun`, and at last how much it was. Consumers print a line `key value` for each record, and
are told how many there are.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from kordon.testing.client_programs import franz_go, kafkajs, kafkajs_path, spark_copy, streams_word_count
from kordon.testing.managed_clients import Sender, assert_all_once_and_in_order, create_managed, lags, read_all, resize
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.beside, pytest.mark.timeout(900)]  # the first time, programs are built

HERE = Path(__file__).parent
CLIENTS: dict[str, Callable[[], Sequence[str]]] = {
    "kafkajs": lambda: kafkajs("managed.js"),
    "franz_go": lambda: franz_go("managed"),
    "kafka_python": lambda: [sys.executable, "-W", "ignore", str(HERE / "script_managed_kafka_python.py")],
}
SKIPPED = os.environ.get("KORDON_SKIP_CLIENTS", "").split(",")
COUNTS = (6, 3, 5)
"""Partitions that a topic gets while it is in use, after the 3 it begins with."""


class Program:
    """A client at work; its lines are collected.

    Args:
        command: What to run.
        errors: Where its standard error goes.
    """

    def __init__(self, command: Sequence[str], errors: Path) -> None:
        self.lines: list[str] = []
        self._errors = errors
        with errors.open("w") as sink:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sink, text=True,
                env={**os.environ, "NODE_PATH": kafkajs_path()},
            )  # fmt: skip
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))

    def has_said(self, count: int) -> bool:
        """Whether there are so many lines; fails if it has ended before."""
        assert self._process.poll() is None, self._errors.read_text()[-2000:]
        return len(self.lines) >= count

    def finish(self, told: str = "") -> None:
        """Tells it to end, and waits until it has done so without an error."""
        assert self._process.stdin is not None
        self._process.stdin.write(told)
        self._process.stdin.close()
        self.stop(90)
        assert self._process.returncode == 0, self._errors.read_text()[-2000:]

    def stop(self, seconds: float = 0) -> None:
        """Ends it, by force if it takes longer than that."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reading.join()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[Sequence[str]], Program]]:
    """Starts programs, and ends those that are left."""
    programs: list[Program] = []

    def run(command: Sequence[str]) -> Program:
        programs.append(Program(command, tmp_path / f"errors-{len(programs)}"))
        return programs[-1]

    yield run
    for program in programs:
        program.stop()


def left_out(*names: str) -> None:
    if found := [name for name in names if name in SKIPPED]:
        pytest.skip(f"{', '.join(found)} left out by KORDON_SKIP_CLIENTS")


def test_kafkajs_franz_go_and_kafka_python(proxy: ProxyProcess, start: Callable[[Sequence[str]], Program]) -> None:
    """All write to one topic, and each reads what all have written."""
    topic = "clients"
    clients = {name: make() for name, make in CLIENTS.items() if name not in SKIPPED}
    admin = create_managed(proxy.bootstrap, topic)
    producers = [start([*command, proxy.bootstrap, topic, "produce"]) for command in clients.values()]
    consumers = {name: start([*command, proxy.bootstrap, topic, "consume"]) for name, command in clients.items()}
    wait_until("all write", lambda: all(producer.has_said(1) for producer in producers), 60)
    wait_until("all read", lambda: all(consumer.has_said(20) for consumer in consumers.values()), 60)

    for count in COUNTS:
        before = {name: len(consumer.lines) for name, consumer in consumers.items()}
        resize(admin, topic, count).result(60)
        wait_until("all go on", lambda: all(consumers[n].has_said(before[n] + 20) for n in before), 60)  # noqa: B023
    for producer in producers:
        producer.finish()
    sent = {name: int(producer.lines[-1]) for name, producer in zip(clients, producers, strict=True)}
    for name, consumer in consumers.items():
        consumer.finish(str(sum(sent.values())))
        check(name, consumer.lines, sent)
        assert sum(lags(proxy.bootstrap, topic, f"{topic}-{name}").values()) == 0, name


def check(reader: str, lines: Sequence[str], sent: dict[str, int]) -> None:
    """Holds what a client has read against what was acknowledged."""
    expected = {(f"{name}-{number % 20}", number) for name, count in sent.items() for number in range(count)}
    read = [(key, int(number)) for key, number in (line.split() for line in lines)]
    assert set(read) == expected, f"{reader} lacks {len(expected - set(read))}"
    assert len(read) == len(expected), f"{reader} got some twice"
    for key in {key for key, _ in read}:
        numbers = [number for each, number in read if each == key]
        assert numbers == sorted(numbers), f"{reader} got {key} out of order"


def test_kafka_streams(proxy: ProxyProcess, start: Callable[[Sequence[str]], Program], tmp_path: Path) -> None:
    """A word count reads a managed topic and writes another; its repartition and changelog topics are not managed."""
    left_out("streams")
    admin = create_managed(proxy.bootstrap, "words")
    create_managed(proxy.bootstrap, "counts")
    program = start([*streams_word_count(), proxy.bootstrap, "counting", "words", "counts", str(tmp_path)])
    sender = Sender(proxy.bootstrap, "words")
    sender.send_for(1)
    for count in COUNTS:
        for topic in ("words", "counts"):
            sender.send_for(0.5, resize(admin, topic, count))
    sender.finish()

    counts = read_all(proxy.bootstrap, "counts", sender.sent)

    assert sorted(counts) == sorted((str(number).encode(), 1) for number in range(sender.sent)), "each word once"
    program.finish()


@pytest.mark.deep
def test_spark(proxy: ProxyProcess, start: Callable[[Sequence[str]], Program], tmp_path: Path) -> None:
    """Structured Streaming copies a managed topic to another one, with failOnDataLoss."""
    left_out("spark")
    admin = create_managed(proxy.bootstrap, "source")
    create_managed(proxy.bootstrap, "sink")
    program = start([*spark_copy(tmp_path / "checkpoint"), proxy.bootstrap, "source", "sink"])
    wait_until("Spark reads", lambda: program.has_said(1), 90)
    sender = Sender(proxy.bootstrap, "source")
    sender.send_for(1)
    for count in COUNTS:
        for topic in ("source", "sink"):
            sender.send_for(0.5, resize(admin, topic, count))
    sender.finish()
    program.finish()
    assert_all_once_and_in_order(sender, read_all(proxy.bootstrap, "sink", sender.sent))
