"""The one stream of an audit: decisions and batches as rows of two columns, of which one is null.

One stream of both, not two: then a micro-batch is one number for both, and Spark's checkpoint says of both at once how
far they were read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own manual calls it so
from pyspark.sql.types import DataType

from kordon.spark_jobs import batches_source, decisions_source, files_source
from kordon.spark_jobs.batches_source import ROWS
from kordon.spark_jobs.brokers import Security
from kordon.spark_jobs.schema import DECISIONS

_DECISIONS_AT: Final = 0
_BATCHES_AT: Final = 1
"""Where the sources stand in Spark's checkpoint: in the order of the union."""
_TELLING: Final = '"layout":'
"""Stands in decisions that carry a layout, and in no others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What an audit reads."""

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
        begun: Offsets of the sources in the newest micro-batch that was begun, as Spark wrote them down.
    """
    decisions = _decisions(spark, reading, _source(begun, _DECISIONS_AT))
    told = decisions.select(F.struct(*DECISIONS.names).alias("decision"), _none(ROWS).alias("batch"))
    if reading.bootstrap is None:
        return told
    batches = _batches(spark, reading, topics, _source(begun, _BATCHES_AT))
    return told.unionByName(batches.select(_none(DECISIONS).alias("decision"), F.struct(*ROWS.names).alias("batch")))


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
        options = {"positions": position, "max_bytes": str(files_source.MAX_BYTES), **_pinned(reading)}
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
        **_pinned(reading),
        **{
            name: str(value) for name in security.__dataclass_fields__ if (value := getattr(security, name)) is not None
        },
    }
    return spark.readStream.format("kordon.batches").options(**options).load()


def _source(begun: Sequence[str] | None, place: int) -> str:
    """Returns the offsets of one source as JSON; a source that had not begun is told as `-`."""
    told = begun[place] if begun is not None and place < len(begun) else "-"
    return "{}" if told == "-" else json.dumps(json.loads(told))


def _pinned(reading: Reading) -> dict[str, str]:
    return {"pinned": "true"} if reading.is_pinned else {}


def _none(of: DataType) -> Column:
    return F.lit(None).cast(of)
