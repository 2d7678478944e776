"""The lag of groups: what it is on a topic that has grown and shrunk, and how many series there are of it."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from kordon.proxy.ordering.lags import OTHERS, LagKey, bounded, end_of, home_of, shown
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.streams import physical_stream

LAGS = st.dictionaries(
    st.builds(LagKey, st.sampled_from(("a", "b")), st.sampled_from(("g", "h", "i", OTHERS)), st.sampled_from("0123")),
    st.integers(0, 100),
    max_size=32,
)


def grown() -> Layout:
    """V = 4 on one partition, cut at 10 when it grew to two: 2 and 3 live on partition 1 since then, from its 0 on."""
    layout = Layout.created("orders", UUID(int=1), 1, 4)
    return layout.changed(layout.next_epoch(2), {0: 10, 1: 0})


def test_what_is_left_in_a_former_home_counts() -> None:
    """A group that had come to 4 when the topic grew is behind by 6 there and by the 5 that came since then."""
    layout = grown()
    moved = next(v for v in range(4) if layout.homes[v] == 1)
    assert home_of(layout, moved) == layout.chains[moved].stays[-1]
    assert end_of(layout, moved, log_end=5, limit=None) - 4 == 6 + 5


def test_a_partition_as_such_has_its_own_offsets() -> None:
    """Members that use the SDK read what brokers have; what was read of the parent is no part of the child."""
    assert end_of(grown(), physical_stream(1), log_end=5, limit=None) == 5
    assert end_of(grown(), physical_stream(0), log_end=12, limit=None) == 12
    assert shown(physical_stream(1)) == "~1"


def test_nothing_counts_that_readers_are_not_shown() -> None:
    """While a fence holds (FROZEN-READS), the end is where readers must stop."""
    stays_home = next(v for v in range(4) if grown().homes[v] == 0)
    assert end_of(grown(), stays_home, log_end=30, limit=20) == 20


def test_a_retired_partition_ends_at_its_cut() -> None:
    """What lands there later is nobody's."""
    layout = grown()
    shrunk = layout.changed(layout.next_epoch(1), {0: 15, 1: 8})
    assert end_of(shrunk, physical_stream(1), log_end=9, limit=None) == 8


def test_streams_that_the_layout_does_not_know_have_no_lag() -> None:
    """A commit on partition 9 of two may be of a topic of this name that was deleted."""
    assert home_of(grown(), physical_stream(9)) is None
    assert home_of(grown(), 9) is None


@given(LAGS, st.integers(1, 40), st.sets(st.tuples(st.sampled_from(("a", "b")), st.sampled_from(("g", "h")))))
def test_series_are_bounded_and_no_lag_is_hidden(
    lags: dict[LagKey, int], most: int, kept: set[tuple[str, str]]
) -> None:
    """However many groups there are; of each topic the greatest lag is told, under its own name or among others."""
    told, own = bounded(lags, most, kept)
    topics = {place.topic for place in lags}
    assert len(told) <= max(most, len(topics))
    for topic in topics:
        assert max(lag for place, lag in told.items() if place.topic == topic) == max(
            lag for place, lag in lags.items() if place.topic == topic
        )
    assert all(told[place] == lag for place, lag in lags.items() if (place.topic, place.group) in own)
    assert all((place.topic, place.group) in own or place.group == OTHERS for place in told)
    assert bounded(lags, most, own) == (told, own), "who has series of its own keeps them"


def test_groups_keep_their_series_when_others_come() -> None:
    """A series does not end because another group has a name that sorts before."""
    old = {LagKey("a", "old", str(v)): v for v in range(4)}
    new = {LagKey("a", "new", str(v)): 10 * v for v in range(4)}
    told, own = bounded({**new, **old}, 8, {("a", "old")})
    assert told == {**new, **old}
    told, own = bounded({**new, **old, LagKey("a", "third", "0"): 5}, 8, {("a", "old")})
    assert own == {("a", "old")}
    assert told == {**old, **{LagKey("a", OTHERS, str(v)): max(10 * v, 5 if v == 0 else 0) for v in range(4)}}


def test_where_there_are_more_partitions_than_series_a_topic_has_one() -> None:
    """Nothing is unbounded, whatever V clients have given to the topics that they made."""
    lags = {LagKey("a", "g", str(v)): v for v in range(100)}
    assert bounded(lags, 10, ()) == ({LagKey("a", OTHERS, OTHERS): 99}, set())
