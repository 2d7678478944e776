"""The auditor's part of BENCHMARKS.md."""

from __future__ import annotations

from typing import Final

from kordon.bench import results
from kordon.bench.results import AUDITOR, Results
from kordon.bench.tables import middle, section

_FIGURES: Final = (
    (results.AUDIT_DECISIONS, "decisions per CPU s", 0),
    (results.AUDIT_MB, "MB of topic data per CPU s", 0),
    (results.AUDIT_BATCH_CPU, "CPU s per micro-batch", 1),
    (results.AUDIT_STATE_MIDDLE_ROWS, "rows of state, halfway", 0),
    (results.AUDIT_STATE_ROWS, "at the end", 0),
    (results.AUDIT_STATE_MB, "state and summaries, MB", 1),
    (results.AUDIT_JVM_MB, "JVM, peak MB", 0),
    (results.AUDIT_PYTHON_MB, "Python, peak MB", 0),
    (results.AUDIT_FINDINGS, "findings", 0),
)


def audit_table(figures: Results) -> list[str]:
    """Draws what an audit costs; nothing where that was not measured."""
    rows = [
        [case, *(middle(figures.spread(case, AUDITOR, figure), digits) for figure, _, digits in _FIGURES)]
        for case in figures.audit
        if case in figures.cases()
    ]
    return section("The auditor", ["case", *(title for _, title, _ in _FIGURES)], rows)
