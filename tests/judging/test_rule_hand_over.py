"""HAND-OVER: what a client is told of a group's commits is what was committed, or lies before no record behind it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("polars", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.identity import NO_V
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.reading import place_in
from kordon.spark_jobs.judging.rules import hand_over, stream_records
from kordon.testing.audits.judged import play
from kordon.testing.audits.rule_batches import TOPIC, batch, cut_up, layout_rows, read, tagged, transaction_log
from kordon.testing.audits.rule_histories import History
from kordon.testing.audits.rule_plays import MicroBatch, Played, Row, decided

ONE = Layout.created(TOPIC, UUID(int=7), 1, 4)
GROWN = ONE.changed(ONE.next_epoch(2), {0: 100, 1: 0})
MOVED = 2
"""A virtual partition that lives in partition 1 since its offset 100; 0 stays."""
TRANSACTION = 28


def commit(number: int, *offsets: tuple[int, int, int], group: str = "g", **more: Any) -> Row:
    """What a group has committed: stream, first and last offset."""
    told: dict[str, Any] = {"topic": TOPIC, "api_key": 8, "connection": 1, "member_id": "m", **more}
    return decided("offset-commit", number, group_id=group, evidence={"offsets": offsets}, **told)


def fetch(number: int, *offsets: Sequence[int], group: str = "g", after: int | None = None, **more: Any) -> Row:
    """What a client is told: stream and committed offset, and where it is another one the rest of `evidence.told`."""
    changed = [each for each in offsets if len(each) > 2]
    evidence = {"offsets": [each[:2] for each in offsets], "asked_after": number - 1 if after is None else after}
    told: dict[str, Any] = {"topic": TOPIC, "api_key": 9, "connection": 2, "layout_epoch": 1, **more}
    return decided(
        "offset-fetch", number, group_id=group, evidence=evidence | ({"told": changed} if changed else {}), **told
    )


def later(number: int, seconds: float, **more: Any) -> Row:
    """Something else that a worker decides."""
    return decided("lease", number, seconds=seconds, reason="alive", **more)


def told(played: Played) -> dict[str, int]:
    """How much there was of each verdict."""
    return {verdict: played.count(verdict) for verdict in ("pass", "unknown", "late") if played.count(verdict)}


COMMITTED = [
    commit(0, (0, 5, 20), (1, 7, 9)),
    fetch(1, (0, 20), (1, 9)),
    fetch(0, (0, 5), (1, 8), worker="other"),
    commit(2, (0, 20, 30)),
    fetch(3, (0, 30), (1, 9)),
    fetch(4, (~0, 4)),
    commit(5, (~0, 4, 6)),
    fetch(6, (~0, 6)),
]


def test_what_was_committed_is_told_and_passes() -> None:
    """Whoever asks, through whichever worker, also in the dialect; what is heard of first is taken as it is."""
    played = play(hand_over.RULE, [[each] for each in COMMITTED])
    assert (played.findings, told(played)) == ([], {"pass": 7})


def test_more_than_is_on_record_waits_for_its_commit_and_passes() -> None:
    """A commit comes on record half a minute after it was accepted, through another worker."""
    asked = [commit(0, (0, 5, 20)), fetch(1, (0, 25))]
    waiting = play(hand_over.RULE, [asked])
    assert ([row["committed"] for row in waiting.state if row["what"] == "told"], told(waiting)) == ([25], {})
    played = play(hand_over.RULE, [asked, [later(2, 300)], [commit(0, (0, 21, 40), worker="other")]])
    assert ([row for row in played.state if row["what"] == "told"], told(played)) == ([], {"pass": 1})


def test_more_than_anybody_has_committed_is_unknown_once() -> None:
    """The commit went round Kordon, or its worker was killed; what was told counts as committed from then on."""
    asked = [commit(0, (0, 5, 20)), fetch(1, (0, 25))]
    again = [fetch(3, (0, 25), seconds=700)]
    played = play(hand_over.RULE, [asked, [later(2, 600)], again])
    assert (played.findings, told(played)) == ([], {"late": 1, "pass": 1})


def test_at_the_end_of_the_log_the_last_two_minutes_are_not_held_against_commits() -> None:
    """They may not be on record yet."""
    asked = [commit(0, (0, 5, 20)), fetch(1, (0, 25)), fetch(2, (0, 35), seconds=500), later(3, 510)]
    assert told(play(hand_over.RULE, [MicroBatch(decisions=asked, is_last=True)])) == {"late": 1}


@pytest.mark.parametrize(
    ("between", "verdicts"),
    [
        ([], {"unknown": 1}),
        ([commit(1, (0, 10, 10))], {"pass": 1}),  # somebody has set it back
        ([commit(1, (0, 10, 10), worker="other")], {"unknown": 1}),  # the same, but nobody knows when
        ([commit(1, (0, 20, 20), group="h")], {"unknown": 1}),
    ],
)
def test_less_than_was_accepted_before_it_was_asked_is_unknown(between: list[Row], verdicts: dict[str, int]) -> None:
    """The group gets records again: it was set back, or the coordinator has lost the commit."""
    played = play(hand_over.RULE, [[commit(0, (0, 5, 20)), *between, fetch(2, (0, 10))]])
    assert (played.findings, told(played)) == ([], verdicts)


def test_what_is_accepted_while_a_client_asks_is_held_against_nothing() -> None:
    """The coordinator may have answered before: what a worker sees accepted since then proves nothing."""
    race = [commit(0, (0, 5, 20)), commit(1, (0, 20, 30)), fetch(2, (0, 20), after=0)]
    assert told(play(hand_over.RULE, [race])) == {"pass": 1}


def test_a_transaction_may_have_committed_or_not() -> None:
    """What it would commit may be told, and what was committed before may be."""
    begun = [commit(0, (0, 5, 20)), commit(1, (0, 30, 30), api_key=TRANSACTION)]
    for offset in (20, 30):
        assert told(play(hand_over.RULE, [[*begun, fetch(2, (0, offset))]])) == {"pass": 1}


WHOLE = MicroBatch(
    **layout_rows(GROWN),
    batches=[
        tagged(0, 0, 0, 0, 40),
        tagged(MOVED, 0, 0, 40, 10),
        tagged(1, 0, 0, 50, 30),
        batch(0, 80, is_control=True),
        tagged(0, 0, 0, 100, 5, sequence=40),
        tagged(1, 0, 0, 105, 10, sequence=30),
        batch(0, 115, 5),  # a writer round Kordon
        tagged(NO_V, 1, 0, 120, 5),
        tagged(MOVED, 1, 1, 0, 3),
        tagged(3, 1, 1, 3, 7),
        tagged(MOVED, 1, 1, 10, 3, sequence=3),
        tagged(3, 1, 1, 13, 7, sequence=7),
    ],
    decisions=[
        commit(0, (0, 0, 200), (1, 0, 200), (MOVED, 0, 200), (3, 0, 200), group="others"),
        # the end is told where only others' records lie in between, also over a move
        fetch(1, (0, 105, 115, 0, 0, 105), group="a"),
        fetch(2, (0, 40, 100, 0, 0, 40), group="b"),
        fetch(3, (MOVED, 50, 100, 0, 0, 50), (MOVED + 1, 90, 103, 0, 0, 90), group="c"),
        fetch(4, (MOVED, 113, 120, 1, 1, 13), group="d"),
        # where some are the stream's own, it is told ahead: one in the same home, or in an earlier one
        fetch(5, (MOVED, 103, 120, 1, 1, 3), group="e"),
        fetch(6, (MOVED, 49, 103, 0, 0, 49), group="f"),
        fetch(7, (0, 102, 103, 0, 0, 102), group="g"),
        # an earlier offset than the committed one
        fetch(8, (0, 105, 100, 0, 0, 105), group="h"),
        # where a writer went round Kordon, or one of the dialect wrote, it cannot be told
        fetch(9, (1, 115, 120, 0, 0, 115), group="i"),
        fetch(10, (0, 105, 125, 0, 0, 105), group="j"),
    ],
    read_to=[read(0, 125), read(1, 20)],
    is_last=True,
)
COLUMNS = ("kind", "group_id", "stream", "partition", "first_offset", "last_offset")
FOUND = [
    ("told-ahead", "e", MOVED, 1, 3, 19),
    ("told-ahead", "f", MOVED, 0, 49, 99),
    ("told-ahead", "g", 0, 0, 102, 102),
    ("told-behind", "h", 0, 0, None, None),
]


def test_an_end_that_is_told_behind_records_of_the_stream_is_found_and_no_other() -> None:
    """Records of others, control batches and moves are no fault; and so for any micro-batches."""
    played = play(hand_over.RULE, [WHOLE])
    assert played.found(*COLUMNS) == FOUND
    assert {each["verdict"] for each in played.findings} == {"fail"}
    assert told(played) == {"pass": 5, "unknown": 2}
    assert "offsets 3 to 19" in next(each["text"] for each in played.findings if each["group_id"] == "e")
    for place in (0.2, 0.5, 0.8):
        split = play(hand_over.RULE, cut_up(WHOLE, (place,)))
        assert split.found("finding_id") == played.found("finding_id")
        assert told(split) == told(played)


def test_any_order_of_topics_and_decisions_finds_the_same() -> None:
    """What is not read yet is waited for; what was read before is kept."""
    topics = replace(WHOLE, decisions=[], is_last=False)
    decisions = replace(WHOLE, batches=[], read_to=[read(0, 0), read(1, 0)], is_last=False)
    everything = MicroBatch(decisions=[later(11, 1)], read_to=WHOLE.read_to, is_last=True)
    for order in ([topics, replace(decisions, read_to=WHOLE.read_to), everything], [decisions, topics, everything]):
        played = play(hand_over.RULE, order)
        assert (played.found(*COLUMNS), told(played)) == (FOUND, {"pass": 5, "unknown": 2})


def test_what_is_never_read_is_late() -> None:
    """It is unknown, and counted apart."""
    ahead = MicroBatch(**layout_rows(ONE), decisions=[fetch(0, (0, 5, 20, 0, 0, 5))], read_to=[read(0, 10)])
    waiting = play(hand_over.RULE, [ahead])
    assert ([row["told"] for row in waiting.state if row["what"] == "changed"], told(waiting)) == ([20], {})
    assert told(play(hand_over.RULE, [ahead, [later(1, 600)]])) == {"late": 1}


def test_batches_that_are_not_kept_one_by_one_still_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each stream the last offset is kept: it is found itself, nothing lies behind it, and before it is unknown."""
    monkeypatch.setattr(stream_records, "MOST_BYTES", 0)
    own = [each for each in WHOLE.batches if each.get("v") not in {None, NO_V}]
    topics = replace(WHOLE, decisions=[], batches=own, is_last=False)
    played = play(hand_over.RULE, [topics, replace(WHOLE, batches=[])])
    assert "run" not in {row["what"] for row in played.state}
    assert played.found("kind", "group_id") == [each[:2] for each in FOUND if each[1] != "g"]
    assert told(played) == {"pass": 5, "unknown": 3}


