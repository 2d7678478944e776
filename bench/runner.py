"""Runs a plan: every case through every contender in turn, round after round, so that a busy minute hits all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol

from kordon.bench import loads, results
from kordon.bench.contenders import Contender, watched
from kordon.bench.idle import idle_connections
from kordon.bench.plan import Latency, Memory, Part, Plan, Resizes, Throughput
from kordon.bench.resizes import measure_resizes
from kordon.bench.results import Measurement

SETTLE_SECONDS: Final = 1.0
"""Between opening connections and reading memory."""
_PARTITIONS: Final = 6
_VIRTUAL: Final = 4
"""Virtual partitions to a partition."""
_COMPARED: Final = frozenset({results.DIRECT, results.KORDON, results.MANAGED})
"""Who is measured beside managed topics."""
_READ: Final = "kordon_managed_pulled_bytes_total"
_GIVEN: Final = "kordon_managed_served_bytes_total"
Case = Throughput | Latency | Memory


class Progress(Protocol):
    """What is told while it runs."""

    def __call__(self, case: str, contender: str, round_number: int, seconds: float) -> None:
        """A run begins that takes about so many seconds."""
        ...


@dataclass(frozen=True)
class Topics:
    """Makes and deletes topics on the broker itself, without starting a Java process each time.

    Attributes:
        admin: A `confluent_kafka.admin.AdminClient`.
        new_topic: `confluent_kafka.admin.NewTopic`.
        managed: Whether the admin client leads through Kordon, and topics are to be managed.
    """

    admin: Any
    new_topic: Callable[..., Any]
    managed: bool = False

    def create(self, name: str, partitions: int) -> None:
        """Creates a topic with one replica and waits until clients see that many partitions of it."""
        config: dict[str, str] = {}
        if self.managed:
            config = {"kordon.virtual.partitions": str(partitions)}
            partitions //= _VIRTUAL
        done = self.admin.create_topics([self.new_topic(name, partitions, 1, config=config)])
        done[name].result(30)

    def delete(self, name: str) -> None:
        """Deletes a topic; its files go with it."""
        self.admin.delete_topics([name])[name].result(30)


class Runner:
    """Measures.

    Args:
        contenders: In the order of their turns.
        managed: Kordon once more, for topics that are managed.
        tool: Runs Kafka's tools.
        topics: Makes topics; by the name of the contender who needs others.
        progress: Is told what runs.
        keep: Takes each measurement as it is made.
        proxies: Starts more Kordons while its block runs, and tells their bootstrap addresses.
    """

    def __init__(
        self,
        contenders: Sequence[Contender],
        managed: Contender,
        *,
        tool: loads.Tool,
        topics: Mapping[str, Topics],
        progress: Progress,
        keep: Callable[[Measurement], None],
        proxies: Callable[[int], AbstractContextManager[list[str]]],
    ) -> None:
        self.contenders = list(contenders)
        self.managed = managed
        self._tool = tool
        self._topics = topics
        self._progress = progress
        self._keep = keep
        self._proxies = proxies
        self._topic_number = 0

    def run(self, plan: Plan) -> None:
        """Measures all of a plan but memory over TLS.

        Raises:
            ToolError: A client failed; what was measured before has been kept.
        """
        if Part.MEMORY in plan.parts:
            for contender in self.contenders:
                self._idle(plan.memory, contender)
        self._measure(plan.base, self.contenders[0], 0)  # warms the broker up, and is not kept
        everybody = [*self.contenders, self.managed]
        in_question = [each for each in everybody if each.name in _COMPARED]
        if Part.BASE in plan.parts:
            self._interleave(plan.base, plan.rounds, self.contenders)
        if Part.LATENCY in plan.parts:
            self._interleave(plan.latency, plan.rounds, everybody)
        for case in plan.managed if Part.MANAGED in plan.parts else ():
            self._interleave(case, plan.rounds, in_question)
        for resizes in plan.resizes if Part.RESIZES in plan.parts else ():
            self._resize(resizes)
        for case in plan.matrix if Part.MATRIX in plan.parts else ():
            self._interleave(case, plan.matrix_rounds, self.contenders)

    def _interleave(self, case: Throughput | Latency, rounds: int, contenders: Sequence[Contender]) -> None:
        """Lets each contender have its turn in each round; whoever began goes last in the next."""
        order = list(contenders)
        for number in range(1, rounds + 1):
            for contender in order:
                figures = self._measure(case, contender, number)
                self._keep(Measurement(case.name, contender.name, number, figures))
            order.append(order.pop(0))

    def _measure(self, case: Throughput | Latency, contender: Contender, number: int) -> dict[str, float]:
        self._progress(case.name, contender.name, number, case.seconds)
        topics, topic = self._topics.get(contender.name, self._topics[results.DIRECT]), self._new_topic()
        topics.create(topic, self._partitions(case, contender))
        try:
            if isinstance(case, Latency):
                return loads.latency(self._tool, case, contender.bootstrap, topic)
            return self._throughput(case, contender, topic)
        finally:
            topics.delete(topic)

    def _partitions(self, case: Throughput | Latency, contender: Contender) -> int:
        if isinstance(case, Throughput):
            return case.partitions
        return _PARTITIONS * _VIRTUAL if contender is self.managed else _PARTITIONS

    def _new_topic(self) -> str:
        self._topic_number += 1
        return f"bench-{self._topic_number}"

    def _resize(self, case: Resizes) -> None:
        self._progress(case.name, self.managed.name, 1, case.seconds)
        with self._proxies(case.proxies - 1) as others:
            figures = measure_resizes(case, [self.managed.bootstrap, *others], self._new_topic())
        self._keep(Measurement(case.name, self.managed.name, 1, figures | {results.PROXIES: float(case.proxies)}))

    def _throughput(self, case: Throughput, contender: Contender, topic: str) -> dict[str, float]:
        with watched(contender) as producing:
            produced = loads.produce(self._tool, case, contender.bootstrap, topic)
        read, given = contender.counted(_READ), contender.counted(_GIVEN)
        with watched(contender) as consuming:
            consumed = loads.consume(self._tool, case, contender.bootstrap, topic)
        figures = {results.PRODUCE_MB: produced, results.CONSUME_MB: consumed}
        if contender.metrics is not None:
            given = contender.counted(_GIVEN) - given
            figures[results.AMPLIFICATION] = (contender.counted(_READ) - read) / given
        if contender.pid is not None:
            payload_gb = case.payload_bytes / 1e9
            figures[results.PRODUCE_CPU] = producing.cpu_seconds / payload_gb
            figures[results.CONSUME_CPU] = consuming.cpu_seconds / payload_gb
            figures[results.RSS_MB] = max(producing.peak_rss_bytes, consuming.peak_rss_bytes) / 1e6
        return figures

    def _idle(self, case: Memory, contender: Contender) -> None:
        if contender.pid is not None:
            self._progress(case.name, contender.name, 1, case.seconds)
            self._keep(Measurement(case.name, contender.name, 1, idle_figures(case, contender)))


def idle_figures(case: Memory, contender: Contender, context: Any = None) -> dict[str, float]:
    """Measures memory before and while connections are idle.

    Args:
        case: How many.
        contender: Through whom.
        context: An `ssl.SSLContext` for TLS.
    """
    time.sleep(SETTLE_SECONDS)
    before = contender.rss_bytes()
    with idle_connections(contender.bootstrap, case.connections, context):
        time.sleep(SETTLE_SECONDS)
        held = contender.rss_bytes()
    return {results.START_MB: before / 1e6, results.IDLE_MB: held / 1e6}
