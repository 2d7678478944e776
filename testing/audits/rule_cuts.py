"""Cuts histories up into micro-batches, many of them side by side: one run of a rule judges each history in many ways.

Every history has its topic and its workers to itself. So a copy under other names may come in one micro-batch while
another one comes in pieces, and the rule has to say the same of both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from random import Random
from typing import Any, Final

from kordon.testing.audits.rule_batches import layout_rows, read
from kordon.testing.audits.rule_histories import History
from kordon.testing.audits.rule_plays import MicroBatch, Row

_TABLES: Final = ("decisions", "batches", "read_to", "segments", "stays")


class Cut(StrEnum):
    """How a history comes."""

    WHOLE = "whole"
    """All of it in the first micro-batch."""
    APART = "apart"
    """Each worker's decisions and each partition's batches in pieces, whatever the others' are."""
    TOPICS_FIRST = "topics-first"
    """All batches in the first micro-batch, the decisions in pieces."""
    DECISIONS_FIRST = "decisions-first"
    """The other way round."""


def side_by_side(make: Callable[[str, int], History], seeds: Iterable[int], parts: int) -> list[MicroBatch]:
    """Returns micro-batches in which each history comes in each way, as topic `<seed>-<way>`."""
    rows: list[dict[str, list[Row]]] = [defaultdict(list) for _ in range(parts)]
    for seed in seeds:
        for cut in Cut:
            for table, place, row in _placed(make(f"{seed}-{cut}", seed), cut, parts, Random(f"{seed}-{cut}")):  # noqa: S311
                rows[place][table].append(row)
    return [
        MicroBatch(
            decisions=_shuffled(each["decisions"], place),
            **{name: each[name] for name in _TABLES if name != "decisions"},
            is_last=place == parts - 1,
        )
        for place, each in enumerate(rows)
    ]


def beside(one: Iterable[MicroBatch], other: Iterable[MicroBatch]) -> list[MicroBatch]:
    """Joins micro-batches of different topics, the first with the first and so on."""
    return [
        MicroBatch(
            **{name: [*(getattr(a, name) or ()), *(getattr(b, name) or ())] for name in _TABLES},
            is_last=a.is_last and b.is_last,
        )
        for a, b in zip(one, other, strict=True)
    ]


def _placed(history: History, cut: Cut, parts: int, random: Random) -> Iterable[tuple[str, int, Row]]:
    """Yields the rows of a history with their table and their micro-batch."""
    cuts = cut not in {Cut.WHOLE, Cut.TOPICS_FIRST}, cut not in {Cut.WHOLE, Cut.DECISIONS_FIRST}
    batches = _cut(history.batches, lambda row: row["partition"], parts if cuts[0] else 1, random)
    decisions = _cut(history.decisions, lambda row: row["worker"], parts if cuts[1] else 1, random)
    yield from (("batches", place, row) for place, row in batches)
    yield from (("decisions", place, row) for place, row in decisions)
    topic = history.layout.topic
    for place in range(parts):
        told = [row["layouts_offset"] for at, row in decisions if at <= place and row["kind"] in {"commit", "adopt"}]
        if told:
            for table, rows in layout_rows(history.layouts[max(told)]).items():
                yield from ((table, place, row) for row in rows)
        is_begun = place == parts - 1 or not cuts[0]  # before, a partition that has nothing was not looked at
        ends: dict[int, int] = {row["partition"]: 0 for row in history.read_to} if is_begun else {}
        ends |= {row["partition"]: row["last_offset"] + 1 for at, row in batches if at <= place}
        yield from (("read_to", place, read(q, end, topic=topic)) for q, end in sorted(ends.items()))


def _cut(rows: Sequence[Row], key: Callable[[Row], Any], parts: int, random: Random) -> list[tuple[int, Row]]:
    """Gives rows their micro-batches: those of one key in their order, and each key's at places of their own."""
    groups: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    placed: list[tuple[int, Row]] = []
    for group in groups.values():
        ends = sorted(random.randint(0, len(group)) for _ in range(parts - 1))
        placed += [(sum(at >= end for end in ends), row) for at, row in enumerate(group)]
    return placed


def _shuffled(rows: list[Row], seed: int) -> list[Row]:
    """Rows are in no order within a micro-batch: the rules have to bring them into theirs."""
    mixed = list(rows)
    Random(seed).shuffle(mixed)  # noqa: S311
    return mixed