def test_what_retention_has_taken_proves_nothing_and_hides_nothing() -> None:
    """It may have been gone when the client asked; but where the stream had nothing, that is known still."""
    topics = replace(WHOLE, decisions=[], is_last=False)
    gone = MicroBatch(
        decisions=[
            fetch(0, (MOVED, 103, 120, 1, 1, 3), group="had-some"),
            fetch(1, (MOVED, 113, 120, 1, 1, 13), group="had-none"),
        ],
        read_to=[read(0, 125), read(1, 20, log_start=20)],
    )
    played = play(hand_over.RULE, [topics, gone])
    assert (played.findings, told(played)) == ([], {"unknown": 1, "pass": 1})
    assert {row["stream"] for row in played.state if row["what"] == "tail"} == {MOVED, 3}


@pytest.mark.parametrize("change", ["compacted", "shortened", "floor", "hole"])
def test_what_may_have_been_gone_otherwise_proves_nothing(change: str) -> None:
    """By compaction, with a log that got shorter, by DeleteRecords, or before it could be read."""
    value = 1_000 if change == "floor" else True
    stays = WHOLE.stays if change == "hole" else [{**row, change: value} for row in WHOLE.stays or ()]
    start = [read(0, 125, log_start=10), read(1, 20, log_start=12)] if change == "hole" else WHOLE.read_to
    batches = [each for each in WHOLE.batches if change != "hole" or each["base_offset"] >= 12]
    asked = [fetch(0, (MOVED, 103, 120, 1, 1, 3))]
    played = play(hand_over.RULE, [replace(WHOLE, stays=stays, batches=batches, read_to=start, decisions=asked)])
    assert (played.findings, told(played)) == ([], {"unknown": 1})


