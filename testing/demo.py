"""`make demo`: real clients on real brokers, directly and through Kordon, in five parts.

Kafka alone breaks the order of keys when a topic grows; clients cannot tell Kordon from a broker; the SDK moves state
with its keys; topics grow and shrink while a proxy is killed and Kafka Streams counts exactly once, and Spark audits
that; KIP-360 has a table. The first three share a broker and a Kordon. Nothing is left running.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType

import psutil
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from kordon.testing.cluster import Cluster, ClusterFailed
from kordon.testing.demo_clients import Account, Digest, librdkafka_consume, values
from kordon.testing.demo_growing import grow_and_shrink
from kordon.testing.demo_kip_360 import show_kip_360
from kordon.testing.demo_words import count_words
from kordon.testing.jars import MissingTool, jars_dir
from kordon.testing.pages.try_it import compare, told
from kordon.testing.proxy_process import ProxyFailed, ProxyProcess
from kordon.testing.socket_watch import SocketWatch

PARTITIONS = 6
RECORD_BYTES = 500
STEP_SECONDS = 120
_PROVEN = (
    "1. A topic that grew through Kordon was read in order; Kafka alone mixed the records of keys up.",
    "2. Every record came out as it went in; through Kordon, no client dialled the broker.",
    "3. Counters of the SDK handed their words over as keys moved: each word was counted once.",
    "4. While partitions came and went and a proxy died, no key lost its order and no record was lost.",
    "   Kafka Streams counted each word exactly once meanwhile, in transactions on managed topics.",
    "   Producers in a group copied each line of a file once, though three of them were killed.",
    "   The audit found nothing wrong in that, and found the promise that was broken on purpose.",
)
DIRECT, KORDON = "direct", "Kordon"


class ClientFailed(RuntimeError):  # noqa: N818 (says what happened)
    """A client ended with an error; the message has its output."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to the cluster."""

    name: str
    bootstrap: str


@dataclass(frozen=True, slots=True)
class Row:
    """What one client sent and got back, one way."""

    client: str
    way: str
    sent: Account
    taken: Account

    @property
    def whole(self) -> bool:
        """Whether all came out that went in, byte for byte, without an error."""
        same = (self.sent.records, self.sent.digest) == (self.taken.records, self.taken.digest)
        return same and not self.sent.errors and not self.taken.errors


