"""What operators are told of managed topics: the layout, the chains, and why something is held."""

import io
import json
from dataclasses import replace
from textwrap import dedent
from typing import Any
from uuid import UUID

import pytest
from rich.console import Console, RenderableType

from kordon.codecs.counted import ranges
from kordon.proxy.commands.topics_tables import draw_all, draw_history, draw_topic
from kordon.proxy.kafka.group import GroupMember
from kordon.proxy.member.control_state import ControlState
from kordon.proxy.member.membership import Generation
from kordon.proxy.ordering.changes import Change, Stage
from kordon.proxy.ordering.images import Written
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.placements import Placement
from kordon.proxy.ordering.records import FenceRecord
from kordon.proxy.ordering.takeover import Subscriber, Takeover
from kordon.proxy.ordering.wishes import Manage, Resize
from kordon.proxy.process.explain import NOT_ENABLED, explain_all, explain_control, explain_topic, sum_up
from kordon.proxy.process.merge import NO_WORKER
from kordon.proxy.topics.managed_topics import Fence, ManagedTopic

MEMBERS = (GroupMember("m1", "aaaaaaaa-1", "one"), GroupMember("m2", "bbbbbbbb-2", "two"))
CALM = ControlState(
    incarnation="aaaaaaaa-1",
    generation=Generation(7, "m1", "m1", MEMBERS),
    lease_seconds_left=17.23,
    serves=True,
    position=41,
    fences={},
    wishes={},
    changes={},
    now=111.3,
)


def a_layout() -> Layout:
    """Created with 3 of 12, grown to 4, shrunk to 3 and grown to 6."""
    layout = Layout.created("orders", UUID(int=7), 3, 12)
    layout = layout.changed(layout.next_epoch(4), {0: 120, 3: 0})
    layout = layout.changed(layout.next_epoch(3), {0: 300, 3: 95})
    return layout.changed(layout.next_epoch(6), {q: 100 * q + 300 for q in range(6)})


def a_topic() -> ManagedTopic:
    return ManagedTopic(a_layout(), UUID(int=8))


def shown(drawn: RenderableType) -> str:
    """What is printed on a wide terminal, without the blanks at the ends of lines."""
    console = Console(file=io.StringIO(), width=140)
    console.print(drawn)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


def golden(text: str) -> str:
    """A text from this file without its indentation."""
    return dedent(text).lstrip("\n")


def held(topic: ManagedTopic, control: ControlState) -> list[Any]:
    answer = explain_topic(topic, control)["held"]
    assert isinstance(answer, list)
    return answer


def test_history_as_people_see_it() -> None:
    """`explain` shows each epoch, segment with its cuts, and where each virtual partition's offsets stand."""
    assert shown(draw_history(explain_topic(a_topic(), CALM))) == golden("""
        orders: serving 6 of 12, settled
        6 partitions (U), 3 at first (N), 12 virtual (V), layout epoch 3
        topic id 00000000-0000-0000-0000-000000000007, to clients 00000000-0000-0000-0000-000000000008 (__kordon.orders)

        Layout epochs
        epoch  partitions  placement
            0           3  linear
            1           4  linear
            2           3  linear
            3           6  linear

        Partitions of the brokers
        partition  state    virtual partitions  segment  offsets     after
                0  written  0-1                 0@0      [0, 120)
                                                0@1      [120, 300)  0@0
                                                0@2      [300, 300)  0@1, 3@1
                                                0@3      [300, …)    0@2
                1  written  4-5                 1@0      [0, 400)
                                                1@3      [400, …)    1@0
                2  written  8-9                 2@0      [0, 500)
                                                2@3      [500, …)    2@0
                3  written  2-3                 3@1      [0, 95)     0@0
                                                3@3      [600, …)    0@2
                4  written  6-7                 4@3      [700, …)    1@0
                5  written  10-11               5@3      [800, …)    2@0

        Chains of the virtual partitions
        virtual partitions  moves  their offsets  partition  its offsets  delta
                       0-1      0  [0, …)                 0  [0, …)           0
                       2-3      3  [0, 120)               0  [0, 120)         0
                                   [120, 215)             3  [0, 95)       +120
                                   [215, 215)             0  [300, 300)     -85
                                   [215, …)               3  [600, …)      -385
                       4-5      0  [0, …)                 1  [0, …)           0
                       6-7      1  [0, 400)               1  [0, 400)         0
                                   [400, …)               4  [700, …)      -300
                       8-9      0  [0, …)                 2  [0, …)           0
                     10-11      1  [0, 500)               2  [0, 500)         0
                                   [500, …)               5  [800, …)      -300

        serves managed topics, lease 17.2 s, layouts read up to 41
        generation 7 of the proxies' group: 2 workers; this worker is the controller
        """)


def test_one_virtual_partition_can_be_picked() -> None:
    """With hundreds of virtual partitions, the chain of one is still found."""
    text = shown(draw_history(explain_topic(a_topic(), CALM), virtual_partition=6))
    assert "        6      1  [0, 400)               1  [0, 400)         0\n" in text
    assert "10-11      1" not in text


