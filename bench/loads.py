"""Runs a load through one contender and reads what the tools say about it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from kordon.bench.plan import Client, Sdk, Throughput

Tool = Callable[..., "subprocess.CompletedProcess[str]"]
"""Runs a tool of Kafka's by name and arguments ."""

MIB: Final = 1024 * 1024
TOOL_SECONDS: Final = 400.0
"""A tool that takes longer has failed."""
_PRODUCER: Final = ("acks=all", "batch.size=65536", "linger.ms=5")
_PRODUCED: Final = re.compile(
    r"(?P<records>\d+)(?: steady state)? records sent, [\d.,]+ records/sec \((?P<mib>[\d.,]+) MB/sec\), "
    r".*?, (?P<p50>\d+) ms 50th, (?P<p95>\d+) ms 95th, (?P<p99>\d+) ms 99th"
)


class ToolError(RuntimeError):
    """A tool ended with an error, or said nothing that can be read."""


def produce(tool: Tool, case: Throughput, bootstrap: str, topics: Sequence[str]) -> float:
    """Sends all records of a case, divided over its topics; returns MB (10^6 bytes of values) per second.

    Raises:
        ToolError: The tool failed.
    """
    if case.client is Client.LIBRDKAFKA:
        return _librdkafka("produce", case, bootstrap, topics)
    (topic,) = topics
    said = _produce_java(tool, bootstrap, topic, case.record_bytes, case.records)
    return float(said["mib"].replace(",", ".")) * MIB / 1e6


def consume(tool: Tool, case: Throughput, bootstrap: str, topics: Sequence[str]) -> float:
    """Reads all records of a case; returns MB (10^6 bytes of values) per second, without the time to join a group.

    Raises:
        ToolError: The tool failed, or read less.
    """
    if case.client is Client.LIBRDKAFKA:
        return _librdkafka("consume", case, bootstrap, topics)
    (topic,) = topics
    target = ("--bootstrap-server", bootstrap, "--topic", topic, "--group", f"bench-{topic}")
    done = tool("kafka-consumer-perf-test", *target, "--num-records", str(case.records), "--timeout", "20000")
    return read_consumed(done.stdout, case.records)


def program(name: str, *arguments: str, seconds: float = TOOL_SECONDS) -> dict[str, Any]:
    """Runs a program of the bench in a process of its own; returns what it prints last, as JSON.

    Raises:
        ToolError: It failed.
    """
    command = [sys.executable, "-m", f"kordon.bench.{name}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode:
        raise ToolError(f"{name} {' '.join(arguments)}: {done.stderr.strip()[-1000:]}")
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def load(
    direction: str, client: str, case: Throughput | Sdk, bootstrap: str, topics: Sequence[str], *, connections: int = 1
) -> dict[str, float]:
    """Runs a load of Python's clients; returns what it took (`load.Done`); raises ToolError."""
    told = ("--client", client, "--bootstrap", bootstrap, *(f"--topic={topic}" for topic in topics))
    sizes = ("--record-bytes", str(case.record_bytes), "--records", str(case.records))
    return program("load", direction, *told, *sizes, "--connections", str(connections))


def read_produced(output: str) -> dict[str, str]:
    """Finds the summary in what kafka-producer-perf-test prints: the last one, which leaves a warm-up out.

    Raises:
        ToolError: There is none.
    """
    summaries = list(_PRODUCED.finditer(output))
    if not summaries:
        raise ToolError(f"kafka-producer-perf-test printed no summary:\n{output[-2000:]}")
    return summaries[-1].groupdict()


def read_consumed(output: str, records: int) -> float:
    """Reads MB per second out of what kafka-consumer-perf-test prints: a line of names, a line of values.

    Raises:
        ToolError: There are none, or fewer records were read.
    """
    rows = [[field.strip() for field in line.split(",")] for line in output.splitlines() if line.count(",") >= 9]
    names = next((row for row in rows if "fetch.MB.sec" in row), None)
    values = [row for row in rows if row is not names]
    if names is None or not values:
        raise ToolError(f"kafka-consumer-perf-test printed no figures:\n{output[-2000:]}")
    said = dict(zip(names, values[-1], strict=True))
    if int(said["data.consumed.in.nMsg"]) < records:
        raise ToolError(f"only {said['data.consumed.in.nMsg']} of {records} records were read")
    return float(said["fetch.MB.sec"]) * MIB / 1e6


def _produce_java(
    tool: Tool,
    bootstrap: str,
    topic: str,
    record_bytes: int,
    records: int,
) -> dict[str, str]:
    sizes = ("--record-size", str(record_bytes), "--num-records", str(records), "--throughput", "-1")
    target = ("--bootstrap-server", bootstrap, "--topic", topic)
    done = tool("kafka-producer-perf-test", *target, *sizes, "--command-property", *_PRODUCER)
    return read_produced(done.stdout)


def _librdkafka(direction: str, case: Throughput, bootstrap: str, topics: Sequence[str]) -> float:
    done = load(direction, case.client.value, case, bootstrap, topics, connections=case.connections)
    return case.payload_bytes / 1e6 / done["seconds"]