class Demo:
    """Runs the clients and keeps their accounts."""

    def __init__(self, cluster: Cluster, progress: Progress) -> None:
        self.cluster = cluster
        self.progress = progress
        self.rows: list[Row] = []
        self.ports: set[int] = set()
        """Remote ports that clients sent through Kordon were connected to."""

    def warm_up(self, way: Way) -> None:
        """Lets the broker's JVM compile its hot paths, or else who comes first looks slow."""
        bar = self.progress.add_task("warming the broker up", total=None)
        self.create(way, "warm-up", PARTITIONS)
        told = ("--num-records", "100000", "--record-size", str(RECORD_BYTES), "--throughput", "-1")
        self.tool(way, "kafka-producer-perf-test", "--topic", "warm-up", *told)
        self.progress.remove_task(bar)

    def run(self, ways: Sequence[Way]) -> None:
        clients: dict[str, Callable[[Way, str, str], Row]] = {
            "perf tools": self.perf_tools,
            "console tools": self.console_tools,
            "librdkafka": self.python_client,
            "aiokafka": self.python_client,
        }
        bar = self.progress.add_task("", total=len(clients) * len(ways))
        for number, (name, client) in enumerate(clients.items()):
            for way in ways:
                through = "through Kordon" if way.name == KORDON else way.name
                self.progress.update(bar, description=f"{name}, {through}")
                topic = f"demo-{number}-{'kordon' if way.name == KORDON else 'direct'}"
                row = client(way, name, topic)
                self.rows.append(row)
                came = f"{row.sent.records:,} records in, {row.taken.records:,} out"
                self.progress.console.print(f"  {name}, {through}: {came}", highlight=False)
                self.progress.advance(bar)

    def create(self, way: Way, topic: str, partitions: int) -> None:
        """Creates a topic by the same way on which it is used."""
        admin = AdminClient({"bootstrap.servers": way.bootstrap})
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(STEP_SECONDS)

    def tool(self, way: Way, name: str, *arguments: str, stdin: str | None = None) -> str:
        return self.command(
            way, self.cluster.tool_command(name, "--bootstrap-server", way.bootstrap, *arguments), stdin
        )

    def command(self, way: Way, command: Sequence[str], stdin: str | None = None) -> str:
        """Runs a client with an eye on its sockets; returns what it printed; raises ClientFailed."""
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
            try:
                with SocketWatch(process.pid, interval_ms=200) as watch:
                    output, errors = process.communicate(stdin or "", timeout=STEP_SECONDS)
            except subprocess.TimeoutExpired:
                raise ClientFailed(f"{' '.join(command)} did not end in {STEP_SECONDS} s") from None
            finally:
                process.kill()
        if process.returncode:
            raise ClientFailed(f"{' '.join(command)} failed:\n{output[-1500:]}{errors[-1500:]}")
        if way.name == KORDON:
            self.ports |= watch.ports
        return output

    def perf_tools(self, way: Way, client: str, topic: str) -> Row:
        """kafka-producer-perf-test and kafka-consumer-perf-test; what they wrote is read directly for the digest."""
        count = 200_000
        self.create(way, topic, PARTITIONS)
        told = ("--num-records", str(count), "--record-size", str(RECORD_BYTES), "--throughput", "-1")
        began = time.monotonic()
        output = self.tool(way, "kafka-producer-perf-test", "--topic", topic, *told)
        rate = re.findall(r"([\d.]+) records/sec", output)
        sent_seconds = count / float(rate[-1]) if rate else time.monotonic() - began
        read = ("--topic", topic, "--num-records", str(count), "--timeout", "30000")
        fields = self.tool(way, "kafka-consumer-perf-test", *read, "--hide-header").strip().splitlines()[-1].split(", ")
        # start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, …
        stored = librdkafka_consume(self.cluster.bootstrap(), topic, count, RECORD_BYTES)
        taken = Account(int(fields[4]), stored.size_bytes, stored.digest, float(fields[7]) / 1000)
        return Row(client, way.name, Account(count, count * RECORD_BYTES, stored.digest, sent_seconds), taken)

    def console_tools(self, way: Way, client: str, topic: str) -> Row:
        """kafka-console-producer and kafka-console-consumer, lines in and lines out."""
        count = 20_000
        self.create(way, topic, 1)
        lines = [value.decode() for value in values(count, 100)]
        began = time.monotonic()
        self.tool(way, "kafka-console-producer", "--topic", topic, stdin="".join(f"{line}\n" for line in lines))
        sent = _account(lines, time.monotonic() - began)
        began = time.monotonic()
        read = ("--topic", topic, "--from-beginning", "--max-messages", str(count), "--timeout-ms", "30000")
        output = self.tool(way, "kafka-console-consumer", *read)
        return Row(client, way.name, sent, _account(output.splitlines(), time.monotonic() - began))

    def python_client(self, way: Way, client: str, topic: str) -> Row:
        """Librdkafka or aiokafka, each in a process of its own."""
        self.create(way, topic, PARTITIONS)
        count = 200_000 if client == "librdkafka" else 30_000
        told = [way.bootstrap, topic, str(count), str(RECORD_BYTES)]
        module = [sys.executable, "-m", "kordon.testing.demo_clients", client]
        sent, taken = (
            Account(**json.loads(self.command(way, [*module, verb, *told]).splitlines()[-1]))
            for verb in ("produce", "consume")
        )
        return Row(client, way.name, sent, taken)


def _account(lines: Sequence[str], seconds: float) -> Account:
    digest = Digest()
    for line in lines:
        digest.add(line.encode())
    return digest.account(seconds)


