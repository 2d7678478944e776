"""Real Kafka on this machine: one broker or three, on free ports, in a temporary folder, gone for sure afterwards.

By hand: `python -m kordon.testing.cluster --brokers 3` prints the bootstrap addresses and runs until Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

from kordon.codecs import apis
from kordon.testing.broker_config import BrokerPorts, needs_zookeeper, properties, protocol_of, write_properties
from kordon.testing.certificates import Certificates, make_certificates
from kordon.testing.folders import make_folder, remove_folder
from kordon.testing.formatted import format_folder, new_id
from kordon.testing.jars import class_archive, jars_dir, kafka_version, locked
from kordon.testing.java_process import DIES_WITH_PARENT, START_SECONDS, ClusterFailed, JavaProcess, java_command
from kordon.testing.kafka_tools import tool_command
from kordon.testing.known import known
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.ports import free_ports
from kordon.testing.waiting import wait_until
from kordon.testing.zookeeper import ZooKeeper

__all__ = ["DIES_WITH_PARENT", "Broker", "Cluster", "ClusterFailed"]

FOLDER_PREFIX: Final = "kordon-kafka-"
TOOL_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.1


class Broker(JavaProcess):
    """One broker process; it can be stopped, killed, paused and started again with its data."""

    def __init__(
        self, ports: BrokerPorts, folder: Path, command: Sequence[str], zookeeper: ZooKeeper | None = None
    ) -> None:
        super().__init__(f"broker {ports.node_id}", ports.by_listener.values(), folder, command)
        self.node_id = ports.node_id
        self.host = "127.0.0.1"
        self._ports = ports
        self._zookeeper = zookeeper

    def start(self, *, wait: bool = True) -> None:
        """Starts it, and waits until it takes connections; raises ClusterFailed."""
        if self._zookeeper is not None:
            self._zookeeper.wait_forgotten(self.node_id)
        super().start(wait=wait)

    def port(self, listener: str = "PLAINTEXT") -> int:
        """Returns the port of a listener, the broker's own even if another is advertised."""
        return self._ports.by_listener[listener]

    @property
    def listeners(self) -> list[str]:
        """Names of its listeners; the first one is used between brokers."""
        return list(self._ports.by_listener)


