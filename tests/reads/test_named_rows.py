"""What is kept of the last request's rows says what the rows themselves say."""

from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kordon.codecs.fetch_requests import FetchLook, FetchPartition, FetchTopic, look_fetch
from kordon.codecs.messages.fetch import REQUEST
from kordon.proxy.reads.fetch_rows import asked_by_look
from kordon.proxy.reads.named_rows import NamedRows

_MOST = 1 << 20


def looked(version: int, rows: dict[int, int], *, again: int | None = None) -> FetchLook:
    """A request that names a topic with an offset for each partition; one of them may be named twice."""
    named = [*rows.items(), *([(again, 1)] if again is not None else [])]
    partitions = [{"partition": each, "fetch_offset": at, "partition_max_bytes": _MOST} for each, at in named]
    asked = {"topic": "t", "topic_id": UUID(int=1), "partitions": partitions}
    fields = {"max_wait_ms": 1, "min_bytes": 1, "topics": [asked], "forgotten_topics_data": [], "rack_id": ""}
    look = look_fetch(version, REQUEST.build(version, fields))
    assert look is not None
    return look


def topic(version: int, rows: dict[int, int], *, again: int | None = None) -> FetchTopic:
    """The topic of such a request."""
    return looked(version, rows, again=again).topics[0]


def in_order(rows: NamedRows) -> list[FetchPartition]:
    """All rows as the request had them."""
    kept = [*rows.rows.values()]
    return kept[rows.begin :] + kept[: rows.begin]


STEPS = st.lists(
    st.tuples(
        st.dictionaries(st.integers(0, 49), st.integers(0, 2**40), max_size=40),
        st.sampled_from([0, 0, 1, 7]),
        st.sampled_from([None, None, None, 3]),
        st.sampled_from([0, 0, 0, 5]),
    ),
    min_size=1,
    max_size=6,
)


@example(12, 50, [({0: 1, 49: 1}, 1, None, 0), ({7: 1}, 1, None, 0)])
@example(4, 50, [(dict.fromkeys(range(40), 1), 0, None, 0)])
@given(st.sampled_from([4, 5, 9, 12, 13, 17]), st.integers(1, 50), STEPS)
def test_what_is_kept_of_rows_is_what_the_rows_say(
    version: int, count: int, steps: list[tuple[dict[int, int], int, int | None, int]]
) -> None:
    """Clients read on, begin further on, name a partition twice or fewer of them: all that has changed is found."""
    at = dict.fromkeys(range(count), 0)
    rows, before = NamedRows(topic(version, at)), dict.fromkeys(range(count), 0)
    for moved, further, again, fewer in steps:
        order = [*before][further % len(before) :] + [*before][: further % len(before)]
        at |= {each: offset for each, offset in moved.items() if each < count}
        asked = {each: at[each] for each in order[fewer if fewer < len(order) else 0 :]}
        named = topic(version, asked, again=again if again in at else None)
        if not rows.take(named):
            rows = NamedRows(named)
            assert rows.changed is None
        else:
            assert rows.changed == [row for row in in_order(rows) if before[row[0]] != row[2]]
        last = {row[0]: row for row in named.partitions()}
        assert in_order(rows) == [*last.values()]
        before = {partition: row[2] for partition, row in last.items()}


def test_rows_are_compared_with_those_before_them() -> None:
    """Or else nothing would be saved: where a client goes on, or begins one further on, few rows are read."""
    at = dict.fromkeys(range(20), 0)
    rows = NamedRows(topic(12, at))
    for begin in range(1, 45):
        at[begin % 3] += 1
        order = {each % 20: at[each % 20] for each in range(begin, begin + 20)}
        assert rows.take(topic(12, order))
        assert rows.changed == [(begin % 3, -1, at[begin % 3], _MOST)]


@pytest.mark.parametrize("partitions", [{0: 0, 1: 0, 3: 0}, {0: 0, 2: 0, 1: 0}, {0: 0, 1: 0}, {}])
def test_other_partitions_are_no_changed_rows(partitions: dict[int, int]) -> None:
    """Others, others in number, or the same otherwise turned."""
    rows = NamedRows(topic(12, {0: 0, 1: 0, 2: 0}))
    assert not rows.take(topic(12, partitions))
    assert in_order(rows) == [(each, -1, 0, _MOST) for each in range(3)]


def test_another_version_writes_its_rows_otherwise() -> None:
    """The row of one version may have the size of another's, and its bytes."""
    rows = NamedRows(topic(5, {0: 0}))
    assert not rows.take(topic(9, {0: 0}))
    assert rows.take(topic(5, {0: 0}))


def test_rows_of_a_partition_that_is_named_twice_are_not_kept() -> None:
    """What a worker keeps of all connections is counted by partitions: one could be named thousands of times."""
    once, twice = looked(12, {0: 0, 1: 0}), looked(12, {0: 0, 1: 0}, again=1)
    kept = asked_by_look(12, once).named
    assert [*kept] == ["t"]
    assert asked_by_look(12, twice, kept).named == {}
