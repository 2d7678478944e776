"""Runs a plan: every case through every contender in turn, round after round, so that a busy minute hits all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product
from typing import Any, Final

from kordon.bench import acknowledging, loads, requests, results
from kordon.bench.contenders import Contender, watched
from kordon.bench.holding import measure_holding
from kordon.bench.idle import idle_connections
from kordon.bench.live import measure_live
from kordon.bench.paced import latency
from kordon.bench.peers import measure_groups
from kordon.bench.plan import Latency, Memory, Part, Plan, Throughput
from kordon.bench.resizes import measure_resizes
from kordon.bench.results import Measurement
from kordon.bench.scale import measure_scale
from kordon.bench.sdk import Way, measure_way, measure_worker
from kordon.bench.sources import measure_sources
from kordon.bench.topics import VIRTUAL, Topics
from kordon.bench.transacting import measure_transactions, ways
from kordon.testing.proxy_process import ProxyProcess

SETTLE_SECONDS: Final = 1.0
"""Between opening connections and reading memory."""
_PARTITIONS: Final = 6
_VIRTUALS: Final = _PARTITIONS * VIRTUAL
_COMPARED: Final = frozenset({results.DIRECT, results.KORDON})
"""Who is measured beside managed topics."""
_AUDIT_SECONDS: Final = 7_200.0
_READ: Final = "kordon_managed_pulled_bytes_total"
_GIVEN: Final = "kordon_managed_served_bytes_total"

Progress = Callable[..., None]
"""Is told that a run begins: its case, who is measured, and the round if there are several."""


class Runner:
    """Measures.

    Args:
        contenders: In the order of their turns; the first is the broker itself.
        managed: Kordon once more, for topics that are managed.
        tool: Runs Kafka's tools.
        progress: Is told what runs.
        keep: Takes each measurement as it is made.
    """

    def __init__(
        self,
        contenders: Sequence[Contender],
        managed: Contender,
        *,
        tool: loads.Tool,
        progress: Progress,
        keep: Callable[[Measurement], None],
    ) -> None:
        self.contenders = list(contenders)
        self.managed = managed
        self._bootstrap = contenders[0].bootstrap
        self._tool = tool
        self._topics = {
            results.DIRECT: Topics(self._bootstrap),
            managed.name: Topics(managed.bootstrap, managed=True),
        }
        self._progress = progress
        self._keep = keep
        self._topic_number = 0

    def run(self, plan: Plan) -> None:
        """Measures all of a plan but memory over TLS; raises ToolError."""
        if Part.MEMORY in plan.parts:
            for contender in self.contenders:
                self._idle(plan.memory, contender)
        if plan.parts - {Part.SCALE}:  # that needs no broker
            self._measure(plan.base, self.contenders[0], 0)  # warms the broker up, and is not kept
        # what is told in milliseconds comes before what fills the broker's disk: its writing out is seen for minutes
        parts: dict[Part, Callable[[Plan], None]] = {
            Part.RESIZES: self._resize,
            Part.LATENCY: self._compare_latency,
            Part.BASE: self._compare_base,
            Part.MANAGED: self._compare_managed,
            Part.LOG: self._compare_log,
            Part.HOLDING: self._hold,
            Part.REQUESTS: self._compare_requests,
            Part.LIVE: self._compare_live,
            Part.SDK: self._compare_sdk,
            Part.TRANSACTIONS: self._compare_transactions,
            Part.SOURCES: self._compare_sources,
            Part.COOPERATIVE: lambda plan: compare_groups(plan, self._bootstrap, self._progress, self._keep),
            Part.MATRIX: self._compare_matrix,
            Part.AUDIT: self._audit,
            Part.SCALE: self._scale,
        }
        for part, measure in parts.items():
            if part in plan.parts:
                measure(plan)

    def _compare_latency(self, plan: Plan) -> None:
        self._interleave(plan.latency, plan.latency_rounds, [*self.contenders, self.managed])

    def _compare_base(self, plan: Plan) -> None:
        self._interleave(plan.base, plan.rounds, self.contenders)

    def _compare_matrix(self, plan: Plan) -> None:
        for case in plan.matrix:
            self._interleave(case, plan.matrix_rounds, self.contenders)

    def _compare_managed(self, plan: Plan) -> None:
        fewer = Contender(results.DIRECT_U, self.contenders[0].bootstrap)
        compared = [fewer, *(each for each in self.contenders if each.name in _COMPARED), self.managed]
        for case in plan.managed:
            self._interleave(case, plan.rounds, compared)

    def _compare_log(self, plan: Plan) -> None:
        """Measures managed topics with their decisions on record and not, in two Kordons that have just begun."""
        with (
            _fresh(self._bootstrap, results.MANAGED) as (unrecorded, theirs),
            _fresh(self._bootstrap, results.RECORDED) as (recorded, topics),
        ):
            # each makes its own: a proxy that is told of a topic by another has more to do at first
            before = self._topics
            self._topics = {**before, unrecorded.name: theirs, recorded.name: topics}
            self._interleave(plan.log, plan.log_rounds, [unrecorded, recorded])
            self._topics = before

    def _interleave(self, case: Throughput | Latency, rounds: int, contenders: Sequence[Contender]) -> None:
        """Lets each contender have its turn in each round; whoever began goes last in the next."""
        order = list(contenders)
        for number in range(1, rounds + 1):
            for contender in order:
                figures = self._measure(case, contender, number)
                self._keep(Measurement(case.name, contender.name, number, figures))
            order.append(order.pop(0))

    def _measure(self, case: Throughput | Latency, contender: Contender, number: int) -> dict[str, float]:
        self._progress(case.name, contender.name, number)
        topics = self._topics.get(contender.name, self._topics[results.DIRECT])
        names = self._new_topics(case.topics if isinstance(case, Throughput) else 1)
        topics.create(names, self._partitions(case, contender))
        try:
            if isinstance(case, Latency):
                return latency(case, contender.bootstrap, names[0], self._partitions(case, contender))
            return self._throughput(case, contender, names)
        finally:
            topics.delete(names)

    def _partitions(self, case: Throughput | Latency, contender: Contender) -> int:
        if isinstance(case, Throughput):
            return case.partitions // VIRTUAL if contender.name == results.DIRECT_U else case.partitions
        return _PARTITIONS * VIRTUAL if contender is self.managed else _PARTITIONS

    def _new_topics(self, count: int = 1) -> list[str]:
        """Makes names that have not been used."""
        first = self._topic_number + 1
        self._topic_number += count
        return [f"bench-{number}" for number in range(first, first + count)]

    def _compare_sdk(self, plan: Plan) -> None:
        case, direct = plan.sdk, self.contenders[0]
        ways = [
            Way(results.AIOKAFKA_DIRECT, "aiokafka", direct, self._topics[results.DIRECT], _PARTITIONS),
            Way(results.AIOKAFKA_MANAGED, "aiokafka", self.managed, self._topics[self.managed.name], _VIRTUALS),
            Way(results.SDK, "sdk", self.managed, self._topics[self.managed.name], _VIRTUALS),
        ]
        for number in range(1, plan.rounds + 1):
            for way in ways:
                self._progress(case.name, way.name, number)
                (topic,) = self._new_topics()
                self._keep(Measurement(case.name, way.name, number, measure_way(case, way, topic)))
            ways.append(ways.pop(0))
        for name, figures in measure_worker():
            self._progress(name, results.WORKER)
            self._keep(Measurement(name, results.WORKER, 1, figures))

    def _compare_transactions(self, plan: Plan) -> None:
        with ways(self.contenders, self._topics[results.DIRECT], self._bootstrap) as turns:
            for case in plan.transactions:
                measured = measure_transactions(
                    case, plan.rounds, turns, lambda: self._new_topics().pop(), self._progress
                )
                for each in measured:
                    self._keep(each)

    def _compare_sources(self, plan: Plan) -> None:
        for each in measure_sources(plan.sources, self._bootstrap, self._progress):
            self._keep(each)

    def _resize(self, plan: Plan) -> None:
        for case in plan.resizes:
            self._progress(case.name, self.managed.name)
            with _proxies(self._bootstrap, case.proxies - 1) as others:
                ways = [self.managed.bootstrap, *(other.bootstrap for other in others)]
                figures = measure_resizes(case, ways, *self._new_topics())
            self._keep(Measurement(case.name, self.managed.name, 1, figures))

    def _audit(self, plan: Plan) -> None:
        for case in plan.audit:
            self._progress(case.name, results.AUDITOR)
            options = {"rounds": case.rounds, "micro-batches": case.micro_batches, "idle": case.idle}
            options |= {"topics": case.topics, "virtual": case.virtual}
            asked = (word for name, value in options.items() for word in (f"--{name}", str(value)))
            told: Mapping[str, Any] = loads.program("audit_cost", *asked, seconds=_AUDIT_SECONDS)
            for number, each in enumerate(told["micro_batches"]):
                self._keep(Measurement(case.name, each["kind"], number, each["figures"]))
            self._keep(Measurement(case.name, results.AUDITOR, 1, told["figures"]))

    def _hold(self, plan: Plan) -> None:
        for case in plan.holding:
            self._progress(case.name, self.managed.name)
            topics, names = self._topics[self.managed.name], self._new_topics(case.topics)
            with _proxies(self._bootstrap, 1) as (kordon,):
                topics.create(names, case.virtual_partitions)
                figures = measure_holding(case, kordon, names)
                topics.delete(names)
            self._keep(Measurement(case.name, self.managed.name, 1, figures))

    def _compare_requests(self, plan: Plan) -> None:
        """Measures single requests in a Kordon of their own, which knows managed topics half of the time."""
        plain, managed = self._topics[results.DIRECT], self._topics[self.managed.name]

        def keep(contender: str, number: int, figures: Mapping[str, float]) -> None:
            for case, value in figures.items():
                self._keep(Measurement(case, contender, number, {results.REQUEST_US: value}))

        with _proxies(self._bootstrap, 1) as (kordon,):
            for number in range(1, plan.rounds + 1):
                self._progress("single requests", results.KORDON, number)
                keep(results.KORDON, number, requests.measure_untouched(kordon, plain, plan.requests))
                (topic,) = self._new_topics()
                managed.create([topic], requests.PARTITIONS)
                self._progress("single requests", results.BESIDE, number)
                keep(results.BESIDE, number, requests.measure_untouched(kordon, plain, plan.requests))
                keep(results.MANAGED, number, requests.measure_reading(kordon, topic, plan.requests))
                managed.delete([topic])

    def _compare_live(self, plan: Plan) -> None:
        with _proxies(self._bootstrap, 1) as (kordon,):
            turns = [
                (results.KORDON, self._topics[results.DIRECT]),
                (self.managed.name, self._topics[self.managed.name]),
            ]
            for case, number in product(plan.live, range(1, plan.rounds + 1)):
                for name, topics in turns:
                    self._progress(case.name, name, number)
                    names = self._new_topics(case.topics)
                    topics.create(names, case.partitions)
                    figures = measure_live(case, kordon, names)
                    topics.delete(names)
                    self._keep(Measurement(case.name, name, number, figures))
                turns.reverse()

    def _scale(self, plan: Plan) -> None:
        for each in measure_scale(plan.scale.counts, plan.scale.proxies):
            self._progress(each.case, each.contender)
            self._keep(each)

    def _throughput(self, case: Throughput, contender: Contender, topics: Sequence[str]) -> dict[str, float]:
        with watched(contender) as producing:
            produced = loads.produce(self._tool, case, contender.bootstrap, topics)
        read, given = contender.counted(_READ), contender.counted(_GIVEN)
        with watched(contender) as consuming:
            consumed = loads.consume(self._tool, case, contender.bootstrap, topics)
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
            self._progress(case.name, contender.name)
            self._keep(Measurement(case.name, contender.name, 1, idle_figures(case, contender)))


def compare_groups(plan: Plan, bootstrap: str, tell: Progress, keep: Callable[[Measurement], None]) -> None:
    """Measures how groups work on slow records, and what acknowledgements cost; raises ToolError."""
    for each in measure_groups(plan.cooperative, bootstrap, tell):
        keep(each)
    tell(acknowledging.CASE, results.SDK)
    keep(acknowledging.measurement())


def idle_figures(case: Memory, contender: Contender, context: Any = None) -> dict[str, float]:
    """Measures memory before and while connections are idle."""
    time.sleep(SETTLE_SECONDS)
    before = contender.rss_bytes()
    with idle_connections(contender.bootstrap, case.connections, context):
        time.sleep(SETTLE_SECONDS)
        held = contender.rss_bytes()
    return {results.START_MB: before / 1e6, results.IDLE_MB: held / 1e6}


@contextmanager
def _proxies(bootstrap: str, count: int) -> Generator[list[Contender], None, None]:
    with ExitStack() as stack:
        started = [stack.enter_context(ProxyProcess.start(bootstrap=bootstrap)) for _ in range(count)]
        yield [Contender(results.MANAGED, each.bootstrap, each.pid, each.metrics) for each in started]


@contextmanager
def _fresh(bootstrap: str, name: str) -> Generator[tuple[Contender, Topics], None, None]:
    """Runs a Kordon with managed topics, whose decisions are on record if its name says so."""
    config = {"decisions": {"to": "topic"}} if name == results.RECORDED else {}
    with ProxyProcess.start(bootstrap=bootstrap, config=config) as kordon:
        topics = Topics(kordon.bootstrap, managed=True)
        yield Contender(name, kordon.bootstrap, kordon.pid, kordon.metrics), topics
