"""What the audit says of each rule, in the words of whoever only wants to know whether order held."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from kordon.spark_jobs.report.tables import Row, Tables
from kordon.spark_jobs.report.words import several, whole


class RuleVerdict(StrEnum):
    """What can be said of a rule."""

    PASS = "pass"  # noqa: S105 - a verdict
    FAIL = "fail"
    UNKNOWN = "unknown"
    NOTHING = "nothing to judge"
    """The audited time has nothing that the rule judges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """A rule as it is known without the engine that runs it."""

    number: int
    name: str
    plain: str
    """What it means to whoever uses the topics."""


PROMISES: Final = (
    Promise(number=0, name="GAPS", plain="The record of decisions is complete."),
    Promise(number=1, name="COUNT-FENCE", plain="Every record went where its key belonged at that time."),
    Promise(number=2, name="FENCE-BARRIER", plain="Nobody wrote by the old layout after the new one was in force."),
    Promise(number=3, name="PARENT-FIRST", plain="No reader got a key's newer records before its older ones."),
    Promise(number=4, name="KEY-ORDER", plain="Readers got each key's records in their order."),
    Promise(number=5, name="NO-SKIP", plain="Readers got everything there was."),
    Promise(number=6, name="SEQ-IMAGE", plain="Every acknowledged record is in the topic, and is there once."),
    Promise(number=7, name="EPOCH-LADDER", plain="No former producer wrote in the name of its successor."),
    Promise(number=8, name="HAND-OVER", plain="Groups were told where they had left off, and sent past nothing."),
    Promise(number=9, name="KEY-HOME", plain="Of a sample: each key is where its producer sent it."),
    Promise(number=10, name="TXN-WITNESS", plain="Readers got what transactions committed, and all of it."),
    Promise(number=11, name="IC-ALGEBRA", plain="Nothing undone counts as done where groups commit offset by offset."),
    Promise(number=12, name="SOURCE-OWNER", plain="Each part of a source had one owner, and restart points only rose."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A rule with what came of it."""

    number: int
    name: str
    plain: str
    proves: str
    verdict: RuleVerdict
    why: str
    """The verdict in a sentence."""
    passed: int
    """Ranges that were found right."""
    count: int
    """What these hold: batches, records or decisions, as the rule counts."""
    unknown: int
    """Ranges that could not be judged."""
    findings: int


_NOT_RUN: Final = "This audit did not run the rule."


def judge(tables: Tables) -> list[Judged]:
    """Returns all rules, by number: those that are known, and those that the audit ran."""
    told = {int(each["number"]): each for each in tables.about.get("rules", ()) if "number" in each}
    known = {promise.number: promise for promise in PROMISES}
    numbers = sorted({*known, *told})
    return [_judged(known.get(number), told.get(number, {}), number, tables) for number in numbers]


def _judged(promise: Promise | None, told: Mapping[str, Any], number: int, tables: Tables) -> Judged:
    checked = [row for row in tables.checked if row["rule"] == number]
    findings = [row for row in tables.findings if row["rule"] == number]
    passed, unknown = _sum(checked, "pass", "ranges"), _sum(checked, "unknown", "ranges")
    verdict = _verdict(findings, passed, unknown)
    is_left_out = verdict is RuleVerdict.NOTHING and bool(tables.about) and not told
    return Judged(
        number=number,
        name=str(told.get("name") or (promise.name if promise else f"rule {number}")),
        plain=promise.plain if promise else "",
        proves=str(told.get("proves") or ""),
        verdict=verdict,
        why=_NOT_RUN if is_left_out else _why(verdict, findings, checked),
        passed=passed,
        count=_sum(checked, "pass", "count"),
        unknown=unknown,
        findings=len(findings),
    )


def _sum(rows: Iterable[Row], verdict: str, column: str) -> int:
    return sum(int(row[column] or 0) for row in rows if row["verdict"] == verdict)


def _verdict(findings: Iterable[Row], passed: int, unknown: int) -> RuleVerdict:
    verdicts = {row["verdict"] for row in findings}
    if "fail" in verdicts:
        return RuleVerdict.FAIL
    if verdicts or unknown:
        return RuleVerdict.UNKNOWN
    return RuleVerdict.PASS if passed else RuleVerdict.NOTHING


def _why(verdict: RuleVerdict, findings: Sequence[Row], checked: Sequence[Row]) -> str:
    passed, unknown = _sum(checked, "pass", "ranges"), _sum(checked, "unknown", "ranges")
    right = f"{whole(_sum(checked, 'pass', 'count'))} checked in {several(passed, 'range')}"
    match verdict:
        case RuleVerdict.PASS:
            return f"{right}, all right."
        case RuleVerdict.FAIL:
            broken = sum(row["verdict"] == "fail" for row in findings)
            return f"Broken, with proof: {several(broken, 'finding')}. The rest is right: {right}."
        case RuleVerdict.UNKNOWN:
            doubted = several(max(unknown, len(findings)), "range")
            return f"Evidence is missing for {doubted}. The rest is right: {right}."
        case RuleVerdict.NOTHING:
            return "The audited time has nothing that the rule judges."


def overall(findings: Iterable[Row], checked: Sequence[Row]) -> RuleVerdict:
    """Returns the verdict of the whole audit: `PASS` only if something was judged and nothing was left unjudged.

    Args:
        findings: All findings, with their `verdict`.
        checked: The `ranges` that were looked at, by rule and verdict.
    """
    return _verdict(findings, _sum(checked, "pass", "ranges"), _sum(checked, "unknown", "ranges"))
