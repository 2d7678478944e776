"""Real Kafka on this machine: one broker or three, on free ports, in a temporary folder, gone for sure afterwards.

By hand: `python -m kordon.testing.cluster --brokers 3` prints the bootstrap addresses and runs until Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from kordon.testing.broker_config import SCRAM_MECHANISMS, USERS, BrokerPorts, properties, protocol_of
from kordon.testing.certificates import Certificates, make_certificates
from kordon.testing.jars import jars_dir, kafka_version, need
from kordon.testing.ports import free_ports

START_SECONDS: Final = 90.0
STOP_SECONDS: Final = 30.0
TOOL_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.1
DIES_WITH_PARENT: Final = ("setpriv", "--pdeathsig", "KILL")
"""Puts before a command: the kernel kills it when this process ends, however that happens."""
_JVM: Final = ("-Xms256m", "-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=4", "-Djava.awt.headless=true")
_TOOL_JVM: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+IgnoreUnrecognizedVMOptions")
_LOG4J: Final = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = LEVEL
rootLogger.appenderRef.out.ref = out
"""

TOOLS: Final = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-replica-verification": "org.apache.kafka.tools.ReplicaVerificationTool",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}
"""Java class of each of Kafka's scripts."""


class ClusterFailed(RuntimeError):  # noqa: N818 - says what happened
    """A broker did not start, or died; the message ends with the last lines of its log."""


