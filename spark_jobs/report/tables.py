"""Reads what an audit has written: Parquet by pyarrow, so that a report is there in a second and needs no Java.

An audit may be at work meanwhile. So the newest complete version of a table is taken, and what is missing is empty.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

Row: TypeAlias = Mapping[str, Any]

_SUMMARIES: Final = (
    "traffic",
    "fences",
    "layouts",
    "pauses",
    "workers",
    "reasons",
    "read_decisions",
    "read_batches",
    "proofs",
)
_CHECKED_BY: Final = ["rule", "topic", "verdict"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """All that a report is made of; the tables of `summaries.py` by their names."""

    about: Mapping[str, Any]
    """What was run: about.json; empty if it is not there."""
    progress: Mapping[str, Any]
    """How far it has come: progress.json; empty if it is not there."""
    findings: Sequence[Row]
    """Each once, as it was found last, the newest first."""
    checked: Sequence[Row]
    """The `ranges`, and the `count` of what they hold, by rule, topic and verdict."""
    traffic: Sequence[Row]
    fences: Sequence[Row]
    layouts: Sequence[Row]
    pauses: Sequence[Row]
    workers: Sequence[Row]
    reasons: Sequence[Row]
    read_decisions: Sequence[Row]
    read_batches: Sequence[Row]
    proofs: Sequence[Row]


def read(folder: Path) -> Tables:
    """Reads the folder of an audit (`kordon audit run --out`).

    Raises:
        FileNotFoundError: There is no audit in the folder.
    """
    summaries: dict[str, Any] = {name: _newest(folder / "summaries" / name) for name in _SUMMARIES}
    return replace(read_judged(folder), progress=_json(folder / "progress.json"), **summaries)


def read_judged(folder: Path, until_ms: float = inf) -> Tables:
    """Reads what an audit had judged at some time, and no summaries.

    Args:
        until_ms: The time up to which the audit had judged, in milliseconds since 1970.

    Raises:
        FileNotFoundError: There is no audit in the folder.
    """
    if not any((folder / name).exists() for name in ("about.json", "checked", "findings", "summaries")):
        raise FileNotFoundError(f"no audit has written to {folder}: run `kordon audit run --out {folder}` first")
    return Tables(
        about=_json(folder / "about.json"),
        progress={},
        findings=_findings(folder / "findings", until_ms),
        checked=_checked(folder / "checked", until_ms),
        **dict.fromkeys(_SUMMARIES, ()),
    )


def _json(file: Path) -> Mapping[str, Any]:
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def _findings(folder: Path, until_ms: float) -> Sequence[Row]:
    """A finding that continues is written again, under the same id, with wider offsets: the last one counts."""
    found: dict[str, Row] = {}
    for _, batch in _batches(folder, until_ms):
        for row in _table(batch).to_pylist():
            found[str(row["finding_id"])] = row
    return sorted(found.values(), key=lambda row: (-(row["found_ms"] or 0), str(row["finding_id"])))


def _checked(folder: Path, until_ms: float) -> Sequence[Row]:
    tables = (_table(batch, [*_CHECKED_BY, "count"]) for _, batch in _batches(folder, until_ms))
    filled = [table for table in tables if table.num_rows and set(_CHECKED_BY) <= set(table.column_names)]
    if not filled:
        return []
    whole = pa.concat_tables(filled)
    sums = whole.group_by(_CHECKED_BY).aggregate([("count", "sum"), ("count", "count"), ([], "count_all")])
    return [
        {**{name: row[name] for name in _CHECKED_BY}, "ranges": row["count_all"], "count": row["count_sum"] or 0}
        for row in sums.to_pylist()
    ]


def _newest(folder: Path) -> Sequence[Row]:
    for _, batch in sorted(_batches(folder), reverse=True):
        return list(_table(batch).to_pylist())
    return []


def _batches(folder: Path, until_ms: float = inf) -> Iterator[tuple[int, Path]]:
    """The versions in a folder that were complete at some time, by the number of their micro-batch."""
    if not folder.is_dir():
        return
    numbered = [(int(name), each) for each in folder.iterdir() if (name := each.name.removeprefix("batch=")).isdigit()]
    for number, each in sorted(numbered):
        if _is_complete(each, until_ms):
            yield number, each


def _is_complete(folder: Path, until_ms: float) -> bool:
    try:
        return (folder / "_SUCCESS").stat().st_mtime * 1000 <= until_ms
    except FileNotFoundError:
        return False


def _table(folder: Path, columns: Sequence[str] | None = None) -> Any:
    """Reads one version of a table. There may be thousands, so each is to cost no more than it must."""
    files = sorted(folder.glob("*.parquet"))
    parts = [pq.ParquetFile(file).read(columns=columns, use_threads=False) for file in files]
    return pa.concat_tables(parts, promote_options="default") if parts else pa.table({})
