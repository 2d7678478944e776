"""Where share groups begin of which their log says nothing."""

from kordon.proxy.ordering.share.opening import Opening, Openings


def test_a_group_that_is_older_than_the_log_begins_at_earliest() -> None:
    """What it has read may have stood in a log that is lost; one that came later begins as its configuration says."""
    openings = Openings()
    assert not openings.is_open
    openings.apply(Opening(frozenset({"old"})))
    assert openings.is_open
    assert openings.begins_at_earliest("old")
    assert not openings.begins_at_earliest("new")


def test_all_openings_of_a_log_count() -> None:
    """Two workers that find none write one each, and a group may come between their questions."""
    openings = Openings()
    openings.apply(Opening(frozenset({"old"})))
    openings.apply(Opening(frozenset({"between"})))
    assert openings.begins_at_earliest("old")
    assert openings.begins_at_earliest("between")