class Broker:
    """One broker process; it can be stopped, killed, paused and started again with its data."""

    def __init__(self, ports: BrokerPorts, folder: Path, command: Sequence[str]) -> None:
        self.node_id = ports.node_id
        self.host = "127.0.0.1"
        self._ports = ports
        self._folder = folder
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._process.pid if self._process else None

    def port(self, listener: str = "PLAINTEXT") -> int:
        """Returns the port of a listener, the broker's own even if another is advertised."""
        return self._ports.by_listener[listener]

    def start(self, *, wait: bool = True) -> None:
        """Starts it, and waits until it takes connections.

        Raises:
            ClusterFailed: It did not within `START_SECONDS`.
        """
        self._output = (self._folder / "broker.log").open("ab")
        command = [*DIES_WITH_PARENT, *self._command]
        self._process = subprocess.Popen(command, stdout=self._output, stderr=subprocess.STDOUT, cwd=self._folder)
        if wait:
            self.wait_started()

    def wait_started(self) -> None:
        """Waits until every listener takes connections."""
        deadline = time.monotonic() + START_SECONDS
        while not all(_listens(port) for port in self._ports.by_listener.values()):
            if self._process is None or self._process.poll() is not None:
                raise ClusterFailed(f"broker {self.node_id} died while starting:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise ClusterFailed(f"broker {self.node_id} did not start in {START_SECONDS} s:\n{self.log_tail()}")
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """Shuts it down as an operator would; kills it if it does not end in `STOP_SECONDS`."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        """Ends it at once (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._output is not None:
            self._output.close()
            self._output = None

    def pause(self) -> None:
        """Stops its clock (SIGSTOP)."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets it go on (SIGCONT)."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def log_tail(self, lines: int = 40) -> str:
        """Returns the last lines of its log."""
        text = (self._folder / "broker.log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-lines:])


class Cluster:
    """Brokers that form a cluster; use `start` as a context manager."""

    def __init__(self, version: str, folder: Path, brokers: list[Broker], certificates: Certificates | None) -> None:
        self.version = version
        self.folder = folder
        self.brokers = brokers
        self.certificates = certificates
        """Present where a listener has TLS."""

    @classmethod
    def start(
        cls,
        brokers: int = 1,
        version: str | None = None,
        listeners: Sequence[str] = ("PLAINTEXT",),
        config: Mapping[str, str] | None = None,
        extra_listeners: Mapping[str, int] | None = None,
    ) -> Cluster:
        """Starts a cluster.

        Args:
            brokers: 1 or 3; node ids are 1 to 3.
            version: Kafka's; by default that of the environment variable KAFKA, or the newest.
            listeners: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL; the first one is used between brokers.
            config: Further broker properties.
            extra_listeners: Plain listeners that advertise another port (of a relay), by name.

        Raises:
            ClusterFailed: A broker did not start.
            MissingTool: Java or Maven is not installed.
        """
        version = version or kafka_version()
        jars = jars_dir(version)
        folder = Path(tempfile.mkdtemp(prefix="kordon-kafka-"))
        tls = any("SSL" in protocol_of(name) for name in listeners)
        certificates = make_certificates(folder) if tls else None
        extra = dict(extra_listeners or {})
        names = [*listeners, *extra]
        ports = _take_ports(brokers, names, extra)
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        made: list[Broker] = []
        cluster = cls(version, folder, made, certificates)
        try:
            made += [
                _make_broker(each, ports, folder, certificates, jars=jars, cluster_id=cluster_id, config=config or {})
                for each in ports
            ]
            for broker in made:
                broker.start(wait=False)
            for broker in made:
                broker.wait_started()
        except BaseException:
            cluster.stop()
            raise
        return cluster

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends all brokers at once and removes their data."""
        for broker in self.brokers:
            broker.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def bootstrap(self, listener: str = "PLAINTEXT") -> str:
        """Returns host:port of every broker's listener, separated by commas."""
        return ",".join(f"{broker.host}:{broker.port(listener)}" for broker in self.brokers)

    def tool_command(self, name: str, *arguments: str) -> list[str]:
        """Returns the command line of one of Kafka's tools, for use in the background."""
        log = self.folder / "tools-log4j2.properties"
        if not log.exists():
            log.write_text(_LOG4J.replace("LEVEL", "error"))
        return [
            need("java"), *_TOOL_JVM, f"-Dlog4j2.configurationFile={log}", "-cp", f"{jars_dir(self.version)}/*",
            TOOLS.get(name, name), *arguments,
        ]  # fmt: skip

    def tool(
        self, name: str, *arguments: str, stdin: str | None = None, timeout: float = TOOL_SECONDS, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Runs one of Kafka's tools to its end.

        Args:
            name: As its script is called, or a Java class.
            arguments: Its arguments; the bootstrap address is among them.
            stdin: What it reads.
            timeout: Seconds.
            check: Raise when it fails.

        Raises:
            RuntimeError: It failed; its output is in the message.
        """
        command = self.tool_command(name, *arguments)
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout, check=False)
        if check and done.returncode:
            raise RuntimeError(f"{name} {' '.join(arguments)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Makes a broker the leader of a partition that it has a copy of."""
        others = [broker.node_id for broker in self.brokers if broker.node_id != node_id]
        plan = self.folder / f"move-{uuid.uuid4().hex}.json"
        plan.write_text(
            f'{{"version":1,"partitions":[{{"topic":"{topic}","partition":{partition},'
            f'"replicas":[{",".join(map(str, [node_id, *others]))}]}}]}}'
        )
        at = ("--bootstrap-server", self.bootstrap(next(iter(self.brokers[0]._ports.by_listener))))
        self.tool("kafka-reassign-partitions", *at, "--reassignment-json-file", str(plan), "--execute")
        deadline = time.monotonic() + START_SECONDS
        while self.leader(topic, partition) != node_id:
            election = ("--election-type", "preferred", "--topic", topic, "--partition", str(partition))
            self.tool("kafka-leader-election", *at, *election, check=False)
            if time.monotonic() > deadline:
                raise ClusterFailed(f"broker {node_id} did not become leader of {topic}-{partition}")

    def leader(self, topic: str, partition: int) -> int | None:
        """Returns the node id of a partition's leader, None while it has none."""
        at = ("--bootstrap-server", self.bootstrap(next(iter(self.brokers[0]._ports.by_listener))))
        text = self.tool("kafka-topics", *at, "--describe", "--topic", topic).stdout
        for line in text.splitlines():
            words = line.replace("\t", " ").split()
            if f"Partition: {partition} " in line.replace("\t", " ") and "Leader:" in words:
                leader = words[words.index("Leader:") + 1]
                return int(leader) if leader.lstrip("-").isdigit() and int(leader) >= 0 else None
        return None


def _take_ports(brokers: int, names: Sequence[str], extra: Mapping[str, int]) -> list[BrokerPorts]:
    each = len(names) + 1
    base = free_ports(brokers * each)
    return [
        BrokerPorts(
            node_id=number + 1,
            controller=base + number * each,
            by_listener={name: base + number * each + 1 + place for place, name in enumerate(names)},
            advertised=dict(extra),
        )
        for number in range(brokers)
    ]


def _make_broker(
    ports: BrokerPorts,
    voters: Sequence[BrokerPorts],
    folder: Path,
    certificates: Certificates | None,
    *,
    jars: Path,
    cluster_id: str,
    config: Mapping[str, str],
) -> Broker:
    own = folder / f"broker-{ports.node_id}"
    own.mkdir()
    lines = properties(ports, voters, own, certificates) | config
    (own / "server.properties").write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    (own / "log4j2.properties").write_text(_LOG4J.replace("LEVEL", "warn"))
    java = [need("java"), *_JVM, f"-Dlog4j2.configurationFile={own}/log4j2.properties"]
    java += ["-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=", "-cp", f"{jars}/*"]
    scram = [
        argument
        for name, password in USERS.items()
        for mechanism in SCRAM_MECHANISMS
        for argument in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
        if any(protocol_of(listener).startswith("SASL") for listener in ports.by_listener)
    ]
    given_id = f"--cluster-id={cluster_id}"  # one word: an id may begin with a dash, like a flag
    command = [*java, "kafka.tools.StorageTool", "format", given_id, "-c", "server.properties", *scram]
    done = subprocess.run(command, cwd=own, capture_output=True, text=True, timeout=START_SECONDS, check=False)
    if done.returncode:
        raise ClusterFailed(f"formatting broker {ports.node_id} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return Broker(ports, own, [*java, "kafka.Kafka", "server.properties"])


def _listens(port: int) -> bool:
    with socket.socket() as sock:
        sock.settimeout(1)
        return sock.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def _until_interrupted() -> Iterator[None]:
    with suppress(KeyboardInterrupt):
        yield
        signal.pause()


def main() -> None:
    """Runs a cluster until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m kordon.testing.cluster", description=__doc__)
    parser.add_argument("--brokers", type=int, default=1, choices=(1, 3))
    parser.add_argument("--listeners", default="PLAINTEXT", help="separated by commas")
    parser.add_argument("--kafka", default=None, metavar="VERSION", help="4.3 (default), 3.9")
    told = parser.parse_args()
    if told.kafka:
        os.environ["KAFKA"] = told.kafka
    with Cluster.start(told.brokers, listeners=told.listeners.split(",")) as cluster, _until_interrupted():
        for listener in told.listeners.split(","):
            print(f"{listener}: {cluster.bootstrap(listener)}", flush=True)
        print("Ctrl-C ends it", flush=True)


if __name__ == "__main__":
    main()
