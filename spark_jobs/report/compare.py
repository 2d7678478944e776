"""What is new since another audit, or since the same audit as it was at some time.

A finding keeps its id, whoever finds it. So two audits are compared by ids, and by what each rule has checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kordon.spark_jobs.report.tables import Row, Tables
from kordon.spark_jobs.report.verdicts import Judged, RuleVerdict, judge, overall
from kordon.spark_jobs.report.words import several, whole


class Mark(StrEnum):
    """How a finding differs from what was known of it."""

    NEW = "new"
    OTHER = "other verdict"
    LONGER = "goes on"
    """More offsets belong to it than then."""


_DOES: Final = {Mark.LONGER: "with more offsets", Mark.OTHER: "with another verdict"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Former:
    """An audit that is compared with."""

    name: str
    """What it is called."""
    tables: Tables
    is_itself: bool
    """Whether it is the same audit, at some time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """A finding that is not there any more."""

    row: Row
    is_judged: bool
    """Whether the newer audit has read what it names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleChange:
    """A rule then and now."""

    then: Judged
    now: Judged

    @property
    def is_changed(self) -> bool:
        """Whether the verdict is another one."""
        return self.then.verdict is not self.now.verdict

    @property
    def is_told(self) -> bool:
        """Whether it had something to judge, then or now."""
        return {self.then.verdict, self.now.verdict} != {RuleVerdict.NOTHING}


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIsNew:
    """The differences from a former audit."""

    former: Former
    verdict: RuleVerdict
    """The verdict of the new findings alone."""
    marks: Mapping[str, Mark]
    """How findings differ, by id."""
    gone: Sequence[Gone]
    rules: Sequence[RuleChange]

    def count(self, mark: Mark) -> int:
        """Returns how many findings differ so."""
        return sum(each == mark for each in self.marks.values())

    @property
    def changed(self) -> Sequence[RuleChange]:
        """The rules with another verdict than then."""
        return [rule for rule in self.rules if rule.is_changed]

    @property
    def words(self) -> str:
        """What is new, in a sentence."""
        counts = [several(self.count(Mark.NEW), "new finding")]
        counts += [f"{whole(self.count(mark))} {does}" for mark, does in _DOES.items() if self.count(mark)]
        counts.append(f"{whole(len(self.gone)) if self.gone else 'none'} gone")
        then, now = ([getattr(rule, when) for rule in self.rules] for when in ("then", "now"))
        right = f"{_sum(then, 'passed')} then, {_sum(now, 'passed')} now"
        unknown = f"{_sum(then, 'unknown')} then, {_sum(now, 'unknown')} now"
        return f"{', '.join(counts)}; ranges found right: {right}; not judged: {unknown}."


def _sum(judged: Sequence[Judged], of: str) -> str:
    return whole(sum(getattr(each, of) for each in judged))


def compare(tables: Tables, former: Former) -> WhatIsNew:
    """Compares an audit with a former one."""
    then = {row["finding_id"]: row for row in former.tables.findings}
    now = {row["finding_id"]: row for row in tables.findings}
    marks = {name: mark for name, row in now.items() if (mark := _mark(row, then.get(name)))}
    rules = _rules(tables, former.tables)
    return WhatIsNew(
        former=former,
        verdict=overall([now[name] for name in marks], _checked(rules, former)),
        marks=marks,
        gone=[Gone(row=row, is_judged=_is_judged(row, tables)) for name, row in then.items() if name not in now],
        rules=rules,
    )


def _mark(now: Row, then: Row | None) -> Mark | None:
    if then is None:
        return Mark.NEW
    if now["verdict"] != then["verdict"]:
        return Mark.OTHER
    return Mark.LONGER if _is_longer(now, then) else None


def _is_longer(now: Row, then: Row) -> bool:
    return _ends(now)[0] < _ends(then)[0] or _ends(now)[1] > _ends(then)[1]


def _ends(row: Row) -> tuple[int, int]:
    """Returns the first and the last offset of a finding, or of what was read."""
    known = [at for at in (row["first_offset"], row["last_offset"]) if at is not None]
    return (min(known), max(known)) if known else (0, 0)


def _is_judged(finding: Row, tables: Tables) -> bool:
    """Whether an audit has read the offsets of a finding, or, if that has none, decisions of its time."""
    if finding["partition"] is None or finding["first_offset"] is None:
        times = [at for row in tables.read_decisions for at in (row["first_ms"], row["last_ms"]) if at is not None]
        return bool(times) and min(times) <= (finding["found_ms"] or 0) <= max(times)
    place, (first, last) = (finding["topic"], finding["partition"]), _ends(finding)
    read = [_ends(row) for row in tables.read_batches if (row["topic"], row["partition"]) == place]
    return any(begin <= first and last <= end for begin, end in read)


def _rules(tables: Tables, former: Tables) -> list[RuleChange]:
    then = {each.number: each for each in judge(former)}
    return [RuleChange(then=then[each.number], now=each) for each in judge(tables) if each.number in then]


def _checked(rules: Sequence[RuleChange], former: Former) -> list[Row]:
    """Returns what was checked since then, as `overall` takes it. Another audit has judged all of its own again."""
    passed = sum(rule.now.passed - (rule.then.passed if former.is_itself else 0) for rule in rules)
    unknown = sum(max(0, rule.now.unknown - rule.then.unknown) for rule in rules)
    return [{"verdict": "pass", "ranges": max(0, passed)}, {"verdict": "unknown", "ranges": unknown}]
