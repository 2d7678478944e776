"""What a producer has sent without an answer yet, and where its records belong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from aiokafka.structs import TopicPartition

from kordon.client.batches import OrderedBatch
from kordon.client.identities import Identities
from kordon.client.layouts import TopicLayout

PlaceOf = Callable[[TopicLayout, bytes | None], int]
"""From a key to its place."""


class Places:
    """Finds the places of a batch's records, also where it was filled before its topic was managed.

    Args:
        place_of: Tells the place of a key.
    """

    def __init__(self, place_of: PlaceOf) -> None:
        self._place_of = place_of

    def of(self, batch: OrderedBatch, layout: TopicLayout) -> Sequence[int]:
        """Returns the places of a batch's records, in their order."""
        return batch.places(partial(self.find, layout))

    def find(self, layout: TopicLayout, partition: int, key: bytes | None) -> int:
        """Returns the place of a record that was put into a partition before its topic was managed.

        A record that is not where its key belonged then was put there on purpose, and goes with the partition.
        """
        place = -1 if key is None else self._place_of(layout, key)
        return place if place >= 0 and place % layout.initial_partition_count == partition else ~partition


class Unanswered:
    """The batches that were sent and have no answer yet: one per partition at most."""

    def __init__(self, identities: Identities, places: Places) -> None:
        self._identities = identities
        self._places = places
        self._batches: dict[TopicPartition, OrderedBatch] = {}

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._batches

    def add(self, tp: TopicPartition, batch: OrderedBatch) -> None:
        """Notes that a batch is sent."""
        self._batches[tp] = batch

    def remove(self, tp: TopicPartition) -> None:
        """Notes that a batch is not written, and never will be."""
        del self._batches[tp]

    def forget_answered(self) -> list[TopicPartition]:
        """Returns the partitions that waited for an answer and do not any more."""
        answered = [tp for tp, batch in self._batches.items() if batch.future.done()]
        for tp in answered:
            failure = self._batches.pop(tp).failed_by
            if failure is not None:
                self._identities.failed(tp, failure)
        return answered

    def places(
        self, topic: str, layout: TopicLayout, queues: Mapping[TopicPartition, Sequence[OrderedBatch]]
    ) -> Mapping[int, set[int]]:
        """Returns the places of a topic that have to stay with their partition, by partition.

        They are those of unanswered batches and of what is queued behind them.
        """
        return {
            tp.partition: {place for each in (batch, *queues.get(tp, ())) for place in self._places.of(each, layout)}
            for tp, batch in self._batches.items()
            if tp.topic == topic
        }
