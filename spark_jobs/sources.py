"""The one stream of an audit: decisions and batches as shipments.

One stream of both, not two: then a micro-batch is one number for both, and Spark's checkpoint says of both at once how
far they were read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so

from kordon.spark_jobs import batches_source, decisions_source, files_source
from kordon.spark_jobs.brokers import Security
from kordon.spark_jobs.key_sample import ONE_IN
from kordon.spark_jobs.session import parts_of

_DECISIONS_AT: Final = 0
_BATCHES_AT: Final = 1
"""Where the sources stand in Spark's checkpoint: in the order of the union."""
_TELLING: Final = '"layout":'
"""Stands in decisions that carry a layout, and in no others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The sources that an audit reads."""

    bootstrap: str | None = None
    """Brokers; None: only files are read, and no topics."""
    security: Security = field(default_factory=Security)
    folder: Path | None = None
    """The folder of decision files; None: decisions come from the topic."""
    decisions_topic: str = decisions_source.TOPIC
    most_decisions: int = decisions_source.MAX_DECISIONS
    """The most decisions of a micro-batch."""
    most_bytes: int = batches_source.MAX_BYTES
    """The most bytes of topic data in a micro-batch, about."""
    one_in: int = ONE_IN
    """One of so many batches is opened for KEY-HOME; 0: none."""
    is_pinned: bool = False
    """What is written after the first look is left alone."""

    @property
    def told(self) -> str:
        """Returns in words what is read."""
        decisions = f"decisions in {self.folder}" if self.folder else f"the decisions of {self.decisions_topic}"
        return decisions + (f" and the topics of {self.bootstrap}" if self.bootstrap else "")


def stream(spark: SparkSession, reading: Reading, topics: Sequence[str], begun: Sequence[str] | None) -> DataFrame:
    """Returns the stream.

    Args:
        begun: The offsets of the sources in the newest micro-batch that was begun, as Spark wrote them down.
    """
    decisions = _decisions(spark, reading, _source(begun, _DECISIONS_AT))
    if reading.bootstrap is None:
        return decisions
    return decisions.unionByName(_batches(spark, reading, topics, _source(begun, _BATCHES_AT)))


def managed_topics(spark: SparkSession, reading: Reading) -> frozenset[str]:
    """Looks through the decisions that there are for topics that are managed, before a first micro-batch.

    It only spares a beginning without topic data: topics that are missed are read once a decision tells of them.
    """
    if reading.folder is not None:
        return _told_in(line for path in sorted(reading.folder.glob("*.jsonl")) for line in _lines(path))
    assert reading.bootstrap is not None, "decisions come from files or from brokers"
    options = {"kafka.bootstrap.servers": reading.bootstrap, "subscribe": reading.decisions_topic}
    rows = spark.read.format("kafka").options(**options, **decisions_source.java_security(reading.security)).load()
    telling = rows.select(F.col("value").cast("string").alias("value")).where(F.col("value").contains(_TELLING))
    topics = telling.select(F.get_json_object("value", "$.topic").alias("topic")).distinct().collect()
    return frozenset(row["topic"] for row in topics if row["topic"])


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            yield from lines
    except FileNotFoundError:
        return  # removed since


def _told_in(lines: Iterable[str]) -> frozenset[str]:
    found: set[str] = set()
    for line in lines:
        if _TELLING in line:
            try:
                found.add(str(json.loads(line)["topic"]))
            except (ValueError, KeyError, TypeError):
                continue  # no decision, or half of one
    return frozenset(found)


def _decisions(spark: SparkSession, reading: Reading, position: str) -> DataFrame:
    if reading.folder is not None:
        options = {"positions": position, "max_bytes": str(files_source.MAX_BYTES), **_common(spark, reading)}
        return decisions_source.from_files(spark, reading.folder, options)
    assert reading.bootstrap is not None, "decisions come from files or from brokers"
    return decisions_source.from_topic(
        spark, reading.bootstrap, reading.security, topic=reading.decisions_topic, most=reading.most_decisions
    )


def _batches(spark: SparkSession, reading: Reading, topics: Sequence[str], position: str) -> DataFrame:
    security = reading.security
    options: dict[str, Any] = {
        "bootstrap": reading.bootstrap,
        "topics": ",".join(sorted(topics)),
        "max_bytes": str(reading.most_bytes),
        "positions": position,
        "one_in": str(reading.one_in),
        **_common(spark, reading),
        **{
            name: str(value) for name in security.__dataclass_fields__ if (value := getattr(security, name)) is not None
        },
    }
    return spark.readStream.format("kordon.batches").options(**options).load()


def _source(begun: Sequence[str] | None, place: int) -> str:
    """Returns the offsets of one source as JSON; a source that had not begun is told as `-`."""
    told = begun[place] if begun is not None and place < len(begun) else "-"
    return "{}" if told == "-" else json.dumps(json.loads(told))


def _common(spark: SparkSession, reading: Reading) -> dict[str, str]:
    divided = {"parts": str(parts_of(spark)), "tasks": str(spark.sparkContext.defaultParallelism)}
    return {**divided, **({"pinned": "true"} if reading.is_pinned else {})}
