"""What producers in a group cost: transactions beside a bare producer's, a rebalance of many, and taking over.

A takeover is measured by the times of the records: two programs share two parts of a source that grows steadily, one is
killed, and its part is silent until the other has taken it over. Kafka Connect's worker (KIP-618) is measured so, too.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from confluent_kafka import Message

from kordon.bench import results
from kordon.bench.loads import ToolError
from kordon.bench.plan import Sources
from kordon.bench.results import Measurement
from kordon.client import OrderedProducer, SourceProducer
from kordon.testing.client_programs import connect_worker
from kordon.testing.cluster import Cluster
from kordon.testing.folders import make_folder, remove_folder
from kordon.testing.java_process import DIES_WITH_PARENT
from kordon.testing.managed_clients import create_ordinary, read_to_ends, watermarks
from kordon.testing.ports import free_ports
from kordon.testing.tails import JAVA, KIP_848, SDK, Tails
from kordon.testing.waiting import wait_until

CONNECT: Final = "Kafka Connect"
TAKEOVERS: Final = {SDK: results.SOURCE, JAVA: "Java's clients", KIP_848: "Java's clients, KIP-848", CONNECT: CONNECT}
"""Who takes over, by what it is called."""
SESSION_MS: Final = 6_000
"""The shortest that brokers take unless they are told otherwise."""
_CONFIG: Final = {
    "authorizer.class.name": "",
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",
}
_REBALANCE_SESSION_MS: Final = 30_000
"""A hundred members in one process are not to be thrown out while it is busy: how soon they hear of one another is the
heartbeat's matter."""
_HEARTBEAT_MS: Final = 500
_SECONDS: Final = 240.0
_STEADY_SECONDS: Final = 3.0
_SILENT_SECONDS: Final = 12.0
"""For which lines come after the kill."""
_PAUSE_SECONDS: Final = 0.05
_ALIVE_SECONDS: Final = 0.5
_AT_ONCE: Final = 10


def measure_sources(case: Sources, bootstrap: str, tell: Callable[..., None]) -> Iterator[Measurement]:
    """Yields what was measured."""
    for number in range(1, case.rounds + 1):
        for name in (results.BARE, results.SOURCE) if number % 2 else (results.SOURCE, results.BARE):
            tell(case.name, name, number)
            figures = asyncio.run(_transactions(case, bootstrap, in_group=name == results.SOURCE))
            yield Measurement(case.name, name, number, figures)
    tell(case.rebalance, results.SOURCE)
    yield Measurement(case.rebalance, results.SOURCE, 1, asyncio.run(_rebalance(case, bootstrap)))
    if not case.takeovers:
        return
    with Cluster.start(config=_CONFIG) as cluster:
        for number in range(1, case.takeovers + 1):
            for kind, name in TAKEOVERS.items():
                tell(case.takeover, name, number)
                measure = _connect_takes_over if kind == CONNECT else partial(_takes_over, kind)
                with _folder() as folder:
                    figures = measure(cluster.bootstrap(), folder)
                yield Measurement(case.takeover, name, number, figures)


async def _transactions(case: Sources, bootstrap: str, *, in_group: bool) -> dict[str, float]:
    """Sends transactions with the same batches, with and without restart points."""
    topic = f"bench-{uuid4().hex}"
    create_ordinary(bootstrap, topic)
    record = bytes(case.record_bytes)
    told: dict[str, Any] = {"bootstrap_servers": bootstrap, "linger_ms": 5}
    if not in_group:
        async with OrderedProducer(transactional_id=topic, **told) as bare:

            async def send_bare(number: int) -> None:
                async with bare.transaction():
                    for _ in range(case.per_transaction):
                        await bare.send(topic, record, key=b"%d" % number)

            return await _timed(case, send_bare)
    async with SourceProducer(group_id=f"{topic}-source", source_partition_count=1, **told) as source:
        await source.subscribe()

        async def send(number: int) -> None:
            async with source.transaction():
                for _ in range(case.per_transaction):
                    await source.send(topic, record, key=b"%d" % number)
                source.restart_at({0: str(number)})

        return await _timed(case, send)


