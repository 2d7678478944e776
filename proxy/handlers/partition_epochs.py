"""PartitionLeaderEpochsForPartitions: what clients of the dialect learn of a topic's layout (KIP-253, "Protocol" 5).

Beside the proposal's two numbers the answer holds, in tagged fields, the segments of each partition: from these a
client knows at once what a record has to wait for (`ordering.gate`).
"""

from __future__ import annotations

from itertools import chain
from typing import Any, Final

from kordon.codecs.error_codes import Code
from kordon.codecs.turns import rows_done
from kordon.proxy.core.interception import Serve
from kordon.proxy.decisions.runs import Client
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.leader_epochs import leader_epochs
from kordon.proxy.ordering.segments import Segment
from kordon.proxy.runtime.turns import Turns
from kordon.proxy.topics.managed_topics import ManagedTopics

_COUNTS_OF_A_ROW: Final = 100
"""So many changes of the count of partitions take as long to go over as a row takes to be made."""


class PartitionLeaderEpochs:
    """Answers from the layouts in force.

    Args:
        topics: What is managed.
        turns: Of the worker.
    """

    def __init__(self, topics: ManagedTopics, turns: Turns) -> None:
        self._topics = topics
        self._turns = turns

    def decide(self, version: int, request: Any) -> Serve:
        """Serves all of it."""
        return Serve(request)

    async def serve(self, version: int, request: Any, client: Client) -> dict[str, Any]:
        """Returns the response's fields; a topic is answered once, however often it is named."""
        asked: dict[str, list[list[int]]] = {}
        for row in request.topics:
            asked.setdefault(row.topic, []).append(row.partitions)
        return await self._turns.do(lambda: {"topics": [self._told(name, each) for name, each in asked.items()]})

    def _told(self, name: str, asked: list[list[int]]) -> dict[str, Any]:
        """Says of a topic what was asked of it; nothing asks for all of it."""
        rows_done(1)
        topic = self._topics.named(name)
        if topic is None:
            return {"topic": name, "error_code": Code.UNKNOWN_TOPIC_OR_PARTITION}
        layout = topic.layout
        wanted = dict.fromkeys(chain(*asked)) if all(asked) else sorted(layout.segments_of)
        cost = 1 + len(layout.counts) // _COUNTS_OF_A_ROW
        partitions: list[dict[str, Any]] = []
        for q in wanted:
            rows_done(cost)
            partitions.append(partition_row(layout, q))
        return {
            "topic": name,
            "partitions": partitions,
            "layout_epoch": layout.epoch,
        }


def partition_row(layout: Layout, partition: int) -> dict[str, Any]:
    """Returns what a layout says of a physical partition; of one that it does not know it says nothing."""
    epochs = leader_epochs(layout, partition)
    return {
        "partition": partition,
        "leader_epoch_after_creation": epochs.after_creation,
        "leader_epoch_before_deletion": epochs.before_deletion,
        "segments": [_segment_row(segment) for segment in layout.segments_of.get(partition, ())],
    }


def _segment_row(segment: Segment) -> dict[str, Any]:
    return {
        "layout_epoch": segment.id.epoch,
        "start_offset": segment.start,
        "end_offset": -1 if segment.kept_end is None else segment.kept_end,
        "predecessors": [{"partition": each.partition, "layout_epoch": each.epoch} for each in segment.predecessors],
    }
