"""What rules say of random histories is right where all holds, and the same however these are cut up.

One run of a rule judges all of them: each history comes whole, and in pieces, under names of their own.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from typing import Any, Final

import pytest

pytest.importorskip("polars", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

from kordon.spark_jobs.judging.rule import Rule
from kordon.spark_jobs.judging.rules import count_fence, fence_barrier, key_order, no_skip, parent_first, seq_image
from kordon.testing.audits.judged import play
from kordon.testing.audits.rule_cuts import Cut, beside, side_by_side
from kordon.testing.audits.rule_histories import History
from kordon.testing.audits.rule_mishaps import Mishaps
from kordon.testing.audits.rule_plays import Played

RULES: Final = (
    count_fence.RULE,
    fence_barrier.RULE,
    parent_first.RULE,
    key_order.RULE,
    no_skip.RULE,
    seq_image.RULE,
)
PARTS: Final = 3
"""Micro-batches: so that what is carried over once is carried over again."""
MANY: Final = pytest.param(range(1000, 1150), marks=[pytest.mark.deep, pytest.mark.timeout(3600)])
_CHANGES: Final = {fence_barrier.RULE.name: (1, 1)}
"""What comes later than the next two layouts after it is unknown to FENCE-BARRIER."""
_NAME: Final = re.compile(rf"\b(\d+)-({'|'.join(Cut)})\b")
_HOLDS: Final = range(3)


@pytest.mark.parametrize("seeds", [range(100, 110), MANY], ids=["some", "many"])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule.name))
def test_any_cut_into_micro_batches_says_the_same(rule: Rule, seeds: range) -> None:
    """Whatever comes first, decisions or batches, one worker's or the other's; and nothing of what is right."""
    changes = _CHANGES.get(rule.name, (2, 4))
    right = side_by_side(partial(History, changes=changes), _HOLDS, PARTS)
    wrong = side_by_side(partial(Mishaps, changes=changes), seeds, PARTS)
    said = _by_cut(play(rule, beside(right, wrong)))
    whole = said[Cut.WHOLE]
    held = {(each[1], each[2]): count for each, count in whole.items() if each[0] in {str(seed) for seed in _HOLDS}}
    assert {verdict for verdict, _ in held} == {"pass"}
    assert sum(held.values()) > 20
    assert sum(count for each, count in whole.items() if each[1] != "pass") > 0
    for cut in Cut:
        assert sorted(said[cut] - whole) == []
        assert sorted(whole - said[cut]) == []


def _by_cut(played: Played) -> dict[Cut, Counter[tuple[str, str, str]]]:
    """Returns what was said of histories by the way in which they came: of which, the verdict, and all that it says."""
    newest: dict[str, dict[str, Any]] = {each["finding_id"]: each for each in played.findings}
    said: dict[Cut, Counter[tuple[str, str, str]]] = {cut: Counter() for cut in Cut}
    for each in newest.values():
        _note(said, each["verdict"], {name: each[name] for name in each if name not in {"finding_id", "found_ms"}})
    for each in played.checked:
        _note(said, each["verdict"], each["topic"], each["count"])
    return said


def _note(said: dict[Cut, Counter[tuple[str, str, str]]], verdict: str, what: Any, count: int = 1) -> None:
    name = _NAME.search(str(what))
    assert name is not None, what
    said[Cut(name[2])][name[1], verdict, _NAME.sub(r"\1", str(what))] += count
