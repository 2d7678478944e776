"""Which home a record has while its key moves, and how a batch goes out: the pure core of OrderedProducer."""

from uuid import UUID

import pytest

from kordon.client.homes import Homes, NextSend, Stamp
from kordon.client.layouts import TopicLayout

V = 12


def layout(u: int, epoch: int = 0) -> TopicLayout:
    """Of a topic that began with three partitions."""
    return TopicLayout("orders", UUID(int=1), 3, u, V, epoch)


MOVES = next(v for v in range(V) if (layout(3).homes[v], layout(4).homes[v]) == (0, 3))
STAYS = next(v for v in range(V) if (layout(3).homes[v], layout(4).homes[v]) == (0, 0))


def test_a_place_moves_at_once_when_nothing_of_it_is_unanswered() -> None:
    """New records go to the new partition with the first Metadata that tells it."""
    homes = Homes(layout(3))
    assert homes.home(MOVES) == 0
    homes.change(layout(4, 1), {})
    assert (homes.home(MOVES), homes.home(STAYS)) == (3, 0)


def test_a_place_is_late_while_something_of_it_is_unanswered() -> None:
    """Else a new record could be written in its new partition before an older one of its key, or without it."""
    homes = Homes(layout(3))
    homes.change(layout(4, 1), {0: [MOVES, STAYS]})
    assert homes.home(MOVES) == 0
    homes.leave(1)
    assert homes.home(MOVES) == 0
    homes.leave(0)
    assert homes.home(MOVES) == 3


def test_a_place_stays_late_over_the_next_change() -> None:
    """And is late no more when the next change gives it back the home where it is."""
    homes = Homes(layout(3))
    homes.change(layout(4, 1), {0: [MOVES]})
    homes.change(layout(6, 2), {0: [MOVES]})
    assert homes.home(MOVES) == 0
    homes.change(layout(3, 3), {0: [MOVES]})
    homes.leave(0)
    assert homes.home(MOVES) == 0


@pytest.mark.parametrize("partition", [3, 5, 11])
def test_what_was_sent_to_a_partition_as_such_follows_its_keys(partition: int) -> None:
    """Into the partition that takes them back; it waits like them."""
    homes = Homes(layout(12))
    homes.change(layout(3, 1), {partition: [~partition]})
    assert homes.home(~partition) == partition
    homes.leave(partition)
    assert homes.home(~partition) == partition % 3


def test_what_still_belongs_goes_out_with_the_newest_stamp() -> None:
    """A refusal of it proves nothing: who refuses may not know yet that the count is right."""
    homes = Homes(layout(4, 1))
    assert homes.course(0, [STAYS], Stamp(3, 0)) == NextSend(Stamp(4, 1), question=False)


def test_what_does_not_belong_any_more_is_asked_about_as_it_was() -> None:
    """With the count and epoch that were right for it, so that it can be told that it never will be written."""
    homes = Homes(layout(4, 1))
    assert homes.course(0, [STAYS, MOVES], Stamp(3, 0)) == NextSend(Stamp(3, 0), question=True)


def test_a_stamp_is_by_the_names_of_the_wire() -> None:
    """It becomes the tagged fields of a topic in Produce."""
    assert Stamp.of(layout(5, 7))._asdict() == {"undeleted_partition_count": 5, "layout_epoch": 7}
