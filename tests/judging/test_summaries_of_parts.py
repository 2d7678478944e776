"""Tables that parts of a cluster keep of their own topics are, merged, the table that one part keeps of all topics."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

pytest.importorskip("polars", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

import polars as pl

from kordon.spark_jobs.judging.facts import Facts, nothing, of_all
from kordon.spark_jobs.judging.schema import BATCHES, DECISIONS, FINDINGS, READ_TO
from kordon.spark_jobs.judging.summaries import SUMMARIES, Summary, changes, deciders, merged, pauses, proofs
from kordon.testing.audits.judged import table

Row = Mapping[str, Any]
BY_NAME = {summary.name: summary for summary in SUMMARIES}
TOPICS = ("clicks", "orders", "payments", "returns", "visits")
START = 1_760_000_000_000
MICRO_BATCHES = 3
LAYOUT = {"layout": {"n": 2, "v_count": 8, "epochs": [{"number": 0, "u": 2, "placement": "linear"}]}}
EVIDENCE = {
    "admit": {"repeated": True},
    "fence": {"members": ["w0", "w1"], "sealed": [0], "kind": "change"},
    "commit": LAYOUT,
    "adopt": LAYOUT,
}
OF_CONNECTIONS = ("lease", "close", "limit", "gap", "hold", "refuse")
OF_TOPICS = (
    *("admit", "deliver", "refuse", "hold", "release", "rewind"),
    *("fence", "acknowledge", "cut", "commit", "cancel", "adopt", "forget"),
)


def decided(number: int, chance: random.Random) -> dict[str, Any]:
    """A decision of one of two workers, about a topic or none; topics come up one after the other."""
    place = number % (len(TOPICS) + 1)
    topic = TOPICS[place] if place < len(TOPICS) else None
    kind = chance.choice(OF_TOPICS if topic else OF_CONNECTIONS)
    # of one topic all is earlier by hours: so buckets of its part alone are narrower than those of the whole
    at = START + number * 900 - (4_000_000 if topic == "orders" else 0)
    offset = chance.randrange(1_000)
    return {
        "worker": f"w{number % 2}",
        "host": "a",
        "number": number // 2,
        "kind": kind,
        "at_ms": at,
        "began_ms": at - chance.randrange(3_000),
        "topic": topic,
        "stream": chance.randrange(3) if topic else None,
        "move": 0,
        "partition": chance.randrange(2),
        "connection": chance.choice([1, 2]),
        "api_key": chance.choice([0, 1, None]),
        "layout_epoch": chance.randrange(3),
        "layouts_offset": chance.randrange(9),
        "fence": f"f{chance.randrange(3)}",
        "records": chance.randrange(50),
        "bytes": chance.randrange(5_000),
        "batches": chance.choice([None, 1, 5]),
        "first_offset": offset,
        "last_offset": offset + chance.randrange(50),
        "first_number": 1,
        "last_number": 2,
        "reason": chance.choice([None, "gate", "lost"]),
        "evidence": json.dumps(EVIDENCE[kind]) if kind in EVIDENCE and chance.random() < 0.7 else None,
        "log_partition": number % 3,
        "log_offset": number,
    }


def stands(number: int, chance: random.Random) -> dict[str, Any]:
    """A batch of one of the topics."""
    tagged = {"v": chance.choice([None, 1]), "is_control": chance.random() < 0.2, "max_timestamp_ms": START + number}
    place = {"topic": TOPICS[number % len(TOPICS)], "partition": chance.randrange(2), "base_offset": number}
    return {**place, **tagged, "last_offset": number, "records": 1, "bytes": 70}


Given = tuple[Facts, pl.DataFrame]
"""What is new in a micro-batch, and its findings."""


@cache
def history() -> Sequence[Given]:
    """What one part is given in each of the micro-batches; findings name what comes in the same one and before."""
    chance = random.Random(4)
    told: list[dict[str, Any]] = []
    micro_batches: list[Given] = []
    for place in range(MICRO_BATCHES):
        new = [decided(len(told) + each, chance) for each in range(240)]
        told += new
        decisions = table(new, DECISIONS)
        batches = table([stands(place * 100 + each, chance) for each in range(100)], BATCHES)
        reached = [{"topic": topic, "partition": 0, "log_start": 0, "next_offset": place + 1} for topic in TOPICS]
        read_to = table(reached, READ_TO)
        facts = replace(nothing(), decisions=decisions, of_all=of_all(decisions), batches=batches, read_to=read_to)
        micro_batches.append((facts, _findings(told, chance)))
    return micro_batches


def _findings(told: Sequence[Row], chance: random.Random) -> pl.DataFrame:
    """One for each topic: it names decisions about the topic, and one that concerns all topics."""
    rows: list[Row] = []
    for topic in TOPICS:
        its_own = chance.sample([row for row in told if row["topic"] == topic], 2)
        of_all_topics = chance.choice([row for row in told if row["kind"] in {"lease", "close"}])
        named = [f"{row['worker']}:{row['number']}" for row in (*its_own, of_all_topics)]
        rows.append({"topic": topic, "decisions": named})
    return table(rows, FINDINGS)


def of_part(part: int, parts: int) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Returns what keeps the rows about a part's topics; those without a topic are the first part's."""
    its_own = [topic for place, topic in enumerate(TOPICS) if place % parts == part]
    is_its_own = pl.col("topic").is_in(its_own)
    return lambda rows: rows.filter(is_its_own.fill_null(value=part == 0))