class Cluster:
    """Brokers that form a cluster; use `start` as a context manager."""

    def __init__(self, version: str, folder: Path, brokers: list[Broker], certificates: Certificates | None) -> None:
        self.version = version
        self.folder = folder
        self.brokers = brokers
        self._certificates = certificates
        self.zookeeper: ZooKeeper | None = None
        """Of a Kafka that has no KRaft yet."""

    @classmethod
    def start(
        cls,
        brokers: int = 1,
        version: str | None = None,
        listeners: Sequence[str] = ("PLAINTEXT",),
        config: Mapping[str, str] | None = None,
        extra_listeners: Mapping[str, int] | None = None,
        *,
        jvm: Sequence[str] | None = None,
        known_as: tuple[str, int] | None = None,
        on_disk: bool = False,
    ) -> Cluster:
        """Starts a cluster, and waits until its brokers know each other.

        Args:
            brokers: 1 or 3; node ids are 1 to 3.
            version: Kafka's; by default that of the environment variable KAFKA, or the newest.
            listeners: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL; the first one is used between brokers.
            extra_listeners: Plain listeners that advertise other ports (of relays): by name that of the first broker,
                which those of the others follow.
            jvm: Further options of the brokers' JVMs, such as `java_process.OPTIMISED`.
            known_as: The host that clients on other hosts are told, and the first broker's first port.
            on_disk: What brokers keep is on disk however much memory there is: they are measured, or get much.

        Raises:
            ClusterFailed: A broker did not start.
            MissingTool: Java or Maven is not installed.
            ValueError: This Kafka cannot have such a listener here.
        """
        version = version or kafka_version()
        if needs_zookeeper(version) and any(protocol_of(name) != "PLAINTEXT" for name in listeners):
            raise ValueError(f"TLS and SASL listeners need Kafka 3 or newer here, this is {version}")
        jars = jars_dir(version)
        if jvm is None:
            _archive_classes(version, jars)
        folder = make_folder(FOLDER_PREFIX, in_memory=not on_disk)
        tls = any("SSL" in protocol_of(name) for name in listeners)
        cluster = cls(version, folder, [], make_certificates(folder) if tls else None)
        try:
            ports = _take_ports(brokers, listeners, extra_listeners or {}, known_as)
            cluster._make_brokers(ports, jars, config or {}, jvm or ())
            cluster._start_all()
        except BaseException:
            cluster.stop()
            raise
        return cluster

    @property
    def certificates(self) -> Certificates:
        """Those of its TLS listeners, of which it must have one."""
        return known(self._certificates)

    def _make_brokers(
        self, ports: Sequence[BrokerPorts], jars: Path, config: Mapping[str, str], jvm: Sequence[str]
    ) -> None:
        if needs_zookeeper(self.version):
            port = ports[0].controller  # that nobody else uses without KRaft
            self.zookeeper = ZooKeeper(port, jars, self.folder / "zookeeper")
        zookeeper_address = self.zookeeper.address if self.zookeeper else None
        cluster_id = new_id()
        for each in ports:
            own = self.folder / f"broker-{each.node_id}"
            own.mkdir()
            lines = properties(each, ports, own, self._certificates, zookeeper_address) | dict(config)
            write_properties(own / "server.properties", lines)
            java = [*java_command(jars, own), "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls="]
            if self.zookeeper is None:
                with_users = any(protocol_of(name).startswith("SASL") for name in each.by_listener)
                format_folder(each.node_id, own, cluster_id, self.version, java, with_users=with_users)
            command = [*java, *jvm, "kafka.Kafka", "server.properties"]
            self.brokers.append(Broker(each, own, command, self.zookeeper))

    def _start_all(self) -> None:
        if self.zookeeper is not None:
            self.zookeeper.start()
        for broker in self.brokers:
            broker.start(wait=False)
        for broker in self.brokers:
            broker.wait_started()
        for broker in self.brokers:
            self._wait_known(broker)

    def _wait_known(self, broker: Broker) -> None:
        """Waits until a broker tells of all others: its ports open a moment earlier."""
        plain = next((name for name in broker.listeners if protocol_of(name) == "PLAINTEXT"), None)
        if plain is None:
            return
        deadline = time.monotonic() + START_SECONDS
        while (known := known_brokers(broker.host, broker.port(plain))) != {each.node_id for each in self.brokers}:
            if time.monotonic() > deadline:
                raise ClusterFailed(f"{broker.name} knows only the brokers {sorted(known)}:\n{broker.log_tail()}")
            time.sleep(_POLL_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends all brokers at once and removes their data."""
        for broker in self.brokers:
            broker.kill()
        if self.zookeeper is not None:
            self.zookeeper.kill()
        remove_folder(self.folder)

    def bootstrap(self, listener: str = "PLAINTEXT") -> str:
        """Returns host:port of every broker's listener, separated by commas."""
        return ",".join(f"{broker.host}:{broker.port(listener)}" for broker in self.brokers)

    def tool_command(self, name: str, *arguments: str) -> list[str]:
        """Returns the command line of one of Kafka's tools, for use in the background; raises LookupError."""
        return [*tool_command(name, self.version, self.folder), *arguments]

    def tool(
        self, name: str, *arguments: str, stdin: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Runs one of Kafka's tools to its end.

        Args:
            name: As its script is called, or a Java class.
        """
        command = self.tool_command(name, *arguments)
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)
        if check and done.returncode:
            raise RuntimeError(f"{name} {' '.join(arguments)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Makes a broker the leader of a partition that it has a copy of; raises TimeoutError."""
        others = [broker.node_id for broker in self.brokers if broker.node_id != node_id]
        place = {"partition_index": partition, "replicas": [node_id, *others]}
        self._ask_controller(
            apis.ALTER_PARTITION_REASSIGNMENTS, 0, {"topics": [{"name": topic, "partitions": [place]}]}
        )

        def leads() -> bool:
            self.elect_preferred({topic: [partition]})
            return self.leader(topic, partition) == node_id

        wait_until(f"broker {node_id} leads {topic}-{partition}", leads, START_SECONDS)

    def elect_preferred(self, partitions: Mapping[str, Sequence[int]] | None = None) -> None:
        """Has partitions led by the first of their copies, as far as those are in sync.

        Args:
            partitions: By topic; None: all there are.
        """
        wanted = None if partitions is None else [{"topic": t, "partitions": p} for t, p in partitions.items()]
        self._ask_controller(apis.ELECT_LEADERS, 1, {"election_type": 0, "topic_partitions": wanted})

    def leader(self, topic: str, partition: int) -> int | None:
        """Returns the node id of a partition's leader, None while it has none."""
        with self._living() as connection:
            found = connection.ask(apis.METADATA, 1, {"topics": [{"name": topic}]}).topics[0].partitions
        leaders = {each.partition_index: int(each.leader_id) for each in found}
        return leaders[partition] if leaders.get(partition, -1) >= 0 else None

    def _ask_controller(self, api_key: int, version: int, fields: Mapping[str, Any]) -> None:
        """Asks the broker that is named as the controller; with KRaft that is any, which passes it on."""
        with self._living() as connection:
            node_id = int(connection.ask(apis.METADATA, 1, {"topics": []}).controller_id)
        broker = next(each for each in self.brokers if each.node_id == node_id)
        with PlainConnection(f"{broker.host}:{broker.port(broker.listeners[0])}") as connection:
            connection.ask(api_key, version, fields)

    def _living(self) -> PlainConnection:
        """Connects to the first broker that runs."""
        broker = next(each for each in self.brokers if each.pid is not None)
        return PlainConnection(f"{broker.host}:{broker.port(broker.listeners[0])}")


def _archive_classes(version: str, jars: Path) -> None:
    """Has a broker leave behind the classes that it has loaded, for all JVMs that come after it."""
    archive = class_archive(jars)
    with locked(archive.name):
        if archive.exists():
            return
        unfinished = archive.with_suffix(".unfinished")
        with Cluster.start(version=version, jvm=[f"-XX:ArchiveClassesAtExit={unfinished}"]) as cluster:
            cluster.brokers[0].stop()
        unfinished.touch()  # a Java that makes none ignores an empty one
        unfinished.rename(archive)


def known_brokers(host: str, port: int) -> set[int]:
    """Returns the node ids of all brokers that one tells of at its plain listener; none where it says nothing."""
    with suppress(OSError, EOFError), PlainConnection(f"{host}:{port}", timeout_seconds=5) as connection:
        return {int(each.node_id) for each in connection.ask(apis.METADATA, 1, {"topics": []}).brokers}
    return set()


def _take_ports(
    brokers: int, listeners: Sequence[str], extra: Mapping[str, int], known_as: tuple[str, int] | None
) -> list[BrokerPorts]:
    names = [*listeners, *extra]
    each = len(names) + 1
    base = free_ports(brokers * each) if known_as is None else known_as[1] - 1
    return [
        BrokerPorts(
            node_id=number + 1,
            controller=base + number * each,
            by_listener={name: base + number * each + 1 + place for place, name in enumerate(names)},
            advertised={name: port + number for name, port in extra.items()},
            known_as=known_as[0] if known_as else None,
        )
        for number in range(brokers)
    ]


@contextmanager
def _until_interrupted() -> Generator[None]:
    with suppress(KeyboardInterrupt):
        yield
        signal.pause()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m kordon.testing.cluster", description=__doc__)
    parser.add_argument("--brokers", type=int, default=1, choices=(1, 3))
    parser.add_argument("--listeners", default="PLAINTEXT", help="separated by commas")
    parser.add_argument("--kafka", default=None, metavar="VERSION", help="4.4, 4.3 (default), 3.9, 2.4")
    told = parser.parse_args()
    if told.kafka:
        os.environ["KAFKA"] = told.kafka
    with (
        Cluster.start(told.brokers, listeners=told.listeners.split(","), on_disk=True) as cluster,
        _until_interrupted(),
    ):
        for listener in told.listeners.split(","):
            print(f"{listener}: {cluster.bootstrap(listener)}", flush=True)
        print("Ctrl-C ends it", flush=True)


if __name__ == "__main__":
    main()
