"""PartitionLeaderEpochsForPartitions: what clients of the dialect learn of a topic's layout (KIP-253, "Protocol" 5).

Only the dialect has it. Clients need the right to describe the topic.

Beside the proposal's two numbers the answer holds, in tagged fields, the segments of each partition: from these a
client knows at once what a record has to wait for (`ordering.gate`).
"""

from __future__ import annotations

from itertools import chain
from typing import Final

from kordon.codecs import apis
from kordon.codecs.bodies import PartitionLeaderEpochsForPartitionsRequest as Request
from kordon.codecs.bodies import PartitionLeaderEpochsForPartitionsResponse as Response
from kordon.codecs.bodies import PartitionLeaderEpochsForPartitionsResponsePartition as ResponsePartition
from kordon.codecs.bodies import PartitionLeaderEpochsForPartitionsResponsePredecessor as Predecessor
from kordon.codecs.bodies import PartitionLeaderEpochsForPartitionsResponseSegment as ResponseSegment
from kordon.codecs.bodies import PartitionLeaderEpochsForPartitionsResponseTopic as ResponseTopic
from kordon.codecs.error_codes import Code
from kordon.codecs.row import Row
from kordon.codecs.turns import rows_done
from kordon.proxy.decisions.runs import Client
from kordon.proxy.handlers.api_handler import Handled, HeldRequest
from kordon.proxy.handlers.topic_rows import ServedApi, ServedTopics, TopicRows
from kordon.proxy.kafka.operations import Operation
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.leader_epochs import leader_epochs
from kordon.proxy.ordering.segments import Segment
from kordon.proxy.runtime.turns import Turns
from kordon.proxy.topics.managed_topics import ManagedTopics

_COUNTS_OF_A_ROW: Final = 100
"""So many changes of the count of partitions take as long to go over as a row takes to be made."""


class PartitionLeaderEpochs(ServedApi[Request, Response]):
    """Answers from the layouts in force."""

    key = apis.PARTITION_LEADER_EPOCHS
    right = Operation.DESCRIBE
    rows = TopicRows("topics", "topic", "topics")
    is_always_wanted = True

    def __init__(self, topics: ManagedTopics, turns: Turns) -> None:
        self._topics = topics
        self._turns = turns

    def decide(self, held: HeldRequest) -> Handled:
        """Serves all of it, whatever topics it names: no broker knows this api."""
        return ServedTopics(self, held, held.read())

    def refused(self, row: Row, code: int) -> ResponseTopic:
        """Returns the row that refuses a topic, without partitions."""
        return ResponseTopic(topic=row.get("topic", ""), error_code=code)

    async def serve(self, version: int, request: Request, client: Client) -> Response:
        """Answers a request; a topic is answered once, however often it is named."""
        asked: dict[str, list[list[int]]] = {}
        for row in request.topics:
            asked.setdefault(row.topic, []).append(row.partitions)
        return await self._turns.do(lambda: Response(topics=[self._topic(name, each) for name, each in asked.items()]))

    def _topic(self, name: str, asked: list[list[int]]) -> ResponseTopic:
        """Says of a topic what was asked of it; nothing asks for all of it."""
        rows_done(1)
        topic = self._topics.named(name)
        if topic is None:
            return ResponseTopic(topic=name, error_code=Code.UNKNOWN_TOPIC_OR_PARTITION)
        layout = topic.layout
        wanted = dict.fromkeys(chain(*asked)) if all(asked) else sorted(layout.segments_of)
        cost = 1 + len(layout.counts) // _COUNTS_OF_A_ROW
        partitions: list[ResponsePartition] = []
        for q in wanted:
            rows_done(cost)
            partitions.append(partition_row(layout, q))
        return ResponseTopic(topic=name, partitions=partitions, layout_epoch=layout.epoch)


def partition_row(layout: Layout, partition: int) -> ResponsePartition:
    """Returns what a layout says of a physical partition; of one that it does not know it says nothing."""
    epochs = leader_epochs(layout, partition)
    return ResponsePartition(
        partition=partition,
        leader_epoch_after_creation=epochs.after_creation,
        leader_epoch_before_deletion=epochs.before_deletion,
        segments=[_segment_row(segment) for segment in layout.segments_of.get(partition, ())],
    )


def _segment_row(segment: Segment) -> ResponseSegment:
    return ResponseSegment(
        layout_epoch=segment.id.epoch,
        start_offset=segment.start,
        end_offset=-1 if segment.kept_end is None else segment.kept_end,
        predecessors=[Predecessor(partition=each.partition, layout_epoch=each.epoch) for each in segment.predecessors],
    )
