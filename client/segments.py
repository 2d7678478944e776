"""The segments of managed topics, asked for by PartitionLeaderEpochsForPartitions: what gates stand on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from aiokafka.client import ConnectionGroup
from aiokafka.errors import KafkaError, NodeNotReadyError, for_code
from aiokafka.structs import TopicPartition

from kordon.client.dialect_client import DialectClient
from kordon.client.layouts import TopicLayout
from kordon.client.moves_events import TopicGate
from kordon.client.requests import WireRequest
from kordon.codecs.bodies import (
    PartitionLeaderEpochsForPartitionsResponse,
    PartitionLeaderEpochsForPartitionsResponseTopic,
)
from kordon.codecs.dialect import PARTITION_LEADER_EPOCHS_FOR_PARTITIONS
from kordon.proxy.ordering.gate import Gate, told_segments
from kordon.proxy.ordering.segments import Segment

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KnownSegments:
    """What is known of a managed topic's segments.

    Attributes:
        layout: The layout of the Metadata answer at the time of the question.
        layout_epoch: The layout epoch of the answer, which is at least that of `layout`.
        segments: All, by partition, oldest first.
        gate: The gate that follows from the segments.
    """

    layout: TopicLayout
    layout_epoch: int
    segments: dict[int, list[Segment]]
    gate: TopicGate

    def birth(self, partition: int) -> int | None:
        """Returns where a partition that was added to the topic begins; None: it was there from the start.

        A retired partition that was added again begins there once more.
        """
        begin: Segment | None = None
        for segment in self.segments.get(partition, []):
            if all(each.partition != partition for each in segment.predecessors):
                begin = segment
        return begin.start if begin is not None and begin.predecessors else None


@dataclass(slots=True)
class Segments:
    """What is known of all topics of a client; asked for when a layout is newer than it."""

    client: DialectClient
    _known: dict[str, KnownSegments] = field(default_factory=dict[str, KnownSegments])

    def get(self, topic: str) -> KnownSegments | None:
        """Returns what is known of a topic, though it may be out of date."""
        return self._known.get(topic)

    def is_newer(self, tp: TopicPartition, offset: int, layout_epoch: int) -> bool:
        """Whether what stands at an offset was written under a layout that is not known yet."""
        known = self._known.get(tp.topic)
        segment = known.gate.gate.segment_at(tp.partition, offset) if known is not None else None
        return segment is None or layout_epoch > segment.id.epoch

    def is_current(self, topic: str) -> bool:
        """Whether it is as new as Metadata; so it is of topics that are not managed."""
        layout = self.client.layouts.get(topic)
        known = self._known.get(topic)
        return layout is None or (known is not None and known.layout == layout)

    async def refresh(self, topics: Iterable[str]) -> bool:
        """Asks for what is out of date.

        Returns:
            Whether all is current now; if not, metadata has been asked for where that may help.
        """
        stale = [topic for topic in topics if not self.is_current(topic)]
        if not stale:
            return True
        try:
            answer = await self._ask(stale)
        except KafkaError as error:
            _log.warning("Segments of %s are not known yet: %r", stale, error)
            return False
        for row in answer.topics:
            self._take(row)
        return all(self.is_current(topic) for topic in stale)

    async def _ask(self, topics: list[str]) -> PartitionLeaderEpochsForPartitionsResponse:
        body = {"topics": [{"topic": topic, "partitions": []} for topic in topics]}
        request = WireRequest(PARTITION_LEADER_EPOCHS_FOR_PARTITIONS, range(1), body)
        node = self.client.get_random_node()
        if node is None:
            raise NodeNotReadyError
        answer: PartitionLeaderEpochsForPartitionsResponse = await self.client.send(
            node, request, group=ConnectionGroup.DEFAULT
        )
        return answer

    def _take(self, row: PartitionLeaderEpochsForPartitionsResponseTopic) -> None:
        layout = self.client.layouts.get(row.topic)
        if row.error_code:
            _log.warning("Segments of %s are not told: %s", row.topic, for_code(row.error_code).__name__)
        elif layout is not None and row.layout_epoch >= layout.layout_epoch:
            shown = self.client.cluster.partitions_for_topic(row.topic) or set[int]()
            self._known[row.topic] = _known(layout, row, lambda partition: partition in shown)


def _known(
    layout: TopicLayout, row: PartitionLeaderEpochsForPartitionsResponseTopic, is_shown: Callable[[int], bool]
) -> KnownSegments:
    segments = {each.partition: told_segments(each.partition, each.segments) for each in row.partitions}
    every = [segment for line in segments.values() for segment in line]
    gone = frozenset(q for q, line in segments.items() if not is_shown(q) and line and line[-1].end is not None)
    return KnownSegments(layout, row.layout_epoch, segments, TopicGate(Gate(every), gone))
