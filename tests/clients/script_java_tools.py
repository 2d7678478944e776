"""What Kafka's own command line tools are asked to do."""

import base64
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kordon.testing.jars import kafka_version, need, tools_dir
from kordon.testing.java_programs import java_program
from kordon.testing.kafka_tools import tool_class
from kordon.testing.steps import CODECS, KEEP, Script
from kordon.testing.waiting import wait_until

LAUNCHER = Path(__file__).parent / "java" / "Tools.java"
QUIET = "status = error\nrootLogger.level = off\n"
CLIENT_METRICS = "org.apache.kafka.tools.ClientMetricsCommand"
MOVING = (
    (re.compile(r"--bootstrap-server [^\s']+"), "--bootstrap-server <bootstrap>"),
    # What a run measures, and what the cluster counts on from one moment to the next.
    (re.compile(r"(\d+ records sent), .*"), r"\1, <measured>"),
    (re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d.*"), "<measured>"),
    (re.compile(r"(HighWatermark|LeaderEpoch|MaxFollowerLag|MaxFollowerLagTimeMs|LogEndOffset):\s+\S+"), r"\1: <n>"),
    (re.compile(r'"(size|offsetLag)":\d+'), r'"\1":<n>'),
    (re.compile(r"(consumer|share|rdkafka|console)[\w.-]*-[0-9a-f-]{36}"), r"\1-<member>"),
    # How far a share group has come depends on when its member was told to go.
    (re.compile(r"(-share \S+-once 0) \d+ \d+$"), r"\1 <n>"),
    (re.compile(r"^(\d+ \S{22}) \d+ \d+ \d+ \d+"), r"\1 <n>"),
    (re.compile(r"(-tx 1) \d+(?= [A-Z])"), r"\1 <producer id>"),
    (re.compile(r"(-tx) \d+ (\d+ \w+ \d+) \d+ \d+"), r"\1 <producer id> \2 <time>"),
    (re.compile(r"^\d+( \d+ \d+ -?\d+ )\d{13}"), r"<producer id>\1<time>"),
    (re.compile(r"(FinalizedVersionLevel: \S+ +)Epoch: \d+"), r"\1"),
    (re.compile(r"Epoch: \d+"), "Epoch: <n>"),
    (re.compile(r'"(timestamp|avg_throughput|target_throughput)":-?[\d.]+'), r'"\1":<n>'),
)


def settled(line: str) -> str:
    """Returns a tool's line with single spaces and without what moves by itself."""
    line = " ".join(line.split())
    for pattern, word in MOVING:
        line = pattern.sub(word, line)
    return line


def lines_of(found: dict[str, object]) -> list[str]:
    lines = found["lines"]
    assert isinstance(lines, list)
    return lines


class JavaTools:
    """The script's steps, by subject, with one JVM for all tools."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.name = script.name
        self.at = ("--bootstrap-server", script.bootstrap)
        self.folder = Path(tempfile.mkdtemp(prefix="kordon-tools-"))
        log = self.folder / "log4j2.properties"
        log.write_text(QUIET)
        command = [
            need("java"), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            f"-Dlog4j2.configurationFile={log}", *java_program(LAUNCHER, tools_dir(kafka_version())),
        ]  # fmt: skip
        self.jvm = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tool(self, name: str, *arguments: str, stdin: str = "") -> dict[str, object]:
        """Runs a tool; returns its exit code and the lines it wrote."""
        assert self.jvm.stdin is not None
        assert self.jvm.stdout is not None
        fields = [tool_class(name, kafka_version()), stdin, *arguments]
        self.jvm.stdin.write(" ".join("=" + base64.b64encode(field.encode()).decode() for field in fields) + "\n")
        self.jvm.stdin.flush()
        code, _, written = self.jvm.stdout.readline().partition(" ")
        lines = base64.b64decode(written).decode().splitlines()
        return {"exit": int(code), "lines": [settled(line) for line in lines if line.strip()]}

    def step(self, what: str, name: str, *arguments: str, stdin: str = "", mine: bool = False) -> None:
        """Runs a tool as a step.

        Args:
            what: The step's name.
            name: The tool.
            arguments: Its arguments; the bootstrap address is added.
            stdin: What it reads.
            mine: Keep only the lines with names of this run.
        """

        def run() -> dict[str, object]:
            first = arguments[:1] if name == "kafka-cluster" else ()
            found = self.tool(name, *first, *self.at, *arguments[len(first) :], stdin=stdin)
            if mine:
                found["lines"] = sorted(line for line in map(settled, lines_of(found)) if self.script.prefix in line)
            return found

        self.script.step(f"{name} {what}", run)

    def run(self) -> None:
        try:
            self.topics()
            self.configs()
            self.acls()
            self.produce()
            self.transactions()
            self.groups()
            self.share_groups()
            self.listings()
        finally:
            assert self.jvm.stdin is not None
            self.jvm.stdin.close()
            self.jvm.wait(10)

    def create(self, what: str, partitions: int = 1, config: dict[str, str] | None = None) -> str:
        """Creates a topic and waits until it can be used."""
        topic = self.name(what)
        configs = [part for key, value in (KEEP | (config or {})).items() for part in ("--config", f"{key}={value}")]
        self.tool("kafka-topics", *self.at, "--create", "--topic", topic, "--partitions", str(partitions), *configs)
        wait_until(topic, lambda: self.tool("kafka-get-offsets", *self.at, "--topic", topic)["exit"] == 0)
        return topic

    def topics(self) -> None:
        topic = self.name("made")
        create = ("--create", "--topic", topic, "--partitions", "2")
        self.step("create", "kafka-topics", *create, "--config", "retention.ms=-1")
        wait_until(topic, lambda: self.tool("kafka-get-offsets", *self.at, "--topic", topic)["exit"] == 0)
        self.step("create again", "kafka-topics", *create)
        self.step("create if not there", "kafka-topics", *create, "--if-not-exists")
        self.step("invalid config", "kafka-topics", "--create", "--topic", self.name("x"), "--config", "no.such=1")
        self.step(
            "too many replicas", "kafka-topics", "--create", "--topic", self.name("z"), "--replication-factor", "9"
        )
        self.step("grow", "kafka-topics", "--alter", "--topic", topic, "--partitions", "3")
        self.step("shrink", "kafka-topics", "--alter", "--topic", topic, "--partitions", "1")
        self.step("describe", "kafka-topics", "--describe", "--topic", topic)
        self.step("describe unknown", "kafka-topics", "--describe", "--topic", self.name("nowhere"))
        self.step("list", "kafka-topics", "--list", mine=True)
        gone = self.create("gone")
        self.step("delete", "kafka-topics", "--delete", "--topic", gone)
        self.step("delete unknown", "kafka-topics", "--delete", "--topic", self.name("nowhere"))

    def configs(self) -> None:
        """Changes and reads configs of topics, brokers, clients and groups."""
        topic = self.create("config")
        of_topic = ("--entity-type", "topics", "--entity-name", topic)
        self.step("alter", "kafka-configs", "--alter", *of_topic, "--add-config", "max.message.bytes=2000")
        self.step("alter to nonsense", "kafka-configs", "--alter", *of_topic, "--add-config", "max.message.bytes=many")
        wait_until("the config", lambda: "=2000" in str(self.tool("kafka-configs", *self.at, "--describe", *of_topic)))
        self.step("describe", "kafka-configs", "--describe", *of_topic, "--all")
        self.step("remove", "kafka-configs", "--alter", *of_topic, "--delete-config", "max.message.bytes")
        unknown = ("--entity-type", "topics", "--entity-name", self.name("nowhere"))
        self.step("describe unknown", "kafka-configs", "--describe", *unknown)
        self.step(
            "describe broker", "kafka-configs", "--describe", "--entity-type", "brokers", "--entity-name", "1", "--all"
        )
        quota = ("--entity-type", "clients", "--entity-name", self.name("client"))
        self.step("quota", "kafka-configs", "--alter", *quota, "--add-config", "producer_byte_rate=1048576")
        self.step("describe quota", "kafka-configs", "--describe", *quota)
        group = ("--entity-type", "groups", "--entity-name", self.name("share"))
        self.step("group", "kafka-configs", "--alter", *group, "--add-config", "share.auto.offset.reset=earliest")
        self.step("describe group", "kafka-configs", "--describe", *group)

    def acls(self) -> None:
        rule = ("--allow-principal", "User:somebody", "--operation", "Read", "--topic", self.name("acl"))
        self.step("add", "kafka-acls", "--add", *rule)
        self.step("list", "kafka-acls", "--list", "--topic", self.name("acl"))
        self.step("remove", "kafka-acls", "--remove", "--force", *rule)

    def produce(self) -> None:
        """Writes with each codec and each acks, and reads all of it."""
        topic = self.create("codecs")
        for codec in CODECS:
            for acks in ("1", "0", "all"):
                text = "".join(f"key-{n}:{codec} {acks} {n} {'x' * 50 * n}\n" for n in range(3))
                wanted = (f"acks={acks}", f"enable.idempotence={str(acks == 'all').lower()}")
                settings = [part for each in wanted for part in ("--producer-property", each)]
                options = ("--topic", topic, "--compression-codec", codec, "--timeout", "20",
                           "--property", "parse.key=true")  # fmt: skip
                self.step(f"{codec} acks={acks}", "kafka-console-producer", *options, "--property", "key.separator=:",
                          *settings, "--sync", stdin=text)  # fmt: skip
        self.step("read codecs", "kafka-console-consumer", *self.reading(topic, 45))
        once = self.create("once")
        small = self.create("small", config={"max.message.bytes": "500"})
        self.step("message too large", "kafka-console-producer", "--topic", small, "--sync", stdin="x" * 5000 + "\n")
        unknown = ("--topic", self.name("nowhere"), "--sync", "--producer-property", "max.block.ms=2000")
        self.step("unknown topic", "kafka-console-producer", *unknown, stdin="x\n")
        self.step("perf", "kafka-producer-perf-test", "--topic", once, "--num-records", "1000", "--record-size", "100",
                  "--throughput", "-1")  # fmt: skip
        self.step("perf", "kafka-consumer-perf-test", "--topic", once, "--num-records", "1000", "--hide-header",
                  "--group", self.name("perf"))  # fmt: skip

    def reading(self, topic: str, count: int, *more: str) -> Sequence[str]:
        """Returns a console consumer's arguments that show all there is of a record."""
        shown = [f"print.{what}=true" for what in ("partition", "offset", "key", "headers")]
        settings = [part for what in shown for part in ("--property", what)]
        return ("--topic", topic, "--from-beginning", "--max-messages", str(count), "--timeout-ms", "100000",
                *settings,
                *(more or ("--group", self.name("read"))))  # fmt: skip

    def transactions(self) -> None:
        """Writes in transactions and looks at them."""
        topic = self.create("tx")
        self.step("transactional", "kafka-producer-perf-test", "--topic", topic, "--num-records", "40",
                  "--record-size", "10", "--throughput", "-1", "--transactional-id", self.name("tx"),
                  "--transaction-duration-ms", "60000")  # fmt: skip
        group = ("--isolation-level", "read_committed", "--group", self.name("tx-read"))
        self.step("read committed", "kafka-console-consumer", *self.reading(topic, 40, *group))
        self.step("list", "kafka-transactions", "list", mine=True)
        self.step("describe", "kafka-transactions", "describe", "--transactional-id", self.name("tx"), mine=True)
        self.step("describe unknown", "kafka-transactions", "describe", "--transactional-id", self.name("nobody"))
        self.step("find hanging", "kafka-transactions", "find-hanging", "--broker-id", "1", mine=True)

    def groups(self) -> None:
        """Reads as a classic and as a KIP-848 group, and administers both."""
        topic = self.create("grouped", 2)
        # Its keys repeat, so that a partition gets the same records in every run; it reports from its own thread.
        self.tool(
            "kafka-verifiable-producer", *self.at, "--topic", topic, "--max-messages", "20", "--repeating-keys", "5"
        )
        for protocol in ("classic", "consumer"):
            group = self.name(protocol)
            member = ("--group", group, "--consumer-property", f"group.protocol={protocol}")
            # Two partitions come in any order, and the tool stops at a number of records: read all, compare as a set.
            self.script.step(f"{protocol} group: read", self.sorted_lines, topic, member)
            self.step(f"{protocol}: describe", "kafka-consumer-groups", "--describe", "--group", group, mine=True)
            self.step(
                f"{protocol}: state", "kafka-consumer-groups", "--describe", "--group", group, "--state", mine=True
            )
            self.step(f"{protocol}: members", "kafka-consumer-groups", "--describe", "--group", group, "--members")
            self.step(f"{protocol}: reset", "kafka-consumer-groups", "--reset-offsets", "--group", group,
                      "--topic", topic, "--to-earliest", "--execute", mine=True)  # fmt: skip
            self.step(f"{protocol}: delete offsets", "kafka-consumer-groups", "--delete-offsets", "--group", group,
                      "--topic", topic, mine=True)  # fmt: skip
        self.step("delete", "kafka-consumer-groups", "--delete", "--group", self.name("classic"))
        self.step("delete unknown", "kafka-consumer-groups", "--delete", "--group", self.name("nobody"))
        self.step("describe unknown", "kafka-consumer-groups", "--describe", "--group", self.name("nobody"))
        self.step("list", "kafka-consumer-groups", "--list", "--state", mine=True)

    def sorted_lines(self, topic: str, member: Sequence[str]) -> object:
        found = self.tool("kafka-console-consumer", *self.at, *self.reading(topic, 20, *member))
        return sorted(lines_of(found))

    def share_groups(self) -> None:
        """Reads as a share group, whose config was set to begin at the earliest record."""
        topic, group = self.name("once"), self.name("share")
        ends = ("--max-messages", "1000", "--timeout-ms", "100000", "--topic", topic, "--group", group)
        # Share groups promise no order, and random payloads differ in each run: count.
        self.script.step("kafka-console-share-consumer read", lambda: len(self.read_shared(ends)))
        self.step("describe", "kafka-share-groups", "--describe", "--group", group, mine=True)
        self.step("state", "kafka-share-groups", "--describe", "--group", group, "--state", mine=True)
        self.step("members", "kafka-share-groups", "--describe", "--group", group, "--members", mine=True)
        self.step("reset", "kafka-share-groups", "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest",
                  "--execute", mine=True)  # fmt: skip
        self.step(
            "delete offsets", "kafka-share-groups", "--delete-offsets", "--group", group, "--topic", topic, mine=True
        )
        self.step("list", "kafka-share-groups", "--list", mine=True)
        self.step("delete", "kafka-share-groups", "--delete", "--group", group, mine=True)
        self.step("describe unknown", "kafka-share-groups", "--describe", "--group", self.name("nobody"))

    def read_shared(self, ends: Sequence[str]) -> list[str]:
        """Reads a topic as a share group."""
        return lines_of(self.tool("kafka-console-share-consumer", *self.at, *ends))

    def listings(self) -> None:
        topic = self.name("codecs")
        for what in ("earliest", "latest", "max-timestamp"):
            self.step(what, "kafka-get-offsets", "--topic", topic, "--time", what)
        self.step("unknown", "kafka-get-offsets", "--topic", self.name("nowhere"))
        plan = self.folder / "delete.json"
        plan.write_text(f'{{"version":1,"partitions":[{{"topic":"{topic}","partition":0,"offset":3}}]}}')
        self.step("delete", "kafka-delete-records", "--offset-json-file", str(plan))
        self.step("list", "kafka-groups", "--list", mine=True)
        self.step("describe", "kafka-log-dirs", "--describe", "--topic-list", topic)
        self.step(
            "producers", "kafka-transactions", "describe-producers", "--topic", self.name("tx"), "--partition", "0"
        )
        self.step("status", "kafka-metadata-quorum", "describe", "--status")
        self.step("replication", "kafka-metadata-quorum", "describe", "--replication")
        self.step("id", "kafka-cluster", "cluster-id")
        self.step("endpoints", "kafka-cluster", "list-endpoints")
        self.step("describe", "kafka-features", "describe")
        self.step(
            "preferred", "kafka-leader-election", "--election-type", "preferred", "--topic", topic, "--partition", "0"
        )
        self.step("list", "kafka-reassign-partitions", "--list")
        self.step("list", CLIENT_METRICS, "--list")
        self.step("list", "kafka-streams-groups", "--list", mine=True)
        self.step("describe", "kafka-delegation-tokens", "--describe")


if __name__ == "__main__":
    JavaTools(Script.from_arguments()).run()
