"""The day that the auditor's bench reads is whole, and its decisions tell of the batches that there are."""

from collections import defaultdict
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

from kordon.bench import results
from kordon.bench.audit_cost import Recorded, figures
from kordon.bench.audit_day import TOPIC, Day, fetched, write_decisions
from kordon.bench.plan import PROFILES
from kordon.bench.report import report
from kordon.bench.results import AUDITOR, Measurement, Results
from kordon.bench.verdicts import verdicts
from kordon.codecs.decision import Entry, Kind
from kordon.spark_jobs.batch_reader import read_partition
from kordon.spark_jobs.brokers import PartitionKey

DAY = Day(partitions=2, rounds=130, batches=3, records=5, batch_bytes=200)


def entries(folder: Path) -> dict[str, list[Entry]]:
    """The decisions of each worker, in the order of their files."""
    found = defaultdict[str, list[Entry]](list)
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            entry = Entry.load(line)
            found[entry.worker].append(entry)
    return found


def test_all_decisions_are_there_and_workers_number_them_without_a_hole(tmp_path: Path) -> None:
    """As many as the day says; each of them is one by the codec."""
    size = write_decisions(DAY, tmp_path)
    found = entries(tmp_path)
    assert size == sum(path.stat().st_size for path in tmp_path.iterdir())
    assert sum(map(len, found.values())) == DAY.decisions
    for its in found.values():
        assert [each.number for each in its] == list(range(len(its)))
        assert its[0].decision.kind is Kind.ADOPT


def test_acknowledged_runs_and_deliveries_are_what_stands_in_the_log(tmp_path: Path) -> None:
    """Sequences, offsets and counts of records agree, batch by batch, for each stream."""
    write_decisions(DAY, tmp_path)
    decisions = [each.decision for its in entries(tmp_path).values() for each in its]
    for q in range(DAY.partitions):
        tables = list(read_partition(Recorded(DAY), PartitionKey(TOPIC, q), 0, DAY.end))  # type: ignore[arg-type]
        rows = [row for table in tables[:-1] for row in table.to_pylist()]
        assert sum(row["bytes"] for row in rows) == DAY.topic_bytes // DAY.partitions
        for told in (each for each in decisions if each.partition == q and each.stream is not None):
            if told.kind not in {Kind.ADMIT, Kind.DELIVER}:
                continue
            its = [row for row in rows if row["v"] == told.stream and row["base_offset"] >= told.first_offset]
            its = [row for row in its if row["last_offset"] <= (told.last_offset or 0)]
            assert sum(row["records"] for row in its) == told.records == DAY.batches * DAY.records
            if told.kind is Kind.ADMIT:
                assert (its[0]["base_sequence"], its[-1]["last_sequence"]) == (told.first_sequence, told.last_sequence)
                assert {row["client_producer_id"] for row in its} == {told.producer_id}


def test_a_part_of_the_log_is_what_the_whole_has_there() -> None:
    """An answer has as many whole batches as fit, and none behind the end."""
    whole, part = fetched(DAY, 1, 0, 1 << 30), fetched(DAY, 1, 100, 1_000)
    begin = 100 // DAY.records * DAY.batch_bytes
    assert bytes(whole.records[begin : begin + 1_000]) == bytes(part.records)
    assert len(fetched(DAY, 1, DAY.end - DAY.records, 1 << 20).records) == DAY.batch_bytes


def test_the_first_micro_batch_is_not_counted() -> None:
    """What a decision takes is told of the others; state at the end, and halfway."""
    batch = {"decisions": 100.0, "cpu_s": 2.0, "state_rows": 5.0, "state_bytes": 1e6, "summaries_bytes": 1e6}
    told = {
        "findings": 0,
        "decisions": 400,
        "topic_bytes": 4e9,
        "peak_jvm_bytes": 5e8,
        "peak_python_bytes": 1e8,
        "micro_batches": [{**batch, "cpu_s": 50.0}, batch, {**batch, "state_rows": 6.0}, {**batch, "state_rows": 7.0}],
    }
    found = figures(told)
    assert (found[results.AUDIT_DECISIONS], found[results.AUDIT_MB]) == (50, 500)
    assert (found[results.AUDIT_STATE_MIDDLE_ROWS], found[results.AUDIT_STATE_ROWS]) == (6, 7)
    assert found[results.AUDIT_STATE_MB] == 2


def test_the_page_has_a_row_for_each_audit() -> None:
    """And none of its own section where nothing was audited."""
    names = tuple(case.name for case in PROFILES["quick"].audit)
    made = Results("test", "2026-01-01T00:00:00+00:00", 1, "base", "latency", "idle", "tls", {}, audit=names)
    assert "## The auditor" not in report(made, "x.svg")
    made.measurements.append(Measurement(names[0], AUDITOR, 1, {results.AUDIT_DECISIONS: 1234.4}))
    assert f"| {names[0]} | 1234 | - |" in report(made, "x.svg")


def test_a_long_audit_is_held_against_the_bar_and_a_tiny_one_is_not() -> None:
    """50,000 decisions, and 50 MB of topic data, per CPU second."""
    made = Results("test", "2026-01-01T00:00:00+00:00", 1, "base", "latency", "idle", "tls", {}, audit=("tiny", "long"))
    figures = {results.AUDIT_DECISIONS: 49_999.0, results.AUDIT_MB: 50.0}
    made.measurements += [Measurement(case, AUDITOR, 1, figures) for case in made.audit]
    assert [(each.got, each.reached) for each in verdicts(made)] == [("49,999", False), ("50", True)]
