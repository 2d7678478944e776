"""`make try`: a Kafka broker and two Kordons on this machine, clients at work, and a prompt to change things by hand.

It begins with the problem and its cure: a topic grows from 3 to 6 partitions before its readers have read it, once
on Kafka alone and once through Kordon. Then it is your turn: grow the topic, shrink it, kill a proxy, and look at what
the clients saw. Commands may come from a pipe: `(echo grow 6; echo kill 2; echo shrink 3) | make try`.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportPrivateImportUsage]
from rich import box
from rich.console import Console
from rich.table import Table

from kordon.testing.cluster import Cluster, ClusterFailed
from kordon.testing.jars import MissingTool, jars_dir
from kordon.testing.key_order import KeyOrder
from kordon.testing.keyed_traffic import KEYS, MEMBERS, KeyedTraffic
from kordon.testing.managed_clients import VIRTUAL_PARTITIONS, create_managed, create_ordinary, resize
from kordon.testing.proxy_process import ProxyFailed, ProxyProcess

TOPIC: Final = "orders"
GROWN: Final = 6
_BURST: Final = 6_000
"""Records that are written before the topic grows, and again after that."""
_FAST: Final = 3_000
_STEADY: Final = 400
_DEATH_SECONDS: Final = 30
"""For which a change of partitions may wait for a proxy that died: the group misses it, then its lease ends."""
_QUIET: Final = {"log_level": "0"}
HELP: Final = """\
  grow N     change the topic to N partitions, more than it has
  shrink N   change it to N partitions, fewer than it has
  kill N     kill -9 of proxy N (1 or 2)
  start N    start it again
  look       the topic as the brokers have it, and as clients see it
  ENTER      what the clients have seen so far
  quit       end the traffic, let the readers catch up, and count"""


@contextmanager
def told(console: Console, what: str) -> Generator[None]:
    """Says what is being done, and how long it took."""
    began = time.monotonic()
    with console.status(what):
        yield
    console.print(f"{what}: {time.monotonic() - began:.1f} s", highlight=False)


def grow_behind(bootstrap: str, topic: str, admin: AdminClient) -> KeyOrder:
    """Lets a topic grow from 3 to 6 partitions before its readers have read it; returns what they read then."""
    with KeyedTraffic(bootstrap, topic, _FAST) as traffic:
        traffic.wait_for(_BURST)
        resize(admin, topic, GROWN).result()
        traffic.wait_for(_BURST)
        traffic.begin_reading()
        traffic.catch_up()
        return traffic.order()


def compare(console: Console, direct: str, kordon: str) -> KeyOrder:
    """Lets a topic grow on Kafka alone, and another one through Kordon, and shows what their readers saw.

    Returns:
        What was read through Kordon.
    """
    with told(console, "Kafka alone: a topic grows, then its readers come"):
        alone = grow_behind(direct, "alone", create_ordinary(direct, "alone"))
    with told(console, "through Kordon: the same"):
        kept = grow_behind(kordon, "kept", create_managed(kordon, "kept", _QUIET))
    table = Table(box=box.SIMPLE_HEAD, title="3 → 6 partitions, then the readers come", title_style="bold")
    table.add_column("", no_wrap=True)
    for name in ("records read", "out of order", "lost", "doubled"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, order in (("Kafka alone", alone), ("through Kordon", kept)):
        cells = (order.read, order.out_of_order, order.missing, order.doubled)
        table.add_row(name, *(f"{cell:,}" for cell in cells), style="green" if order.holds else "red")
    console.print(table)
    if alone.first_breach is not None:
        breach = f"On Kafka alone, the readers processed the records of {alone.first_breach}.\n"
        console.print(breach, highlight=False, soft_wrap=True)
    return kept


def summary(order: KeyOrder, failed: int) -> str:
    """Says in a line what the clients of a topic have seen."""
    counts = f"{order.out_of_order:,} out of order, {order.doubled:,} doubled, {failed:,} failed sends"
    return f"{order.acknowledged:,} written, {order.read:,} read; {counts}"


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of a command."""

    text: str
    ends: bool = False


