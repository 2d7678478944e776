"""What the page says of each finding: what, where, what proves it, and what is to be done."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kordon.spark_jobs.report.kinds import FindingKind, kind_of
from kordon.spark_jobs.report.tables import Row, Tables
from kordon.spark_jobs.report.words import moment

MOST_SHOWN: Final = 500
MOST_PROOFS: Final = 50


@dataclass(frozen=True, slots=True)
class Proof:
    """A decision that a finding names."""

    name: str
    """worker:number, by which `kordon decisions` finds it."""
    decision: str
    """Its fields as JSON text, a line each; empty if it is not at hand any more."""
    what: str = ""
    """Its kind and time, for whoever does not read JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownFinding:
    """One finding of the page."""

    row: Row
    kind: FindingKind
    proofs: Sequence[Proof]
    left_out: int
    """Decisions that it names besides."""

    @property
    def is_open(self) -> bool:
        """Whether something is proven to be wrong; else it could not be judged."""
        return bool(self.row["verdict"] == "fail")

    @property
    def worker(self) -> str:
        """The worker whose decisions prove it, and which had the connection; empty for several or none."""
        workers = {name.rpartition(":")[0] for name in self.row["decisions"] or ()}
        return workers.pop() if len(workers) == 1 else ""


def findings(tables: Tables) -> list[ShownFinding]:
    """Returns them with their proofs: what is broken first, then the newest first."""
    known = {f"{row['worker']}:{row['number']}": str(row["decision"]) for row in tables.proofs}
    ordered = sorted(tables.findings, key=lambda row: row["verdict"] != "fail")
    return [_finding(row, known) for row in ordered[:MOST_SHOWN]]


def _finding(row: Row, known: Mapping[str, str]) -> ShownFinding:
    named = list(row["decisions"] or ())
    proofs = [_proof(name, known.get(name, "")) for name in named[:MOST_PROOFS]]
    return ShownFinding(row=row, kind=kind_of(row["kind"]), proofs=proofs, left_out=max(0, len(named) - MOST_PROOFS))


def _proof(name: str, decision: str) -> Proof:
    try:
        told = json.loads(decision)
        if isinstance(told.get("evidence"), str):
            told["evidence"] = json.loads(told["evidence"])
        what = f"{told.get('kind', 'decision')} at {moment(told.get('at_ms'), parts=True)} UTC"
    except (ValueError, TypeError, AttributeError):
        return Proof(name, decision)
    return Proof(name, json.dumps(told, indent=2, ensure_ascii=False), what)