def test_a_log_that_got_shorter_has_other_records_where_a_stay_lost_its_own() -> None:
    """The group had read to 20, the log was cut at 10, and what stands there now came later."""
    stays = [
        {**row, "end": 30, "kept_end": 10, "shortened": True} for row in layout_rows(ONE)["stays"] if row["stream"] == 0
    ]
    stays.append({**stays[0], "move": 1, "place": 1, "start": 10, "end": None, "kept_end": None, "shortened": False})
    written = [tagged(0, 1, 0, 10, 40)]
    asked = [fetch(0, (0, 20, 30, 0, 0, 20))]
    played = play(
        hand_over.RULE, [MicroBatch(decisions=asked, stays=stays, batches=written, read_to=[read(0, 50)], is_last=True)]
    )
    assert played.findings == []


@pytest.mark.parametrize(
    ("log", "found", "verdicts"),
    [
        ("W5 d5 C5", ["told-ahead"], {}),
        ("W5 d5 A5", [], {"pass": 1}),
        ("W5 e5 C6 e5 W6 C7", ["told-ahead"], {}),
        ("W5 C6 e5 W6 C7", [], {"pass": 1}),
    ],
)
def test_what_a_transaction_has_committed_is_a_record_and_what_it_has_aborted_is_none(
    log: str, found: list[str], verdicts: dict[str, int]
) -> None:
    """Kordon does not know who of a group reads what was aborted, and tells it the end behind that."""
    batches = transaction_log(log)
    end = len(batches)
    asked = [fetch(0, (0, 0, end, 0, 0, 0))]
    whole = MicroBatch(**layout_rows(ONE), batches=batches, decisions=asked, read_to=[read(0, end)], is_last=True)
    played = play(hand_over.RULE, [whole])
    assert (played.found("kind"), told(played)) == (found, verdicts)


