"""Topics as clients see them, in answers to Metadata and DescribeTopicPartitions.

A virtual partition has the leader, the replicas and the ISR of the physical one on which it lives. While a topic with
data is taken over an answer that names it waits until it is known what clients see of it from now on (TAKEOVER-WAITS).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, Generic, TypeAlias, TypeVar, cast

from kordon.codecs.bodies import (
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kordon.codecs.error_codes import Code
from kordon.codecs.metadata_answers import placed, written
from kordon.codecs.primitives import Built
from kordon.codecs.turns import rows_done
from kordon.proxy.handlers.api_handler import AskedT, HeldRequest, TranslatedApi
from kordon.proxy.handlers.settle import HOLD_SECONDS
from kordon.proxy.ordering.epochs import virtual_epoch
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.placements import Placement
from kordon.proxy.ordering.streams import physical_stream
from kordon.proxy.ordering.takeover import may_be_shown
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.proxy.topics.names import NO_ID

NO_TOPIC: Final = "/"
"""A name that no topic can have. It is asked for where no name at all would mean all topics."""
NO_TOPICS: Final = ManagedTopics()
"""With these the handlers of stock connections hide what is Kordon's own, and change nothing else."""
_MOST_AT_ONCE: Final = 1_000
"""Virtual partitions, of all topics, that an answer shows at once; of more it is translated in turns."""
_UNLED: Final = MetadataResponsePartition(
    error_code=Code.LEADER_NOT_AVAILABLE,
    partition_index=0,
    leader_id=-1,
    leader_epoch=-1,
    replica_nodes=[],
    isr_nodes=[],
    offline_replicas=[],
)
"""A partition that the broker has not heard of yet, in answers of either api."""

ShownT = TypeVar("ShownT", MetadataResponse, DescribeTopicPartitionsResponse)
_Topic: TypeAlias = MetadataResponseTopic | DescribeTopicPartitionsResponseTopic
_Partition: TypeAlias = MetadataResponsePartition | DescribeTopicPartitionsResponsePartition


class ShownTopics(TranslatedApi[AskedT, ShownT], Generic[AskedT, ShownT]):
    """A handler of an api whose answers say how many partitions topics have.

    That changes once, when a topic with data is taken over.
    """

    answers_always = True

    def takes_time(self, topics: ManagedTopics) -> bool:
        """Whether a topic may be coming, or there is much to show."""
        return topics.are_coming or topics.partition_count > _MOST_AT_ONCE

    async def wait(self, answer: ShownT, topics: ManagedTopics) -> None:
        """Returns when clients may be told of all topics that an answer names, or after a moment."""
        try:
            async with asyncio.timeout(HOLD_SECONDS):
                for row in answer.topics:
                    while (topic := topics.served(row.name or "")) is not None and not may_be_shown(topic.layout):
                        await topic.wait_for_change()
        except TimeoutError:
            return  # it is said to have no leader, which clients ask for again

    def record(self, held: HeldRequest, answer: ShownT) -> None:
        """Records the layouts that the client is shown."""
        held.told.tell_layouts(self.key, answer)


def show_virtual(
    row: _Topic, topic: ManagedTopic | None, topics: ManagedTopics, metadata_version: int | None = None
) -> None:
    """Shows a topic as stock clients see it.

    Args:
        row: A row of an answer.
        topic: None: it is not served.
        metadata_version: The version of a Metadata answer, whose rows are written at once. None: the answer is another
            one.
    """
    rows_done(1)
    if topic is None:
        show_unserved(row, topics)
    elif not may_be_shown(topic.layout):
        if not row.error_code:
            _show_unled(row)
    else:
        topic_id = row.get("topic_id", NO_ID)
        row.topic_id = NO_ID if topic_id == NO_ID else topic.face_id
        if row.error_code:
            return
        if topic_id in (NO_ID, topic.layout.topic_id):
            partitions = (
                _virtual_partitions(topic, row.partitions)
                if metadata_version is None
                else _written_partitions(topic, cast("MetadataResponseTopic", row).partitions, metadata_version)
            )
            row.update(is_internal=False, partitions=partitions)
        else:  # made again, so not the one whose layout this is (SAME-TOPIC): clients wait until that has been seen
            _show_unled(row)


