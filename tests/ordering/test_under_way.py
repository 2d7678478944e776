"""What is sent and unanswered: fences wait for it, and an answer that comes behind the lease waits itself."""

from kordon.proxy.ordering.under_way import Fate, KeptAnswers, UnderWay

HERE, THERE = ("orders", 0), ("orders", 1)


def test_a_wait_is_over_when_all_is_answered_that_was_sent_there() -> None:
    """Also what is sent while it lasts; other partitions do not matter."""
    under_way = UnderWay()
    for partition in (HERE, THERE):
        under_way.sent(partition)
    drain = under_way.drain([HERE])
    assert not drain.is_over
    under_way.sent(HERE)
    under_way.answered(HERE)
    assert not drain.is_over
    under_way.answered(HERE)
    assert drain.is_over
    assert (len(under_way), under_way.of(THERE)) == (1, 1)


def test_a_wait_learns_up_to_where_was_written_meanwhile() -> None:
    """Each of those that wait, and only as long as it waits; failures say nothing."""
    under_way = UnderWay()
    for _ in range(4):
        under_way.sent(HERE)
    under_way.answered(HERE, 10)
    first, second = under_way.drain([HERE, THERE]), under_way.drain([HERE])
    under_way.answered(HERE, 42)
    under_way.end(second)
    assert under_way.is_waited_for
    under_way.answered(HERE, 30)
    under_way.answered(HERE)
    assert (first.landed, second.landed) == ({HERE: 42, THERE: 0}, {HERE: 42})
    under_way.end(first)
    assert not under_way.is_waited_for


def test_only_successes_behind_the_lease_wait_for_it() -> None:
    """LATE-ANSWER: what is not written is none, whatever the layouts say; with a lease it is told at once."""
    kept = KeptAnswers[str](most=2, seconds=15.0)
    assert kept.take("a", is_written=True, may_serve=True, now=0.0) is Fate.TELL
    assert kept.take("b", is_written=False, may_serve=False, now=0.0) is Fate.TELL
    assert [kept.take(each, is_written=True, may_serve=False, now=0.0) for each in "cd"] == [Fate.KEEP] * 2
    assert kept.take("e", is_written=True, may_serve=False, now=0.0) is Fate.LOSE, "there is no more room"
    assert kept.release() == ["c", "d"]
    assert not len(kept)


def test_what_has_waited_for_too_long_for_the_lease_is_given_up() -> None:
    """Its client sends it again, and learns then what has become of it."""
    kept = KeptAnswers[str](most=9, seconds=15.0)
    for now, answer in enumerate("abc"):
        kept.take(answer, is_written=True, may_serve=False, now=now)
    assert kept.overdue(15.0) == []
    assert kept.overdue(16.5) == ["a", "b"]
    assert kept.release() == ["c"]