def folded(summary: Summary, part: int = 0, parts: int = 1, *, finds: bool = True) -> pl.DataFrame:
    """Returns what a part keeps behind the last micro-batch."""
    kept = of_part(part, parts)
    state = summary.state.to_frame()
    for facts, findings in history():
        told, read, read_to = (kept(each) for each in (facts.decisions, facts.batches, facts.read_to))
        its_own = replace(facts, decisions=told, batches=read, read_to=read_to)
        state = summary.fold(its_own, kept(findings) if finds else findings.clear(), state)
    return state


def rows_of(rows: pl.DataFrame) -> list[Row]:
    """Returns the rows in an order of their own."""
    return sorted(rows.to_dicts(), key=repr)


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("name", BY_NAME)
def test_merged_tables_of_parts_are_the_table_of_the_whole(name: str, parts: int) -> None:
    """Whoever decided about several topics, and what names no topic, is counted once."""
    summary = BY_NAME[name]
    whole = folded(summary)

    of_parts = [folded(summary, part, parts) for part in range(parts)]
    together = merged(summary, of_parts)

    assert min(each.height for each in of_parts) > 0
    assert together.schema == summary.state
    assert rows_of(together) == rows_of(whole)


@pytest.mark.parametrize("name", BY_NAME)
def test_one_micro_batch_makes_the_same_table_as_several(name: str) -> None:
    """Topic data and decisions come as fast as they are read."""
    summary = BY_NAME[name]
    given = [facts for facts, _ in history()]
    whole = {each: pl.concat([getattr(facts, each) for facts in given]) for each in ("decisions", "of_all", "batches")}
    findings = pl.concat([each for _, each in history()])

    at_once = summary.fold(replace(given[-1], **whole), findings, summary.state.to_frame())

    assert rows_of(at_once) == rows_of(folded(summary))


def test_the_history_has_what_could_go_wrong() -> None:
    """Buckets of two widths, holds that are open in two parts, and a lease that another part's finding names."""
    widths, holds, held = (
        [folded(BY_NAME[name], part, 2) for part in range(2)] for name in ("traffic", "pauses", "proofs")
    )
    assert len({width for each in widths for width in each["width_ms"].to_list()}) == 2
    assert all(each["ended_ms"].null_count() for each in holds)
    assert all(each["ended_ms"].count() for each in holds)
    no_topics = [row for row in held[1].to_dicts() if "topic" not in json.loads(row["decision"])]
    assert "named" in {row["held"] for row in no_topics}


@pytest.mark.parametrize(
    ("name", "module", "bound", "most"),
    [
        ("fences", changes, "MOST_FENCES", 2),
        ("layouts", changes, "MOST_LAYOUTS", 2),
        ("pauses", pauses, "MOST_PAUSES", 3),
        ("proofs", proofs, "MOST_STEPS", 10),
        ("proofs", proofs, "MOST_RECENT", 10),
        ("proofs", proofs, "MOST_RECENT", 70),
    ],
)
def test_merged_tables_are_cut_where_that_of_the_whole_is(
    monkeypatch: pytest.MonkeyPatch, name: str, module: object, bound: str, most: int
) -> None:
    """What is newest of all topics is newest of its own; so each part has kept at least what the whole has."""
    uncut = folded(BY_NAME[name], finds=False)
    monkeypatch.setattr(module, bound, most)
    whole = folded(BY_NAME[name], finds=False)

    together = merged(BY_NAME[name], [folded(BY_NAME[name], part, 3, finds=False) for part in range(3)])

    assert whole.height < uncut.height
    assert rows_of(together) == rows_of(whole)


@pytest.mark.parametrize(
    ("name", "module", "bound"),
    [("workers", deciders, "MOST_WORKERS"), ("reasons", deciders, "MOST_REASONS"), ("pauses", pauses, "MOST_HOLDS")],
)
def test_a_merged_table_keeps_the_newest_that_parts_have(
    monkeypatch: pytest.MonkeyPatch, name: str, module: object, bound: str
) -> None:
    """What is bounded over all topics, so that one part may have dropped what another one knows of, stays bounded."""
    whole = _bounded(folded(BY_NAME[name]))
    monkeypatch.setattr(module, bound, 1)

    together = _bounded(merged(BY_NAME[name], [folded(BY_NAME[name], part, 3) for part in range(3)]))

    newest = "began_ms" if name == "pauses" else "last_ms"
    assert (together.height, whole.height > 1) == (1, True)
    assert together[newest].item() == whole[newest].max()


def _bounded(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows that the bound is about: of pauses those without an end."""
    return rows.filter(pl.col("ended_ms").is_null()) if "ended_ms" in rows.columns else rows
