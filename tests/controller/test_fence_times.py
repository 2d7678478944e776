"""How long fences held writes and reads, by phase and by topic."""

from kordon.proxy.controller.fence_times import MOST_TOPICS, OTHERS, FenceTimes, Phase


def counted(times: FenceTimes) -> dict[str, int]:
    """How many pauses each topic has had."""
    return {topic: sum(each.counts) for topic, each in times.pauses.items()}


def pause(times: FenceTimes, topic: str) -> None:
    times.begin(Phase.HOLD, topic)
    times.end(Phase.HOLD, topic)


def test_a_pause_is_counted_for_its_topic_and_other_phases_are_not() -> None:
    """Only the time in which clients of a topic wait is a pause of it."""
    times = FenceTimes()
    pause(times, "orders")
    times.begin(Phase.DRAIN, "orders")
    times.end(Phase.DRAIN, "orders")
    assert counted(times) == {"orders": 1}
    assert sum(times.seconds[Phase.DRAIN].counts) == 1


def test_a_topic_has_a_count_of_0_before_its_first_pause() -> None:
    """A layout that no fence came before makes it, so that Prometheus sees the first pause as an increase."""
    times = FenceTimes()
    times.end(Phase.HOLD, "orders")
    assert counted(times) == {"orders": 0}


def test_a_topic_that_is_let_go_leaves_no_series() -> None:
    """Topics that come and go do not add up, and a fence that stood then is no pause of the next topic of that name."""
    times = FenceTimes()
    pause(times, "orders")
    times.begin(Phase.HOLD, "orders")
    times.forget("orders")
    assert counted(times) == {}
    times.end(Phase.HOLD, "orders")
    assert counted(times) == {"orders": 0}


def test_topics_beyond_the_bound_share_one_histogram() -> None:
    """With thousands of topics a page of metrics stays small, and no pause is lost."""
    times = FenceTimes()
    for number in range(MOST_TOPICS + 50):
        times.end(Phase.HOLD, f"t{number}")
    for number in (3, MOST_TOPICS, MOST_TOPICS + 49):
        pause(times, f"t{number}")
    assert len(times.pauses) == MOST_TOPICS + 1
    assert {name: count for name, count in counted(times).items() if count} == {"t3": 1, OTHERS: 2}
