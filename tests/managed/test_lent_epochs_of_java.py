"""Kafka's own producer goes on behind Kordon where it needs its next epoch, and the brokers are from before KIP-360."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaError
from confluent_kafka import Producer as SimpleProducer
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportPrivateImportUsage]

from kordon.testing.cluster import Cluster
from kordon.testing.jars import DEFAULT, PROJECT, VERSIONS, jars_dir
from kordon.testing.java_process import DIES_WITH_PARENT, java_command
from kordon.testing.java_programs import java_program
from kordon.testing.managed_clients import create_ordinary, set_configs
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.deep, pytest.mark.timeout(120)]
ATTEMPTS = 3
PROGRAM = PROJECT / "tests" / "clients" / "java" / "BumpedProducer.java"


class Producer:
    """The program, which tells what comes of each transaction."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._lines, self._input = process.stdout, process.stdin
        assert self.line() == "ready"

    def line(self) -> str:
        return self._lines.readline().strip()

    def begin(self, *values: str) -> None:
        """Begins to write a transaction."""
        self._input.write(" ".join(values) + "\n")
        self._input.flush()

    def rest(self) -> list[str]:
        """Returns what came of each attempt; raises AssertionError if the program has ended."""
        found: list[str] = []
        while (line := self.line()) != "done":
            assert line, "it has ended"
            found.append(line.split()[0])
        return found


@contextmanager
def producer(bootstrap: str, topic: str, folder: Path) -> Iterator[Producer]:
    jars = jars_dir(DEFAULT)
    java = [*java_command(jars, folder, tool=True), *java_program(PROGRAM, jars)]
    command = [*DIES_WITH_PARENT, *java, bootstrap, topic, topic, str(ATTEMPTS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Producer(process)
        finally:
            process.kill()


def lacks_replicas(bootstrap: str, topic: str) -> bool:
    """Says whether the topic's broker acknowledges no record, for want of copies."""
    came: list[KafkaError | None] = []
    once = SimpleProducer({"bootstrap.servers": bootstrap, "acks": "all", "retries": 0})
    once.produce(topic, b"", on_delivery=lambda error, _: came.append(error))
    once.flush()
    (error,) = came
    return error is not None and error.code() == KafkaError.NOT_ENOUGH_REPLICAS


def test_a_producer_goes_on_after_a_batch_that_may_be_in_the_log(tmp_path: Path) -> None:
    """Nobody acknowledges it in time. Only with another epoch is it safe to write more (KIP-360)."""
    found: dict[str, list[str]] = {}
    with Cluster.start(version=VERSIONS["2.4"]) as brokers, ProxyProcess.start(brokers.bootstrap()) as proxy:
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap()})
        for where, bootstrap in (("direct", brokers.bootstrap()), ("kordon", proxy.bootstrap)):
            create_ordinary(brokers.bootstrap(), where, 1)
            with producer(bootstrap, where, tmp_path) as one:
                one.begin("a", "b")
                assert one.rest() == ["committed"]
                set_configs(admin, where, {"min.insync.replicas": "2"}).result(90)
                wait_until("the broker goes by its new config", partial(lacks_replicas, brokers.bootstrap(), where))
                one.begin("c")
                assert one.line() == "unacknowledged"
                set_configs(admin, where, {"min.insync.replicas": "1"}).result(90)
                found[where] = one.rest()
    assert found == {"direct": ["dead"], "kordon": ["aborted", "committed"]}
