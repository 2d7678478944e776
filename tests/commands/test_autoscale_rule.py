"""When `kordon autoscale` changes a topic, when it does not, and what it says of that."""

from datetime import time
from typing import Any

from kordon.proxy.commands.autoscale_policy import Policy
from kordon.proxy.commands.autoscale_rule import AutoscaleRule, ScaleVerdict, TopicLoad

TARGET = 1000
POLICY = {
    "minimum": 3,
    "maximum": 24,
    "bytes_per_second": TARGET,
    "grow_after": 20,
    "shrink_after": 60,
    "cool_down": 40,
}


class Topic:
    """A topic with 3 partitions at first, under a load, looked at each 10 seconds."""

    def __init__(self, physical: int = 3, **policy: Any) -> None:
        self.rule = AutoscaleRule(Policy.model_validate(POLICY | policy))
        self.now, self.physical, self.sizes = 0.0, physical, dict.fromkeys(range(24), 0)
        self.look()

    def look(self, bytes_per_second: float = 0.0, seconds: float = 10.0, **seen: Any) -> ScaleVerdict:
        """Lets time pass under a load, spread evenly, and returns the verdict."""
        self.now += seconds
        for q in range(self.physical):
            self.sizes[q] += round(bytes_per_second * seconds / self.physical)
        sizes = {q: self.sizes[q] for q in range(self.physical)}
        return self.rule.decide(TopicLoad(self.now, seen.pop("at", time(12)), 3, self.physical, 48, sizes, **seen))

    def follow(self, bytes_per_second: float, looks: int, **seen: Any) -> list[int]:
        """Does what verdicts say for some looks; returns the numbers of partitions that the topic got."""
        got: list[int] = []
        for _ in range(looks):
            if (partitions := self.look(bytes_per_second, **seen).partitions) is not None:
                self.physical = partitions
                self.rule.changed(self.now)
                got.append(partitions)
        return got


def test_first_look_changes_nothing() -> None:
    """A load shows between two looks only."""
    rule = AutoscaleRule(Policy.model_validate(POLICY))
    verdict = rule.decide(TopicLoad(0.0, time(12), 3, 3, 48, {0: 10**12}))
    assert (verdict.partitions, verdict.bytes_per_second) == (None, None)


def test_load_that_lasts_makes_it_grow_to_what_it_asks_for() -> None:
    """7.5 times the load of one partition asks for 8."""
    topic = Topic()
    assert topic.look(7_500).because == "2.4 KiB/s for each of 3 partitions, of 1000 B/s; grows if that lasts 20 s more"
    assert topic.follow(7_500, 2) == [8]


def test_load_that_does_not_last_changes_nothing() -> None:
    """The time counts from when the load is too high without a break."""
    topic = Topic()
    for _ in range(5):
        assert topic.follow(7_500, 2) == []
        assert topic.follow(2_500, 1) == []


def test_it_shrinks_to_what_was_needed_at_each_look() -> None:
    """Not to what the last look alone asks for: 5,500 asks for 8 partitions that are busy to seven tenths."""
    topic = Topic(20)
    topic.look(4_000)
    topic.look(5_500)
    assert topic.follow(1_000, 5) == [8]


def test_load_that_swings_a_little_changes_nothing() -> None:
    """Fewer partitions have to be busy to seven tenths at most; more are only wanted where one has too much."""
    topic = Topic(8)
    for load in (7_900, 5_800, 7_900, 5_800):
        assert topic.follow(load, 10) == []


def test_changes_keep_their_distance() -> None:
    """cool_down passes between two changes, however the load is."""
    topic = Topic()
    assert topic.follow(6_000, 3) == [6]
    assert topic.follow(12_000, 3) == []
    assert topic.follow(12_000, 1) == [12]


def test_bounds_are_those_of_the_policy_and_of_the_topic() -> None:
    """N is the least and V the most; the log says when more is wanted."""
    assert Topic().follow(10**6, 3) == [24]
    assert Topic(24, minimum=1).follow(0, 7) == [3]
    assert Topic(maximum=100).follow(10**6, 3) == [48]
    topic = Topic(24)
    assert topic.look(10**6).because.endswith("; 24 is the most there can be")


def test_topic_outside_the_bounds_is_brought_back() -> None:
    """Somebody has changed it by hand, or the policy."""
    assert Topic(3, minimum=6).follow(0, 3) == [6]
    assert Topic(24, maximum=12).follow(11_000, 7) == [12]


def test_obstacles_stop_every_change() -> None:
    """A takeover, a change under way, a finding; what it waits for is said, and afterwards nothing waits once more."""
    topic = Topic()
    topic.look(7_500, obstacle="being taken over")
    topic.look(7_500, obstacle="being taken over")
    verdict = topic.look(7_500, obstacle="being taken over")
    assert verdict.partitions is None
    assert verdict.because.endswith("not now: being taken over")
    assert topic.look(7_500).partitions == 8


def test_hours_bound_changes() -> None:
    """Windows may go over midnight; outside of them nothing is changed."""
    topic = Topic(hours=["22:00-06:00"])
    assert topic.follow(7_500, 5, at=time(12)) == []
    assert topic.follow(7_500, 1, at=time(3)) == [8]
    assert Topic(hours=["06:00-22:00"]).follow(7_500, 3, at=time(22)) == []


def test_group_that_is_behind_makes_it_grow_at_most_twofold() -> None:
    """It is named."""
    topic = Topic(6, lag=100)
    assert topic.look(0, lag=150, group="mailers").because.startswith("group mailers is 150 records behind, of 100")
    assert topic.follow(0, 2, lag=150, group="mailers") == [9]
    assert Topic(6, lag=100).follow(0, 3, lag=10_000, group="mailers") == [12]


def test_nothing_shrinks_while_a_group_is_behind_or_lags_are_unknown() -> None:
    """Half of the policy's lag is too much for that."""
    assert Topic(6, lag=100).follow(0, 10, lag=51, group="mailers") == []
    assert Topic(6, lag=100).follow(0, 10, lag=None) == []
    assert Topic(6, lag=100).follow(0, 7, lag=50, group="mailers") == [3]


def test_log_that_retention_shortens_counts_with_its_rate_of_before() -> None:
    """A segment that goes is not a load that falls."""
    topic = Topic()
    assert topic.look(2_700).bytes_per_second == 2_700
    topic.sizes[1] -= 10**9
    assert topic.look(2_700).bytes_per_second == 2_700
