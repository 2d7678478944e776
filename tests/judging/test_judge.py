"""The judge of a part: topics that are divided among parts are judged as they are together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

import pytest

pytest.importorskip("polars", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

import polars as pl

from kordon.spark_jobs.job import BatchResult
from kordon.spark_jobs.judging.intake import of_decisions, of_partition
from kordon.spark_jobs.judging.judge import SETTINGS, Judge
from kordon.spark_jobs.judging.rules.all_rules import ALL
from kordon.spark_jobs.judging.schema import BATCHES, FINDINGS, READ_TO
from kordon.spark_jobs.judging.shipments import (
    MOST_BYTES,
    ROWS,
    Shipment,
    What,
    divided,
    of_arrow,
    packed,
    part_of,
    redivided,
    shipped,
    to_arrow,
    unpacked,
)
from kordon.spark_jobs.judging.summaries import SUMMARIES
from kordon.spark_jobs.judging.summaries.summary import merged
from kordon.spark_jobs.tasks import COLUMNS
from kordon.testing.audits.judged import table
from kordon.testing.audits.rule_histories import History, lines_of
from kordon.testing.audits.rule_mishaps import Mishaps

TOPICS: Final = 6
PIECES: Final = 3
JUDGE: Final = Judge(rules=ALL, summaries=SUMMARIES)


class Audit:
    """An audit without Spark: each part judges what it is given, and is given what it kept."""

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.kept: list[Shipment] = []
        self.told: list[BatchResult] = []

    def take(self, histories: Sequence[History], piece: int, *, is_last: bool = False) -> None:
        """Judges one micro-batch."""
        given: dict[int, list[Shipment]] = defaultdict(list)
        settings = packed(pl.DataFrame([(600_000, is_last)], schema=SETTINGS, orient="row"))
        rows = [Shipment(part, What.SETTINGS, "", 0, settings) for part in range(self.parts)]
        news = (each for history in histories for each in self._news(history, piece))
        for each in (*rows, *self.kept, *news):
            given[each.part].append(each)
        out = [each for part, shipments in given.items() for each in JUDGE.judge(part, reversed(shipments))]
        self.kept = [each for each in out if each.what in {What.STATE, What.SUMMARY}]
        self.told.append(BatchResult.of(each for each in out if each.what != What.STATE))

    def redivide(self, parts: int) -> None:
        """Goes on with another number of parts."""
        self.kept, self.parts = list(redivided(self.kept, parts)), parts

    def outcome(self) -> dict[str, Any]:
        """All that it has said."""
        newest = {each["finding_id"]: each for told in self.told for each in told.findings.to_dicts()}
        looked_at = pl.concat([told.checked for told in self.told])
        counts = looked_at.group_by("rule", "topic", "verdict", "late").agg(pl.sum("count"))
        totals = [each for told in self.told for each in told.totals.to_dicts()]
        return {
            "findings": newest,
            "checked": {row[:4]: row[4] for row in counts.iter_rows()},
            "managed": self.told[-1].managed,
            "totals": {name: sum(each[name] for each in totals) for name in ("decisions", "batches", "unreadable")},
            "summaries": {each.name: self._summary(each.name) for each in SUMMARIES if each.name != "proofs"},
        }

    def _summary(self, name: str) -> list[str]:
        summary = next(each for each in SUMMARIES if each.name == name)
        pieces = [unpacked(summary.state, each) for each in self.told[-1].summaries.get(name, ())]
        return sorted(map(repr, merged(summary, pieces).to_dicts()))

    def _news(self, history: History, piece: int) -> list[Shipment]:
        topic = history.layout.topic
        lines = [line for at, line in enumerate(lines_of(history)) if at * PIECES // len(history.decisions) == piece]
        found = list(
            of_decisions(lines, [0] * len(lines), list(range(len(lines))), name=topic, first=0, parts=self.parts)
        )
        batches = [row for at, row in enumerate(history.batches) if at * PIECES // len(history.batches) == piece]
        ends = {row["partition"]: row["last_offset"] + 1 for row in batches}
        ends |= {each["partition"]: each["next_offset"] for each in history.read_to} if piece == PIECES - 1 else {}
        for q, end in ends.items():
            rows = table([row for row in batches if row["partition"] == q], BATCHES)
            read_to = table([{"topic": topic, "partition": q, "log_start": 0, "next_offset": end}], READ_TO)
            found += of_partition(What.BATCHES, rows, topic, q, self.parts)
            found += of_partition(What.READ_TO, read_to, topic, q, self.parts)
        return found


def histories(seed: int) -> list[History]:
    """Topics of which in half something is wrong."""
    return [(Mishaps if number % 2 else History)(f"topic-{number}", seed + number) for number in range(TOPICS)]


def judged(seed: int, *parts: int) -> dict[str, Any]:
    """What an audit says whose number of parts is another in each micro-batch."""
    audit = Audit(parts[0])
    for piece, count in enumerate(parts):
        audit.redivide(count)
        audit.take(histories(seed), piece, is_last=piece == PIECES - 1)
    return audit.outcome()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [100, pytest.param(200, marks=pytest.mark.deep)])
def test_topics_that_are_divided_among_parts_are_judged_as_they_are_together(seed: int) -> None:
    """Findings, what was looked at, totals and the report's tables; also if the number of parts changes in between."""
    whole = judged(seed, 1, 1, 1)
    assert len({part_of(f"topic-{number}", 3) for number in range(TOPICS)}) > 1
    assert whole["managed"] == {f"topic-{number}" for number in range(TOPICS)}
    assert {each["verdict"] for each in whole["findings"].values()} >= {"fail"}
    assert judged(seed, 3, 3, 3) == whole
    assert judged(seed, 3, 1, 2) == whole


def test_shipments_are_bounded_and_keep_their_order() -> None:
    """A table that is larger than a shipment comes in several, and is what it was, in whatever order they arrive."""
    many = table([{"text": f"{number:01000}", "first_offset": number} for number in range(20_000)], FINDINGS)
    shipments = list(shipped(0, What.FINDINGS, many))
    assert len(shipments) > 3
    assert max(unpacked(FINDINGS, [each]).estimated_size() for each in shipments) < 2 * MOST_BYTES
    assert unpacked(FINDINGS, reversed(shipments)).equals(many)
    assert list(of_arrow(to_arrow(shipments))) == shipments
    assert list(shipped(0, What.FINDINGS, FINDINGS.to_frame())) == []


def test_rows_without_a_topic_are_judged_by_the_first_part() -> None:
    """Also where others have one; a table that names no topics is of the first part, too."""
    rows = pl.DataFrame({"topic": ["a", None, "b", None], "n": [1, 2, 3, 4]})
    parts = dict(divided(rows, 5))
    assert set(parts[0].filter(pl.col("topic").is_null()).get_column("n")) == {2, 4}
    assert sum(each.height for each in parts.values()) == 4
    assert [part for part, _ in divided(pl.DataFrame({"n": [1]}), 5)] == [0]
    nowhere = pl.DataFrame({"topic": [None]}, schema={"topic": pl.String})
    assert [part for part, _ in divided(nowhere, 5)] == [0]


def test_spark_is_told_of_shipments_what_they_are() -> None:
    """In its own words, which processes need that have nothing else to do with them."""
    pytest.importorskip("pyspark")
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415
    from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType  # noqa: PLC0415

    kinds = {"int": IntegerType(), "string": StringType(), "bigint": LongType(), "binary": BinaryType()}
    pairs = (each.split() for each in COLUMNS.split(", "))
    assert to_arrow_schema(StructType([StructField(name, kinds[kind]) for name, kind in pairs])) == ROWS
