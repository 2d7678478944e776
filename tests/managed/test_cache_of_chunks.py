"""Which chunks a worker lets go first."""

from kordon.proxy.reads.chunks import Cache, Chunk, ReadTally, ServedBatch, new_chunk

MANY, FEW = 100, 3


def a_cache(bound_chunks: int) -> tuple[Cache, ReadTally, list[int]]:
    """A cache of chunks of one byte, and where those begin that it has let go."""
    tally = ReadTally()
    return Cache(bound_chunks, tally), tally, []


def a_chunk(start: int, gone: list[int]) -> Chunk:
    """A chunk with one batch, of virtual partition 0."""
    entries = {0: [ServedBatch(start, start + 1, memoryview(b"x"))]}
    return new_chunk(entries, (start, start + 1), 0, 1, lambda chunk: gone.append(chunk.start))


def test_what_was_sent_first_goes_first() -> None:
    """A reader comes back to the end of what it got last; that must not be read again for it (it was, by a third)."""
    cache, tally, gone = a_cache(FEW)
    for start in range(MANY):
        chunk = a_chunk(start, gone)
        cache.add(chunk)
        chunk.unsent.clear()
        cache.touch(chunk)
    assert gone == list(range(MANY - FEW))
    assert (tally.cached_bytes, tally.evicted_unsent) == (FEW, 0)


def test_what_nobody_has_got_outlives_what_was_sent() -> None:
    """It goes only when there is nothing else, and that is counted."""
    cache, tally, gone = a_cache(FEW)
    chunks = [a_chunk(start, gone) for start in range(FEW)]
    for chunk in chunks:
        cache.add(chunk)
    chunks[-1].unsent.clear()
    cache.touch(chunks[-1])
    cache.add(a_chunk(FEW, gone))
    assert (gone, tally.evicted_unsent) == ([FEW - 1], 0)
    cache.add(a_chunk(FEW + 1, gone))
    assert (gone, tally.evicted_unsent) == ([FEW - 1, 0], 1)


def test_a_chunk_alone_is_never_too_large() -> None:
    """Not even one that holds nothing for anybody, behind others that do."""
    cache, tally, gone = a_cache(1)
    cache.add(a_chunk(0, gone))
    empty = new_chunk({}, (1, 2), 0, 5, lambda chunk: gone.append(chunk.start))
    cache.add(empty)
    assert (gone, tally.cached_bytes) == ([0], 5)
