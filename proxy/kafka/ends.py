"""What stands at the end of partitions: asked of their leaders, all at once and one after the other (STILL-CUT)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from kordon.codecs import apis
from kordon.codecs.bodies import (
    DescribeProducersRequest,
    DescribeProducersRequestTopic,
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponsePartition,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochRequestTopic,
    OffsetForLeaderEpochResponsePartition,
)
from kordon.codecs.error_codes import Code, name_of
from kordon.codecs.errors import WireError
from kordon.codecs.fetched import Fetched, build_fetch
from kordon.codecs.messages import describe_producers as messages
from kordon.codecs.messages import list_offsets, offset_for_leader_epoch
from kordon.codecs.producers import VERSION, Described, ProducerRows, parse_producers
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.fetch_requests import fetch_logs
from kordon.proxy.kafka.leaders import Leader, TopicLeaders
from kordon.proxy.kafka.upstream import UpstreamClient

_LATEST: Final = -1
_EARLIEST: Final = -2
_CONSUMER: Final = -1
_DEBUGGING_CONSUMER: Final = -2
"""The replica id by which ListOffsets tells the log end, not the high watermark (ListOffsetsRequest.java)."""

_READ_BYTES: Final = 4 * 1024 * 1024
_MOST_BYTES: Final = 16 * 1024 * 1024


class TopicsRefused(UpstreamUnavailable):
    """Raised when the cluster answers, and refuses; carries Kafka's code and words.

    Attributes:
        code: Kafka's error code.
    """

    def __init__(self, what: str, code: int, message: str | None = None) -> None:
        super().__init__(f"{what}: {message or name_of(code)}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Ends:
    """The two ends of a partition, read from its leader one after the other."""

    log_end_offset: int
    high_watermark: int
    leader_epoch: int
    """The epoch of the leader that answered."""

    @property
    def is_settled(self) -> bool:
        """Whether all that stands in the log is replicated (STILL-CUT)."""
        return self.log_end_offset == self.high_watermark


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Log end, producers, and both ends again, of one leader in this order."""

    log_end_before: int
    producers: ProducerRows
    """Who has written there; to walk over many takes long."""
    ends: Ends

    @property
    def is_cut(self) -> bool:
        """Whether the end stood still, so that producers and end belong together (STILL-CUT)."""
        return self.ends.is_settled and self.ends.log_end_offset == self.log_end_before


class Remembered(NamedTuple):
    """What a leader remembers of producers, between two answers of the same leadership (ASKED-LEADER)."""

    producers: ProducerRows
    high_watermark: int
    """Told after the producers."""
    leader_epoch_before: int
    leader_epoch_after: int


