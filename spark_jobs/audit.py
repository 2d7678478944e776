"""An audit from beginning to end: the stream is run, begun again when there is more to read, and watched.

Restarts are ordinary: a topic that has become managed, or a broker that was away, ends the query, and the next one goes
on where the checkpoint says. So a job that was killed goes the same way as one that was not.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import polars as pl
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import kordon
from kordon.spark_jobs import files_source, findings, first_look
from kordon.spark_jobs.brokers import LATEST, BrokersUnavailable, Cluster, PartitionKey
from kordon.spark_jobs.engine import LATE_MS, Ends, Engine, EngineParts
from kordon.spark_jobs.errors import CannotCheck, cause_of
from kordon.spark_jobs.judging.rules import gaps
from kordon.spark_jobs.judging.rules.all_rules import ALL
from kordon.spark_jobs.judging.schema import FINDINGS
from kordon.spark_jobs.lag import Lag
from kordon.spark_jobs.metrics import AuditMetrics
from kordon.spark_jobs.report.verdicts import RuleVerdict, overall
from kordon.spark_jobs.sources import Reading, managed_topics, stream
from kordon.spark_jobs.storage import Storage

_LOOK_SECONDS: Final = 0.2
_LAG_SECONDS: Final = 5.0
_AGAIN_SECONDS: Final = 5.0
_MOST_FAILURES: Final = 10
"""In a row, with nothing done in between and brokers that answer; then the audit gives up."""

_MOST_STARTS: Final = 5
_NOT_STARTED: Final = "Python worker failed to connect back"
"""Spark gives the process that reads a Python source 10 seconds to start, which a busy machine may not keep."""

log: Final = logging.getLogger("kordon.audit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of an audit."""

    out: str
    """The folder of the audit."""
    reading: Reading
    topics: tuple[str, ...] = ()
    """Read besides those that decisions say are managed."""
    late_ms: int = LATE_MS
    trigger_seconds: float = 60.0
    sinks: findings.Sinks = field(default_factory=findings.Sinks)


