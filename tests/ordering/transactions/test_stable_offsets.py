"""The last stable offset of a virtual partition: its first undecided batch, the same for all who ask."""

from kordon.proxy.ordering.transactions.events import Batch, Protocol
from kordon.proxy.ordering.transactions.outcome import Outcome
from kordon.proxy.ordering.transactions.stable_offset import StableOffset


class Decided:
    """The outcomes of batches, by offset; the others are undecided."""

    def __init__(self, *offsets: int) -> None:
        self.offsets = set(offsets)

    def __call__(self, batch: Batch) -> Outcome:
        return Outcome.COMMITTED if batch.offset in self.offsets else Outcome.UNDECIDED


def stable(*offsets: int) -> StableOffset:
    found = StableOffset()
    for offset in offsets:
        found.take(Batch(offset, 1000, 5, Protocol.V1))
    return found


def test_it_is_the_first_undecided_batch() -> None:
    """Whatever is decided behind it, and however many neighbours are open."""
    found, decided = stable(10, 20, 30), Decided(20)
    assert found.first_undecided(decided) == 10
    decided.offsets.add(10)
    assert found.first_undecided(decided) == 30
    decided.offsets.add(30)
    assert found.first_undecided(decided) is None


def test_fetch_and_list_offsets_tell_the_same() -> None:
    """The high watermark, where nothing is undecided."""
    assert stable(10, 20).tell(Decided(10), 50, 50) == 20
    assert stable(10, 20).tell(Decided(10, 20), 50, 50) == 50


def test_who_has_not_read_to_the_high_watermark_reads_first() -> None:
    """A worker that has just started would tell less than its neighbour, or more than is stable."""
    assert stable(10).tell(Decided(10), 49, 50) is None


def test_it_never_falls() -> None:
    """An open batch that a worker comes to know later does not lower what it has told."""
    found = stable(30)
    assert found.tell(Decided(30), 50, 50) == 50
    found.take(Batch(40, 1000, 6, Protocol.V2))
    assert found.tell(Decided(30), 60, 60) == 50
    assert found.first_undecided(Decided(30)) == 40


def test_an_election_takes_what_it_has_told() -> None:
    """And the batches that stood there."""
    found = stable(10, 40)
    assert found.tell(Decided(10, 40), 50, 50) == 50
    found.trim_back(35)
    assert found.tell(Decided(10), 35, 35) == 35