async def _timed(case: Sources, send: Callable[[int], Any]) -> dict[str, float]:
    for number in range(case.warm_up):
        await send(number)
    began, cpu = time.monotonic(), time.process_time()
    for number in range(case.transactions):
        await send(number)
    seconds, cpu = time.monotonic() - began, time.process_time() - cpu
    return {results.TRANSACTIONS: case.transactions / seconds, results.CPU_MS: cpu * 1e3 / case.transactions}


async def _rebalance(case: Sources, bootstrap: str) -> dict[str, float]:
    """Has one more member join a group, all members of which are in this process."""
    group = f"bench-{uuid4().hex}"
    members = [
        SourceProducer(
            bootstrap_servers=bootstrap,
            group_id=group,
            source_partition_count=case.partitions,
            session_timeout_ms=_REBALANCE_SESSION_MS,
            heartbeat_interval_ms=_HEARTBEAT_MS,
        )
        for _ in range(case.members)
    ]
    living = asyncio.ensure_future(_live(members))
    try:
        for begin in range(0, len(members), _AT_ONCE):
            await asyncio.gather(*(each.start() for each in members[begin : begin + _AT_ONCE]))
        *first, last = members
        await first[0].subscribe()
        await asyncio.gather(*(each.subscribe() for each in first[1:]))
        await _shared_out(case.partitions, first)
        began, cpu = time.monotonic(), time.process_time()
        await last.subscribe()
        await _shared_out(case.partitions, members)
        return {
            results.REBALANCE_SECONDS: time.monotonic() - began,
            results.CPU_MS: (time.process_time() - cpu) * 1e3,
        }
    finally:
        living.cancel()
        await asyncio.gather(*(each.stop() for each in members))


async def _live(members: Sequence[SourceProducer]) -> None:
    while True:
        for each in members:
            each.alive()
        await asyncio.sleep(_ALIVE_SECONDS)


async def _shared_out(partitions: int, members: Sequence[SourceProducer]) -> None:
    """Waits until the members have all partitions, and each its share of them."""
    async with asyncio.timeout(_SECONDS):
        while True:
            shares = [len(each.points) for each in members]
            if sum(shares) == partitions and max(shares) - min(shares) <= 1:
                return
            await asyncio.sleep(0)


def _takes_over(kind: str, bootstrap: str, folder: Path) -> dict[str, float]:
    """Kills one of two programs that share two files, and looks at the lines of its file."""
    group = f"bench-{uuid4().hex}"
    create_ordinary(bootstrap, group, 2)
    create_ordinary(bootstrap, f"lines-{group}")
    tails = Tails(bootstrap, group, f"lines-{group}", folder, files=2, session_ms=SESSION_MS)
    try:
        victim = tails.start(kind)
        tails.start(kind)
        wait_until("each has a file", lambda: tails.shares() == [1, 1], _SECONDS)
        _grow(tails, _STEADY_SECONDS)
        wait_until("all lines are copied", lambda: _is_copied(tails), _SECONDS)
        wait_until("each still has a file", lambda: tails.shares() == [1, 1], _SECONDS)
        if any(each.poll() is not None for each in tails.running):
            raise ToolError(f"{TAKEOVERS[kind]}: one ended by itself:\n{tails.said.read_text()[-1500:]}")
        victim.kill()
        _grow(tails, _SILENT_SECONDS)
        wait_until("all lines are copied by the other", lambda: _is_copied(tails), _SECONDS)
    finally:
        tails.stop()
    told = {"bootstrap.servers": bootstrap, "isolation.level": "read_committed"}
    records = read_to_ends(told, tails.topic)
    pauses = [longest_pause([each for each in records if _value(each).startswith(part)]) for part in (b"0:", b"1:")]
    return {results.TAKEOVER_SECONDS: max(pauses), results.DOUBLED: doubled(records)}


