"""The day that the auditor's bench reads is whole and honest, and as hard as it says."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import pytest

pytest.importorskip("pyspark", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

import polars as pl

from kordon.bench.audit_day import Day
from kordon.bench.audit_decisions import write_decisions
from kordon.bench.audit_log import Recorded, ends_of, fetched
from kordon.bench.audit_rules import LocalAudit
from kordon.bench.audit_topics import topics_of
from kordon.codecs.decision import Decision, Entry, Kind
from kordon.spark_jobs.brokers import PartitionKey
from kordon.spark_jobs.job import BatchResult
from kordon.spark_jobs.judging.rules import gaps, ic_algebra, source_owner, txn_witness
from kordon.spark_jobs.judging.rules.all_rules import ALL
from kordon.spark_jobs.judging.shipments import What
from kordon.testing.decision_columns import incomplete

pytestmark = pytest.mark.slow

DAY: Final = Day(
    rounds=120, topics=2, virtual=24, producers=10, transactional_ids=6, batches=2, records=3, batch_bytes=400,
    behind=15, retained=80, quiet=2,
)  # fmt: skip
ENDS: Final = (30, 31, 75, 120, 121, 122)
"""Micro-batches that end within changes, just behind the killed worker, and with next to nothing in them."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, list[bytes]]]:
    """The lines of each micro-batch, by worker."""
    folder = tmp_path_factory.mktemp("decisions")
    counts = list(write_decisions(DAY, ENDS, folder))
    found: list[dict[str, list[bytes]]] = []
    for number, count in enumerate(counts):
        paths = sorted((folder / str(number)).iterdir())
        found.append({path.name.split("-")[1]: path.read_bytes().splitlines() for path in paths})
        assert sum(map(len, found[-1].values())) == count
    return found


@pytest.fixture(scope="module")
def entries(files: list[dict[str, list[bytes]]]) -> dict[str, list[Entry]]:
    """All decisions of each worker."""
    found = defaultdict[str, list[Entry]](list)
    for its in files:
        for worker, lines in its.items():
            found[worker] += map(Entry.load, lines)
    return found


def decisions(entries: dict[str, list[Entry]]) -> list[Decision]:
    return [each.decision for its in entries.values() for each in its]


def test_decisions_are_written_as_workers_write_them(files: list[dict[str, list[bytes]]]) -> None:
    """Byte by byte as the codec does, with all that decisions of their kind have to say."""
    lines = [line for its in files for each in its.values() for line in each]
    assert [Entry.load(line).dump() for line in lines] == lines
    assert not incomplete(Entry.load(line).decision for line in lines)


def test_workers_number_their_decisions_without_a_hole(entries: dict[str, list[Entry]]) -> None:
    """Over all files; the one that is killed has no more than those before, and closes nothing."""
    for worker, its in entries.items():
        assert [each.number for each in its] == list(range(len(its)))
        assert {each.worker for each in its} == {worker}
    assert len(entries["w2"]) < len(entries["w1"])
    assert all(each.decision.kind is not Kind.CLOSE for each in entries["w2"])


def test_topics_grow_three_times_and_shrink_once(entries: dict[str, list[Entry]]) -> None:
    """Each change by fence, acknowledgements, cuts and layout."""
    for topic in topics_of(DAY):
        told = [each for each in decisions(entries) if each.topic == topic.name]
        layouts = [each.evidence["layout"] for each in told if each.kind is Kind.COMMIT]
        assert [layout["epochs"][-1]["u"] for layout in layouts] == [3, 6, 12, 24, 12]
        kinds = Counter(each.kind for each in told)
        assert (kinds[Kind.FENCE], kinds[Kind.COMMIT]) == (4, 5)
        sealed = [q for each in told if each.kind is Kind.FENCE for q in each.evidence["sealed"]]
        assert kinds[Kind.CUT] >= len(sealed)


def test_everybody_is_there_whom_the_day_names(entries: dict[str, list[Entry]]) -> None:
    """All producers, stock readers and those of the dialect, one that is behind, and transactional producers."""
    told = decisions(entries)
    assert len({each.producer_id for each in told if each.kind is Kind.ADMIT and each.topic}) == DAY.producers
    ids = {each.evidence["transactional_id"] for each in told if each.api_key == 22}
    assert len(ids) == DAY.transactional_ids
    given = [each for each in told if each.kind is Kind.DELIVER and each.stream is not None]
    streams = {(each.group_id, (each.stream or 0) < 0) for each in given}
    assert streams == {("orders", False), ("ledger", True), ("archive", False)}
    behind = _given_of_the_first(given, "orders") - _given_of_the_first(given, "archive")
    assert behind == (DAY.behind + DAY.quiet) * DAY.run_records


