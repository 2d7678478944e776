"""What rules of the auditor are given in tests, micro-batch by micro-batch, and what comes of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

Row = Mapping[str, Any]
START_MS: Final = 1_760_000_000_000


@dataclass(frozen=True, kw_only=True)
class MicroBatch:
    """What is new for a rule; segments and stays hold until other ones are told."""

    decisions: Sequence[Row] = ()
    batches: Sequence[Row] = ()
    keys: Sequence[Row] = ()
    read_to: Sequence[Row] = ()
    segments: Sequence[Row] | None = None
    stays: Sequence[Row] | None = None
    is_last: bool = False


@dataclass
class Played:
    """What came of it."""

    findings: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    checked: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    state: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Behind the last micro-batch."""
    waiting: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Batches that are not certain yet, and up to where all are."""

    def found(self, *columns: str) -> list[Any]:
        """Returns some columns of all findings, sorted; one column without tuples."""
        rows = [tuple(each[column] for column in columns) for each in self.findings]
        return sorted((row[0] if len(columns) == 1 else row for row in rows), key=repr)

    def count(self, verdict: str) -> int:
        """Returns how much was looked at with this verdict."""
        return sum(each["count"] for each in self.checked if each["verdict"] == verdict)


def decided(kind: str, number: int, *, worker: str = "w1", seconds: float = 0, **fields: Any) -> dict[str, Any]:
    """A decision; `evidence` is an object."""
    evidence = fields.pop("evidence", None)
    return {
        "host": "host",
        "worker": worker,
        "number": number,
        "kind": kind,
        "at_ms": START_MS + round(seconds * 1000),
        "evidence": None if evidence is None else json.dumps(evidence),
        "log_partition": 0,
        **fields,
    }


def gaps_in(decisions: Iterable[Row], numbers: dict[str, int]) -> list[Row]:
    """Returns the gaps in the numbers of workers, as `GAPS` has them; `numbers` goes on with the last of each."""
    found: list[Row] = []
    for row in sorted(decisions, key=lambda each: each["number"]):
        following = numbers.get(row["worker"], -1) + 1
        if row["number"] > following:
            found.append({"worker": row["worker"], "first_number": following, "last_number": row["number"] - 1})
        numbers[row["worker"]] = row["number"]
    return found
