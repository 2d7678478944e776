"""`python -m kordon.testing.order.soak`: transactions of all clients at once, while everything around them is killed.

Writers, proxies and, of three, brokers are killed in turns, and the topic is resized within open transactions. Then the
histories are checked and the auditor judges the same topic. The last line of the output is the result.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import cycle, pairwise
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient  # pyright: ignore[reportPrivateImportUsage]

from kordon.testing import short_leases
from kordon.testing.cluster import Broker, Cluster
from kordon.testing.jars import VERSIONS
from kordon.testing.managed_clients import VIRTUAL_PARTITIONS, create_managed, resize
from kordon.testing.order.history import Begun, Over, writes
from kordon.testing.order.transact import TRANSACTIONS_A_LIFE
from kordon.testing.order.transactional import CLIENTS, Outcome, Plan, Run
from kordon.testing.order.ways import TRANSACTIONS
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.proxy_process import ProxyProcess

GROWTH: Final = (6, 12, 4)
"""Again and again, from 3 partitions on."""
HURTS: Final = ("coordinator-kill", "leader-kill", "coordinator-stop", "leader-stop")
"""What can happen to a broker: who it is, and by what."""
_AWAY_SECONDS: Final = 10.0
"""For which a broker is stopped, or stays killed."""
_PROXY_AWAY_SECONDS: Final = 3.0
_FIND_COORDINATOR: Final = (10, 1)
_OF_TRANSACTIONS: Final = 1
_TICK_SECONDS: Final = 0.2
_CHANGE_SECONDS: Final = 300.0
"""A change may wait for transactions whose writers were killed; librdkafka waits 60 s for its answer."""


@dataclass(frozen=True, kw_only=True)
class Soak:
    """What is done, for how long; 0 seconds: never."""

    version: str = VERSIONS["4.3"]
    brokers: int = 1
    clients: Sequence[str] = CLIENTS
    seconds: float = 600.0
    seed: int = 1
    writers_every: float = 20.0
    proxies_every: float = 60.0
    changes_every: float = 40.0
    hurts_every: float = 0.0
    """What brokers suffer, one of `HURTS` after the other."""
    task: Mapping[str, int] = field(default_factory=lambda: {"pause_ms": 100, "held_percent": 15, "held_ms": 1500})


@dataclass(slots=True)
class Told:
    """What was done."""

    counts: Counter[str] = field(default_factory=Counter[str])
    asked_again: int = 0
    """Changes whose client got no answer, or a refusal."""
    change_seconds: list[float] = field(default_factory=list[float])
    problems: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class _Turn:
    every: float
    do: Callable[[], None]
    due: float


@dataclass(slots=True)
class _Change:
    begun: float
    partitions: int
    answer: Future[None]


class Trouble:
    """Makes what happens around clients at work."""

    def __init__(self, soak: Soak, cluster: Cluster, proxies: Sequence[ProxyProcess], topic: str, run: Run) -> None:
        self.told = Told()
        self._soak = soak
        self._cluster = cluster
        self._topic = topic
        self._run = run
        self._first = proxies[0]
        self._admin = AdminClient({"bootstrap.servers": proxies[0].bootstrap})
        self._counts = cycle(GROWTH)
        self._hurts = cycle(HURTS)
        # aiokafka begins at the first one, and goes nowhere else
        self._proxies = cycle(proxies[1:] if "aiokafka" in soak.clients else reversed(proxies))
        self._change: _Change | None = None
        self._later: list[tuple[float, Callable[[], None]]] = []

    def make(self) -> None:
        """Makes it for as long as the soak says, then puts all right again."""
        soak, begun = self._soak, time.monotonic()
        turns = [
            _Turn(every, do, begun + every * first)
            for every, do, first in (
                (soak.writers_every, self._kill_writers, 1.0),
                (soak.proxies_every, self._kill_proxy, 0.5),
                (soak.changes_every, self._begin_change, 0.1),
                (soak.hurts_every, self._hurt, 0.3),
            )
            if every
        ]
        while (now := time.monotonic()) < begun + soak.seconds:
            for turn in turns:
                if turn.due <= now:
                    turn.due += turn.every
                    turn.do()
            self._look()
            time.sleep(_TICK_SECONDS)
        while self._later or self._change is not None:
            self._look()
            time.sleep(_TICK_SECONDS)

    def _look(self) -> None:
        now = time.monotonic()
        due = [do for when, do in self._later if when <= now]
        self._later = [each for each in self._later if each[0] > now]
        for do in due:
            do()
        if self._change is not None and self._is_over(self._change):
            self.told.change_seconds.append(now - self._change.begun)
            self._change = None

    def _is_over(self, change: _Change) -> bool:
        """Says whether it is done, or has failed; who got no answer asks again, as an operator would."""
        if not change.answer.done():
            return False
        error = change.answer.exception()
        if error is None or self._count() == change.partitions:
            return True
        if time.monotonic() > change.begun + _CHANGE_SECONDS:
            self.told.problems.append(f"a change to {change.partitions} partitions did not come about: {error}")
            return True
        self.told.asked_again += 1
        change.answer = resize(self._admin, self._topic, change.partitions)
        return False

    def _count(self) -> int | None:
        """Returns how many partitions its topic has at the brokers; None: nobody says so now."""
        try:
            epochs = self._first.topic(self._topic)["epochs"]
        except OSError:
            return None
        return int(epochs[-1]["undeleted_partition_count"])

    def _kill_writers(self) -> None:
        self.told.counts["writers"] += self._run.kill_writers()

    def _kill_proxy(self) -> None:
        proxy = next(self._proxies)
        self.told.counts["proxies"] += 1
        self.told.counts["leading proxies"] += proxy.leads()
        proxy.kill()
        self._after(_PROXY_AWAY_SECONDS, lambda: proxy.start_again(wait_ready=False))

    def _begin_change(self) -> None:
        if self._change is None:
            count = next(self._counts)
            self.told.counts["changes"] += 1
            self._change = _Change(time.monotonic(), count, resize(self._admin, self._topic, count))

    def _hurt(self) -> None:
        try:
            asked = {"coordinator": self._coordinator(), "leader": self._leader()}
        except (OSError, EOFError):  # the one that was killed before does not listen yet
            self._after(1.0, self._hurt)
            return
        hurt = next(self._hurts)
        who, how = hurt.split("-")
        broker = self._broker(asked[who])
        self.told.counts[f"brokers {hurt}"] += 1
        if how == "kill":
            broker.kill()
            self._after(_AWAY_SECONDS, lambda: broker.start(wait=False))
        else:
            broker.pause()
            self._after(_AWAY_SECONDS, broker.resume)

    def _after(self, seconds: float, do: Callable[[], None]) -> None:
        self._later.append((time.monotonic() + seconds, do))

    def _broker(self, node_id: int) -> Broker:
        return next(each for each in self._cluster.brokers if each.node_id == node_id)

    def _leader(self) -> int:
        return self._cluster.leader(self._topic, 0) or 1

    def _coordinator(self) -> int:
        asked = {"key": self._soak.clients[0], "key_type": _OF_TRANSACTIONS}
        with PlainConnection(self._cluster.bootstrap().split(",")[0]) as connection:
            return int(connection.ask(*_FIND_COORDINATOR, asked).node_id)


@dataclass(frozen=True, slots=True)
class Result:
    """What came of it."""

    soak: Soak
    told: Told
    outcome: Outcome
    longest: Mapping[str, float]
    """By client the longest time in seconds in which one life of its writer ended no transaction."""
    audited: str

    @property
    def passed(self) -> bool:
        return not self.told.problems and self.outcome.told == ""

    def line(self) -> str:
        """Returns it in one line."""
        outcomes = self.outcome.checked.outcomes
        of_each = ", ".join(
            f"{name} {'/'.join(str(outcomes[name, each]) for each in ('committed', 'aborted', 'unknown'))}"
            f" (pause {self.longest.get(name, 0):.1f} s)"
            for name in self.soak.clients
        )
        counts, changes, again = self.told.counts, self.told.change_seconds, self.told.asked_again
        kills = ", ".join(f"{count} {what}" for what, count in counts.items() if what != "changes")
        anomalies = dict(self.outcome.checked.verdict.findings.counts)
        plan = self.soak
        return (
            f"Kafka {plan.version}, {plan.brokers} broker(s), seed {plan.seed}, {plan.seconds:.0f} s:"
            f" by client committed/aborted/unknown {of_each}; killed: {kills}; {len(changes)} changes"
            f" ({again} asked for again), the longest {max(changes, default=0):.1f} s;"
            f" anomalies {sum(anomalies.values())}; audit: {self.audited}"
        )


def longest_waits(folder: Path) -> dict[str, float]:
    """Returns by producer the longest time in seconds in which one of its lives ended no transaction."""
    lives: dict[tuple[str, int], list[int]] = defaultdict(list)
    for producer, event in writes(folder):
        if not isinstance(event, Begun | Over):
            continue
        times = lives[producer, event.transaction // TRANSACTIONS_A_LIFE]
        if isinstance(event, Over) or not times:
            times.append(event.time_us)
    longest: dict[str, float] = defaultdict(float)
    for (producer, _), times in lives.items():
        longest[producer] = max(longest[producer], *((b - a) / 1e6 for a, b in pairwise(times)), 0.0)
    return longest


def soak(plan: Soak, audit: Path | None = None) -> Result:
    """Runs a soak.

    Args:
        plan: What is done.
        audit: A folder for the auditor, which judges the topic at the end; None: there is no audit.

    Raises:
        ProgramFailed: A client did not get to work.
    """
    config = {**TRANSACTIONS, "decisions": {"to": "topic"}}
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster.start(plan.brokers, version=plan.version, on_disk=True))
        proxies = [
            stack.enter_context(ProxyProcess.start(cluster.bootstrap(), config=config, program=short_leases.PROGRAM))
            for _ in range(2)
        ]
        topic = f"soak-{time.time_ns()}"
        prepared = stack.enter_context(Run(_plan_of(plan, topic, [each.bootstrap for each in proxies])))
        copies = {"replicas": 3, "configs": {"min.insync.replicas": "2"}} if plan.brokers > 1 else {}
        create_managed(proxies[0].bootstrap, topic, **copies)  # type: ignore[arg-type]
        trouble = Trouble(plan, cluster, proxies, topic, prepared)
        outcome = prepared.run(trouble.make)
        longest = longest_waits(outcome.folder)
        for proxy in proxies:
            proxy.stop()  # writes down its last decisions
        audited = _audited(cluster, audit) if audit else "none"
        return Result(plan, trouble.told, outcome, longest, audited)


def _plan_of(plan: Soak, topic: str, bootstraps: Sequence[str]) -> Plan:
    return Plan(
        bootstraps=bootstraps, topic=topic, partitions=VIRTUAL_PARTITIONS, writers=plan.clients, readers=plan.clients,
        transactions=5, kills=0, seed=plan.seed, task=plan.task,
    )  # fmt: skip


def _audited(cluster: Cluster, folder: Path) -> str:
    """Has the auditor judge the cluster once; returns its last line, and keeps all it says in the folder."""
    audit = [str(Path(sys.executable).with_name("kordon")), "audit"]
    out = str(folder / "audit")
    once = subprocess.run(
        [*audit, "run", "--once", "--bootstrap", cluster.bootstrap(), "--out", out],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    told = subprocess.run(
        [*audit, "report", "--from", out, "--out", str(folder / "audit.html")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    (folder / "audit.txt").write_text(f"{once.stderr}\n{once.stdout}\n{told.stdout}\n{told.stderr}")
    return f"{once.returncode}: {(once.stdout.strip() or once.stderr.strip()).splitlines()[-1]}"


def _soak_of(arguments: Sequence[str] | None) -> tuple[Soak, Path | None]:
    parser = argparse.ArgumentParser(
        prog="python -m kordon.testing.order.soak", description=__doc__, argument_default=argparse.SUPPRESS
    )
    add = parser.add_argument
    add("--kafka", dest="version", type=lambda short: VERSIONS.get(short, short), help="4.4, 4.3 (default), 3.9")
    add("--brokers", type=int, choices=(1, 3))
    add("--clients", type=lambda text: tuple(text.split(",")), help=f"of {','.join(CLIENTS)}")
    add("--seconds", type=float)
    add("--seed", type=int)
    add("--writers-every", type=float, help="seconds between two kills of all writers; 0: none")
    add("--proxies-every", type=float, help="seconds between two kills of a proxy; 0: none")
    add("--changes-every", type=float, help="seconds between two changes; 0: none")
    add("--hurts-every", type=float, help=f"seconds between two of {', '.join(HURTS)}; 0: none")
    add("--task", type=json.loads, help='further values of each writer, as {"pause_ms": 100}')
    add("--audit", type=Path, default=None, help="folder for the auditor and its report; without it there is no audit")
    told = vars(parser.parse_args(arguments))
    audit = told.pop("audit")
    return Soak(**told), audit


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it; returns the exit code: 1 if anything is wrong."""
    plan, audit = _soak_of(arguments)
    if audit is not None:
        audit.mkdir(parents=True, exist_ok=True)
    result = soak(plan, audit)
    print(*result.told.problems, result.outcome.told, sep="\n")
    print(*(f"{who}: {kind} {error} {count}" for (who, kind, error), count in result.outcome.checked.troubles.items()))
    if not result.passed:
        print(result.outcome.folder)
    print(result.line())
    return 0 if result.passed else 1


if __name__ == "__main__":
    sys.exit(main())
