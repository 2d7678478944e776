"""Which Java class stands behind each of Kafka's scripts; the classes moved between versions."""

from __future__ import annotations

import zipfile
from functools import cache
from pathlib import Path
from typing import Final

from kordon.testing.jars import tools_dir
from kordon.testing.java_process import java_command

_TOOLS: Final = "org.apache.kafka.tools"
TOOLS: Final = {
    "kafka-acls": (f"{_TOOLS}.AclCommand", "kafka.admin.AclCommand"),
    "kafka-broker-api-versions": (f"{_TOOLS}.BrokerApiVersionsCommand", "kafka.admin.BrokerApiVersionsCommand"),
    "kafka-cluster": (f"{_TOOLS}.ClusterTool",),
    "kafka-configs": ("kafka.admin.ConfigCommand",),
    "kafka-console-consumer": (f"{_TOOLS}.consumer.ConsoleConsumer", "kafka.tools.ConsoleConsumer"),
    "kafka-console-producer": (f"{_TOOLS}.ConsoleProducer", "kafka.tools.ConsoleProducer"),
    "kafka-console-share-consumer": (f"{_TOOLS}.consumer.ConsoleShareConsumer",),
    "kafka-consumer-groups": (f"{_TOOLS}.consumer.group.ConsumerGroupCommand", "kafka.admin.ConsumerGroupCommand"),
    "kafka-consumer-perf-test": (f"{_TOOLS}.ConsumerPerformance", "kafka.tools.ConsumerPerformance"),
    "kafka-delegation-tokens": (f"{_TOOLS}.DelegationTokenCommand", "kafka.admin.DelegationTokenCommand"),
    "kafka-delete-records": (f"{_TOOLS}.DeleteRecordsCommand", "kafka.admin.DeleteRecordsCommand"),
    "kafka-dump-log": (f"{_TOOLS}.DumpLogSegments", "kafka.tools.DumpLogSegments"),
    "kafka-e2e-latency": (f"{_TOOLS}.EndToEndLatency", "kafka.tools.EndToEndLatency"),
    "kafka-features": (f"{_TOOLS}.FeatureCommand",),
    "kafka-get-offsets": (f"{_TOOLS}.GetOffsetShell", "kafka.tools.GetOffsetShell"),
    "kafka-groups": (f"{_TOOLS}.GroupsCommand",),
    "kafka-leader-election": (f"{_TOOLS}.LeaderElectionCommand", "kafka.admin.LeaderElectionCommand"),
    "kafka-log-dirs": (f"{_TOOLS}.LogDirsCommand", "kafka.admin.LogDirsCommand"),
    "kafka-metadata-quorum": (f"{_TOOLS}.MetadataQuorumCommand",),
    "kafka-producer-perf-test": (f"{_TOOLS}.ProducerPerformance",),
    "kafka-reassign-partitions": (
        f"{_TOOLS}.reassign.ReassignPartitionsCommand",
        "kafka.admin.ReassignPartitionsCommand",
    ),
    "kafka-replica-verification": (f"{_TOOLS}.ReplicaVerificationTool", "kafka.tools.ReplicaVerificationTool"),
    "kafka-share-groups": (f"{_TOOLS}.consumer.group.ShareGroupCommand",),
    "kafka-storage": ("kafka.tools.StorageTool",),
    "kafka-streams-groups": (f"{_TOOLS}.streams.StreamsGroupCommand",),
    "kafka-topics": (f"{_TOOLS}.TopicCommand", "kafka.admin.TopicCommand"),
    "kafka-transactions": (f"{_TOOLS}.TransactionsCommand",),
    "kafka-verifiable-consumer": (f"{_TOOLS}.VerifiableConsumer",),
    "kafka-verifiable-producer": (f"{_TOOLS}.VerifiableProducer",),
}
"""Java classes of each of Kafka's scripts, the newest first (4.3, 3.9, 2.4)."""


def tool_command(name: str, version: str, folder: Path) -> list[str]:
    """Returns the command line of a tool without its arguments.

    Args:
        name: As the script is called, or a class.

    Raises:
        LookupError: There is no such tool for them.
    """
    return [*java_command(tools_dir(version), folder, tool=True), tool_class(name, version)]


def tool_class(name: str, version: str) -> str:
    """Returns the class of a tool for brokers of a version.

    Args:
        name: As the script is called, or a class, which is returned as it is.

    Raises:
        LookupError: There is no such tool for them.
    """
    if name not in TOOLS:
        return name
    for candidate in TOOLS[name]:
        if candidate in _classes(version):
            return candidate
    raise LookupError(f"Kafka {version} has no {name}")


@cache
def _classes(version: str) -> frozenset[str]:
    found: set[str] = set()
    for jar in tools_dir(version).glob("kafka*.jar"):
        with zipfile.ZipFile(jar) as opened:
            found.update(name[: -len(".class")].replace("/", ".") for name in opened.namelist())
    return frozenset(found)
