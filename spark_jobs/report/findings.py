"""What the page says of each finding: what, where, what proves it, how to see that, and what is to be done."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from kordon.spark_jobs.report.commands import MOST_RECORDS, Commands, records
from kordon.spark_jobs.report.compare import Mark
from kordon.spark_jobs.report.kinds import FindingKind, kind_of
from kordon.spark_jobs.report.tables import Row, Tables
from kordon.spark_jobs.report.words import moment

MOST_SHOWN: Final = 500
MOST_PROOFS: Final = 50
"""Decisions of one finding."""
MOST_DECISIONS: Final = 1000
"""Decisions that are shown with all their fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A decision that findings name."""

    name: str
    """worker:number, by which `kordon decisions show` finds it."""
    command: str
    """Shows it; empty if it is not known where decisions were read."""
    decision: str = ""
    """Its fields as JSON text, a line each; empty if it is not at hand any more."""
    kind: str = ""
    when: str = ""
    anchor: str = ""
    """Where the page shows it; empty: it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownFinding:
    """One finding of the page."""

    anchor: str
    """Where the page shows it."""
    row: Row
    kind: FindingKind
    proofs: Sequence[Proof]
    left_out: int
    """Decisions that it names besides."""
    show: str
    """The command that shows these decisions."""
    read: str
    """The command that shows the records at its offsets; empty if it has none."""
    mark: Mark | None
    """How it differs from the audit that is compared with; None: it does not."""

    @property
    def is_open(self) -> bool:
        """Whether something is proven to be wrong; else it could not be judged."""
        return bool(self.row["verdict"] == "fail")

    @property
    def is_longer(self) -> bool:
        """Whether it has more offsets than `read` shows."""
        return records(self.row) > MOST_RECORDS

    @property
    def worker(self) -> str:
        """The worker whose decisions prove it, and which had the connection; empty for several or none."""
        workers = {name.rpartition(":")[0] for name in self.row["decisions"] or ()}
        return workers.pop() if len(workers) == 1 else ""


def findings(tables: Tables, marks: Mapping[str, Mark]) -> tuple[list[ShownFinding], list[Proof]]:
    """Returns findings, what is broken first, of these the marked ones first, then the newest; and their decisions.

    Args:
        marks: The marks of findings that differ from another audit, by id.
    """
    ordered = sorted(tables.findings, key=lambda row: (row["verdict"] != "fail", not marks.get(row["finding_id"])))
    proofs = _Proofs(tables)
    shown = [_finding(f"finding-{at}", row, proofs, marks) for at, row in enumerate(ordered[:MOST_SHOWN], 1)]
    return shown, proofs.shown


def _finding(anchor: str, row: Row, proofs: _Proofs, marks: Mapping[str, Mark]) -> ShownFinding:
    named = list(row["decisions"] or ())
    return ShownFinding(
        anchor=anchor,
        row=row,
        kind=kind_of(row["kind"]),
        proofs=[proofs.of(name) for name in named[:MOST_PROOFS]],
        left_out=max(0, len(named) - MOST_PROOFS),
        show=proofs.commands.show(named[:MOST_PROOFS]),
        read=proofs.commands.read(row),
        mark=marks.get(row["finding_id"]),
    )


class _Proofs:
    """The decisions that findings name, each once."""

    def __init__(self, tables: Tables) -> None:
        self.commands = Commands(tables)
        self.shown: list[Proof] = []
        self._known = {f"{row['worker']}:{row['number']}": str(row["decision"]) for row in tables.proofs}
        self._met: dict[str, Proof] = {}

    def of(self, name: str) -> Proof:
        """Returns a decision; the page shows it if it is at hand, up to `MOST_DECISIONS`."""
        if name not in self._met:
            self._met[name] = self._meet(name)
        return self._met[name]

    def _meet(self, name: str) -> Proof:
        proof = _with_fields(Proof(name=name, command=self.commands.show([name])), self._known.get(name, ""))
        if not proof.decision or len(self.shown) >= MOST_DECISIONS:
            return proof
        self.shown.append(replace(proof, anchor=f"decision-{len(self.shown) + 1}"))
        return self.shown[-1]


def _with_fields(proof: Proof, decision: str) -> Proof:
    try:
        told = json.loads(decision)
        kind, when = str(told.get("kind", "")), moment(told.get("at_ms"), parts=True)
    except (ValueError, TypeError, AttributeError):
        return replace(proof, decision=decision)
    with suppress(ValueError, TypeError, KeyError):  # there is none, or it was cut and is no JSON any more
        told["evidence"] = json.loads(told["evidence"])
    return replace(proof, decision=json.dumps(told, indent=2, ensure_ascii=False), kind=kind, when=when)