def table(rows: Sequence[Row]) -> Table:
    """Draws what went in and what came out, within the 80 columns of a plain terminal."""
    drawn = Table(title="What went in and what came out", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("client", "way"):
        drawn.add_column(name, no_wrap=True)
    for name in ("records\nin", "records\nout", "MB\nout", "MB/s\nin", "MB/s\nout", "err"):
        drawn.add_column(name, justify="right", no_wrap=True)
    drawn.add_column("digest\nout", no_wrap=True)
    drawn.add_column("ok", no_wrap=True)
    for row in rows:
        both = (row.sent, row.taken)
        drawn.add_row(
            row.client,
            row.way,
            *(f"{each.records:,}" for each in both),
            f"{row.taken.size_bytes / 1e6:.0f}",
            *(f"{each.size_bytes / 1e6 / max(each.seconds, 1e-3):.0f}" for each in both),
            str(row.sent.errors + row.taken.errors),
            row.taken.digest[:6],
            "[green]yes[/]" if row.whole else "[red]NO[/]",
            end_section=row.way == KORDON,
        )
    return drawn


def verdict(rows: Sequence[Row], dialled: set[int], broker_ports: set[int]) -> list[str]:
    """Returns what is wrong, as sentences; nothing when all is well."""
    wrong = [f"{row.client}, {row.way}: not all came out as it went in" for row in rows if not row.whole]
    by_client: dict[str, set[str]] = {}
    for row in rows:
        by_client.setdefault(row.client, set()).add(row.taken.digest)
    wrong += [
        f"{client}: other records through Kordon than direct" for client, seen in by_client.items() if len(seen) > 1
    ]
    wrong += [f"a client went past Kordon to the broker's port {port}" for port in sorted(dialled & broker_ports)]
    return wrong


def _part(console: Console, number: int, title: str, text: str) -> None:
    """Says what comes next."""
    console.print()
    console.rule(f"{number} of 5: {title}", align="left")
    console.print(f"{text}\n", highlight=False)


def demonstrate(console: Console) -> list[str]:
    with told(console, "Kafka's jars (Maven fetches them the first time)"):
        jars_dir()
    wrong = _through_one_kordon(console)
    _part(
        console,
        4,
        "a topic grows and shrinks, a proxy dies",
        "For 40 s stock clients write and groups read a topic of 12 virtual partitions. Meanwhile it goes from 3"
        " partitions to 6 and back to 3, one of two proxies is killed, and members of the groups come and go. Kafka"
        " Streams counts words from a second topic into a third (exactly_once_v2), and producers in a group (KIP-509)"
        " copy a file into a fourth, which change likewise; three times the one that copies is killed. Then Spark"
        " audits what was decided and what the brokers hold.",
    )
    wrong += grow_and_shrink(console, audited=True)
    _part(
        console,
        5,
        "epochs of transactional producers (KIP-360)",
        "Not run here: this is the table of docs/kip-360.md, which tests hold against these brokers and Kordon.",
    )
    show_kip_360(console)
    left = psutil.Process().children(recursive=True)
    return wrong + [f"still running: {process}" for process in left]


def _through_one_kordon(console: Console) -> list[str]:
    """Shows what asks for one broker and one Kordon, which are started once."""
    with told(console, "starting a Kafka broker"):
        cluster = Cluster.start(config={"authorizer.class.name": ""})
    with cluster:
        with told(console, "starting Kordon in front of it"):
            kordon = ProxyProcess.start(cluster.bootstrap())
        with kordon:
            console.print(f"broker on {cluster.bootstrap()}, Kordon on {kordon.bootstrap}", highlight=False)
            wrong = _break_and_keep(console, cluster, kordon)
            wrong += _direct_and_through(console, cluster, kordon)
            wrong += _move_state(console, kordon)
            exit_code = kordon.stop()
        if exit_code:
            wrong.append(f"Kordon ended with exit code {exit_code}:\n{kordon.log()[-2000:]}")
    return wrong


def _break_and_keep(console: Console, cluster: Cluster, kordon: ProxyProcess) -> list[str]:
    """Shows what Kordon is for."""
    _part(
        console,
        1,
        "Kafka alone breaks the order of keys",
        "A topic grows from 3 partitions to 6 before its readers have read it: once on Kafka alone, once through"
        " Kordon. A record is out of order if a later one of its key was processed before it.",
    )
    kept = compare(console, cluster.bootstrap(), kordon.bootstrap)
    return [] if kept.holds else ["through Kordon, the order of a key was broken, or a record was lost or doubled"]


def _direct_and_through(console: Console, cluster: Cluster, kordon: ProxyProcess) -> list[str]:
    """Lets clients of four kinds write and read the same both ways."""
    _part(
        console,
        2,
        "clients cannot tell the difference",
        "Kafka's tools, librdkafka and aiokafka write and read the same records directly and through Kordon. `digest`"
        " is a checksum of all that was read.",
    )
    shown = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    ways = [Way(DIRECT, cluster.bootstrap()), Way(KORDON, kordon.bootstrap)]
    with Progress(*shown, console=console, transient=True) as progress:
        demo = Demo(cluster, progress)
        demo.warm_up(ways[0])
        demo.run(ways)
    console.print(table(demo.rows))
    return verdict(demo.rows, demo.ports, {broker.port() for broker in cluster.brokers})


def _move_state(console: Console, kordon: ProxyProcess) -> list[str]:
    """Shows what applications with state get from the SDK."""
    _part(
        console,
        3,
        "state that moves with its keys",
        "Three counters of words keep their counts in memory. The SDK tells them when keys move from one to another.",
    )
    return count_words(console, kordon.bootstrap)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Runs the demo; returns the exit code: 0 when all came out as it went in, both ways."""
    console = Console()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        wrong = demonstrate(console)
    except KeyboardInterrupt:
        console.print("stopped; the broker and Kordon are gone")
        return 130
    except MissingTool as error:
        console.print(f"[red]{error}[/]", highlight=False)
        return 2
    except (ClusterFailed, ProxyFailed, ClientFailed, RuntimeError) as error:
        console.print(str(error), markup=False, highlight=False)
        return 1
    for sentence in wrong:
        console.print(sentence, style="red", markup=False)
    if not wrong:
        console.print()
        for sentence in _PROVEN:
            console.print(sentence, highlight=False)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
