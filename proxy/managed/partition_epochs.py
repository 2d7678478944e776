"""PartitionLeaderEpochsForPartitions: what clients of the dialect learn of a topic's layout (KIP-253, "Protocol" 5).

Beside the proposal's two numbers the answer holds, in tagged fields, the segments of each partition: from these a
client knows at once what a record has to wait for (`ordering.gate`).
"""

from __future__ import annotations

from typing import Any

from kordon.proxy.control.codes import Code
from kordon.proxy.decisions.journal import Client
from kordon.proxy.interception import Serve
from kordon.proxy.managed.topics import ManagedTopics
from kordon.proxy.ordering.layout import Layout, Segment
from kordon.proxy.ordering.leader_epochs import leader_epochs


class PartitionLeaderEpochs:
    """Answers from the layouts in force.

    Args:
        topics: What is managed.
    """

    def __init__(self, topics: ManagedTopics) -> None:
        self._topics = topics

    def decide(self, version: int, request: Any) -> Serve:
        """Serves all of it."""
        return Serve(request)

    async def serve(self, version: int, request: Any, client: Client) -> dict[str, Any]:
        """Returns the response's fields."""
        return {"topics": [self._told(row.topic, row.partitions) for row in request.topics]}

    def _told(self, name: str, partitions: list[int]) -> dict[str, Any]:
        topic = self._topics.named(name)
        if topic is None:
            return {"topic": name, "error_code": Code.UNKNOWN_TOPIC_OR_PARTITION}
        layout = topic.layout
        wanted = partitions or sorted({segment.id.partition for segment in layout.segments})
        return {
            "topic": name,
            "partitions": [partition_row(layout, q) for q in wanted],
            "layout_epoch": layout.epoch,
        }


def partition_row(layout: Layout, partition: int) -> dict[str, Any]:
    """Returns what a layout says of a physical partition; of one that it does not know it says nothing."""
    epochs = leader_epochs(layout, partition)
    return {
        "partition": partition,
        "leader_epoch_after_creation": epochs.after_creation,
        "leader_epoch_before_deletion": epochs.before_deletion,
        "segments": [_segment_row(segment) for segment in layout.segments if segment.id.partition == partition],
    }


def _segment_row(segment: Segment) -> dict[str, Any]:
    return {
        "layout_epoch": segment.id.epoch,
        "start_offset": segment.start,
        "end_offset": -1 if segment.kept_end is None else segment.kept_end,
        "predecessors": [{"partition": each.partition, "layout_epoch": each.epoch} for each in segment.predecessors],
    }
