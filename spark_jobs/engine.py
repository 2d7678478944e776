"""One micro-batch of the audit: one Spark job judges what is new, and what comes of it is written down.

    shipments of the sources ─┐
    settings ─────────────────┼─ by part ── judge ── state/<id> ── findings, checked, summaries ── topic, metrics
    state/<id - 1> ───────────┘

Everything is written under the micro-batch's number over what an earlier try has left, and judging begins with the
states of the number before. So a job that was killed anywhere, and repeats the micro-batch, neither misses a finding
nor has one twice; Spark counts the micro-batch as done only when `run` has returned.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import polars as pl
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession

from kordon.spark_jobs import job
from kordon.spark_jobs.brokers import BrokersUnavailable, PartitionKey
from kordon.spark_jobs.delivery import Delivery
from kordon.spark_jobs.errors import CannotCheck
from kordon.spark_jobs.findings import Sinks
from kordon.spark_jobs.job import BatchResult
from kordon.spark_jobs.judging.judge import Judge
from kordon.spark_jobs.judging.rule import LATE, Rule
from kordon.spark_jobs.judging.rules import gaps
from kordon.spark_jobs.judging.rules.all_rules import ALL
from kordon.spark_jobs.judging.shipments import VERSION, unpacked
from kordon.spark_jobs.judging.summaries import SUMMARIES
from kordon.spark_jobs.judging.summaries.summary import Summary, merged
from kordon.spark_jobs.known import KnownState, Totals
from kordon.spark_jobs.metrics import AuditMetrics, Counted
from kordon.spark_jobs.session import parts_of
from kordon.spark_jobs.storage import Storage

LATE_MS: Final = 600_000
_NEVER_LATE_MS: Final = 1 << 60
_KNOWN: Final = "state/_known"
_STATE: Final = "state"

Ends: TypeAlias = Sequence[Mapping[PartitionKey, int] | Mapping[str, int]]
"""For each source, where what it reads ends: by partition, or by file."""


@dataclass(slots=True, kw_only=True)
class EngineParts:
    """What an engine works with, in tests replaced one by one."""

    rules: Sequence[Rule] = ALL
    """Besides GAPS, which is always there."""
    summaries: Sequence[Summary] = SUMMARIES
    sinks: Sinks = field(default_factory=Sinks)
    metrics: AuditMetrics = field(default_factory=AuditMetrics)
    ends: Callable[[], Ends] | None = None
    """Asks where what is read ends now; None: nothing is ever behind."""
    late_ms: int = LATE_MS
    step: Callable[[str], None] = lambda _: None
    """Called before each step; tests let the job die there."""


class Engine:
    """Runs micro-batches; see the module.

    Args:
        topics: The topics to read besides those that decisions say are managed.
    """

    def __init__(self, spark: SparkSession, storage: Storage, parts: EngineParts, topics: Iterable[str] = ()) -> None:
        self._spark = spark
        self._storage = storage
        self._parts = parts
        self._count = parts_of(spark)
        """Of the parts among which topics are divided."""
        rules = [rule for rule in parts.rules if rule.number != gaps.RULE.number]
        self._judge = Judge(rules=tuple(rules), summaries=tuple(parts.summaries))
        self._names = {rule.number: rule.name for rule in (gaps.RULE, *rules)}
        self._named = frozenset(topics)
        self._lock = threading.Lock()
        self._ends: Ends | None = None
        self._known = KnownState()
        self._delivery = Delivery(storage, parts.sinks, parts.metrics)
        self.last_batch = -1
        """The last that was run, or taken up."""

    @property
    def topics(self) -> frozenset[str]:
        """Topics to read: named, or managed according to a decision."""
        return self._named | frozenset(self._known.managed)

    @property
    def totals(self) -> Totals:
        """What was read so far."""
        return self._known.totals

    @property
    def checked(self) -> list[dict[str, Any]]:
        """How many `ranges` each `rule` has looked at, by `verdict`."""
        told = self._known.ranges.items()
        return [{"rule": rule, "verdict": each, "ranges": n} for rule, its in told for each, n in its.items()]

    def expect(self, topics: Iterable[str]) -> None:
        """Takes in the topics that decisions will name as managed, to read them from the first micro-batch on."""
        self._named |= frozenset(topics)

    def resume(self, last_batch: int) -> None:
        """Takes up what was known behind a micro-batch.

        Args:
            last_batch: The micro-batch that was begun last. If it was not complete, its repetition begins with the one
                before.

        Raises:
            CannotCheck: A Kordon with other states has written what is known.
        """
        for number in (last_batch, last_batch - 1):
            known = self._load(number)
            if known is not None:
                self._known, self.last_batch = known, number
                return

    def run(self, rows: DataFrame, batch_id: int) -> None:
        """Takes one micro-batch of the stream that `sources.py` makes; for `foreachBatch`."""
        # a query that was stopped may leave its last call at work, while the next one repeats it
        with self._lock:
            began = time.monotonic()
            before = self._before(batch_id)
            told = self._judged(rows, before, batch_id)
            counted = self._write(told, batch_id)
            self._fold(told, batch_id)
            self._deliver(counted, batch_id)
            self._parts.step(_KNOWN)
            known = self._with_news(before, told)
            self._storage.put_json(f"{_KNOWN}/{batch_id}", known.dump())
            self._known, self.last_batch = known, batch_id
            self._parts.step("metrics")
            self._parts.metrics.count_findings(counted)  # not before: a micro-batch that is repeated counts once
            self._tell(batch_id, time.monotonic() - began)
            self._parts.step("forget")
            summaries = (f"summaries/{each.name}" for each in self._parts.summaries)
            self._storage.forget([_STATE, _KNOWN, *summaries], batch_id)
            self._parts.step("end")

    def close(self) -> None:
        """Judges what waits still (`--once`), as the micro-batch behind the last; states are left as they are."""
        with self._lock:
            batch_id = self.last_batch + 1
            given = job.settings(self._spark, self._count, late_ms=self._parts.late_ms, is_last=True)
            rows = job.judged(self._judge, self._count, given, *self._state(self._known, batch_id))
            told = BatchResult.of(self._storage.told_of(rows))
            counted = self._write(told, batch_id)
            self._known = self._with_news(self._known, told)
            self._deliver(counted, batch_id, is_last=True)
            self._parts.metrics.count_findings(counted)

    def deliver(self) -> None:
        """Writes findings that wait for their topic or table, unless a micro-batch is under way, which does it, too."""
        if self._lock.acquire(blocking=False):
            try:
                self._delivery.write_waiting(self.last_batch)
            finally:
                self._lock.release()

    def _judged(self, rows: DataFrame, before: KnownState, batch_id: int) -> BatchResult:
        """Has the parts judge, and returns what they tell."""
        late_ms = self._parts.late_ms if self._has_caught_up(batch_id) else _NEVER_LATE_MS
        parts = self._count
        given = job.settings(self._spark, parts, late_ms=late_ms, is_last=False)
        self._step("judge", batch_id)
        self._storage.write_state(job.judged(self._judge, parts, rows, given, *self._state(before, batch_id)), batch_id)
        self._step("read back", batch_id)
        return BatchResult.of(self._storage.told(batch_id))

    def _state(self, before: KnownState, batch_id: int) -> list[DataFrame]:
        rows = self._storage.state(batch_id - 1)
        return [] if rows is None else [job.state_of(rows, before.parts, self._count)]

    def _has_caught_up(self, batch_id: int) -> bool:
        """Whether all is read that was there when this was asked last; asks again for next time.

        While one source lags behind the other, as at the beginning, decisions' time says nothing of what has come too
        late: nothing is late then.
        """
        if self._parts.ends is None:
            return True
        before = self._ends
        try:
            self._ends = self._parts.ends()
        except BrokersUnavailable:
            self._ends = None
        reached = self._storage.reached(batch_id)
        return before is not None and all(
            its.get(place, 0) >= end for its, ends in zip(reached, before, strict=False) for place, end in ends.items()
        )

    def _write(self, told: BatchResult, batch_id: int) -> list[Counted]:
        """Writes findings and what was looked at, and counts both."""
        for name, table in (("findings", told.findings), ("checked", told.checked)):
            self._step(name, batch_id)
            self._storage.put_table(table, name, batch_id)
        found = told.findings.group_by("rule", "verdict", "kind", maintain_order=True).len()
        late = told.checked.filter("late").group_by("rule", maintain_order=True).agg(pl.sum("count"))
        return [
            *(Counted(self._names[rule], *each) for rule, *each in found.iter_rows()),
            *(Counted(self._names[rule], LATE, None, count) for rule, count in late.iter_rows()),
        ]

    def _fold(self, told: BatchResult, batch_id: int) -> None:
        """Puts the summaries of all parts together for the report."""
        for summary in self._parts.summaries:
            table = f"summaries/{summary.name}"
            self._step(table, batch_id)
            pieces = [unpacked(summary.state, each) for each in told.summaries.get(summary.name, ())]
            self._storage.put_table(merged(summary, pieces), table, batch_id)

    def _deliver(self, counted: Iterable[Counted], batch_id: int, *, is_last: bool = False) -> None:
        self._step("sinks", batch_id)
        self._delivery.write(batch_id, sum(each.amount for each in counted if each.verdict != LATE), is_last=is_last)

    def _with_news(self, before: KnownState, told: BatchResult) -> KnownState:
        known = before.with_ranges(told.checked.select("rule", "verdict").iter_rows())
        totals = before.totals.with_news(told.totals.to_dicts())
        return replace(known, parts=self._count, managed=tuple(sorted(told.managed)), totals=totals)

    def _step(self, name: str, batch_id: int) -> None:
        self._parts.step(name)
        self._spark.sparkContext.setJobDescription(f"{name}, micro-batch {batch_id}")  # for Spark's own pages

    def _load(self, batch_id: int) -> KnownState | None:
        try:
            told = self._storage.get_text(f"{_KNOWN}/{batch_id}") if batch_id >= 0 else None
            known = None if told is None else KnownState.load(told)
        except (ValueError, Py4JJavaError):
            return None  # damaged: it is not JSON any more, or not what Hadoop has the checksum of
        if known is not None and known.version != VERSION:
            raise CannotCheck(
                f"{self._storage.folder} was written by another version of Kordon, whose states this one cannot read: "
                f"end the audit with that version, or begin again with another --out"
            )
        return known

    def _before(self, batch_id: int) -> KnownState:
        known = self._load(batch_id - 1)
        if known is None and batch_id > 0:
            raise CannotCheck(
                f"{self._storage.folder}/{_KNOWN}/{batch_id - 1} is missing or damaged, so the auditor does not know "
                f"what it has judged: restore the folder from a copy, or begin again with another --out"
            )
        return known or KnownState()

    def _tell(self, batch_id: int, seconds: float) -> None:
        totals: dict[str, Any] = self.totals.as_dict()
        self._parts.metrics.count_batch(totals, seconds)
        self._storage.put_json("progress.json", {"batch_id": batch_id, "seconds": round(seconds, 3), **totals})