class Audit:
    """Runs one audit.

    Args:
        metrics: The metrics of the audit.
        parts: The parts of the engine; None: they are made from `options`.
    """

    def __init__(
        self, spark: SparkSession, options: Options, metrics: AuditMetrics, parts: EngineParts | None = None
    ) -> None:
        self._spark = spark
        self._options = options
        self._metrics = metrics
        self.storage = Storage(spark, options.out)
        reading = options.reading
        self._cluster = Cluster(reading.bootstrap, reading.security) if reading.bootstrap else None
        self._parts = parts or EngineParts(sinks=options.sinks, metrics=metrics, late_ms=options.late_ms)
        if self._parts.ends is None:
            self._parts.ends = self._ends
        self.engine = Engine(spark, self.storage, self._parts, options.topics)
        # apart from the one that micro-batches ask: those run in a thread of their own
        asked = Cluster(reading.bootstrap, reading.security) if reading.bootstrap else None
        self._brokers = first_look.BrokersAway(asked, reading.decisions_topic)
        self._lag = Lag(reading, asked)
        self._stopping = False
        self._look_at = 0.0

    def run(self) -> None:
        """Runs until `stop` is called.

        Raises:
            CannotCheck: The brokers cannot be reached at the beginning, or the query failed again and again.
        """
        self._begin()
        failures = 0
        while not self._stopping:
            done = self.engine.last_batch
            try:
                self._watch(self._start(), until_idle=False)
                failures = 0
            except StreamingQueryException as error:
                failures = failures + 1 if self.engine.last_batch == done else 1
                self._take(error, failures)

    def _take(self, error: StreamingQueryException, failures: int) -> None:
        """Takes the failure of a query: waits until it may be begun again.

        Raises:
            CannotCheck: Beginning it again does not help.
        """
        if self._stopping:
            return
        cause = cause_of(str(error))
        _, is_ours, told = cause.partition(f"{CannotCheck.__name__}: ")
        if is_ours:
            raise CannotCheck(told) from error
        if failures >= _MOST_FAILURES and self._brokers.do_answer():
            raise CannotCheck(f"the audit failed {failures} times at the same place: {cause}") from error
        log.warning("the query ended and begins again: %s", cause)
        self._pause()
        while not self._stopping and not self._brokers.do_answer():
            self._pause()

    def _pause(self) -> None:
        until = time.monotonic() + _AGAIN_SECONDS
        while not self._stopping and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)

    def once(self) -> RuleVerdict:
        """Audits what there is now, and judges what waits still.

        Raises:
            CannotCheck: The brokers cannot be reached, or the query failed.
        """
        self._begin()
        while True:
            topics = self.engine.topics
            first_look.see(self._cluster, topics)
            self._read_all()
            if topics == self.engine.topics:
                break
        if self.engine.totals.decisions == 0:
            raise CannotCheck(
                "there are no decisions to check: does Kordon write them (decisions.to), and is this where?"
            )
        self.engine.close()
        return self.verdict()

    def _read_all(self) -> None:
        for starts_left in reversed(range(_MOST_STARTS)):
            try:
                self._watch(self._start(), until_idle=True)
                return
            except StreamingQueryException as error:
                if not starts_left or _NOT_STARTED not in str(error):
                    raise CannotCheck(cause_of(str(error))) from error
                log.warning("the query begins again: %s", cause_of(str(error)))

    def verdict(self) -> RuleVerdict:
        """Returns the verdict of everything judged so far, as the report has it."""
        return overall(self._findings().to_dicts(), self.engine.checked)

    def summary(self) -> str:
        """Returns in one line what was checked and found, and what could not be judged."""
        if self.engine.last_batch < 0:
            return "nothing was judged yet"
        totals = self.engine.totals
        counts = self._findings().group_by("verdict", "name").len().sort("verdict", "name").iter_rows()
        found = ", ".join(f"{count} {verdict} of {name}" for verdict, name, count in counts) or "no findings"
        names = {rule.number: rule.name for rule in (gaps.RULE, *ALL)}
        unjudged = [(names[row["rule"]], row["ranges"]) for row in self.engine.checked if row["verdict"] == "unknown"]
        left = ", ".join(f"{name} {ranges}" for name, ranges in unjudged)
        left = f"; ranges that could not be judged: {left}" if left else ""
        read = f"{totals.decisions} decisions, {totals.batches} batches ({totals.bytes / 1e6:.1f} MB of topic data)"
        return f"{found}{left}; {read}; all of it is in {self.storage.folder}"

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping

    def stop(self) -> None:
        """Ends `run`; may be called from a signal handler. A micro-batch under way is repeated by the next run."""
        self._stopping = True

    def _findings(self) -> pl.DataFrame:
        """A finding that continues is written again under its id: the newest counts."""
        every = pl.concat([FINDINGS.to_frame(), *self.storage.tables("findings")])
        return every.unique("finding_id", keep="last")

    def _begin(self) -> None:
        first_look.look(self._spark, self._options.reading, self._options.sinks, self._cluster)
        last = self.storage.last_begun()
        if last >= 0:
            self.engine.resume(last)
            self._metrics.resume(self.engine.totals.as_dict())
        elif self._cluster is not None:
            self.engine.expect(self._managed_topics())
        judged = [{"number": each.number, "name": each.name, "proves": each.proves} for each in (gaps.RULE, *ALL)]
        self.storage.put_json(
            "about.json",
            {
                "version": kordon.__version__,
                "rules": judged,
                "bootstrap": self._options.reading.bootstrap,
                "files": str(self._options.reading.folder or "") or None,
                "late_ms": self._options.late_ms,
            },
        )

    def _managed_topics(self) -> frozenset[str]:
        try:
            return managed_topics(self._spark, self._options.reading)
        except (PySparkException, Py4JError) as error:
            raise CannotCheck(f"decisions cannot be read: {cause_of(str(error))}") from error

    def _start(self) -> StreamingQuery:
        rows = stream(self._spark, self._options.reading, sorted(self.engine.topics), self.storage.begun())
        writer = rows.writeStream.foreachBatch(self.engine.run).queryName("kordon-audit")
        writer = writer.option("checkpointLocation", f"{self.storage.folder}/checkpoint")
        seconds = 0 if self._options.reading.is_pinned else self._options.trigger_seconds
        return writer.trigger(processingTime=f"{seconds} seconds").start()

    def _watch(self, query: StreamingQuery, *, until_idle: bool) -> None:
        """Waits until a query has read all there is, there is another topic to read, or the audit is to stop.

        Raises:
            StreamingQueryException: The query failed.
        """
        topics = self.engine.topics
        try:
            if until_idle:
                query.processAllAvailable()
                return
            while not self._stopping and topics == self.engine.topics:
                if query.awaitTermination(_LOOK_SECONDS):  # type: ignore[arg-type]  # whole seconds, says its hint
                    return
                self._look_around()
        finally:
            query.stop()

    def _ends(self) -> Ends:
        """Returns where all that the engine reads ends now, in the order of the sources."""
        folder = self._options.reading.folder
        topics = self._ends_of(self.engine.topics)
        if folder is not None:
            return files_source.ends(folder), topics
        return self._ends_of([self._options.reading.decisions_topic]), topics

    def _ends_of(self, topics: Iterable[str]) -> Mapping[PartitionKey, int]:
        return {} if self._cluster is None else self._cluster.ends(self._cluster.partitions(topics), LATEST)

    def _look_around(self) -> None:
        """Does what has to be done from time to time, whether or not there are micro-batches."""
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + _LAG_SECONDS
        try:
            self.engine.deliver()
        except (PySparkException, Py4JError) as error:  # as a micro-batch's own, it ends nothing
            log.warning("findings that wait cannot be written yet: %s", cause_of(str(error)))
        try:
            judged = self.storage.offsets(self.engine.last_batch)
            self._metrics.lag(self._lag.measure(judged, self.engine.topics, self.engine.totals))
        except BrokersUnavailable as error:
            self._brokers.miss(error)
        except (ValueError, OSError):
            return  # a file that has gone since, or a checkpoint that is being written
        else:
            self._brokers.meet()
