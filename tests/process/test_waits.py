"""What metrics tell of changes that are under way: how long already, and what each waits for."""

import re
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from kordon.proxy.member.control_state import ControlState
from kordon.proxy.ordering.changes import Change, Stage
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.placements import Placement
from kordon.proxy.ordering.takeover import Subscriber, Takeover, TakeoverStep
from kordon.proxy.process.waits import NOT_BEGUN, seconds_by_stage, waited_for
from kordon.proxy.topics.managed_topics import ManagedTopic

NOW_MS = 1_000_000
LEADING = ControlState(
    incarnation="a",
    generation=None,
    lease_seconds_left=17.0,
    serves=True,
    position=41,
    fences={},
    wishes={},
    changes={},
    now=100.0,
)


def taken_over(takeover: Takeover | None, placement: Placement = Placement.OWN) -> ManagedTopic:
    """A topic with data of 3 partitions that shows 12."""
    before = Layout.unmanaged("orders", UUID(int=7), 3, 12)
    shown = before.changed(before.next_epoch(3, placement), dict.fromkeys(range(3), 50))
    return ManagedTopic(replace(shown, withheld=True), UUID(int=8), takeover=takeover)


def test_a_change_counts_from_its_first_attempt_under_the_stage_that_it_is_in() -> None:
    """A change that is tried again and again shows its whole age, in one row."""
    change = Change("orders", 4)
    change.enter(Stage.PREPARING, 40.0)
    change.enter(Stage.PAUSING, 95.0)
    control = replace(LEADING, changes={"orders": change})
    assert seconds_by_stage([], control, NOW_MS) == {("orders", "waiting for another attempt"): 60.0}


def test_a_change_that_somebody_wished_counts_from_the_wish() -> None:
    """Whoever asked waits since then, whatever was done first; what has not begun has a row, too."""
    change = Change("orders", 4)
    change.enter(Stage.WAITING, 40.0)
    control = replace(LEADING, wished_since={"orders": 30.0, "clicks": 90.0}, changes={"orders": change})
    assert seconds_by_stage([], control, NOW_MS) == {
        ("orders", "waiting for leases"): 70.0,
        ("clicks", "beginning"): 10.0,
    }


def test_a_takeover_tells_how_long_it_has_waited_for_clients_and_then_for_groups() -> None:
    """The time of clients with the old view runs from when all were shown; that of groups from its end."""
    clients = taken_over(Takeover(NOW_MS + 60_000, transition_ms=90_000))
    assert seconds_by_stage([clients], LEADING, NOW_MS) == {("orders", "waiting for clients with the old view"): 30.0}
    behind = Takeover(NOW_MS - 5_000, cuts={0: 50}, waits_for=("billing",))
    groups = taken_over(behind, Placement.LINEAR)
    assert seconds_by_stage([groups], LEADING, NOW_MS) == {("orders", "waiting for groups"): 5.0}


def test_a_quiesced_takeover_counts_from_when_this_worker_knew_of_it() -> None:
    """It has no transition, so nothing else tells when its wait for groups began."""
    quiesced = taken_over(Takeover(None, cuts={0: 50}, waits_for=("billing",)), Placement.LINEAR)
    now_ms = quiesced.known_since_ms + 7_000
    assert seconds_by_stage([quiesced], LEADING, now_ms) == {("orders", "waiting for groups"): 7.0}


def test_the_last_cut_of_a_takeover_shows_as_the_change_that_it_is() -> None:
    """A topic has one row at a time."""
    change = Change("orders", 3)
    change.enter(Stage.CUTTING, 99.5)
    control = replace(LEADING, changes={"orders": change})
    topic = taken_over(Takeover(NOW_MS - 1_000))
    assert seconds_by_stage([topic], control, NOW_MS) == {("orders", "reading cuts"): 0.5}


def test_a_topic_at_rest_has_no_row_and_other_workers_tell_nothing() -> None:
    """Of a thousand topics at rest there are no series, and of a change there is one in the whole cluster."""
    change = Change("orders", 4)
    change.enter(Stage.FENCING, 90.0)
    assert seconds_by_stage([taken_over(None)], LEADING, NOW_MS) == {}
    assert seconds_by_stage([taken_over(Takeover(NOW_MS))], replace(LEADING, changes=None), NOW_MS) == {}


def test_groups_that_a_takeover_waits_for_are_counted_once_each() -> None:
    """A group may be behind and have members that know the topic by its former name."""
    members = tuple(Subscriber(group, f"m-{group}", ("orders",), None) for group in ("billing", "audit"))
    topic = taken_over(Takeover(NOW_MS, cuts={0: 50}, waits_for=("billing", "mail"), subscribers=members))
    assert waited_for([topic, taken_over(None)]) == {"orders": 3}


@pytest.mark.parametrize(
    ("alone_from", "seconds"), [(112.5, 12.5), (99.0, 0.0), (float("inf"), 0.0)], ids=["known", "over", "unknown"]
)
def test_how_long_a_missing_proxy_may_still_serve(alone_from: float, seconds: float) -> None:
    """Changes wait that long; what nobody knows is no number."""
    assert replace(LEADING, alone_from=alone_from).missing_lease_seconds == seconds


def test_the_manual_explains_every_stage_and_no_other() -> None:
    """Who reads a stage on a dashboard finds what it waits for."""
    text = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    section = text.split("### Stages of a change")[1].split("### ")[0]
    rows = re.findall(r"^\| (`[^|]*`) \|", section, flags=re.MULTILINE)
    stages = {NOT_BEGUN, *(each.value for each in Stage), *(each.value for each in TakeoverStep)}
    assert {stage for row in rows for stage in re.findall(r"`([^`]+)`", row)} - {"stage"} == stages
