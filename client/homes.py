"""Where the records of a managed topic are held until they are sent, while its partitions change. No I/O.

The places of records (virtual partitions, or `~q` of what was sent to partition q as such) have homes: physical
partitions. One invariant keeps the order of every key:

    All records of a place that are not answered yet lie with one partition, in the order in which they were sent,
    and leave it together, when nothing that was sent from there is without an answer.

So a place is *late* while the newest layout gives it another home than the one where its records still wait for an
answer. New records of it queue up behind them. What has no answer is decided by `course`:

    newest layout           the batch                           then
    all records still       goes out again as it is, with the   NONE: written
    belong to q             newest stamp
    some belong elsewhere   is asked about: it goes out as it   NONE: it is written, then or now
                            was, with the stamp that it had     INVALID_PARTITION_METADATA: it is not and will not be:
                                                                taken back, its records go to their new homes

The second refusal is proof, the first is not: it may come from a layout in which q was not sealed (OUTCOME-FIRST).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kordon.client.layouts import TopicLayout


class Stamp(NamedTuple):
    """The layout by which a batch goes out, as a Produce request names it."""

    undeleted_partition_count: int = -1
    layout_epoch: int = -1

    @classmethod
    def of(cls, layout: TopicLayout) -> Stamp:
        """Returns the stamp of what fits a layout."""
        return cls(layout.undeleted_partition_count, layout.layout_epoch)


NO_STAMP: Final = Stamp()
"""Of what goes out to a topic that is not managed."""


class NextSend(NamedTuple):
    """How a batch goes out next."""

    stamp: Stamp
    question: bool
    """Whether a refusal proves that it is not written, and never will be."""


@dataclass(slots=True)
class Homes:
    """The homes of one topic's places."""

    layout: TopicLayout
    """The newest that is known."""
    _late: dict[int, int] = field(default_factory=dict[int, int])
    """The partition where a late place still is."""

    def home(self, place: int) -> int:
        """Returns the partition whose queue takes the next record of a place."""
        if self._late and place in self._late:
            return self._late[place]
        return self.layout.home(place)

    def change(self, layout: TopicLayout, unanswered: Mapping[int, Iterable[int]]) -> None:
        """Takes in a newer layout.

        Args:
            unanswered: By partition with unanswered batches, the places of these batches and of those that are queued
                after them.
        """
        self.layout = layout
        self._late = {
            place: partition
            for partition, places in unanswered.items()
            for place in places
            if layout.home(place) != partition
        }

    def leave(self, partition: int) -> None:
        """All that was sent from a partition is answered: places that were late there go to their new homes."""
        if self._late:
            self._late = {place: late for place, late in self._late.items() if late != partition}

    def fits(self, partition: int, places: Iterable[int]) -> bool:
        """Whether all records of some places belong to a partition, by the newest layout."""
        return all(self.layout.home(place) == partition for place in places)

    def course(self, partition: int, places: Iterable[int], stamp: Stamp) -> NextSend:
        """Says how a batch goes out.

        Args:
            stamp: With which it went out before; the newest when it was taken to be sent, if it never did.
        """
        if self.fits(partition, places):
            return NextSend(Stamp.of(self.layout), question=False)
        return NextSend(stamp, question=True)
