"""Operators are told which partition a group waits with, for which other one, and how far that is read."""

import json
from array import array
from uuid import UUID

from kordon.proxy.ordering.gate import Gate
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.positions import UNKNOWN, MemberReport, Positions, TopicReport
from kordon.proxy.process.held_groups import MOST_ROWS, held_groups

TOPIC = "orders"
LAYOUT = Layout.created(TOPIC, UUID(int=7), 2, 8)
GROWN = LAYOUT.changed(LAYOUT.next_epoch(4), {0: 40, 1: 60, 2: 0, 3: 0})
"""Partition 2 has keys of partition 0, up to its offset 40, and 3 those of partition 1, up to 60."""


def said(
    owned: dict[int, int], wanted: tuple[int, ...] = (), generation: int = 1, said_ms: int = 1_000
) -> MemberReport:
    return MemberReport(generation, 0, {TOPIC: TopicReport(owned, array("i", wanted))}, said_ms)


def told(*reports: tuple[str, MemberReport], group: str = "g") -> list[tuple[list[int], str]]:
    """What operators are told when members of a group have said this."""
    positions = Positions()
    for member, report in reports:
        positions.apply(group, member, report)
    rows = held_groups(TOPIC, Gate.of(GROWN), positions)
    assert json.loads(json.dumps(rows)) == rows
    return [(row["partitions"], row["why"]) for row in rows]


def test_who_waits_for_whom_and_how_far_he_has_come() -> None:
    """A member that owns the new partition waits for the one that its keys were in."""
    assert told(("a", said({0: 17, 1: 60})), ("b", said({2: 0, 3: UNKNOWN}, (0,), said_ms=5_000))) == [
        (
            [2],
            "group g waits for partition 0, read and flushed up to 17 of 40: member a has it"
            " (said 1970-01-01 00:00:05Z)",
        )
    ]


def test_a_partition_that_nobody_has_flushed_yet_is_told_as_that() -> None:
    """Though records of it are read: a position is told when what was read is flushed."""
    assert told(("a", said({0: UNKNOWN})), ("b", said({2: 0}, (0,)))) == [
        (
            [2],
            "group g waits for partition 0, of which nobody has said yet that it is read and flushed, up to 40:"
            " member a has it (said 1970-01-01 00:00:01Z)",
        )
    ]


def test_a_partition_that_no_member_has_is_told_as_that() -> None:
    """As when members have assigned themselves others: nobody will open what waits for it."""
    ((_, why),) = told(("b", said({2: UNKNOWN}, (0,))))
    assert "no member has it" in why


def test_nothing_waits_that_has_what_it_needs() -> None:
    """Nor is a group told of that has only asked, and has been answered since."""
    assert told(("a", said({0: 40})), ("b", said({2: 0}, (0,)))) == []
    assert told(("a", said({0: 17, 1: 3}))) == []


def test_members_that_are_gone_are_passed_over() -> None:
    """Who said something last is in the generation that counts."""
    gone = said({2: 0}, (0,), generation=7)
    assert told(("gone", gone), ("a", said({0: 0, 2: 0}, generation=1, said_ms=9_000))) == []


def test_many_rows_end_in_their_number() -> None:
    """A page that nobody reads to its end tells nothing."""
    positions = Positions()
    for number in range(MOST_ROWS + 3):
        positions.apply(f"g{number:02}", "b", said({2: 0}, (0,)))
    *_, last = held_groups(TOPIC, Gate.of(GROWN), positions)
    assert last["why"] == "3 more partitions are waited for"
