"""The decisions of the made-up day, as the files that its workers write: one for each worker and micro-batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import polars as pl

from kordon.bench.audit_changes import BEFORE, worker_name
from kordon.bench.audit_day import START_MS, Day
from kordon.bench.audit_steps import NEWEST, steps
from kordon.bench.audit_traffic import END_MS, LINES, admitted, given
from kordon.codecs.decision import Decision, Entry

_HOST: Final = "bench"
_NUMBER: Final = b'"number":0,'
_ASKED_AFTER: Final = '"asked_after":'
_IN_ORDER: Final = ("worker", "at", "slot", "place")


def write_decisions(day: Day, ends: Iterable[int], folder: Path) -> Iterator[int]:
    """Writes the decisions of some micro-batches; yields how many each has.

    Args:
        ends: The round before which each of them ends, rising.
        folder: Gets a folder for each, named by its number from 0 on.
    """
    numbers = Counter[int]()
    first = 0
    for batch, end in enumerate(ends):
        lines = decisions(day, first, end)
        place = folder / str(batch)
        place.mkdir(parents=True)
        for (worker,), its in lines.group_by("worker", maintain_order=True):
            own = int(str(worker))
            path = place / f"decisions-{worker_name(own)}-{batch:09}.jsonl"
            _numbered(its, worker_name(own), numbers[own]).write_csv(path, include_header=False, quote_style="never")
            numbers[own] += its.height
        yield lines.height
        first = end


def decisions(day: Day, first: int, end: int) -> pl.DataFrame:
    """Returns all decisions of rounds [first, end), as `LINES`: those of each worker in their order."""
    rare = [_line(place, *step) for place, step in enumerate(steps(day, first, end))]
    table = pl.DataFrame(rare, schema=LINES, orient="row")
    return pl.concat([table, *admitted(day, first, end), *given(day, first, end)]).sort(_IN_ORDER, maintain_order=True)


def _line(place: int, worker: int, at: int, slot: int, decision: Decision) -> tuple[int, int, int, int, int, str]:
    entry = Entry(at_ms=0, host="", worker="", number=0, decision=decision).dump()
    at_ms = START_MS + at * 1_000 + (0 if slot == BEFORE else END_MS)
    return worker, at, slot, place, at_ms, entry.partition(_NUMBER)[2].decode()


def _numbered(lines: pl.DataFrame, worker: str, first: int) -> pl.DataFrame:
    """Puts in front of the lines of one worker what all decisions begin with; numbers go on with the first one."""
    head = pl.lit('{"schema":1,"at_ms":'), "at_ms", pl.lit(f',"host":"{_HOST}","worker":"{worker}","number":')
    number = pl.int_range(first, first + pl.len())
    newest = pl.concat_str(pl.lit(_ASKED_AFTER), number - 1)
    rest = pl.col("rest").str.replace(f"{_ASKED_AFTER}{NEWEST}", newest, literal=True)
    return lines.select(pl.concat_str(*head, number, pl.lit(","), rest))
