"""What judging costs without Spark, rule by rule: `python -m kordon.bench.audit_rules`.

The made-up day goes through the auditor's own reading and judging in this process, with one thread. Told is the
processor time of each step and rule, in microseconds for each decision, or of micro-batches with next to nothing in
them in milliseconds.
"""

from __future__ import annotations

import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # before Polars is loaded

import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import polars as pl

from kordon.bench.audit_day import Day
from kordon.bench.audit_decisions import write_decisions
from kordon.bench.audit_log import Recorded, ends_of
from kordon.spark_jobs.job import BatchResult
from kordon.spark_jobs.judging.intake import of_decisions, of_partition
from kordon.spark_jobs.judging.judge import SETTINGS, Judge
from kordon.spark_jobs.judging.rules.all_rules import ALL
from kordon.spark_jobs.judging.shipments import Shipment, What, packed
from kordon.spark_jobs.judging.summaries import SUMMARIES

_LATE_MS: Final = 600_000
_LINES: Final = 10_000
"""That are parsed at once, about as many as 4 MiB have."""
_Made = TypeVar("_Made")


class LocalAudit:
    """An audit in this process: one part judges micro-batches, and is given what it kept."""

    def __init__(self, day: Day) -> None:
        self._day = day
        self.seconds = defaultdict[str, float](float)
        """Processor time by what took it."""
        self._judge = Judge(
            rules=tuple(replace(each, check=self._timed(each.name, each.check)) for each in ALL),
            summaries=tuple(replace(each, fold=self._timed("summaries", each.fold)) for each in SUMMARIES),
        )
        self._kept: list[Shipment] = []

    def take(self, decisions: Sequence[bytes], first: int, end: int) -> BatchResult:
        """Judges what there is of rounds [first, end)."""
        settings = packed(pl.DataFrame([(_LATE_MS, False)], schema=SETTINGS, orient="row"))
        given = [Shipment(0, What.SETTINGS, "", 0, settings), *self._kept]
        with self._clock("decisions"):
            given += self._of_decisions(decisions)
        with self._clock("batches"):
            given += self._of_topics(first, end)
        before = sum(self.seconds.values())
        with self._clock("the rest"):
            made = list(self._judge.judge(0, given))
        self.seconds["the rest"] -= sum(self.seconds.values()) - self.seconds["the rest"] - before
        self._kept = [each for each in made if each.what in {What.STATE, What.SUMMARY}]
        return BatchResult.of(each for each in made if each.what != What.STATE)

    @property
    def state_bytes(self) -> int:
        """What is kept between micro-batches."""
        return sum(len(each.table) for each in self._kept)

    def _of_decisions(self, decisions: Sequence[bytes]) -> Iterator[Shipment]:
        for begin in range(0, len(decisions), _LINES):
            lines = decisions[begin : begin + _LINES]
            nowhere = [-1] * len(lines), [None] * len(lines)
            yield from of_decisions(lines, *nowhere, name="files", first=begin, parts=1)

    def _of_topics(self, first: int, end: int) -> Iterator[Shipment]:
        begins, recorded = ends_of(self._day, first), Recorded(self._day, end)
        for place, stop in ends_of(self._day, end).items():
            if begins.get(place, 0) < stop:
                for what, table in recorded.read(place, begins.get(place, 0), stop):
                    yield from of_partition(what, table, *place, 1)

    def _timed(self, name: str, do: Callable[..., _Made]) -> Callable[..., _Made]:
        def timed(*given: Any) -> _Made:
            with self._clock(name):
                return do(*given)

        return timed

    @contextmanager
    def _clock(self, name: str) -> Iterator[None]:
        began = time.process_time()
        yield
        self.seconds[name] += time.process_time() - began


def audited(day: Day, ends: Sequence[int], audit: LocalAudit) -> Iterator[BatchResult]:
    """Judges a day, a micro-batch for each round before which one ends; yields what it tells."""
    with tempfile.TemporaryDirectory(prefix="kordon-bench-") as folder:
        for _ in write_decisions(day, ends, Path(folder)):
            pass
        for number, (first, end) in enumerate(zip([0, *ends], ends, strict=False)):
            files = sorted((Path(folder) / str(number)).iterdir())
            yield audit.take([line for path in files for line in path.read_bytes().splitlines()], first, end)


@click.command()
@click.option("--rounds", default=600, show_default=True, help="Seconds of the day in a micro-batch.")
@click.option("--micro-batches", default=3, show_default=True)
@click.option("--quiet", default=3, show_default=True, help="Micro-batches behind them with next to nothing in them.")
def main(*, rounds: int, micro_batches: int, quiet: int) -> None:
    """Tells what each rule costs."""
    day = Day(rounds * micro_batches, quiet=quiet)
    ends = [*range(rounds, day.rounds + 1, rounds), *range(day.rounds + 1, day.all_rounds + 1)]
    audit = LocalAudit(day)
    for told in audited(day, ends, audit):
        _show(told, audit)
        audit.seconds.clear()


def _show(told: BatchResult, audit: LocalAudit) -> None:
    decisions, batches = (int(told.totals.get_column(name).sum()) for name in ("decisions", "batches"))
    is_large = batches > _LINES
    each, unit = (1e6 / decisions, "us for each decision") if is_large else (1e3, "ms")
    click.echo(f"{decisions:,} decisions, {batches:,} batches; {told.findings.height} findings; in {unit}:")
    told_of = sorted(audit.seconds.items(), key=lambda its: -its[1])
    click.echo("  ".join(f"{name} {seconds * each:.2f}" for name, seconds in told_of))
    judged = sum(audit.seconds.values()) - audit.seconds["decisions"] - audit.seconds["batches"]
    click.echo(f"  judging {judged * each:.2f}; kept {audit.state_bytes / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
