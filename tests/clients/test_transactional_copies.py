"""Programs that read, write and commit their offsets in one transaction: each record comes out once, killed or not."""

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportPrivateImportUsage]

from kordon.testing.client_programs import connect_worker, streams_word_count
from kordon.testing.cluster import Cluster
from kordon.testing.emptied import emptied
from kordon.testing.jars import kafka_version
from kordon.testing.java_process import DIES_WITH_PARENT
from kordon.testing.kafka_tools import tool_command
from kordon.testing.managed_clients import Sender, read_all, resize, watermarks
from kordon.testing.order.ways import DIRECT, MANAGED, Way, way_to
from kordon.testing.ports import free_ports
from kordon.testing.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.beside, pytest.mark.timeout(900), pytest.mark.deep]

COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
WAYS = [DIRECT, MANAGED]
SKIPPED = os.environ.get("KORDON_SKIP_CLIENTS", "").split(",")
GROWTH = (6, 12, 4)


@dataclass(frozen=True)
class Copied:
    """A topic that is read, and one that is written; nobody has ever named them in another transaction."""

    way: Way
    admin: AdminClient
    source: str
    sink: str

    @property
    def bootstrap(self) -> str:
        return self.way.bootstraps[0]

    def has_come(self, count: int) -> bool:
        """Whether so many offsets of the sink are used, by records and markers of open transactions, too."""
        marks = watermarks(self.bootstrap, self.sink, range(self.way.partitions))
        return sum(end for _, end in marks.values()) >= count

    def change(self, count: int) -> None:
        """Changes the number of partitions of managed topics."""
        for topic in (self.source, self.sink) if self.way.proxies else ():
            resize(self.admin, topic, count).result(180)

    def fence(self, transactional_id: str) -> None:
        """Ends what a killed program left open: Kafka's copier asks for its offsets before, and waits in vain."""
        Producer({"bootstrap.servers": self.bootstrap, "transactional.id": transactional_id}).init_transactions(60)


@pytest.fixture
def copied(spare_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Copied]:
    with way_to(emptied(spare_cluster), request.param) as way:
        admin = AdminClient({"bootstrap.servers": way.bootstraps[0]})
        made = Copied(way, admin, f"source-{time.time_ns()}", f"sink-{time.time_ns()}")
        for topic in (made.source, made.sink):
            way.create(topic)
        yield made


class Running:
    """A program that works until its standard input ends, or until its work is done."""

    def __init__(self, command: Sequence[str], errors: Path) -> None:
        self._command = command
        self._errors = errors
        with errors.open("ab") as sink:
            self._process = subprocess.Popen(
                [*DIES_WITH_PARENT, *command], stdin=subprocess.PIPE, stdout=sink, stderr=sink
            )

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def killed(self, then: Callable[[], None] = lambda: None) -> "Running":
        """Kills it (SIGKILL), and starts it anew when something has been done."""
        self.__exit__()
        then()
        return Running(self._command, self._errors)

    def finish(self) -> None:
        """Tells it to end, and waits for that."""
        self._process.communicate(timeout=90)
        assert self._process.returncode == 0, self._errors.read_text()[-2000:]


@pytest.mark.parametrize("copied", WAYS, indirect=True)
def test_copier_of_kafka_copies_each_record_once_and_in_order(copied: Copied, tmp_path: Path) -> None:
    """Kafka's own system tests use it. It aborts by chance, is killed in the middle, and goes on."""
    sender = Sender.sent_for(1, copied.bootstrap, copied.source, partitions=[0])
    told = {
        "--broker-list": ",".join(copied.way.bootstraps), "--input-topic": copied.source, "--input-partition": "0",
        "--output-topic": copied.sink, "--transaction-size": "5", "--transactional-id": "copier",
        "--consumer-group": "copier",
    }  # fmt: skip
    words = [word for pair in told.items() for word in pair]
    command = [*tool_command(COPIER, kafka_version(), tmp_path), *words, "--enable-random-aborts"]
    with Running(command, tmp_path / "errors") as first:
        wait_until("something is copied", lambda: copied.has_come(20))
        copied.change(GROWTH[0])
        with first.killed(partial(copied.fence, "copier")) as second:
            for count in GROWTH[1:]:
                copied.change(count)
            second.finish()

    assert read_all(copied.bootstrap, copied.sink, sender.sent) == sender.acknowledged


@pytest.mark.parametrize("copied", WAYS, indirect=True)
def test_streams_count_each_word_once_by_exactly_once(copied: Copied, tmp_path: Path) -> None:
    """A word count with exactly-once v2 is killed in the middle; its internal topics are Kafka's own."""
    if "streams" in SKIPPED:
        pytest.skip("streams left out by KORDON_SKIP_CLIENTS")
    state = str(tmp_path / "state")
    told = [
        ",".join(copied.way.bootstraps),
        copied.sink + "-counter",
        copied.source,
        copied.sink,
        state,
        "exactly_once_v2",
    ]
    sender = Sender.sent_for(1, copied.bootstrap, copied.source)
    with Running([*streams_word_count(), *told, "exactly_once_v2"], tmp_path / "errors") as first:
        wait_until("something is counted", lambda: copied.has_come(50))
        copied.change(GROWTH[0])
        sender.send_for(0.5)
        with first.killed() as second:
            for count in GROWTH[1:]:
                copied.change(count)
                sender.send_for(0.5)
            sender.finish()
            counts = read_all(copied.bootstrap, copied.sink, sender.sent)
            second.finish()

    assert sorted(counts) == sorted((str(number).encode(), 1) for number in range(sender.sent)), "each word once"


@pytest.mark.parametrize("copied", WAYS, indirect=True)
def test_connect_writes_each_record_of_a_source_once(copied: Copied, tmp_path: Path) -> None:
    """A distributed worker with exactly-once support is killed in the middle; its own topics are Kafka's own."""
    if "connect" in SKIPPED:
        pytest.skip("connect left out by KORDON_SKIP_CLIENTS")
    port, count = free_ports(1), 2_000
    told = {"connector.class": "Numbers", "tasks.max": "1", "topic": copied.sink, "count": str(count)}
    command = connect_worker(tmp_path, ",".join(copied.way.bootstraps), port)
    with Running(command, tmp_path / "errors") as first:
        wait_until("the worker takes the connector", partial(has_taken, port, told), 120)
        wait_until("something is written", lambda: copied.has_come(100), 120)
        copied.change(GROWTH[0])
        with first.killed():
            for partitions in GROWTH[1:]:
                copied.change(partitions)
            got = read_all(copied.bootstrap, copied.sink, count)

    assert sorted(number for _, number in got) == list(range(count)), "each number once"
    for key in {key for key, _ in got}:
        numbers = [number for each, number in got if each == key]
        assert numbers == sorted(numbers), key


def has_taken(port: int, connector: dict[str, str]) -> bool:
    """Whether a worker of Connect has been given a connector."""
    asked = urllib.request.Request(
        f"http://127.0.0.1:{port}/connectors/numbers/config",
        json.dumps(connector).encode(),
        {"Content-Type": "application/json"},
        method="PUT",
    )
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return bool(answer.status in (200, 201))
    except OSError:
        return False
