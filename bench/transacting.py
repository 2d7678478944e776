"""What transactions cost one producer: directly, through Kordon, and on a managed topic with them and without."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kordon.bench import loads, results
from kordon.bench.contenders import Contender, watched
from kordon.bench.plan import Client, Transacting
from kordon.bench.results import Measurement
from kordon.bench.topics import Topics
from kordon.testing.jars import jars_dir, kafka_version
from kordon.testing.java_process import DIES_WITH_PARENT, java_command
from kordon.testing.java_programs import java_program
from kordon.testing.proxy_process import ProxyProcess

_JAVA: Final = Path(__file__).parent / "java" / "TransactLoad.java"


@dataclass(frozen=True)
class Way:
    """One way to a topic.

    Attributes:
        is_plain: Without transactions.
    """

    contender: Contender
    topics: Topics
    is_plain: bool = False


@contextmanager
def ways(contenders: Sequence[Contender], topics: Topics, bootstrap: str) -> Generator[list[Way]]:
    """Yields all ways, in the order of their first turns.

    Args:
        contenders: Those that have ordinary topics, the broker first.
        topics: Makes ordinary ones.
        bootstrap: host:port of the broker, to which a Kordon goes that takes transactions on managed topics.
    """
    with ProxyProcess.start(bootstrap=bootstrap, config={"ordering": {"transactions": True}}) as kordon:
        managed = Topics(kordon.bootstrap, managed=True)

        def named(name: str) -> Contender:
            return Contender(name, kordon.bootstrap, kordon.pid, kordon.metrics)

        yield [
            *(Way(each, topics) for each in contenders if each.name in {results.DIRECT, results.KORDON}),
            Way(named(results.MANAGED), managed),
            Way(named(results.PLAIN), managed, is_plain=True),
        ]


def measure_transactions(
    case: Transacting, rounds: int, turns: Sequence[Way], new_topic: Callable[[], str], tell: Callable[..., None]
) -> Iterator[Measurement]:
    """Lets each way have its turn in each round; whoever began goes last in the next.

    Raises:
        ToolError: A producer failed.
    """
    order = list(turns)
    for number in range(1, rounds + 1):
        for way in order:
            tell(case.name, way.contender.name, number)
            topic = new_topic()
            way.topics.create([topic], case.virtual_partitions)
            try:
                figures = _figures(case, way, topic)
            finally:
                way.topics.delete([topic])
            yield Measurement(case.name, way.contender.name, number, figures)
        order.append(order.pop(0))


def _figures(case: Transacting, way: Way, topic: str) -> dict[str, float]:
    with watched(way.contender) as usage:
        done = _run(case, way, topic)
    figures = {
        results.TRANSACTIONS: case.transactions / done["seconds"],
        results.P50_MS: done["p50_ms"],
        results.P99_MS: done["p99_ms"],
    }
    if way.contender.pid is not None:
        sent = case.transactions + case.warm_up
        payload_gb = sent * case.per_transaction * case.record_bytes / 1e9
        figures[results.PRODUCE_CPU] = usage.cpu_seconds / payload_gb
    return figures


def _run(case: Transacting, way: Way, topic: str) -> dict[str, Any]:
    if case.client is Client.LIBRDKAFKA:
        sizes = {"record-bytes": case.record_bytes, "per-transaction": case.per_transaction}
        sizes |= {"transactions": case.transactions, "warm-up": case.warm_up}
        told = [word for name, value in sizes.items() for word in (f"--{name}", str(value))]
        plain = ["--is-plain"] if way.is_plain else []
        return loads.program("transact", "--bootstrap", way.contender.bootstrap, "--topic", topic, *told, *plain)
    jars = jars_dir(kafka_version())
    with tempfile.TemporaryDirectory(prefix="kordon-bench-") as folder:
        begin = [word for word in java_command(jars, Path(folder), tool=True) if "TieredStopAtLevel" not in word]
        numbers = map(str, (case.record_bytes, case.per_transaction, case.transactions, case.warm_up))
        told = [way.contender.bootstrap, topic, *numbers, str(way.is_plain).lower()]
        command = [*DIES_WITH_PARENT, *begin, *java_program(_JAVA, jars), *told]
        done = subprocess.run(command, capture_output=True, text=True, timeout=loads.TOOL_SECONDS, check=False)
    if done.returncode:
        raise loads.ToolError(f"{_JAVA.stem} failed:\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said
