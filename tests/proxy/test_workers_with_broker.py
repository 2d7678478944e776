"""Several workers in front of a real broker: a worker that dies costs clients a reconnect, and nothing else."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import write
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = pytest.mark.broker

SECONDS = 60.0
RECORDS = 3000


@pytest.fixture(scope="module")
def two_workers(cluster: Cluster) -> Iterator[ProxyProcess]:
    with ProxyProcess.start(bootstrap=cluster.bootstrap(), args=["--workers", "2"]) as proxy:
        wait_until("both run", lambda: [row["state"] for row in proxy.status()["workers"]] == ["running", "running"])
        yield proxy


def client(proxy: ProxyProcess, **more: Any) -> dict[str, Any]:
    """The configuration of a client that says nothing of reconnects, which are expected here."""
    return {"bootstrap.servers": proxy.bootstrap, "log_level": 0, **more}


def consume(proxy: ProxyProcess, topic: str, count: int) -> list[bytes]:
    """The first values of a topic, in order."""
    consumer = Consumer(client(proxy, **{"group.id": topic, "auto.offset.reset": "earliest"}))
    consumer.subscribe([topic])
    values: list[bytes] = []
    deadline = time.monotonic() + SECONDS
    while len(values) < count and time.monotonic() < deadline:
        values += [message.value() or b"" for message in consumer.consume(1000, 0.5) if not message.error()]
    consumer.close()
    return values


def test_killed_worker_costs_no_record(two_workers: ProxyProcess) -> None:
    """While an idempotent producer runs, each worker is killed once; every record arrives once and in order."""
    failed: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _: object) -> None:
        failed.extend([error] if error else [])

    producer = Producer(client(two_workers, **{"enable.idempotence": True, "linger.ms": 1}))
    for number in range(RECORDS):
        producer.produce("killed", str(number), on_delivery=on_delivery)
        producer.poll(0.001)
        if number in {RECORDS // 3, 2 * RECORDS // 3}:
            row = two_workers.status()["workers"][number // (2 * RECORDS // 3)]
            os.kill(row["pid"], signal.SIGKILL)
    assert producer.flush(SECONDS) == 0
    assert failed == []
    assert consume(two_workers, "killed", RECORDS) == [str(number).encode() for number in range(RECORDS)]

    def all_back() -> bool:
        rows = two_workers.status()["workers"]
        return [(row["state"], row["restarts"]) for row in rows] == [("running", 1)] * 2

    wait_until("all are back", all_back)


def test_counts_of_all_workers_are_what_clients_did(two_workers: ProxyProcess) -> None:
    """Requests, bytes and connections of all workers together match what went through."""
    write(client(two_workers), "counted", [{"value": b"first"}])  # a topic that is new may refuse a write or two
    before = two_workers.metric("kordon_requests_total", api="Produce")
    received = two_workers.metric("kordon_received_bytes_total", side="downstream")
    producers = [Producer(client(two_workers)) for _ in range(4)]
    for producer in producers:
        for _ in range(5):
            producer.produce("counted", os.urandom(1000))
            assert producer.flush(SECONDS) == 0
    assert two_workers.metric("kordon_requests_total", api="Produce") - before == 20
    assert two_workers.metric("kordon_received_bytes_total", side="downstream") - received > 20_000
    status = two_workers.status()
    assert status["connections"]["open"] == sum(row["connections"] for row in status["workers"]) >= 4
    wait_until("the consumer before has gone", lambda: two_workers.status()["requests"]["in_flight"] == 0)


def test_status_shows_the_broker_to_a_person(two_workers: ProxyProcess, cluster: Cluster) -> None:
    """`kordon status` names the broker's address, where clients find it, and both workers."""
    wait_until("the broker is up", lambda: all(each["up"] for each in two_workers.status()["upstream"]["nodes"]))
    shown = subprocess.run(
        [sys.executable, "-m", "kordon.proxy", "status", "--admin", two_workers.admin],
        capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "120"},
    ).stdout  # fmt: skip
    broker = cluster.brokers[0]
    host, _, port = two_workers.bootstrap.rpartition(":")
    row = next(line.split() for line in shown.splitlines() if line.split()[:1] == [str(broker.node_id)])
    assert row == [str(broker.node_id), cluster.bootstrap(), f"{host}:{int(port) + 1 + broker.node_id}", "up"]
    assert shown.count(" running ") >= 2
