"""Which views a worker lets go first."""

from kordon.proxy.reads.read_tally import ReadTally
from kordon.proxy.reads.segment_views import LogSegmentView, ServedBatch
from kordon.proxy.reads.view_cache import ViewCache

MANY, FEW = 100, 3


def a_cache(bound_views: int) -> tuple[ViewCache, ReadTally, list[int]]:
    """A cache of views of one byte, and where those begin that it has let go."""
    tally = ReadTally()
    return ViewCache(bound_views, tally), tally, []


def a_view(start: int, gone: list[int]) -> LogSegmentView:
    """A view with one batch, of virtual partition 0."""
    entries = {0: [ServedBatch(start, start + 1, memoryview(b"x"))]}
    return LogSegmentView(start, start + 1, entries, 0, 1, lambda view: gone.append(view.start))


def test_what_was_sent_first_goes_first() -> None:
    """A reader comes back to the end of what it got last; that must not be read again for it (it was, by a third)."""
    cache, tally, gone = a_cache(FEW)
    for start in range(MANY):
        view = a_view(start, gone)
        cache.add(view)
        view.unsent.clear()
        cache.touch(view)
    assert gone == list(range(MANY - FEW))
    assert tally.cached_bytes == FEW


def test_what_nobody_has_got_outlives_what_was_sent() -> None:
    """It goes only when there is nothing else."""
    cache, _, gone = a_cache(FEW)
    views = [a_view(start, gone) for start in range(FEW)]
    for view in views:
        cache.add(view)
    views[-1].unsent.clear()
    cache.touch(views[-1])
    cache.add(a_view(FEW, gone))
    assert gone == [FEW - 1]
    cache.add(a_view(FEW + 1, gone))
    assert gone == [FEW - 1, 0]


def test_a_view_alone_is_never_too_large() -> None:
    """Not even one that holds nothing for anybody, behind others that do."""
    cache, tally, gone = a_cache(1)
    cache.add(a_view(0, gone))
    empty = LogSegmentView(1, 2, {}, 0, 5, lambda view: gone.append(view.start))
    cache.add(empty)
    assert (gone, tally.cached_bytes) == ([0], 5)
