"""The same requests by the same real client, directly and through Kordon: nobody can tell the difference."""

import json
import os
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import pytest

from kordon.testing.client_programs import franz_go, kafkajs, kafkajs_path
from kordon.testing.cluster import Cluster
from kordon.testing.equivalence import Run, Target, comparable, difference, run_script
from kordon.testing.jars import kafka_version
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.side_effects import side_effects
from kordon.testing.socket_watch import Peers

HERE = Path(__file__).parent
DIRECT, FOR_KORDON = "PLAINTEXT", "PLAINTEXT_KORDON"
"""Two listeners of the same broker, so that it can be told who came from where."""

QUORUM = "the controllers' addresses are left out of DescribeQuorum: no client has business there"
FEATURE = "the feature kordon.ordered is announced; test_dialect_connections says that nothing else is"
ALLOWED: dict[str, dict[str, str]] = {
    "java_tools": {"kafka-metadata-quorum status": QUORUM, "kafka-features describe": FEATURE},
    "kafka_python": {"quorum": QUORUM, "features": FEATURE},
}
"""Steps that may differ, by client, with the reason."""


@dataclass(frozen=True)
class Side:
    """The broker and the proxy, with where clients of each find the nodes."""

    direct: Target
    proxied: Target
    broker_pid: int
    kordon_pid: int
    kordon_port: int


@pytest.fixture(scope="module")
def sides() -> Iterator[Side]:
    """One broker for all clients, and Kordon in front of its second listener."""
    config = {"auto.create.topics.enable": "false", "group.consumer.min.heartbeat.interval.ms": "500",
              "group.consumer.heartbeat.interval.ms": "500"}  # fmt: skip
    with Cluster.start(listeners=(DIRECT, FOR_KORDON), config=config) as cluster:
        (broker,) = cluster.brokers
        with ProxyProcess.start(bootstrap=cluster.bootstrap(FOR_KORDON)) as kordon:
            host, _, port = kordon.bootstrap.rpartition(":")
            behind = f"{host}:{int(port) + 1 + broker.node_id}"
            forbidden = frozenset({broker.port(DIRECT), broker.port(FOR_KORDON)})
            assert broker.pid
            yield Side(
                direct=Target(cluster.bootstrap(DIRECT), {cluster.bootstrap(DIRECT): broker.node_id}),
                proxied=Target(kordon.bootstrap, {behind: broker.node_id}, forbidden),
                broker_pid=broker.pid,
                kordon_pid=kordon.pid,
                kordon_port=broker.port(FOR_KORDON),
            )


def python_script(name: str) -> Callable[[], Sequence[str]]:
    return lambda: [sys.executable, "-W", "ignore", str(HERE / f"script_{name}.py")]


SCRIPTS: dict[str, Callable[[], Sequence[str]]] = {
    "java_tools": python_script("java_tools"),
    "librdkafka": python_script("librdkafka"),
    "kafka_python": python_script("kafka_python"),
    "aiokafka": python_script("aiokafka"),
    "kafkajs": lambda: kafkajs("script.js"),
    "franz_go": franz_go,
}


@pytest.mark.broker
@pytest.mark.beside
@pytest.mark.skipif(not kafka_version().startswith("4."), reason="the scripts ask for what Kafka 4 has")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("client", SCRIPTS)
def test_client_gets_same_answers_errors_and_side_effects(sides: Side, client: str) -> None:
    """Every step answers alike, the cluster is left alike, and nobody but Kordon has come to Kordon's listener."""
    if client in os.environ.get("KORDON_SKIP_CLIENTS", "").split(","):
        pytest.skip("left out by KORDON_SKIP_CLIENTS")
    run, salt = SCRIPTS[client](), uuid.uuid4().hex[:6]
    prefixes = {"direct": f"d{salt}", "proxied": f"p{salt}"}
    environment = {
        **os.environ,
        "NODE_PATH": kafkajs_path(),
        "PYTHONDONTWRITEBYTECODE": "1",
    }

    def go(target: Target, prefix: str) -> Run:
        return run_script(run, target, prefix, HERE, environment)

    with ThreadPoolExecutor() as pool:
        direct = pool.submit(go, sides.direct, prefixes["direct"])
        proxied = pool.submit(go, sides.proxied, prefixes["proxied"])
        peers = Peers(sides.kordon_port, frozenset({sides.kordon_pid, sides.broker_pid}))
        strangers: set[int] = set()
        while wait([proxied, direct], timeout=0.25).not_done:
            strangers |= peers.now()
    check(client, direct.result(), proxied.result())
    assert not strangers, f"processes {strangers} went to the broker past Kordon"
    left = [left_behind(sides.direct, prefix) for prefix in prefixes.values()]
    different = difference(left[:1], left[1:])
    assert not different, f"{client} has left something else behind:\n{different}"


def left_behind(target: Target, prefix: str) -> str:
    """Returns what a run has done to the cluster, as a line like a script's."""
    return comparable(
        json.dumps({"step": "side effects", "answer": side_effects(target.bootstrap, prefix)}), target, prefix
    )


def check(client: str, direct: Run, proxied: Run) -> None:
    """Compares two runs line by line, and looks that they are whole and have been watched."""
    assert (direct.exit_code, proxied.exit_code) == (0, 0), direct.errors[-2000:] + proxied.errors[-2000:]
    assert len(direct.lines) > 20, "the script does what it should"
    assert proxied.samples > 10, "somebody has looked at its sockets"
    assert not proxied.trespassed, f"{client} went to broker port {set(proxied.trespassed)}"
    different = difference(direct.lines, proxied.lines, ALLOWED.get(client))
    assert not different, f"{client} can tell the difference:\n{different}"