def test_what_is_open_is_waited_for() -> None:
    """Until its marker is read; if that does not come, nobody can say what a group has missed."""
    admitted = decided("admit", 1, topic=TOPIC, partition=0, last_offset=2)  # all before it is certain
    asked = [fetch(0, (0, 0, 2, 0, 0, 0)), admitted]
    opened = MicroBatch(**layout_rows(ONE), batches=transaction_log("W5 d5"), decisions=asked, read_to=[read(0, 2)])
    assert (play(hand_over.RULE, [opened]).findings, told(play(hand_over.RULE, [opened]))) == ([], {})
    for marker, found in (("C5", ["told-ahead"]), ("A5", [])):
        ended = MicroBatch(batches=transaction_log(marker, start=2), read_to=[read(0, 3)])
        assert play(hand_over.RULE, [opened, ended]).found("kind") == found
    late = play(hand_over.RULE, [opened, [later(2, 601)]])
    assert (late.findings, told(late)) == ([], {"late": 1})


def test_an_open_transaction_elsewhere_in_the_log_holds_nothing() -> None:
    """Of another virtual partition, or behind what was told."""
    admitted = decided("admit", 1, topic=TOPIC, partition=0, last_offset=2)  # all before it is certain
    asked = [fetch(0, (0, 0, 2, 0, 0, 0)), admitted]
    for others in (transaction_log("W5 d5", v=2), transaction_log("W5 C5 d5")):
        whole = MicroBatch(**layout_rows(ONE), batches=others, decisions=asked, read_to=[read(0, 3)])
        assert told(play(hand_over.RULE, [whole])) == {"pass": 1}