class Stage:
    """What the prompt's commands act on.

    Args:
        cluster: The brokers.
        proxies: Two, in front of them.
        admin: A client of both.
        traffic: At work on the topic.
    """

    def __init__(
        self, cluster: Cluster, proxies: Sequence[ProxyProcess], admin: AdminClient, traffic: KeyedTraffic
    ) -> None:
        self._cluster = cluster
        self._proxies = proxies
        self._admin = admin
        self._traffic = traffic
        self._alive = dict.fromkeys(range(1, len(proxies) + 1), True)

    def do(self, line: str) -> Reply:
        """Does what a line asks for; a line that cannot be read is answered with the commands."""
        word, *rest = line.split() or [""]
        if not word:
            return Reply(self._status())
        if word in ("quit", "exit", "q"):
            return Reply("", ends=True)
        if word == "look":
            return Reply(self._look())
        number = int(rest[0]) if len(rest) == 1 and rest[0].isdigit() else 0
        changes: dict[str, Callable[[int], str]] = {
            "grow": self._resize, "shrink": self._resize, "kill": self._kill, "start": self._start,
        }  # fmt: skip
        if word not in changes or not number:
            return Reply(HELP if word == "help" else f"{line.strip()!r} is not a command.\n{HELP}")
        return Reply(changes[word](number))

    def _status(self) -> str:
        return f"{summary(self._traffic.order(), self._traffic.failed)}\n{self._wait()}"

    def _wait(self) -> str:
        return f"the slowest acknowledgement since the last line took {self._traffic.worst_ack() * 1000:,.0f} ms"

    def _resize(self, count: int) -> str:
        self._traffic.worst_ack()
        began = time.monotonic()
        try:
            resize(self._admin, TOPIC, count).result()
        except KafkaException as error:
            return f"refused: {error.args[0].str()}"
        seconds = time.monotonic() - began
        why = " (it waited for the lease of a proxy that died)" if seconds > _DEATH_SECONDS / 2 else ""
        return f"{TOPIC} has {count} partitions after {seconds:.1f} s{why}\n{self._wait()}"

    def _kill(self, number: int) -> str:
        if not self._alive.get(number):
            return f"no proxy {number} is running"
        if sum(self._alive.values()) == 1:
            return f"proxy {number} is the last one; `start` the other first"
        self._proxies[number - 1].kill()
        self._alive[number] = False
        return (
            f"proxy {number} is dead; clients go on through the other.\n"
            f"The next change of partitions waits for its lease to end, about {_DEATH_SECONDS} s from now."
        )

    def _start(self, number: int) -> str:
        if self._alive.get(number, True):
            return f"proxy {number} is running" if number in self._alive else f"there is no proxy {number}"
        self._proxies[number - 1].start_again()
        self._alive[number] = True
        return f"proxy {number} is back on {self._proxies[number - 1].bootstrap}"

    def _look(self) -> str:
        direct = AdminClient({"bootstrap.servers": self._cluster.bootstrap(), **_QUIET})
        alive = next(each for number, each in enumerate(self._proxies, 1) if self._alive[number])
        command = ["topics", "describe", TOPIC, "--admin", alive.admin]
        described = subprocess.run(
            [sys.executable, "-m", "kordon.proxy", *command], capture_output=True, text=True, check=False
        )
        there, seen = _partitions(direct), _partitions(self._admin)
        return (
            f"The brokers have {there} partitions; clients see {seen}, whatever you do.\n"
            f"$ kordon {' '.join(command)}\n{(described.stdout + described.stderr).rstrip()}"
        )


def _partitions(admin: AdminClient) -> int:
    return len(admin.list_topics(TOPIC, 10).topics[TOPIC].partitions)


def try_it(console: Console, lines: Callable[[], str | None]) -> KeyOrder:
    """Shows the comparison, then does what is asked for until `lines` returns None or "quit"."""
    with told(console, "Kafka's jars (Maven fetches them the first time)"):
        jars_dir()
    with told(console, "starting a Kafka broker"):
        cluster = Cluster.start(config={"authorizer.class.name": ""})
    with cluster, ProxyProcess.start(cluster.bootstrap()) as first, ProxyProcess.start(cluster.bootstrap()) as second:
        both = f"{first.bootstrap},{second.bootstrap}"
        compare(console, cluster.bootstrap(), both)
        admin = create_managed(both, TOPIC, _QUIET)
        with KeyedTraffic(both, TOPIC, _STEADY) as traffic:
            traffic.begin_reading()
            traffic.wait_for(1)
            console.print(_introduction(cluster, [first, second]), highlight=False, soft_wrap=True)
            stage = Stage(cluster, [first, second], admin, traffic)
            _prompt(console, stage, lines)
            with console.status("the readers catch up"):
                traffic.catch_up()
            order = traffic.order()
            console.print(f"{summary(order, traffic.failed)}, {order.missing:,} lost", highlight=False)
            return order


def _introduction(cluster: Cluster, proxies: Sequence[ProxyProcess]) -> str:
    ways = " and ".join(each.bootstrap for each in proxies)
    return (
        f"Your turn. {TOPIC} has 3 partitions; clients see {VIRTUAL_PARTITIONS}. A stock librdkafka producer writes"
        f" {_STEADY}\nrecords a second with {KEYS} keys, and a group of {MEMBERS} reads them, through two Kordons on\n"
        f"{ways}. The broker is on {cluster.bootstrap()}; try your own clients, too.\n{HELP}"
    )


def _prompt(console: Console, stage: Stage, lines: Callable[[], str | None]) -> None:
    while (line := lines()) is not None:
        reply = stage.do(line)
        if reply.ends:
            return
        console.print(reply.text, markup=False, highlight=False, soft_wrap=True)


def _typed() -> str | None:
    try:
        line = input("try> ")
    except EOFError:
        return None
    if not sys.stdin.isatty():
        print(line)
    return line


def main() -> int:
    """Runs it; returns 0 when all was read once and in order, 1 when not, 2 when a program is missing."""
    console = Console()
    try:
        order = try_it(console, _typed)
    except KeyboardInterrupt:
        console.print("\nstopped; the broker and Kordon are gone")
        return 130
    except MissingTool as error:
        console.print(f"[red]{error}[/]", highlight=False)
        return 2
    except (ClusterFailed, ProxyFailed, KafkaException, TimeoutError) as error:
        console.print(str(error), markup=False, highlight=False)
        return 1
    return 0 if order.holds else 1


if __name__ == "__main__":
    sys.exit(main())
