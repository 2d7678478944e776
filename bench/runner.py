"""Runs a plan: every case through every contender in turn, round after round, so that a busy minute hits all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from kordon.bench import loads, results
from kordon.bench.contenders import Contender, watched
from kordon.bench.idle import idle_connections
from kordon.bench.plan import Latency, Memory, Plan, Throughput
from kordon.bench.results import Measurement

SETTLE_SECONDS: Final = 1.0
"""Between opening connections and reading memory."""
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
    """

    admin: Any
    new_topic: Callable[..., Any]

    def create(self, name: str, partitions: int) -> None:
        """Creates a topic with one replica and waits until it is there."""
        done = self.admin.create_topics([self.new_topic(name, partitions, 1)])
        done[name].result(30)

    def delete(self, name: str) -> None:
        """Deletes a topic; its files go with it."""
        self.admin.delete_topics([name])[name].result(30)


class Runner:
    """Measures.

    Args:
        contenders: In the order of their turns.
        tool: Runs Kafka's tools.
        topics: Makes topics.
        progress: Is told what runs.
        keep: Takes each measurement as it is made.
    """

    def __init__(
        self,
        contenders: Sequence[Contender],
        tool: loads.Tool,
        topics: Topics,
        progress: Progress,
        keep: Callable[[Measurement], None],
    ) -> None:
        self.contenders = list(contenders)
        self._tool = tool
        self._topics = topics
        self._progress = progress
        self._keep = keep
        self._topic_number = 0

    def run(self, plan: Plan) -> None:
        """Measures all of a plan but memory over TLS.

        Raises:
            ToolError: A client failed; what was measured before has been kept.
        """
        for contender in self.contenders:
            self._idle(plan.memory, contender)
        self._measure(plan.base, self.contenders[0], 0)  # warms the broker up, and is not kept
        self._interleave(plan.base, plan.rounds)
        self._interleave(plan.latency, plan.rounds)
        for case in plan.matrix:
            self._interleave(case, plan.matrix_rounds)

    def _interleave(self, case: Throughput | Latency, rounds: int) -> None:
        """Lets each contender have its turn in each round; whoever began goes last in the next."""
        order = list(self.contenders)
        for number in range(1, rounds + 1):
            for contender in order:
                figures = self._measure(case, contender, number)
                self._keep(Measurement(case.name, contender.name, number, figures))
            order.append(order.pop(0))

    def _measure(self, case: Throughput | Latency, contender: Contender, number: int) -> dict[str, float]:
        self._progress(case.name, contender.name, number, case.seconds)
        self._topic_number += 1
        topic = f"bench-{self._topic_number}"
        self._topics.create(topic, case.partitions if isinstance(case, Throughput) else 6)
        try:
            if isinstance(case, Latency):
                return loads.latency(self._tool, case, contender.bootstrap, topic)
            return self._throughput(case, contender, topic)
        finally:
            self._topics.delete(topic)

    def _throughput(self, case: Throughput, contender: Contender, topic: str) -> dict[str, float]:
        with watched(contender) as producing:
            produced = loads.produce(self._tool, case, contender.bootstrap, topic)
        with watched(contender) as consuming:
            consumed = loads.consume(self._tool, case, contender.bootstrap, topic)
        figures = {results.PRODUCE_MB: produced, results.CONSUME_MB: consumed}
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
