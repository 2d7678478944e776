"""The page: all that the report says, put into the template.

Names of topics, groups and clients come from clients. The template engine escapes whatever it is given, and the page
forbids itself every script but its own, every request, and every form.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from jinja2 import DictLoader, Environment, StrictUndefined

import kordon
from kordon.codecs.shown_text import shown
from kordon.spark_jobs.report import words
from kordon.spark_jobs.report.commands import MOST_RECORDS
from kordon.spark_jobs.report.compare import Former, WhatIsNew, compare
from kordon.spark_jobs.report.findings import Proof, ShownFinding, findings
from kordon.spark_jobs.report.tables import Row, Tables, read
from kordon.spark_jobs.report.timeline import Timeline
from kordon.spark_jobs.report.topics import ShownTopic, topics
from kordon.spark_jobs.report.verdicts import Judged, RuleVerdict, judge, overall

_FILES: Final = ("report.html", "macros.html", "style.css", "script.js")
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_HEADLINES: Final = {
    RuleVerdict.PASS: "Order held.",
    RuleVerdict.UNKNOWN: "Nothing wrong was found, but not all could be judged.",
    RuleVerdict.NOTHING: "There was nothing to judge.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSpan:
    """The amount that was read."""

    first_ms: int | None
    last_ms: int | None
    decisions: int
    records: int
    bytes: int
    batches: int
    untagged: int
    dropped: int
    """Decisions that are not on record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The contents of the page."""

    verdict: RuleVerdict
    headline: str
    judged: Sequence[Judged]
    findings: Sequence[ShownFinding]
    findings_count: int
    decisions: Sequence[Proof]
    """Those that findings name and that are at hand."""
    comparison: WhatIsNew | None
    """With a former audit; None: it is not compared."""
    topics: Sequence[ShownTopic]
    span: ReadSpan
    tables: Tables

    @property
    def verdicts(self) -> Mapping[str, str]:
        """The verdicts by the rules' names."""
        return {each.name: each.verdict.value for each in self.judged}


def report_of(tables: Tables, former: Former | None = None) -> Report:
    """Makes of an audit's tables what the page says.

    Args:
        former: The audit to compare it with.
    """
    comparison = None if former is None else compare(tables, former)
    shown_findings, decisions = findings(tables, {} if comparison is None else comparison.marks)
    judged = judge(tables)
    verdict = overall(tables.findings, tables.checked)
    return Report(
        verdict=verdict,
        headline=_headline(verdict, judged),
        judged=judged,
        findings=shown_findings,
        findings_count=len(tables.findings),
        decisions=decisions,
        comparison=comparison,
        topics=topics(tables),
        span=_span(tables),
        tables=tables,
    )


def _headline(verdict: RuleVerdict, judged: Sequence[Judged]) -> str:
    if verdict is not RuleVerdict.FAIL:
        return _HEADLINES[verdict]
    broken = sum(each.verdict is RuleVerdict.FAIL for each in judged)
    return "A promise was broken." if broken <= 1 else f"{broken} promises were broken."


def _span(tables: Tables) -> ReadSpan:
    def total(rows: Sequence[Row], column: str) -> int:
        return sum(row[column] or 0 for row in rows)

    times = [at for row in tables.read_decisions for at in (row["first_ms"], row["last_ms"]) if at is not None]
    return ReadSpan(
        first_ms=min(times, default=None),
        last_ms=max(times, default=None),
        decisions=total(tables.read_decisions, "decisions"),
        records=total(tables.read_batches, "records"),
        bytes=total(tables.read_batches, "bytes"),
        batches=total(tables.read_batches, "batches"),
        untagged=total(tables.read_batches, "untagged"),
        dropped=total(tables.workers, "dropped"),
    )


def render(report: Report, made_ms: int) -> str:
    """Returns the page.

    Args:
        made_ms: The time at which the page was made, in milliseconds since 1970.
    """
    script = _sources()["script.js"]
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        _environment()
        .get_template("report.html")
        .render(
            report=report,
            span=report.span,
            tables=report.tables,
            **_totals(report),
            source=_source(report.tables.about),
            former_source=_source(report.comparison.former.tables.about) if report.comparison else "",
            most_records=MOST_RECORDS,
            made_ms=made_ms,
            version=kordon.__version__,
            style=_sources()["style.css"],
            script=script,
            policy=f"{_POLICY}; script-src 'sha256-{digest}'",
        )
    )


def _source(about: Mapping[str, Any]) -> str:
    """Says where decisions were read."""
    if about.get("files"):
        return f"the files in {about['files']}"
    return f"the decision log at {about['bootstrap']}" if about.get("bootstrap") else "not known"


def _totals(report: Report) -> dict[str, Any]:
    """What stands at the top of the page, over all topics."""
    pauses = [pause for topic in report.topics for pause in topic.pauses if pause["what"] == "writes"]
    verdicts = Counter(each.verdict for each in report.judged)
    lags = [stream.lag for topic in report.topics for stream in topic.streams if stream.lag is not None]
    return {
        "rules_passed": verdicts[RuleVerdict.PASS],
        "rules_judged": verdicts[RuleVerdict.PASS] + verdicts[RuleVerdict.FAIL] + verdicts[RuleVerdict.UNKNOWN],
        "written": sum(topic.written for topic in report.topics),
        "delivered": sum(topic.delivered for topic in report.topics),
        "changes": sum(change.outcome == "committed" for topic in report.topics for change in topic.changes),
        "longest": max((pause["longest_ms"] for pause in pauses), default=None),
        "lag_now": sum(lags) if lags else None,
        "broken": sum(row["verdict"] == "fail" for row in report.tables.findings),
    }


def _shown(picture: Timeline) -> list[dict[str, Any]]:
    """What the page's script shows under the pointer."""
    rows = ((row, [round(value, 1) for value in row.values]) for row in picture.shown)
    return [{"label": row.label, "style": row.style, "unit": row.unit, "values": values} for row, values in rows]


def write(folder: Path, out: Path, former: Former | None = None) -> Report:
    """Writes the report of an audit.

    Args:
        folder: The folder to which the audit writes (`kordon audit run --out`).
        out: The file to write; it is replaced as a whole.
        former: The audit to compare it with.

    Raises:
        FileNotFoundError: There is no audit in the folder.
    """
    report = report_of(read(folder), former)
    page = render(report, round(datetime.now(UTC).timestamp() * 1000))
    coming = out.with_name(out.name + ".part")
    coming.write_text(page, encoding="utf-8")
    coming.replace(out)
    return report


@cache
def _sources() -> Mapping[str, str]:
    folder = files("kordon.spark_jobs.report").joinpath("template")
    return {name: folder.joinpath(name).read_text(encoding="utf-8") for name in _FILES}


def _finalized(value: Any) -> Any:
    """Escapes what a browser would obey, or turn round, in texts of clients; markup is the template's own."""
    return shown(value, keeps_lines=True) if type(value) is str else value


@cache
def _environment() -> Environment:
    made = Environment(
        loader=DictLoader(dict(_sources())),
        autoescape=True,
        finalize=_finalized,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    helpers: dict[str, Any] = {
        name: getattr(words, name)
        for name in (
            *("whole", "short", "size", "duration", "moment"),
            *("stream_name", "several", "spaced", "why_held"),
        )
    }
    made.filters.update(helpers)
    more: dict[str, Any] = {"several": words.several, "shown_rows": _shown}
    made.globals.update(more)
    return made
