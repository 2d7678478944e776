"""One micro-batch of the audit: what is new goes through every rule, and what comes of it is written down.

    facts ── GAPS, belonging ──> the other rules ──> findings, checked ──> summaries ──> topic, metrics, progress.json
                                          └──> states

Everything is written under the micro-batch's number over what an earlier try has left, and the rules begin with the
states of the number before. So a job that was killed anywhere, and repeats the micro-batch, neither misses a finding
nor has one twice; Spark counts the micro-batch as done only when `run` has returned.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so
from pyspark.sql.types import BooleanType, IntegerType, LongType, StringType, StructField, StructType

from kordon.spark_jobs import layouts
from kordon.spark_jobs.brokers import BrokersUnavailable, PartitionKey
from kordon.spark_jobs.delivery import Delivery
from kordon.spark_jobs.errors import CannotCheck
from kordon.spark_jobs.findings import Sinks
from kordon.spark_jobs.frames import dealt, local_rows, stacked, worked_out
from kordon.spark_jobs.known import KnownState, Read, Seen, Told, Totals
from kordon.spark_jobs.lives import Lives
from kordon.spark_jobs.metrics import AuditMetrics, Counted
from kordon.spark_jobs.rules import belonging, gaps
from kordon.spark_jobs.rules.all_rules import ALL
from kordon.spark_jobs.rules.ranges import ROW
from kordon.spark_jobs.rules.rule import LATE, UNKNOWN, Facts, Rule, RuleOutcome
from kordon.spark_jobs.schema import BATCHES, CHECKED, DECISIONS, FINDINGS, READ_TO
from kordon.spark_jobs.storage import Storage
from kordon.spark_jobs.summaries import SUMMARIES, Summary

LATE_MS: Final = 600_000
_NEVER_LATE_MS: Final = 1 << 60
_SIDE_BY_SIDE: Final = 4
"""Rules are small: their jobs wait for their planning more than for a processor."""
_KNOWN: Final = "state/_known"
_WAITING: Final = "state/_waiting"
_SEEN: Final = StructType([StructField("worker", StringType()), StructField("seen", LongType())])
_CHECKED: Final = StructType([StructField("rule", IntegerType()), *CHECKED.fields, StructField("late", BooleanType())])
"""What is kept of it: `late` says why it is unknown."""

_Item = TypeVar("_Item")


@dataclass(slots=True, kw_only=True)
class EngineParts:
    """What an engine works with, in tests replaced one by one."""

    rules: Sequence[Rule] = ALL
    """Besides GAPS, which is always there."""
    summaries: Sequence[Summary] = SUMMARIES
    sinks: Sinks = field(default_factory=Sinks)
    metrics: AuditMetrics = field(default_factory=AuditMetrics)
    ends: Callable[[], Mapping[PartitionKey, int]] | None = None
    """Asks the brokers where the logs that are read end now; None: no topics are read."""
    late_ms: int = LATE_MS
    step: Callable[[str], None] = lambda _: None
    """Called before each step; tests let the job die there."""


class Engine:
    """Runs micro-batches; see the module.

    Args:
        topics: Read besides those that decisions say are managed.
    """

    def __init__(self, spark: SparkSession, storage: Storage, parts: EngineParts, topics: Iterable[str] = ()) -> None:
        self._spark = spark
        self._storage = storage
        self._parts = parts
        self._rules = (gaps.RULE, *(rule for rule in parts.rules if rule.number != gaps.RULE.number))
        self._named = frozenset(topics)
        self._lock = threading.Lock()
        self._ends: Mapping[PartitionKey, int] | None = None
        self._expanded: tuple[list[str], DataFrame, DataFrame] | None = None
        self._known = KnownState()
        self._lives = Lives()
        self._delivery = Delivery(storage, parts.sinks, parts.metrics)
        self.last_batch = -1
        """The last that was run, or taken up."""

    @property
    def topics(self) -> frozenset[str]:
        """Topics to read: named, or managed according to a decision."""
        return self._named | self._known.managed

    @property
    def totals(self) -> Totals:
        """What was read so far."""
        return self._known.totals

    def expect(self, topics: Iterable[str]) -> None:
        """Takes in the topics that decisions will name as managed, to read them from the first micro-batch on."""
        self._named |= frozenset(topics)

    def resume(self, last_batch: int) -> None:
        """Takes up what was known behind a micro-batch.

        Args:
            last_batch: That was begun last; if it was not complete, its repetition begins with the one before.
        """
        for number in (last_batch, last_batch - 1):
            known = self._load(number)
            if known is not None:
                self._known, self.last_batch = known, number
                return

    def run(self, rows: DataFrame, batch_id: int) -> None:
        """Takes one micro-batch of the stream that `sources.py` makes; for `foreachBatch`."""
        # a query that was stopped may leave its last call at work, while the next one repeats it
        with self._lock, self._kept(rows) as kept:
            began = time.monotonic()
            before = self._before(batch_id)
            known, facts = self._facts(before, kept, batch_id)
            counted = self._judge(facts)
            self._parts.step(_KNOWN)
            self._storage.put_json(f"{_KNOWN}/{batch_id}", known.dump())
            self._known, self.last_batch = known, batch_id
            self._parts.step("metrics")
            self._parts.metrics.count_findings(counted)  # not before: a micro-batch that is repeated counts once
            self._tell(batch_id, time.monotonic() - began)
            self._parts.step("forget")
            tables = [
                _WAITING,
                *map(_state_of, self._rules),
                *(f"summaries/{each.name}" for each in self._parts.summaries),
            ]
            self._storage.forget([_KNOWN, *tables], batch_id)
            self._parts.step("end")

    def close(self) -> None:
        """Judges what waits still (`--once`), as the micro-batch behind the last; states are left as they are."""
        with self._lock:
            self._lives = Lives(let_go=self._known.let_go)
            facts = self._told(
                self._known,
                self._nothing(DECISIONS),
                self._nothing(BATCHES),
                self.last_batch + 1,
            )
            self._parts.metrics.count_findings(self._judge(replace(facts, is_last=True), keeps=False))

    def deliver(self) -> None:
        """Writes findings that wait for their topic or table, unless a micro-batch is under way, which does it, too."""
        if self._lock.acquire(blocking=False):
            try:
                self._delivery.write_waiting(self.last_batch)
            finally:
                self._lock.release()

    def caught_up(self, read_to: Iterable[Read]) -> bool:
        """Whether all is read that stood in the topics when this was asked last; asks the brokers anew for next time.

        While topic data lags behind the decisions, as at the beginning, decisions' time runs too fast for it: nothing
        is too late then.
        """
        if self._parts.ends is None:
            return True
        reached = {PartitionKey(each.topic, each.partition): each.next_offset for each in read_to}
        before = self._ends
        try:
            self._ends = dict(self._parts.ends())
        except BrokersUnavailable:
            self._ends = None
        return before is not None and all(reached.get(place, 0) >= end for place, end in before.items())

    @staticmethod
    @contextmanager
    def _kept(rows: DataFrame) -> Iterator[DataFrame]:
        """Decisions and batches are taken out of what is new, each for itself: it is read once."""
        kept = rows.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            yield kept
        finally:
            kept.unpersist()

    def _facts(self, before: KnownState, rows: DataFrame, batch_id: int) -> tuple[KnownState, Facts]:
        self._parts.step("facts")
        told = dealt(rows.where("decision is not null").select("decision.*"))
        decisions = worked_out(self._new(told, before))
        read = worked_out(dealt(rows.where("batch is not null").select("batch.*")))
        batches = read.where("next_offset is null").select(*BATCHES.names)
        known = self._next(before, told, decisions, read)
        self._lives = Lives(let_go=known.let_go, now=_gone(before, known.let_go))
        # of what is known to be empty plans leave out all that would come
        decisions = decisions if known.totals.decisions > before.totals.decisions else self._nothing(DECISIONS)
        batches = batches if known.totals.batches > before.totals.batches else self._nothing(BATCHES)
        late_ms = self._parts.late_ms if self.caught_up(known.read_to) else _NEVER_LATE_MS
        return known, replace(self._told(known, decisions, batches, batch_id), late_ms=late_ms)

    def _told(self, known: KnownState, decisions: DataFrame, batches: DataFrame, batch_id: int) -> Facts:
        segments, stays = self._expand(known)
        return Facts(
            decisions=decisions,
            batches=batches,
            placed=self._nothing(belonging.PLACED),
            segments=segments,
            stays=stays,
            read_to=local_rows(self._spark, known.read_to, READ_TO),
            batch_id=batch_id,
            newest_ms=known.totals.newest_ms,
            late_ms=self._parts.late_ms,
        )

    def _nothing(self, schema: StructType) -> DataFrame:
        return local_rows(self._spark, [], schema)

    def _new(self, decisions: DataFrame, before: KnownState) -> DataFrame:
        """A record may stand in the log twice, as writing it is repeated when its answer is lost; it counts once."""
        once = decisions.where("kind is not null").dropDuplicates(["worker", "number"])
        if not before.workers:
            return once
        rows = [(name, seen.number) for name, seen in before.workers.items()]
        seen = local_rows(self._spark, rows, _SEEN)
        return once.join(seen, "worker", "left").where("seen is null or number > seen").select(*DECISIONS.names)

    def _next(self, before: KnownState, told: DataFrame, decisions: DataFrame, read: DataFrame) -> KnownState:
        workers = decisions.groupBy("worker").agg(F.max("number"), F.max("at_ms"), F.count("*")).collect()
        counted = read.groupBy("topic", "partition").agg(
            F.max("log_start"), F.max("next_offset"), F.count("base_offset"), F.sum("bytes")
        )
        parts = counted.collect()
        newest = [Told(*row) for row in layouts.newest(decisions).select(*Told._fields).collect()]
        totals = before.totals
        its_own = before.without(_gone(before, {each.topic: each.let_go for each in newest if each.let_go is not None}))
        return KnownState(
            layouts=before.with_layouts(newest),
            workers=before.with_workers({row[0]: Seen(row[1], row[2] or 0) for row in workers}),
            read_to=its_own.with_read(Read(row[0], row[1], row[2] or 0, row[3]) for row in parts if row[3] is not None),
            totals=Totals(
                newest_ms=max([totals.newest_ms, *(row[2] or 0 for row in workers)]),
                decisions=totals.decisions + sum(row[3] for row in workers),
                batches=totals.batches + sum(row[4] for row in parts),
                bytes=totals.bytes + sum(row[5] or 0 for row in parts),
                unreadable=totals.unreadable + told.where("kind is null").count(),
            ),
        )

    def _expand(self, known: KnownState) -> tuple[DataFrame, DataFrame]:
        """Layouts change seldom: what came of them is kept."""
        told = sorted(each.layout for each in known.layouts.values() if each.layout is not None)
        if self._expanded is None or self._expanded[0] != told:
            self._expanded = (told, *layouts.frames(self._spark, told))
        return self._expanded[1], self._expanded[2]

    def _judge(self, facts: Facts, *, keeps: bool = True) -> list[Counted]:
        batch_id = facts.batch_id
        outcomes = {gaps.RULE.number: self._outcome(gaps.RULE, facts, keeps=keeps)}
        missing = self._storage.read(_state_of(gaps.RULE), batch_id if keeps else batch_id - 1, gaps.STATE)
        given = replace(facts, gaps=gaps.known(missing), placed=self._placed(facts, keeps=keeps))

        def judge(rule: Rule) -> None:
            outcomes[rule.number] = self._outcome(rule, given, keeps=keeps)

        self._each(judge, self._rules[1:])
        found = (each.findings for each in outcomes.values())
        self._put("findings", stacked(*found), batch_id, files=1)
        looked = (_by(number, each.checked) for number, each in outcomes.items())
        self._put("checked", stacked(*looked), batch_id, files=1)
        findings = self._storage.read("findings", batch_id, FINDINGS)
        if keeps:
            self._each(lambda summary: self._fold(summary, given, findings), self._parts.summaries)
        self._parts.step("sinks")
        counted = self._count(findings, batch_id)
        self._delivery.write(batch_id, sum(each.amount for each in counted if each.verdict != LATE), is_last=not keeps)
        return counted

    def _count(self, findings: DataFrame, batch_id: int) -> list[Counted]:
        """Counts findings, and what came too late for a rule, in one job."""
        found = findings.groupBy("rule", "verdict", "kind").agg(F.count("*").alias("count"))
        late = self._storage.read("checked", batch_id, _CHECKED).where("late").groupBy("rule")
        missed = late.agg(F.lit(LATE).alias("verdict"), F.lit(None).alias("kind"), F.sum("count").alias("count"))
        names = {rule.number: rule.name for rule in self._rules}
        return [Counted(names[row[0]], *row[1:]) for row in stacked(found, missed).collect()]

    def _placed(self, facts: Facts, *, keeps: bool) -> DataFrame:
        """Finds the owners of new batches, and keeps the batches that wait."""
        before = worked_out(self._storage.read(_WAITING, facts.batch_id - 1, ROW))
        placed, waiting = belonging.placed(*self._lives.living(facts, before))
        if keeps:
            self._put(_WAITING, waiting, facts.batch_id)
        return placed

    def _outcome(self, rule: Rule, facts: Facts, *, keeps: bool) -> RuleOutcome:
        """Lets a rule judge once, and keeps its state."""
        before = worked_out(self._storage.read(_state_of(rule), facts.batch_id - 1, rule.state))
        outcome = self._lives.judged(rule, facts, before)
        parts = {"findings": FINDINGS, "state": rule.state, "checked": CHECKED}
        tables = (
            getattr(outcome, name).selectExpr(f"struct({', '.join(schema.names)}) as {name}")
            for name, schema in parts.items()
        )
        whole = worked_out(stacked(*tables))
        outcome = RuleOutcome(**{name: whole.where(F.col(name).isNotNull()).select(f"{name}.*") for name in parts})
        if keeps:
            self._put(_state_of(rule), outcome.state, facts.batch_id)
        return outcome

    def _fold(self, summary: Summary, facts: Facts, findings: DataFrame) -> None:
        table = f"summaries/{summary.name}"
        before = self._storage.read(table, facts.batch_id - 1, summary.state)
        self._put(table, summary.fold(facts, findings, before), facts.batch_id, files=1)

    def _put(self, table: str, rows: DataFrame, batch_id: int, files: int | None = None) -> None:
        self._parts.step(table)
        self._spark.sparkContext.setJobDescription(f"{table}, micro-batch {batch_id}")  # for Spark's own pages
        self._storage.write(rows, table, batch_id, files=files)

    @staticmethod
    def _each(do: Callable[[_Item], None], items: Sequence[_Item]) -> None:
        with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
            for done in [pool.submit(do, item) for item in items]:
                done.result()

    def _load(self, batch_id: int) -> KnownState | None:
        try:
            told = self._storage.get_text(f"{_KNOWN}/{batch_id}") if batch_id >= 0 else None
            return None if told is None else KnownState.load(told)
        except (ValueError, Py4JJavaError):
            return None  # the machine died while it was written: by Hadoop's checksum it is not what it was

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


def _gone(before: KnownState, let_go: Mapping[str, int]) -> frozenset[str]:
    """Returns the topics that were let go since."""
    return frozenset(topic for topic, offset in let_go.items() if offset > before.let_go.get(topic, -1))


def _state_of(rule: Rule) -> str:
    return f"state/{rule.name.lower()}"


def _by(number: int, checked: DataFrame) -> DataFrame:
    """What came too late is unknown, too, and counted besides."""
    verdict = F.when(F.col("verdict") == LATE, UNKNOWN).otherwise(F.col("verdict")).alias("verdict")
    columns = [verdict if name == "verdict" else F.col(name) for name in CHECKED.names]
    late = F.coalesce(F.col("verdict") == LATE, F.lit(False)).alias("late")
    return checked.select(F.lit(number).cast("int").alias("rule"), *columns, late)