def test_what_a_transaction_wrote_before_the_takeover_may_have_been_aborted() -> None:
    """So nobody had to get it."""
    old = Layout.unmanaged(TOPIC, UUID(int=7), 1, 2)
    for is_transactional, expected in ((True, []), (False, ["told-ahead"])):
        whole = MicroBatch(
            decisions=[fetch(0, (0, 2, 5, 0, 0, 2))],
            **layout_rows(old),
            batches=[batch(0, 0, 5, is_transactional=is_transactional)],
            read_to=[read(0, 5)],
        )
        assert play(hand_over.RULE, [whole]).found("kind") == expected


def test_commits_are_forgotten_after_a_day_and_beyond_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups without number take no state for ever; what is told then is heard of first."""
    first = [commit(0, (0, 5, 20), group="old"), commit(1, (0, 5, 20), group="new", seconds=86_000)]
    asked = [fetch(2, (0, 1), group="old", seconds=90_000), fetch(3, (0, 20), group="new", seconds=90_000)]
    played = play(hand_over.RULE, [first, [later(9, 86_500, worker="other")], asked])
    assert told(played) == {"pass": 1}
    monkeypatch.setattr(hand_over, "MOST_COMMITS", 1)
    bounded = play(hand_over.RULE, [first])
    assert [row["group_id"] for row in bounded.state if row["what"] == "commit"] == ["new"]


@pytest.mark.parametrize("seed", range(8))
def test_through_any_changes_of_layouts_what_was_left_out_is_found_and_nothing_else(seed: int) -> None:
    """Whoever reckons by chains of stays, as Kordon does, comes to the same; and so for any micro-batches."""
    history, chance = History(TOPIC, seed), random.Random(seed)
    cases = [told_at_random(history, chance, number) for number in range(60)]
    whole = MicroBatch(
        decisions=[row for row, _ in cases],
        **layout_rows(history.layout),
        batches=history.batches,
        read_to=history.read_to,
        is_last=True,
    )
    expected = sorted(f"asks:{number}" for number, (_, has_some) in enumerate(cases) if has_some)
    assert 0 < len(expected) < len(cases)
    for played in (play(hand_over.RULE, [whole]), play(hand_over.RULE, cut_up(whole, (chance.random(),)))):
        assert sorted(each["decisions"][0] for each in played.findings) == expected
        assert told(played) == {"pass": len(cases) - len(expected)}


def told_at_random(history: History, chance: random.Random, number: int) -> tuple[Row, bool]:
    """What somebody is told in place of a commit, and whether there are records in between."""
    layout = history.layout
    ends = {v: history.ends[each.home.partition] + each.home.delta for v, each in enumerate(layout.chains) if each.home}
    v = chance.choice([v for v, end in ends.items() if end > layout.chains[v].start])
    chain = layout.chains[v]
    committed, until = sorted(chance.randrange(chain.start, ends[v]) for _ in range(2))
    place = place_in(layout, v, committed)
    assert place is not None
    written = [each for stay in chain.stays for each in offsets_of(history, v, stay)]
    changed = (v, committed, until + 1, place.stay.partition, place.stay.move, place.position)
    row = fetch(number, changed, worker="asks", group=f"g{number}")
    return row, any(committed <= offset <= until for offset in written)


def offsets_of(history: History, v: int, stay: Stay) -> Iterator[int]:
    """The offsets of a virtual partition's records in a stay, as the virtual partition counts them."""
    for row in history.batches:
        is_own = not row["is_control"] and (not stay.tagged or (row.get("v"), row.get("move")) == (v, stay.move))
        if row["partition"] == stay.partition and is_own and stay.holds(row["base_offset"]):
            yield from range(row["base_offset"] + stay.delta, row["last_offset"] + stay.delta + 1)
