"""Metadata on connections that speak the dialect: a managed topic as its physical partitions, and its layout in brief.

    0 … U - 1      as brokers tell of them, but for the leader epoch, which rises with each change of their keys
    U and above    retired ones, until retention or DeleteRecords has left nothing in them

Tagged fields say N, U, V, the layout epoch, and whether delivery is ordered (docs/dialect.md).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

from kordon.codecs.error_codes import Code
from kordon.codecs.turns import rows_done
from kordon.proxy.handlers.metadata import (
    NO_ID,
    UNLED,
    DescribeTopicPartitionsTranslation,
    MetadataTranslation,
    unless_unserved,
)
from kordon.proxy.ordering.epochs import virtual_epoch
from kordon.proxy.ordering.layout import Layout, Placement
from kordon.proxy.ordering.lookups import EARLIEST
from kordon.proxy.ordering.streams import physical_stream
from kordon.proxy.ordering.takeover import may_be_shown
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics

NO_TOPICS: Final = ManagedTopics()
"""With these the translations of stock connections hide what is Kordon's own, and change nothing else."""
_ASK_SECONDS: Final = 1.0
"""Most time in which brokers are asked whether retired partitions are empty, and how long it is not asked again."""

LogStarts = Callable[[str, Collection[int], int], Awaitable[Mapping[int, int]]]
"""Asks leaders where logs begin; see `Readers.ends_of`."""


class DialectMetadata:
    """Translates Metadata."""

    answers_always = True

    def __init__(self) -> None:
        self._hidden = MetadataTranslation()

    def request(self, version: int, value: Any, topics: ManagedTopics) -> bool:
        """Does not ask for what is Kordon's own."""
        return self._hidden.request(version, value, NO_TOPICS)

    def response(self, version: int, value: Any, topics: ManagedTopics, asked: Any) -> bool:
        """Shows managed topics with their layouts."""
        self._hidden.response(version, value, NO_TOPICS, asked)
        value["topics"] = [shown(row, topics) for row in value.topics]
        return True


class DialectTopicPartitions:
    """Translates DescribeTopicPartitions."""

    answers_always = True

    def __init__(self) -> None:
        self._hidden = DescribeTopicPartitionsTranslation()

    def request(self, version: int, value: Any, topics: ManagedTopics) -> bool:
        """Does not ask for what is Kordon's own."""
        return self._hidden.request(version, value, NO_TOPICS)

    def response(self, version: int, value: Any, topics: ManagedTopics, asked: Any) -> bool:
        """Shows of managed topics what a page holds of their partitions."""
        self._hidden.response(version, value, NO_TOPICS, asked)
        value["topics"] = [unless_unserved(row, topics) for row in value.topics]
        for row in value["topics"]:
            topic = topics.served(row["name"])
            if topic is not None and not row["error_code"]:
                row["partitions"] = [_at_epoch(topic.layout, each) for each in row["partitions"]]
        return True


def shown(row: Any, topics: ManagedTopics) -> Any:
    """Returns a topic's row of a Metadata answer as clients of the dialect see it."""
    rows_done(1)
    row, topic = unless_unserved(row, topics), topics.served(row.get("name") or "")
    if topic is None or row["error_code"]:
        return row
    layout = topic.layout
    is_other = row.get("topic_id", NO_ID) not in (NO_ID, layout.topic_id)  # made anew, not this layout's (SAME-TOPIC)
    if is_other or not may_be_shown(layout):
        return {**row, "error_code": Code.LEADER_NOT_AVAILABLE, "partitions": []}
    row = {**row, "partitions": physical_partitions(layout, row["partitions"])}
    if layout.epochs[-1].placement is not Placement.LINEAR:
        return row  # while it is taken over, keys lie by the hash of before: it is as it was (TAKEOVER-WAITS)
    return {
        **row,
        "initial_partition_count": layout.n,
        "undeleted_partition_count": layout.u,
        "virtual_partition_count": layout.v_count,
        "layout_epoch": layout.epoch,
        "enable_ordered_delivery": layout.ordered_delivery,
    }


def physical_partitions(layout: Layout, rows: Iterable[Any]) -> list[Any]:
    """Returns the rows of a topic's physical partitions, retired ones included, with leader epochs of the dialect."""
    by_index = {row.partition_index: row for row in rows}
    shown_rows: list[Any] = []
    for q in sorted(layout.segments_of.keys() | set(range(layout.u))):
        rows_done(1)
        shown_rows.append(_at_epoch(layout, {**by_index.get(q, UNLED), "partition_index": q}))
    return shown_rows


def _at_epoch(layout: Layout, row: Any) -> Any:
    home = layout.chain(physical_stream(row["partition_index"])).home
    epoch = row.get("leader_epoch", -1)
    return {**row, "leader_epoch": epoch if home is None else virtual_epoch(home.move, epoch)}


@dataclass(slots=True)
class _Looked:
    """What was found of a topic's retired partitions under one layout epoch."""

    epoch: int
    empty: frozenset[int]
    at: float


class RetiredPartitions:
    """Takes retired partitions out of Metadata once they are empty (KIP-253 3).

    Args:
        topics: What is managed.
        log_starts: Asks where logs begin.
        clock: Seconds of a monotonic clock.
    """

    def __init__(
        self, topics: ManagedTopics, log_starts: LogStarts, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._topics = topics
        self._log_starts = log_starts
        self._clock = clock
        self._looked: WeakKeyDictionary[ManagedTopic, _Looked] = WeakKeyDictionary()

    async def complete(self, answer: Any) -> None:
        """Leaves out of an answer, in place, what is retired and empty; what is not known to be, stays.

        Args:
            answer: To a Metadata request, as `DialectMetadata` has left it.
        """
        rows = [row for row in answer.topics if row.get("undeleted_partition_count", -1) >= 0]
        await asyncio.gather(*(self._complete_row(row) for row in rows))

    async def _complete_row(self, row: Any) -> None:
        topic = self._topics.named(row["name"])
        retired = frozenset(
            each["partition_index"]
            for each in row["partitions"]
            if each["partition_index"] >= row["undeleted_partition_count"]
        )
        if topic is None or not retired:
            return
        empty = await self._empty(topic, retired)
        if topic.layout.epoch == row["layout_epoch"]:
            row["partitions"] = [each for each in row["partitions"] if each["partition_index"] not in empty]

    async def _empty(self, topic: ManagedTopic, retired: frozenset[int]) -> frozenset[int]:
        layout, now = topic.layout, self._clock()
        looked = self._looked.get(topic)
        if looked is None or looked.epoch != layout.epoch:
            looked = _Looked(layout.epoch, frozenset(), -_ASK_SECONDS)
        left = retired - looked.empty
        if left and now - looked.at >= _ASK_SECONDS:
            looked = _Looked(layout.epoch, looked.empty | await self._found_empty(topic, layout, left), now)
            self._looked[topic] = looked
        return looked.empty

    async def _found_empty(self, topic: ManagedTopic, layout: Layout, partitions: frozenset[int]) -> frozenset[int]:
        try:
            async with asyncio.timeout(_ASK_SECONDS):
                starts = await self._log_starts(topic.name, partitions, EARLIEST)
        except TimeoutError:
            return frozenset()
        ends = {q: layout.last_bounds[q].offset for q in partitions}
        return frozenset(q for q, end in ends.items() if starts.get(q, -1) >= end)