def _given_of_the_first(given: Sequence[Decision], group: str) -> int:
    own = [each for each in given if (each.group_id, each.topic, each.stream) == (group, "orders-0", 0)]
    return sum(each.records or 0 for each in own)


def test_logs_are_whole_and_a_part_of_them_is_what_the_whole_has_there() -> None:
    """Batches follow on each other to the end that brokers tell; an answer has as many whole ones as fit."""
    for place, end in ends_of(DAY, DAY.all_rounds).items():
        whole = bytes(fetched(DAY, place, 0, 1 << 30, DAY.all_rounds).records)
        part = fetched(DAY, place, DAY.records, 3 * DAY.batch_bytes + 5, DAY.all_rounds)
        assert bytes(part.records) == whole[DAY.batch_bytes : 4 * DAY.batch_bytes]
        assert part.high_watermark == end == len(whole) // DAY.batch_bytes * DAY.records
        table = pl.concat(
            [rows for what, rows in Recorded(DAY, DAY.all_rounds).read(place, 0, end) if what == What.BATCHES]
        )
        assert table.get_column("base_offset").to_list() == list(range(0, end, DAY.records))
        assert table.get_column("bytes").sum() == len(whole)


def test_what_retention_takes_was_read_before() -> None:
    """The start of a log rises with its end, and readers that are behind are ahead of it."""
    place = PartitionKey("orders-0", 0)
    told = fetched(DAY, place, 0, 1 << 20, DAY.rounds)
    behind = topics_of(DAY)[0].ends(DAY.rounds - DAY.behind)[0]
    assert 0 < told.log_start_offset < behind < told.high_watermark


def audited(
    files: list[dict[str, list[bytes]]], change: Callable[[bytes], bytes | None] = lambda line: line
) -> list[BatchResult]:
    """Judges the day, each of whose lines may be changed or left out."""
    audit, found = LocalAudit(DAY), list[BatchResult]()
    for its, first, end in zip(files, (0, *ENDS), ENDS, strict=False):
        lines = [change(line) for each in its.values() for line in each]
        found.append(audit.take([line for line in lines if line is not None], first, end))
    return found


def test_an_audit_finds_nothing_and_nothing_is_unknown(files: list[dict[str, list[bytes]]]) -> None:
    """By all rules, over several micro-batches: what the killed worker has not written down is no fault."""
    told = audited(files)
    assert pl.concat([each.findings for each in told]).to_dicts() == []
    looked_at = pl.concat([each.checked for each in told])
    assert set(looked_at.get_column("verdict")) == {"pass"}
    unused = {each.RULE.number for each in (txn_witness, ic_algebra, source_owner)}  # it has nothing for these
    looked_for = {gaps.RULE.number, *(each.number for each in ALL)} - unused
    assert set(looked_at.get_column("rule")) == looked_for
    totals = pl.concat([each.totals for each in told])
    assert totals.get_column("unreadable").sum() == 0
    assert totals.get_column("decisions").sum() == sum(len(lines) for its in files for lines in its.values())


def _without_one(line: bytes) -> bytes | None:
    return None if b'"worker":"w0","number":2000,' in line else line


def _fewer(line: bytes) -> bytes:
    """Of a reader that is given what it is owed, but for one record."""
    return re.sub(rb'("number":1777,.*"kind":"deliver".*"records":)\d+', rb"\g<1>1", line)


@pytest.mark.parametrize(("change", "kinds"), [(_without_one, {"gap"}), (_fewer, {"skipped-range"})])
def test_what_is_changed_in_it_is_found(
    files: list[dict[str, list[bytes]]], change: Callable[[bytes], bytes | None], kinds: set[str]
) -> None:
    """So that nothing is found in it as it holds, not as nobody looks."""
    told = audited(files, change)
    assert kinds <= set(pl.concat([each.findings for each in told]).get_column("kind"))


def test_a_longer_day_only_has_more_of_the_same() -> None:
    """In its second half layouts are as they were, so that what an audit keeps stays the same."""
    longer = replace(DAY, rounds=1_200)
    for topic in topics_of(longer):
        assert topic.phase(600).layout is topic.phase(1_200).layout
    assert longer.killed_at < 600
