"""An audit from beginning to end: the stream is run, begun again when there is more to read, and watched.

Restarts are ordinary: a topic that has become managed, or a broker that was away, ends the query, and the next one goes
on where the checkpoint says. So a job that was killed goes the same way as one that was not.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import kordon
from kordon.spark_jobs import findings
from kordon.spark_jobs.brokers import LATEST, BrokersUnavailable, Cluster, Place
from kordon.spark_jobs.engine import LATE_MS, Engine, Parts
from kordon.spark_jobs.errors import CannotCheck
from kordon.spark_jobs.metrics import Metrics
from kordon.spark_jobs.rules import gaps
from kordon.spark_jobs.rules.all_rules import ALL
from kordon.spark_jobs.rules.places import PLACES
from kordon.spark_jobs.schema import FINDINGS
from kordon.spark_jobs.sources import Reading, managed_topics, stream
from kordon.spark_jobs.storage import Storage

_LOOK_SECONDS: Final = 0.2
_LAG_SECONDS: Final = 5.0
_AGAIN_SECONDS: Final = 5.0
_MOST_FAILURES: Final = 10
"""In a row, with nothing done in between; then the audit gives up."""

_RAISED: Final = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Unavailable|Unknown): .*$", re.MULTILINE
)
_MOST_WORDS: Final = 1500

log: Final = logging.getLogger("kordon.audit")


class Verdict(IntEnum):
    """Exit codes of `--once`."""

    PASS = 0
    FAIL = 1
    NOT_CHECKED = 2
    UNKNOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is asked of an audit."""

    out: str
    """Its folder."""
    reading: Reading
    topics: tuple[str, ...] = ()
    """Read besides those that decisions say are managed."""
    late_ms: int = LATE_MS
    trigger_seconds: float = 10.0
    sinks: findings.Sinks = field(default_factory=findings.Sinks)


