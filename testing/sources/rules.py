"""What exactly once rests on, each with what stands in its place when it is taken out.

Some is the product's (`client/sources/tenure.py`), and some is what has to be done around it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Final

from kordon.client.sources.tenure import Tenure
from kordon.codecs.source_points import Point
from kordon.testing.sources.members import Member, Step
from kordon.testing.taken_out import without

# pyright: reportPrivateUsage=false
# what is replaced


@dataclass(frozen=True)
class Rule:
    """A rule, and where it is kept."""

    what: str
    breaks: frozenset[str]
    """Promises of which one does not hold without it."""
    seeds: tuple[int, int, int]
    """Some that show that."""
    parts: tuple[tuple[Any, str, Any], ...]

    def taken_out(self) -> AbstractContextManager[object]:
        """Has all go without the rule in a block."""
        return without(self.parts)


def _unnamed(_: Member) -> None:
    return None


def _behind(member: Member, tenure: Tenure, points: Mapping[int, Point]) -> Step:
    yield from _COMMIT(member, tenure, {})
    yield
    member.write(points)


def _as_it_stands(member: Member, _: Tenure) -> Mapping[int, Point]:
    return dict(member._world.group.records)


def _left_open(_: Member) -> None:
    """What is open goes on under the next assignment."""


def _unasked(_: Member) -> None:
    """Whoever has slept believes to be a member."""


def _same_number(tenure: Tenure, texts: Mapping[int, str], now_ms: int) -> dict[int, Point]:
    points = _NEXT(tenure, texts, now_ms)
    tenure._pending = {each: replace(point, number=max(1, point.number - 1)) for each, point in points.items()}
    return tenure._pending


def _nothing_claimed(tenure: Tenure, settled: Mapping[int, Point]) -> dict[int, Point]:
    _BEGIN(tenure, settled)
    return {}


def _nobody(_: Tenure, __: Mapping[int, Point]) -> set[str]:
    return set()


def _unreleased(tenure: Tenure) -> dict[int, Point]:
    _RELEASE(tenure)
    return {}


def _whatever_is_known(tenure: Tenure) -> dict[int, Point]:
    known = tenure._points
    _RELEASE(tenure)
    return {each: replace(point, owner="") for each, point in known.items()}


_COMMIT: Final = Member.commit
_BEGIN: Final = Tenure.begin
_NEXT: Final = Tenure.next_points
_RELEASE: Final = Tenure.release

RULES: Final = (
    Rule(
        "a commit names its generation (NAMED-GENERATION)",
        frozenset({"doubled", "skipped"}),
        (15, 20, 22),
        ((Member, "named", _unnamed),),
    ),
    Rule(
        "a point is committed with its data (POINT-WITH-DATA)",
        frozenset({"doubled"}),
        (0, 1, 2),
        ((Member, "commit", _behind),),
    ),
    Rule(
        "a point is read when nothing can change it any more (SETTLED-POINT)",
        frozenset({"doubled"}),
        (0, 128, 177),
        ((Member, "read", _as_it_stands),),
    ),
    Rule(
        "a transaction has ended before its member joins again (ENDED-FIRST)",
        frozenset({"doubled", "held"}),
        (0, 1, 2),
        ((Member, "end_open", _left_open),),
    ),
    Rule(
        "numbers rise by one (POINT-NUMBER)",
        frozenset({"numbers"}),
        (0, 1, 2),
        ((Tenure, "next_points", _same_number),),
    ),
    Rule(
        "an id is on record before it is used (OWNER-ON-RECORD)",
        frozenset({"held"}),
        (1, 3, 4),
        ((Tenure, "begin", _nothing_claimed),),
    ),
    Rule(
        "an id that stands on record is fenced (DEAD-FENCED)",
        frozenset({"held", "stuck"}),
        (1, 3, 4),
        ((Tenure, "to_fence", _nobody),),
    ),
    Rule(
        "whoever fences is a member when it has read whom (MEMBER-FENCES)",
        frozenset({"killed"}),
        (25, 28, 83),
        ((Member, "confirm", _unasked),),
    ),
    Rule(
        "an id that may be fenced is not used again (ID-ONCE)",
        frozenset({"killed"}),
        (9, 193, 303),
        ((Tenure, "keeps_id", True),),
    ),
    Rule(
        "who gives a partition up takes its id off the record (ID-ONCE)",
        frozenset({"killed"}),
        (1, 3, 4),
        ((Tenure, "release", _unreleased), (Tenure, "keeps_id", True)),
    ),
    Rule(
        "whoever does not know what is committed takes nothing off the record (ID-ONCE)",
        frozenset({"doubled"}),
        (0, 1, 2),
        ((Tenure, "release", _whatever_is_known),),
    ),
)
