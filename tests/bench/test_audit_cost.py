"""What an audit costs is told of what was meant to be measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("pyspark", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

import polars as pl

from kordon.bench import results
from kordon.bench.audit_cost import Schedule, figures, kinds
from kordon.bench.audit_day import Day
from kordon.bench.audit_log import ends_of
from kordon.bench.audit_source import RecordedStream
from kordon.bench.plan import PROFILES
from kordon.bench.report import report
from kordon.bench.results import AUDITOR, FIRST, IDLE, STEADY, WARM_UP, Measurement, Results
from kordon.bench.verdicts import verdicts
from kordon.spark_jobs.files_source import LinesStream
from kordon.spark_jobs.judging.schema import BATCHES
from kordon.spark_jobs.judging.shipments import What, of_arrow, unpacked

DAY: Final = Day(rounds=48, topics=1, virtual=24, producers=8, batches=2, records=3, batch_bytes=300, behind=4, quiet=2)
ENDS: Final = (12, 24, 36, 48, 49, 50)
BATCH: Final = {"decisions": 100.0, "mb": 8.0, "cpu_s": 2.0, "state_mb": 5.0}
PSS: Final = {"pss_driver_mb": 100.0, "pss_jvm_mb": 500.0, "pss_workers_mb": 200.0}


def told(of: Sequence[str], **differing: dict[int, float]) -> dict[str, Any]:
    """What micro-batches took; those that are numbered differ in a figure."""
    batches = [{**BATCH, **PSS} for _ in of]
    for name, values in differing.items():
        for number, value in values.items():
            batches[number][name] = value
    return {"findings": 0, "unknown": 0, "micro_batches": batches}


def test_the_second_half_of_the_day_is_the_steady_state() -> None:
    """The first micro-batch is none of it, and neither are quiet ones."""
    assert kinds(DAY, ENDS) == [FIRST, WARM_UP, STEADY, STEADY, IDLE, IDLE]
    assert kinds(DAY, (48, 49)) == [FIRST, IDLE]


def test_throughput_and_state_are_those_of_the_steady_state() -> None:
    """Whatever the others took, by the processor time of all together."""
    of = [FIRST, WARM_UP, STEADY, STEADY, *[IDLE] * 10]
    found = figures(told(of, cpu_s={0: 50.0, 1: 9.0, 2: 3.0, 5: 7.0, 9: 1.2, 12: 1.4}, state_mb={3: 6.0}), of)
    assert (found[results.AUDIT_DECISIONS], found[results.AUDIT_MB]) == (200 / 5, 16 / 5)
    assert (found[results.AUDIT_STATE_MIDDLE_MB], found[results.AUDIT_STATE_MB]) == (5, 6)
    assert found[results.AUDIT_FIRST_CPU] == 50
    assert found[results.AUDIT_FLOOR_CPU] == 2.0  # from the tenth on: 1.2, 2.0, 1.4, …


def test_memory_is_that_of_all_processes_when_it_was_most() -> None:
    """Not of each of them at a time of its own."""
    of = [FIRST, IDLE]
    found = figures(told(of, pss_jvm_mb={0: 900.0, 1: 600.0}, pss_workers_mb={0: 100.0, 1: 700.0}), of)
    assert (found[results.AUDIT_PSS_MB], found[results.AUDIT_JVM_MB]) == (1_400, 600)
    assert results.AUDIT_DECISIONS not in found


@pytest.mark.slow
def test_each_micro_batch_has_what_was_meant_for_it(tmp_path: Path) -> None:
    """Both sources are led from one to the next, and nothing is left in the end."""
    schedule = Schedule(DAY, ENDS, tmp_path)
    files = LinesStream({"folder": str(schedule.decisions)})
    options = {"day": json.dumps(asdict(DAY)), "round": str(schedule.round), "parts": "1"}
    stream = RecordedStream(options)
    before, at, decided = stream.initialOffset(), files.initialOffset(), 0
    for end in ENDS:
        assert schedule.go_on()
        after, lines = stream.latestOffset(), files.latestOffset()
        tables = [table for part in stream.partitions(before, after) for table in stream.read(part)]
        batches = unpacked(BATCHES, (each for table in tables for each in of_arrow(table) if each.what == What.BATCHES))
        ends = {(place.topic, place.partition): at for place, at in ends_of(DAY, end).items()}
        reached = batches.group_by("topic", "partition").agg(pl.max("last_offset") + 1).iter_rows()
        assert all(ends[topic, q] == next_offset for topic, q, next_offset in reached)
        decided += sum(
            len(path.read_bytes().splitlines()) for path in map(schedule.decisions.joinpath, lines.keys() - at)
        )
        assert decided == schedule.decided
        before, at = after, lines
    assert not schedule.go_on()


def test_the_page_has_a_row_for_each_audit() -> None:
    """And none of its own section where nothing was audited."""
    names = tuple(case.name for case in PROFILES["quick"].audit)
    made = Results("test", "2026-01-01T00:00:00+00:00", 1, "base", "latency", "idle", "tls", {}, audit=names)
    assert "## The auditor" not in report(made, "x.svg")
    made.measurements.append(Measurement(names[0], STEADY, 3, {"cpu_s": 3.0}))
    made.measurements.append(Measurement(names[0], AUDITOR, 1, {results.AUDIT_DECISIONS: 1234.4}))
    assert f"| {names[0]} | 1234 | - |" in report(made, "x.svg")


def test_an_audit_is_held_against_the_bar() -> None:
    """A long one by what it judges and keeps, one of next to nothing by what it takes to begin; both by the rest."""
    made = Results("test", "2026-01-01T00:00:00+00:00", 1, "base", "latency", "idle", "tls", {}, audit=("tiny", "long"))
    common = {results.AUDIT_FIRST_CPU: 13.0, results.AUDIT_FLOOR_CPU: 1.4, results.AUDIT_PSS_MB: 1_300.0}
    long = {results.AUDIT_DECISIONS: 49_999.0, results.AUDIT_MB: 1_000.0}
    state = {results.AUDIT_STATE_MIDDLE_MB: 10.0, results.AUDIT_STATE_MB: 10.05}
    made.measurements += [
        Measurement("tiny", AUDITOR, 1, common),
        Measurement("long", AUDITOR, 1, common | long | state),
    ]
    reached = {each.what: each.reached for each in verdicts(made)}
    assert reached == {
        "the first micro-batch, tiny": False,
        "a micro-batch with next to nothing, from the tenth on, tiny": True,
        "memory (PSS) of JVM and Python, tiny": False,
        "decisions per CPU second, long": False,
        "MB of topic data per CPU second, long": True,
        "state at the end, of that halfway, long": True,
        "a micro-batch with next to nothing, from the tenth on, long": True,
        "memory (PSS) of JVM and Python, long": False,
    }