def test_description_while_a_fence_stands() -> None:
    """`describe` says what is held, since when, and for whom the controller waits."""
    topic, control = fenced()
    assert shown(draw_topic(explain_topic(topic, control))) == golden("""
        orders: growing 6 -> 7: waits until two has stopped writing
        6 partitions (U), 3 at first (N), 12 virtual (V), layout epoch 3
        topic id 00000000-0000-0000-0000-000000000007, to clients 00000000-0000-0000-0000-000000000008 (__kordon.orders)
          - partition 0: fence f1 for layout epoch 4 with 7 partitions: nothing is under way there any more
          - the controller changes it to 7 partitions: waiting for acknowledgements for 1.3 s, attempt 2; two (bbbbbbbb) missing

        Partitions of the brokers
        partition  state    virtual partitions  segment  offsets     after
                0  held     0-1                 0@0      [0, 120)
                                                0@1      [120, 300)  0@0
                                                0@2      [300, 300)  0@1, 3@1
                                                0@3      [300, …)    0@2
                1  written  4-5                 1@0      [0, 400)
                                                1@3      [400, …)    1@0
                2  written  8-9                 2@0      [0, 500)
                                                2@3      [500, …)    2@0
                3  written  2-3                 3@1      [0, 95)     0@0
                                                3@3      [600, …)    0@2
                4  written  6-7                 4@3      [700, …)    1@0
                5  written  10-11               5@3      [800, …)    2@0
        """)  # noqa: E501


def fenced() -> tuple[ManagedTopic, ControlState]:
    """A growth to 7 in its fence, which one of two workers has acknowledged."""
    topic = a_topic()
    following = topic.layout.next_epoch(7)
    fence = FenceRecord("f1", "orders", following, topic.layout.change_to(following).sealed)
    topic.raise_fence(Fence("f1", fence.sealed, {0: 310}))
    change = Change("orders", 7, Stage.FENCING, since=110.0, fence=fence, acknowledged={"aaaaaaaa-1"}, attempts=2)
    return topic, replace(CALM, fences={"orders": fence}, changes={"orders": change}, wishes={"w": Resize("orders", 7)})


def test_list_as_people_see_it() -> None:
    """All topics take a line each, sorted by name; the controller's procedures stand below."""
    topic, control = fenced()
    alone = ManagedTopic(Layout.created("alone", UUID(int=1), 1, 1), UUID(int=2))
    assert shown(draw_all(explain_all([topic, alone], control))) == golden("""
        Managed topics
        topic   state                                                N  U   V  layout epoch
        alone   serving 1 of 1, settled                              1  1   1             0
        orders  growing 6 -> 7: waits until two has stopped writing  3  6  12             3

        serves managed topics, lease 17.2 s, layouts read up to 41
        generation 7 of the proxies' group: 2 workers; this worker is the controller
          orders to 7 partitions: waiting for acknowledgements for 1.3 s, attempt 2; two (bbbbbbbb) missing
        """)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            {"generation": None, "lease_seconds_left": 0.0, "position": 0},
            "no layouts have been read yet; there are none until a topic is managed",
        ),
        ({"generation": None, "lease_seconds_left": 0.0}, "not in the proxies' group yet"),
        ({"lease_seconds_left": 0.0}, "the lease has ended: the cluster has not confirmed this proxy for too long"),
        ({}, "the layouts are not read to their end yet"),
    ],
)
def test_a_worker_that_serves_nothing_holds_everything(change: dict[str, Any], why: str) -> None:
    """Without group, lease or layouts all partitions are held, and the reason is the one to look at first."""
    control = replace(CALM, serves=False, **change)
    everything = {"partitions": [0, 1, 2, 3, 4, 5], "virtual_partitions": list(range(12)), "why": why}
    assert held(a_topic(), control) == [everything]
    assert explain_all([a_topic()], control)["control"]["why_not"] == why


def test_nothing_is_held_on_a_calm_day() -> None:
    """What needs no attention takes no line."""
    assert held(a_topic(), CALM) == []


def test_a_fence_says_whether_its_partitions_are_quiet() -> None:
    """Operators see whether a fence waits for answers of brokers or for the controller."""
    topic, control = fenced()
    topic.raise_fence(Fence("f1", frozenset({0})))
    assert held(topic, control)[0] == {
        "partitions": [0],
        "virtual_partitions": [0, 1],
        "why": "fence f1 for layout epoch 4 with 7 partitions: what is under way there comes to its end",
    }


def test_a_wish_waits_for_the_controller() -> None:
    """A worker that does not lead tells what was wished, and where the controller is."""
    others = replace(CALM, generation=Generation(7, "m1", "m2", MEMBERS), changes=None)
    control = replace(others, wishes={"w1": Resize("orders", 7), "w2": Manage("new", 8)})
    assert [each["why"] for each in held(a_topic(), control)] == ["resize orders to 7: waits for the controller"]
    text = shown(draw_all(explain_all([], control)))
    assert text == golden("""
        No topic is managed.
        serves managed topics, lease 17.2 s, layouts read up to 41
        generation 7 of the proxies' group: 2 workers; the controller is on two
          wanted: resize orders to 7
          wanted: manage new
        """)