def _grow(tails: Tails, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        tails.add(1)
        time.sleep(_PAUSE_SECONDS)


def _is_copied(tails: Tails) -> bool:
    return tails.copied().total() >= tails.lines.total()


def _connect_takes_over(bootstrap: str, folder: Path) -> dict[str, float]:
    """Kills the one of two workers that has the task."""
    topic, port = f"bench-{uuid4().hex}", free_ports(2)
    ports = (port, port + 1)
    create_ordinary(bootstrap, topic, 1)
    told = {"connector.class": "Numbers", "tasks.max": "1", "topic": topic, "count": "1000000"}
    workers: dict[int, subprocess.Popen[bytes]] = {}
    settings = {"bootstrap.servers": bootstrap, "isolation.level": "read_committed"}

    def read() -> list[Message]:
        return read_to_ends(settings, topic, ends={0: watermarks(bootstrap, topic, [0])[0][1]})

    try:
        for port in ports:
            home = folder / str(port)
            home.mkdir()
            command = connect_worker(home, bootstrap, port, session_ms=SESSION_MS)
            with (folder / f"{port}.log").open("wb") as log:
                workers[port] = subprocess.Popen([*DIES_WITH_PARENT, *command], stdout=log, stderr=log)
        wait_until("a worker takes the connector", lambda: _asked(ports[0], "config", told), _SECONDS)
        wait_until("something is written", read, _SECONDS)
        time.sleep(_STEADY_SECONDS)
        victim = wait_until("the task is known", lambda: _task(ports[0])["worker_id"], _SECONDS)
        workers.pop(int(victim.rpartition(":")[2])).kill()
        (survivor,) = workers

        def has_moved() -> bool:
            now = _task(survivor)
            return now["worker_id"] not in ("", victim) and now["state"] == "RUNNING"

        wait_until("the other has the task", has_moved, _SECONDS)
        before = len(read())
        wait_until("it writes", lambda: len(read()) > before, _SECONDS)
    finally:
        for each in workers.values():
            each.kill()
            each.wait()
    records = read()
    return {results.TAKEOVER_SECONDS: longest_pause(records), results.DOUBLED: doubled(records)}


def _asked(port: int, what: str, body: dict[str, str] | None = None) -> Any:
    """Asks a worker of Connect, or tells it something; None: it does not answer, or not well."""
    asked = HTTPConnection("127.0.0.1", port, timeout=30)
    sent = None if body is None else json.dumps(body)
    try:
        asked.request(
            "GET" if body is None else "PUT",
            f"/connectors/numbers/{what}",
            sent,
            {"Content-Type": "application/json"},
        )
        answer = asked.getresponse()
        return json.load(answer) if answer.status < HTTPStatus.BAD_REQUEST else None
    except OSError:
        return None
    finally:
        asked.close()


def _task(port: int) -> dict[str, str]:
    """Returns what a worker tells of the only task; nothing if it does not answer."""
    tasks: list[dict[str, str]] = (_asked(port, "status") or {}).get("tasks", [])
    return tasks[0] if tasks else {"worker_id": "", "state": ""}


def longest_pause(records: Sequence[Message]) -> float:
    """Returns the seconds between two records of one writer after another, at most."""
    times = sorted(each.timestamp()[1] for each in records)
    return max((later - earlier for earlier, later in pairwise(times)), default=0) / 1e3


def doubled(records: Sequence[Message]) -> float:
    """Returns how many records are there more than once."""
    return float(sum(count - 1 for count in Counter(map(_value, records)).values()))


def _value(record: Message) -> bytes:
    return record.value() or b""


@contextmanager
def _folder() -> Generator[Path]:
    folder = make_folder("kordon-bench-sources-")
    try:
        yield folder
    finally:
        remove_folder(folder)
