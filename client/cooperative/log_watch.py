"""Asks brokers whether logs still have what was read of them."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any, Final

from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.consumer import AIOKafkaConsumer
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError, NoError, TopicAuthorizationFailedError, for_code
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.structs import TopicPartition

from kordon.client.cooperative.leader_epochs import NO_EPOCH, ReadEpochs
from kordon.client.requests import WireRequest
from kordon.codecs import apis

_log = logging.getLogger(__name__)

_VERSIONS: Final = range(2, 5)
"""Those that readers may send (Kafka 2.1 and newer)."""
_RETRY_SECONDS: Final = 0.5
_NO_NODE: Final = -1
NEVER: Final = 2**63 - 1
"""Where an epoch ends of which brokers tell nothing."""


class LogWatch:
    """Notices of a consumer's partitions that their logs were cut, though they may have grown again.

    Args:
        consumer: The consumer whose Fetch answers are watched.
    """

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self.epochs = ReadEpochs[TopicPartition]()
        self._client: AIOKafkaClient = consumer._client  # pyright: ignore[reportPrivateUsage] # aiokafka has no hooks
        self._send = self._client.send
        self._client.send = self._sent

    async def _sent(self, node_id: int, request: object, *, group: ConnectionGroup = ConnectionGroup.DEFAULT) -> Any:
        """Sends in the client's place, and looks at what a Fetch brings."""
        assignment = self.epochs.assignment
        answer: Any = await self._send(node_id, request, group=group)
        if isinstance(request, FetchRequest):
            for topic, rows in answer.topics:
                for row in rows:  # the partition is first, the records are last, in all versions
                    if row[-1]:
                        self.epochs.fetched(TopicPartition(topic, row[0]), row[-1], assignment)
        return answer

    async def cut(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """Returns the partitions whose logs lack what was read of them; waits until that is known.

        Raises:
            TopicAuthorizationFailedError: There is no right to describe a topic.
        """
        found: set[TopicPartition] = set()
        while doubts := self.epochs.doubts([tp for tp in partitions if tp not in found]):
            ends = await self.ends({tp: asked[0].epoch for tp, asked in doubts.items()})
            for tp, end in ends.items():
                if end < doubts[tp][0].reach:
                    found.add(tp)
                else:
                    self.epochs.settle(tp)
            if not ends:
                await asyncio.sleep(_RETRY_SECONDS)
        return found

    async def ends(self, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Asks where epochs end.

        Args:
            asked: Leader epochs by partition.

        Returns:
            Where they end; -1: the log has no such epoch. What cannot be known now is missing.

        Raises:
            TopicAuthorizationFailedError: There is no right to describe a topic.
        """
        by_node: dict[int, list[TopicPartition]] = defaultdict(list)
        for tp in asked:
            leader = self._client.cluster.leader_for_partition(tp)
            by_node[_NO_NODE if leader is None else leader].append(tp)
        found: dict[TopicPartition, int] = {}
        for node, tps in by_node.items():
            try:
                found |= await self._ends(node, {tp: asked[tp] for tp in tps}) if node != _NO_NODE else {}
            except IncompatibleBrokerVersion:
                found |= dict.fromkeys(tps, NEVER)
            except TopicAuthorizationFailedError:
                raise
            except KafkaError as error:
                _log.warning("Where the leader epochs of %s end is not known now: %r", sorted(tps), error)
        if len(found) < len(asked):
            self._client.force_metadata_update()
        return found

    async def _ends(self, node: int, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        topics: dict[str, list[dict[str, int]]] = defaultdict(list)
        for tp, epoch in asked.items():
            topics[tp.topic].append(
                {"partition": tp.partition, "current_leader_epoch": NO_EPOCH, "leader_epoch": epoch}
            )
        body = {"replica_id": -1, "topics": [{"topic": name, "partitions": rows} for name, rows in topics.items()]}
        answer: Any = await self._send(node, WireRequest(apis.OFFSET_FOR_LEADER_EPOCH, _VERSIONS, body))
        found: dict[TopicPartition, int] = {}
        for topic in answer.topics:
            for row in topic.partitions:
                tp, error = TopicPartition(topic.topic, row.partition), for_code(row.error_code)
                if error is TopicAuthorizationFailedError:
                    raise error({topic.topic})
                if error is NoError and tp in asked:
                    found[tp] = row.end_offset
        return found