class PartitionEnds:
    """Asks leaders about their partitions: all of them answer, under one leadership each, or the question fails.

    `PartitionLeaderRequests` is for whoever makes do with the answers of some.
    """

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._doubted: set[str] = set()
        """Topics of which a question failed: their leaders may have changed."""

    async def leaders(self, topic: str) -> Mapping[int, Leader]:
        """Asks for the leader of each partition that there is, elected or not; empty without the topic.

        Raises:
            TopicsRefused: Kordon may not see the topic.
            UpstreamUnavailable: No broker answers.
        """
        (found,) = (await self._brokers.leaders.renew(topic)).values()
        if found.error_code not in (Code.UNKNOWN_TOPIC_OR_PARTITION, Code.LEADER_NOT_AVAILABLE):
            refuse(f"partitions of {topic}", found)
        return found.leaders

    async def leaders_of(self, topics: Collection[str]) -> dict[str, TopicLeaders]:
        """Asks for the leaders of several topics at once.

        Raises:
            UpstreamUnavailable: No broker answers.
        """
        return await self._brokers.leaders.renew(*topics) if topics else {}

    async def epoch_ends(self, topic: str, epochs: Mapping[int, int]) -> dict[int, int]:
        """Asks leaders where the records of leader epochs end in their logs (OffsetForLeaderEpoch, KIP-101).

        Args:
            epochs: Leader epochs by partition. -1: the epoch is not known, and the end of the log is returned.

        Raises:
            TopicsRefused: A broker does not lead one of them any more, or Kordon may not know.
            UpstreamUnavailable: One has no leader, or a leader does not answer.
        """
        found = await self._ask_leaders(topic, epochs, _ask_log_ends, partial(_ask_epoch_ends, wanted=epochs))
        return {
            q: log_end.offset if epochs[q] < 0 or of_epoch.end_offset < 0 else of_epoch.end_offset
            for q, (log_end, of_epoch) in found.items()
        }

    async def producers_of(self, topic: str, partitions: Iterable[int]) -> dict[int, ProducerRows]:
        """Asks partitions' leaders, each once, which producers they remember (DescribeProducers, KIP-664).

        Raises:
            TopicsRefused: A broker does not lead one of them any more, or Kordon may not know.
            UpstreamUnavailable: One has no leader, or a leader does not answer.
        """
        found = await self._ask_leaders(topic, partitions, describe_producers)
        return {partition: told.producers for partition, (told,) in found.items()}

    async def remembered(self, topic: str, partitions: Iterable[int]) -> dict[int, Remembered]:
        """Asks partitions' leaders, each once, who they are, for producers, and for high watermarks, in this order.

        Raises:
            TopicsRefused: A broker does not lead one of them any more, or Kordon may not know.
            UpstreamUnavailable: One has no leader, or a leader does not answer.
        """
        found = await self._ask_leaders(topic, partitions, _ask_log_ends, describe_producers, _ask_high_watermarks)
        return {
            partition: Remembered(told.producers, mark.offset, before.leader_epoch, mark.leader_epoch)
            for partition, (before, told, mark) in found.items()
        }

    async def ends_of(self, topic: str, partitions: Iterable[int]) -> dict[int, Ends]:
        """Asks partitions' leaders, each once, for log ends and high watermarks, in this order.

        Raises:
            TopicsRefused: A broker does not lead one of them any more, or Kordon may not know.
            UpstreamUnavailable: One has no leader, or a leader does not answer.
        """
        found = await self._ask_leaders(topic, partitions, _ask_log_ends, _ask_high_watermarks)
        return {partition: Ends(end.offset, mark.offset, end.leader_epoch) for partition, (end, mark) in found.items()}

    async def log_starts(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Asks leaders where their logs begin.

        Raises:
            TopicsRefused: A broker does not lead one of them any more, or Kordon may not know.
            UpstreamUnavailable: One has no leader, or a leader does not answer.
        """
        found = await self._ask_leaders(topic, partitions, _ask_log_starts)
        return {partition: start.offset for partition, (start,) in found.items()}

    async def offsets_at(self, topic: str, partitions: Iterable[int], timestamp_ms: int) -> dict[int, int]:
        """Asks leaders for the first offsets of what was written at a time or later; -1: nothing was.

        Raises:
            TopicsRefused: A broker does not lead one of them any more, or Kordon may not know.
            UpstreamUnavailable: One has no leader, or a leader does not answer.
        """
        ask = partial(_ask_offsets, replica_id=_CONSUMER, timestamp=timestamp_ms)
        found = await self._ask_leaders(topic, partitions, ask)
        return {partition: told.offset for partition, (told,) in found.items()}

    async def snapshot(self, topic: str, partition: int) -> Snapshot:
        """Asks a partition's leader for its log end, its producers and both ends, in this order and one round trip.

        Raises:
            TopicsRefused: The broker does not lead it any more, or Kordon may not know.
            UpstreamUnavailable: The partition has no leader, or the leader does not answer.
        """
        return (await self.snapshots(topic, [partition]))[partition]

    async def snapshots(self, topic: str, partitions: Iterable[int]) -> dict[int, Snapshot]:
        """Asks as `snapshot` about several partitions, each leader once.

        Raises:
            TopicsRefused: A broker does not lead one of them any more, or Kordon may not know.
            UpstreamUnavailable: One has no leader, or a leader does not answer.
        """
        questions = (_ask_log_ends, describe_producers, _ask_log_ends, _ask_high_watermarks)
        found = await self._ask_leaders(topic, partitions, *questions)
        return {
            partition: Snapshot(before.offset, told.producers, Ends(end.offset, mark.offset, end.leader_epoch))
            for partition, (before, told, end, mark) in found.items()
        }

    async def read_behind(self, topic: str, positions: Mapping[int, int]) -> dict[int, tuple[Snapshot, memoryview]]:
        """Asks leaders for log ends, for what stands in logs from an offset on, and for both ends again, in this order.

        Args:
            positions: The first offset to read, by partition. What is not replicated, or too much, is left for the next
                time.

        Returns:
            By partition the ends (of a snapshot without producers) and the batches, whole and cut off ones.

        Raises:
            TopicsRefused: A broker does not lead one of them any more, or has not got what stood at an offset.
            UpstreamUnavailable: One has no leader, or a leader does not answer.
        """
        questions = (_ask_log_ends, partial(_ask_reads, positions=positions), _ask_log_ends, _ask_high_watermarks)
        found = await self._ask_leaders(topic, positions, *questions)
        nobody = ProducerRows.of(())
        return {
            partition: (
                Snapshot(before.offset, nobody, Ends(end.offset, mark.offset, end.leader_epoch)),
                fetched.records,
            )
            for partition, (before, fetched, end, mark) in found.items()
        }

    async def _ask_leaders(self, topic: str, partitions: Iterable[int], *questions: _Question) -> dict[int, _Parts]:
        """Asks each leader all questions on one connection, on which a broker works on one after the other.

        Every question names the leader epoch or is for leaders only, so all answers are of one leadership.
        """
        try:
            if topic in self._doubted:
                await self.leaders(topic)
                self._doubted.discard(topic)
            epochs: dict[int, dict[int, int]] = {}
            for partition in frozenset(partitions):
                leader = await self._brokers.leaders.leader(topic, partition)
                epochs.setdefault(leader.node_id, {})[partition] = leader.epoch
            answers = await asyncio.gather(*(self._ask(node, topic, led, questions) for node, led in epochs.items()))
        except UpstreamUnavailable:
            self._doubted.add(topic)  # not forgotten: writers and readers need not wait for another answer
            raise
        return {partition: parts for answer in answers for partition, parts in answer.items()}

    async def _ask(
        self, node_id: int, topic: str, epochs: Mapping[int, int], questions: Sequence[_Question]
    ) -> dict[int, _Parts]:
        """Asks one leader; each question is on the wire before the next one starts, as a task of its own."""
        client = await self._brokers.to(node_id)
        rows = await asyncio.gather(*(ask(client, topic, epochs) for ask in questions))
        for row in rows:
            for partition, part in row.items():
                refuse(f"asking the leader of {topic}-{partition}", part)
        return {partition: tuple(row[partition] for row in rows) for partition in epochs}


_Parts: TypeAlias = tuple[Any, ...]
"""What a leader has answered of one partition, in the order of the questions."""
_Question: TypeAlias = Callable[[UpstreamClient, str, Mapping[int, int]], Awaitable[Mapping[int, Any]]]
"""Asks the leader of partitions, given with their leader epochs, and returns its answer by partition."""


async def _ask_offsets(
    client: UpstreamClient, topic: str, epochs: Mapping[int, int], replica_id: int, timestamp: int = _LATEST
) -> Mapping[int, ListOffsetsResponsePartition]:
    parts = [
        ListOffsetsRequestPartition(partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp)
        for partition, epoch in epochs.items()
    ]
    asked = ListOffsetsRequest(replica_id=replica_id, topics=[ListOffsetsRequestTopic(name=topic, partitions=parts)])
    answer = await client.send(list_offsets.API, client.version(list_offsets.API.key, range(4, 8)), asked)
    return {part.partition_index: part for row in answer.topics for part in row.partitions}


_ask_log_ends: Final = partial(_ask_offsets, replica_id=_DEBUGGING_CONSUMER)
_ask_high_watermarks: Final = partial(_ask_offsets, replica_id=_CONSUMER)
_ask_log_starts: Final = partial(_ask_offsets, replica_id=_CONSUMER, timestamp=_EARLIEST)


async def _ask_epoch_ends(
    client: UpstreamClient, topic: str, epochs: Mapping[int, int], wanted: Mapping[int, int]
) -> Mapping[int, OffsetForLeaderEpochResponsePartition]:
    parts = [
        OffsetForLeaderEpochRequestPartition(
            partition=partition, current_leader_epoch=epoch, leader_epoch=max(wanted[partition], 0)
        )
        for partition, epoch in epochs.items()
    ]
    topics = [OffsetForLeaderEpochRequestTopic(topic=topic, partitions=parts)]
    asked = OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=topics)
    api = offset_for_leader_epoch.API
    answer = await client.send(api, client.version(api.key, range(2, 5)), asked)
    return {part.partition: part for row in answer.topics for part in row.partitions}


async def _ask_reads(
    client: UpstreamClient, topic: str, epochs: Mapping[int, int], positions: Mapping[int, int]
) -> Mapping[int, Fetched]:
    rows = [(partition, epoch, positions[partition]) for partition, epoch in epochs.items()]
    asked = build_fetch({topic: rows}, max_wait_ms=0, max_bytes=_MOST_BYTES, partition_bytes=_READ_BYTES)
    return {partition: part for (_, partition), part in (await fetch_logs(client, asked)).items()}


async def describe_producers(client: UpstreamClient, topic: str, partitions: Iterable[int]) -> Mapping[int, Described]:
    """Asks a leader which producers it remembers of partitions of a topic that it leads (KIP-664).

    Returns:
        The answer by partition.

    Raises:
        UpstreamUnavailable: The leader does not answer, or its answer cannot be read.
    """
    rows = DescribeProducersRequestTopic(name=topic, partition_indexes=list(partitions))
    body = messages.REQUEST.build(VERSION, DescribeProducersRequest(topics=[rows]))
    version = client.version(apis.DESCRIBE_PRODUCERS, range(VERSION, VERSION + 1))
    answer = await client.send_body(apis.DESCRIBE_PRODUCERS, version, [body])
    try:
        return {partition: told for (_, partition), told in parse_producers(answer).items()}
    except WireError as error:
        raise UpstreamUnavailable(f"asking for producers: {error}") from error


class ErrorRow(Protocol):
    """What a broker says of one thing that it was asked for or about."""

    @property
    def error_code(self) -> int:
        """Kafka's error code."""
        ...


def refuse(what: str, result: ErrorRow) -> None:
    """Raises what a result says, if it says an error.

    Raises:
        TopicsRefused: It does.
    """
    if result.error_code != Code.NONE:
        raise TopicsRefused(what, result.error_code, getattr(result, "error_message", None))