def test_a_cluster_without_managed_topics_takes_two_lines() -> None:
    """Whoever looks before anything is managed is not told of leases and generations."""
    control = replace(CALM, serves=False, generation=None, lease_seconds_left=0.0, position=0, changes=None)
    assert shown(draw_all(explain_all([], control))) == golden("""
        No topic is managed.
        serves none: no layouts have been read yet; there are none until a topic is managed
        """)


def test_who_missed_an_attempt_is_named() -> None:
    """Between two attempts operators see which proxy did not stop writing in time, also when it has gone since."""
    missed = frozenset({"bbbbbbbb-2", "cccccccc-3"})
    change = Change("orders", 7, Stage.PAUSING, since=110.0, missed=missed, attempts=1)
    (why,) = (each["why"] for each in held(a_topic(), replace(CALM, changes={"orders": change})))
    assert why == (
        "the controller changes it to 7 partitions: waiting for another attempt for 1.3 s;"
        " gone (cccccccc), two (bbbbbbbb) missing"
    )


def test_withheld_partitions_are_told() -> None:
    """While a topic with data is taken over, what is written but not delivered is said."""
    layout = Layout.unmanaged("old", UUID(int=1), 2, 4)
    layout = layout.changed(layout.next_epoch(2, Placement.OWN), {0: 10, 1: 20}, withheld=True)
    topic = ManagedTopic(layout, UUID(int=2))
    topic.takeover = Takeover(until_ms=1_700_000_000_000)
    (waits,) = held(topic, CALM)
    assert waits["virtual_partitions"] == [2, 3]
    text = shown(draw_history(explain_topic(topic, CALM)))
    assert (
        "  - virtual partitions 2-3: written, but not delivered before 2023-11-14 22:13:20Z,"
        " when no client has the old number of partitions any more" in text
    )
    assert "[0, 10) (before it was managed)" in text


def test_the_groups_that_a_takeover_waits_for_are_named() -> None:
    """So that an operator can find those that nobody reads by any more, and leave them out."""
    layout = Layout.unmanaged("old", UUID(int=1), 2, 4)
    layout = layout.changed(layout.next_epoch(2, Placement.LINEAR), {0: 10, 1: 20}, withheld=True)
    topic = ManagedTopic(layout, UUID(int=2))
    stays = Subscriber("new", "m1", ("old",), None)
    topic.takeover = Takeover(0, cuts={0: 10, 1: 20}, waits_for=("slow", "dead"), subscribers=(stays,))
    assert [each["why"].removeprefix("written, but not delivered yet: ") for each in held(topic, CALM)] == [
        "group slow has to read what was written before",
        "group dead has to read what was written before",
        "member m1 of group new has to come over",
    ]


def test_floors_and_carried_producers_are_numbers() -> None:
    """What was deleted, and for how many producers a sequence was carried over, stands beside the chains."""
    layout = replace(a_layout(), floors={2: 50, 3: 0})
    topic = ManagedTopic(layout, UUID(int=8), {6: {1: Written(0, 5), 2: Written(0, 7)}, 7: {}})
    facts = explain_topic(topic, CALM)
    assert (facts["floors"], facts["producers_carried"]) == ({"2": 50}, {"6": 2})


def test_json_takes_everything() -> None:
    """The pages are JSON, with nothing that it cannot say."""
    topic, control = fenced()
    for facts in (explain_all([topic], control), explain_topic(topic, control), NOT_ENABLED):
        assert json.loads(json.dumps(facts)) == facts


def test_the_sum_is_a_line_of_status() -> None:
    """/status says in a few numbers whether managed topics need a look."""
    topic, control = fenced()
    assert sum_up([topic], control) == {
        "enabled": True,
        "topics": 1,
        "serves": True,
        "why_not": None,
        "generation": 7,
        "leads": True,
        "lease_seconds_left": 17.2,
        "layouts_position": 41,
        "fences": 1,
        "procedures": 1,
    }


def test_switched_off_is_told() -> None:
    """A Kordon that serves no managed topics by its configuration says which option does that."""
    assert shown(draw_all(NO_WORKER)) == "No worker is running.\n"
    assert shown(draw_all(NOT_ENABLED)) == "Managed topics are switched off here (ordering.enabled).\n"


def test_numbers_are_written_as_ranges() -> None:
    """Neighbours are joined."""
    assert ranges([8, 0, 1, 2, 3, 10, 11]) == "0-3, 8, 10-11"
    assert ranges([]) == ""


def test_a_change_that_waits_for_leases_says_for_how_long_at_most() -> None:
    """Somebody who was killed may serve until then; whoever has just joined cannot say."""
    change = Change("orders", 6, Stage.WAITING, 110.3)
    waiting = replace(CALM, changes={"orders": change}, alone_from=123.7)
    (procedure,) = explain_control(waiting)["procedures"]
    assert procedure["lease_seconds_left"] == 12.4
    (procedure,) = explain_control(replace(waiting, alone_from=float("inf")))["procedures"]
    assert procedure["lease_seconds_left"] == 0.0