def show_unserved(row: _Topic, topics: ManagedTopics) -> None:
    """Shows a topic with an unreadable layout as existing, with nothing to write to or read from."""
    if topics.unserved and row.name in topics.unserved:
        row.update(error_code=row.error_code or Code.LEADER_NOT_AVAILABLE, topic_id=NO_ID, partitions=[])


def _show_unled(row: _Topic) -> None:
    row.update(error_code=Code.LEADER_NOT_AVAILABLE, partitions=[])


def _virtual_partitions(topic: ManagedTopic, physical: Iterable[_Partition]) -> list[_Partition]:
    """Makes the rows of a topic's virtual partitions out of those of its physical ones."""
    by_index = {row.partition_index: row for row in physical}
    rows: list[_Partition] = []
    for v, chain in enumerate(topic.layout.chains):
        rows_done(1)
        home = chain.home
        assert home is not None  # or else it may not be shown
        row = (by_index.get(home.partition) or _UNLED).copy()
        row.partition_index = v
        row.leader_epoch = virtual_epoch(home.move, row.get("leader_epoch", -1))
        rows.append(row)
    return rows


def _written_partitions(
    topic: ManagedTopic, physical: Iterable[MetadataResponsePartition], version: int
) -> list[Built]:
    """Writes the rows of a topic's virtual partitions in a Metadata answer, each out of its physical one's."""
    by_index = {row.partition_index: row for row in physical}
    homes: dict[int, tuple[bytes, int]] = {}
    rows: list[Built] = []
    for v, chain in enumerate(topic.layout.chains):
        rows_done(1)
        home = chain.home
        assert home is not None  # or else it may not be shown
        if home.partition not in homes:
            row = by_index.get(home.partition) or _UNLED
            homes[home.partition] = written(version, row), row.get("leader_epoch", -1)
        data, epoch = homes[home.partition]
        rows.append(Built({}, placed(version, data, v, virtual_epoch(home.move, epoch))))
    return rows


def show_physical(row: MetadataResponseTopic, topics: ManagedTopics) -> None:
    """Shows a topic of a Metadata answer as clients of the dialect see it."""
    rows_done(1)
    topic = topics.served(row.name or "")
    if topic is None:
        show_unserved(row, topics)
    if topic is None or row.error_code:
        return
    layout = topic.layout
    is_other = row.get("topic_id", NO_ID) not in (NO_ID, layout.topic_id)  # made again, not this layout's (SAME-TOPIC)
    if is_other or not may_be_shown(layout):
        _show_unled(row)
        return
    row.partitions = _physical_partitions(layout, row.partitions)
    if layout.epochs[-1].placement is not Placement.LINEAR:
        return  # while it is taken over, keys lie by the hash of before: it is as it was (TAKEOVER-WAITS)
    row.initial_partition_count = layout.n
    row.undeleted_partition_count = layout.u
    row.virtual_partition_count = layout.v_count
    row.layout_epoch = layout.epoch
    row.enable_ordered_delivery = layout.ordered_delivery


def _physical_partitions(layout: Layout, rows: Iterable[MetadataResponsePartition]) -> list[MetadataResponsePartition]:
    """Returns the rows of a topic's physical partitions, retired ones included, with leader epochs of the dialect."""
    by_index = {row.partition_index: row for row in rows}
    shown: list[MetadataResponsePartition] = []
    for q in sorted(layout.segments_of.keys() | set(range(layout.u))):
        rows_done(1)
        row = by_index.get(q) or _UNLED.copy()
        row.partition_index = q
        set_epoch(layout, row)
        shown.append(row)
    return shown


def set_epoch(layout: Layout, row: _Partition) -> None:
    """Gives the row of a physical partition a leader epoch of the dialect."""
    home = layout.chain(physical_stream(row.partition_index)).home
    if home is not None:
        row.leader_epoch = virtual_epoch(home.move, row.get("leader_epoch", -1))