class Audit:
    """Runs one audit.

    Args:
        spark: The session.
        options: What is asked.
        metrics: Are told of all that is done.
        parts: Of the engine; None: as `options` say.
    """

    def __init__(self, spark: SparkSession, options: Options, metrics: Metrics, parts: Parts | None = None) -> None:
        self._spark = spark
        self._options = options
        self._metrics = metrics
        self.storage = Storage(spark, options.out)
        reading = options.reading
        self._cluster = Cluster(reading.bootstrap, reading.security) if reading.bootstrap else None
        self._parts = parts or Parts(sinks=options.sinks, metrics=metrics, late_ms=options.late_ms)
        if self._cluster is not None and self._parts.ends is None:
            self._parts.ends = self._ends
        self.engine = Engine(spark, self.storage, self._parts, options.topics)
        self._stopping = False
        self._lag_at = 0.0

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
                log.warning("the query ended, it is begun again: %s", _short(error))
                if failures >= _MOST_FAILURES:
                    raise CannotCheck(
                        f"the audit failed {failures} times at the same place: {_short(error)}"
                    ) from error
                time.sleep(_AGAIN_SECONDS)

    def once(self) -> Verdict:
        """Audits what there is now, and judges what waits still.

        Raises:
            CannotCheck: The brokers cannot be reached, or the query failed.
        """
        self._begin()
        while True:
            topics = self.engine.topics
            try:
                self._watch(self._start(), until_idle=True)
            except StreamingQueryException as error:
                raise CannotCheck(_short(error)) from error
            if topics == self.engine.topics:
                break
        if self.engine.totals.decisions == 0:
            raise CannotCheck(
                "there are no decisions to check: does Kordon write them (decisions.to), and is this where?"
            )
        self.engine.close()
        return self.verdict()

    def verdict(self) -> Verdict:
        """Returns what all findings so far come to."""
        verdicts = {row["verdict"] for row in self._findings().select("verdict").distinct().collect()}
        if "fail" in verdicts:
            return Verdict.FAIL
        return Verdict.UNKNOWN if verdicts else Verdict.PASS

    def summary(self) -> str:
        """Returns in one line what was checked and found."""
        totals = self.engine.totals
        counts = self._findings().groupBy("verdict", "name").count().orderBy("verdict", "name").collect()
        found = ", ".join(f"{row['count']} {row['verdict']} of {row['name']}" for row in counts) or "no findings"
        read = f"{totals.decisions} decisions, {totals.batches} batches ({totals.bytes / 1e6:.1f} MB of topic data)"
        return f"{found}; {read}; all of it is in {self.storage.folder}"

    def stop(self) -> None:
        """Ends `run` after the micro-batch under way; may be called from a signal handler."""
        self._stopping = True

    def _findings(self) -> DataFrame:
        """A finding that goes on is written again under its id."""
        every = self._spark.read.schema(FINDINGS).parquet(f"{self.storage.folder}/findings")
        return every.dropDuplicates(["finding_id"])

    def _begin(self) -> None:
        self._reach()
        last = self.storage.last_begun()
        if last >= 0:
            self.engine.resume(last)
            self._metrics.resume(self.engine.totals.as_dict())
        elif self._cluster is not None:
            self.engine.expect(managed_topics(self._spark, self._options.reading))
        judged = [{"number": each.number, "name": each.name, "proves": each.proves} for each in (gaps.RULE, *ALL)]
        waiting = [asdict(each) for each in PLACES]
        self.storage.put_json(
            "about.json",
            {
                "version": kordon.__version__,
                "rules": [*judged, *waiting],
                "bootstrap": self._options.reading.bootstrap,
                "files": str(self._options.reading.folder or "") or None,
                "late_ms": self._options.late_ms,
            },
        )

    def _reach(self) -> None:
        reading = self._options.reading
        if reading.folder is not None and not reading.folder.is_dir():
            raise CannotCheck(f"{reading.folder} is no folder of decision files")
        if self._cluster is None:
            return
        try:
            wanted = [] if reading.folder else [reading.decisions_topic]
            places = self._cluster.partitions([*wanted, *self._options.topics])
        except BrokersUnavailable as error:
            raise CannotCheck(f"the brokers cannot be asked: {error}") from error
        if wanted and not places:
            raise CannotCheck(f"there is no topic {wanted[0]}: Kordon writes decisions where `decisions.to` is `topic`")
        topic = self._options.sinks.topic
        if topic is not None:
            self._make(topic.name)

    def _make(self, topic: str) -> None:
        assert self._cluster is not None
        try:
            self._cluster.make_topic(topic, findings.TOPIC_CONFIGS)
        except BrokersUnavailable as error:
            raise CannotCheck(f"the topic {topic} cannot be made: {error}") from error

    def _start(self) -> StreamingQuery:
        rows = stream(self._spark, self._options.reading, sorted(self.engine.topics), self.storage.begun())
        writer = rows.writeStream.foreachBatch(self.engine.run).queryName("kordon-audit")
        writer = writer.option("checkpointLocation", f"{self.storage.folder}/checkpoint")
        seconds = 0 if self._options.reading.is_pinned else self._options.trigger_seconds
        return writer.trigger(processingTime=f"{seconds} seconds").start()

    def _watch(self, query: StreamingQuery, *, until_idle: bool) -> None:
        """Waits until a query has read all there is, there is another topic to read, or the audit is to stop.

        Raises:
            StreamingQueryException: It failed.
        """
        topics = self.engine.topics
        try:
            if until_idle:
                query.processAllAvailable()
                return
            while not self._stopping and topics == self.engine.topics:
                if query.awaitTermination(_LOOK_SECONDS):  # type: ignore[arg-type]  # whole seconds, says its hint
                    return
                self._tell_lag()
        finally:
            query.stop()

    def _ends(self) -> Mapping[Place, int]:
        assert self._cluster is not None
        return self._cluster.ends(self._cluster.partitions(self.engine.topics), LATEST)

    def _tell_lag(self) -> None:
        if self._cluster is None or time.monotonic() < self._lag_at:
            return
        self._lag_at = time.monotonic() + _LAG_SECONDS
        told = self.storage.begun()
        try:
            decisions = (
                0 if told is None else self._behind(json.loads(told[0]), [self._options.reading.decisions_topic])
            )
            read = {} if told is None or len(told) < 2 or told[1] == "-" else json.loads(told[1])
            offsets = self._behind(read, self.engine.topics)
        except (BrokersUnavailable, ValueError):
            return
        read_offsets = sum(next_offset for its in read.values() for next_offset in its.values())
        self._metrics.lag(decisions, int(offsets * self.engine.totals.bytes / max(1, read_offsets)))

    def _behind(self, read: Mapping[str, Mapping[str, int]], topics: Any) -> int:
        assert self._cluster is not None
        ends = self._cluster.ends(self._cluster.partitions(topics), LATEST)
        return sum(max(0, end - read.get(place.topic, {}).get(str(place.partition), 0)) for place, end in ends.items())


def _short(error: StreamingQueryException) -> str:
    """Returns what was raised first of all; the stacks of two languages around it say nothing to a user."""
    raised = [found.group().strip() for found in _RAISED.finditer(str(error))]
    return (raised[-1] if raised else str(error).strip())[:_MOST_WORDS]
