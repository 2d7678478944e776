"""What stands at the end of partitions: asked of their leaders, all at once and one after the other (STILL-CUT)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from kordon.codecs.error_codes import Code, name_of
from kordon.codecs.errors import WireError
from kordon.codecs.fetched import VERSION as FETCH_VERSION
from kordon.codecs.fetched import Fetched, parse_fetched
from kordon.codecs.messages import request
from kordon.codecs.producers import VERSION, Described, ProducerRows, parse_producers
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.upstream import UpstreamClient

FETCH: Final = 1
LIST_OFFSETS: Final = 2
OFFSET_FOR_LEADER_EPOCH: Final = 23
DESCRIBE_PRODUCERS: Final = 61
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
class LeaderAt:
    """Where a partition is led."""

    node_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Ends:
    """The two ends of a partition, read from its leader one after the other."""

    log_end_offset: int
    high_watermark: int
    leader_epoch: int
    """Of the leader that answered."""

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


class PartitionEnds:
    """Asks leaders about their partitions.

    Args:
        brokers: Where brokers are found.
    """

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._leaders: dict[tuple[str, int], LeaderAt] = {}

    async def leaders(self, topic: str) -> dict[int, LeaderAt | None]:
        """Returns the leader of each partition that there is, None where it has none now; empty without the topic.

        Raises:
            TopicsRefused: Kordon may not see the topic.
            UpstreamUnavailable: Nobody answers.
        """
        (found,) = (await self._brokers.metadata([topic])).topics
        if found.error_code in (Code.UNKNOWN_TOPIC_OR_PARTITION, Code.LEADER_NOT_AVAILABLE):
            return {}
        refuse(f"partitions of {topic}", found)
        leaders = {
            each.partition_index: LeaderAt(each.leader_id, each.leader_epoch) if each.leader_id >= 0 else None
            for each in found.partitions
        }
        self._leaders |= {(topic, number): leader for number, leader in leaders.items() if leader is not None}
        return leaders

    async def leaders_of(self, topics: Iterable[str]) -> dict[str, dict[int, LeaderAt]]:
        """Returns who leads the partitions of topics, by topic; what has no leader now, or is no topic, is missing.

        Raises:
            UpstreamUnavailable: Nobody answers.
        """
        names = sorted(topics)
        rows = (await self._brokers.metadata(names)).topics if names else []
        return {
            row.name: {
                each.partition_index: LeaderAt(each.leader_id, each.leader_epoch)
                for each in row.partitions
                if each.leader_id >= 0
            }
            for row in rows
            if not row.error_code
        }

    async def epoch_ends(self, topic: str, epochs: Mapping[int, int]) -> dict[int, int]:
        """Asks leaders where the records of leader epochs end in their logs (OffsetForLeaderEpoch, KIP-101).

        Args:
            topic: Its name.
            epochs: By partition, the leader epoch; -1: it is not known, and the log's end is what is told.

        Raises:
            TopicsRefused: A broker does not lead one of them any more, or Kordon may not know.
            UpstreamUnavailable: One has no leader, or a leader does not answer.
        """
        found = await self._ask_leaders(topic, epochs, _send_log_ends, partial(_send_epoch_ends, wanted=epochs))
        return {
            q: log_end.offset if epochs[q] < 0 or of_epoch.end_offset < 0 else of_epoch.end_offset
            for q, (log_end, of_epoch) in found.items()
        }

    async def producers(self, topic: str, partition: int) -> ProducerRows:
        """Asks a partition's leader which producers it remembers (DescribeProducers, KIP-664).

        Raises:
            TopicsRefused: The broker does not lead it any more, or Kordon may not know.
            UpstreamUnavailable: It has no leader, or the leader does not answer.
        """
        return (await self.producers_of(topic, [partition]))[partition]

    async def producers_of(self, topic: str, partitions: Iterable[int]) -> dict[int, ProducerRows]:
        """Asks as `producers` about several partitions, each leader once.

        Raises:
            TopicsRefused: A broker does not lead one of them any more, or Kordon may not know.
            UpstreamUnavailable: One has no leader, or a leader does not answer.
        """
        found = await self._ask_leaders(topic, partitions, describe_producers)
        return {partition: told.producers for partition, (told,) in found.items()}

    async def ends(self, topic: str, partition: int) -> Ends:
        """Asks a partition's leader for its log end and its high watermark, in this order.

        Raises:
            TopicsRefused: The broker does not lead it any more, or Kordon may not know.
            UpstreamUnavailable: It has no leader, or the leader does not answer.
        """
        return (await self.ends_of(topic, [partition]))[partition]

    async def ends_of(self, topic: str, partitions: Iterable[int]) -> dict[int, Ends]:
        """Asks as `ends` about several partitions, each leader once.

        Raises:
            TopicsRefused: A broker does not lead one of them any more, or Kordon may not know.
            UpstreamUnavailable: One has no leader, or a leader does not answer.
        """
        found = await self._ask_leaders(topic, partitions, _send_log_ends, _send_high_watermarks)
        return {partition: Ends(end.offset, mark.offset, end.leader_epoch) for partition, (end, mark) in found.items()}

    async def log_starts(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Asks leaders where their logs begin.

        Raises:
            TopicsRefused: A broker does not lead one of them any more, or Kordon may not know.
            UpstreamUnavailable: One has no leader, or a leader does not answer.
        """
        found = await self._ask_leaders(topic, partitions, _send_log_starts)
        return {partition: start.offset for partition, (start,) in found.items()}

    async def snapshot(self, topic: str, partition: int) -> Snapshot:
        """Asks a partition's leader for its log end, its producers and both ends, in this order and one round trip.

        Raises:
            TopicsRefused: The broker does not lead it any more, or Kordon may not know.
            UpstreamUnavailable: It has no leader, or the leader does not answer.
        """
        return (await self.snapshots(topic, [partition]))[partition]

    async def snapshots(self, topic: str, partitions: Iterable[int]) -> dict[int, Snapshot]:
        """Asks as `snapshot` about several partitions, each leader once.

        Raises:
            TopicsRefused: A broker does not lead one of them any more, or Kordon may not know.
            UpstreamUnavailable: One has no leader, or a leader does not answer.
        """
        questions = (_send_log_ends, describe_producers, _send_log_ends, _send_high_watermarks)
        found = await self._ask_leaders(topic, partitions, *questions)
        return {
            partition: Snapshot(before.offset, told.producers, Ends(end.offset, mark.offset, end.leader_epoch))
            for partition, (before, told, end, mark) in found.items()
        }

    async def read_behind(self, topic: str, positions: Mapping[int, int]) -> dict[int, tuple[Snapshot, memoryview]]:
        """Asks leaders for log ends, for what stands in logs from an offset on, and for both ends again, in this order.

        Args:
            topic: Its name.
            positions: By partition, from where on; what is not replicated, or too much, is left for the next time.

        Returns:
            By partition the ends (of a snapshot without producers) and the batches, whole and cut off ones.

        Raises:
            TopicsRefused: A broker does not lead one of them any more, or has not got what stood at an offset.
            UpstreamUnavailable: One has no leader, or a leader does not answer.
        """
        questions = (_send_log_ends, partial(_send_reads, positions=positions), _send_log_ends, _send_high_watermarks)
        found = await self._ask_leaders(topic, positions, *questions)
        nobody = ProducerRows.of(())
        return {
            partition: (
                Snapshot(before.offset, nobody, Ends(end.offset, mark.offset, end.leader_epoch)),
                fetched.records,
            )
            for partition, (before, fetched, end, mark) in found.items()
        }

    async def _ask_leaders(
        self, topic: str, partitions: Iterable[int], *questions: _Question
    ) -> dict[int, tuple[Any, ...]]:
        """Asks each leader all questions on one connection, on which a broker works on one after the other.

        Every question names the leader epoch or is for leaders only, so all answers are of one leadership.
        """
        wanted = frozenset(partitions)
        try:
            epochs: dict[int, dict[int, int]] = {}
            for partition, leader in (await self._known_leaders(topic, wanted)).items():
                epochs.setdefault(leader.node_id, {})[partition] = leader.epoch
            answers = await asyncio.gather(*(self._ask(node, topic, led, questions) for node, led in epochs.items()))
        except UpstreamUnavailable:
            for partition in wanted:
                self._leaders.pop((topic, partition), None)
            raise
        return {partition: parts for answer in answers for partition, parts in answer.items()}

    async def _known_leaders(self, topic: str, partitions: Iterable[int]) -> dict[int, LeaderAt]:
        if any((topic, partition) not in self._leaders for partition in partitions):
            await self.leaders(topic)
        found = {partition: self._leaders.get((topic, partition)) for partition in partitions}
        if without := sorted(partition for partition, leader in found.items() if leader is None):
            raise UpstreamUnavailable(f"{topic}: no leader of {without}")
        return {partition: leader for partition, leader in found.items() if leader is not None}

    async def _ask(
        self, node_id: int, topic: str, epochs: Mapping[int, int], questions: Sequence[_Question]
    ) -> dict[int, tuple[Any, ...]]:
        client = await self._brokers.to(node_id)
        rows = await asyncio.gather(*(send(client, topic, epochs) for send in questions))
        for row in rows:
            for partition, part in row.items():
                refuse(f"asking the leader of {topic}-{partition}", part)
        return {partition: tuple(row[partition] for row in rows) for partition in epochs}


_Question: TypeAlias = Callable[[UpstreamClient, str, Mapping[int, int]], Awaitable[Mapping[int, Any]]]
"""Sends a question about partitions, given with their leader epochs, to their leader; what it says is to come."""


async def _by_partition(answer: asyncio.Future[Any]) -> dict[int, Any]:
    return {_partition(part): part for row in (await answer).topics for part in row.partitions}


def _send_offsets(
    client: UpstreamClient, topic: str, epochs: Mapping[int, int], replica_id: int, timestamp: int = _LATEST
) -> Awaitable[Mapping[int, Any]]:
    parts = [
        {"partition_index": partition, "current_leader_epoch": epoch, "timestamp": timestamp}
        for partition, epoch in epochs.items()
    ]
    fields = {"replica_id": replica_id, "isolation_level": 0, "topics": [{"name": topic, "partitions": parts}]}
    return _by_partition(client.send(LIST_OFFSETS, client.version(LIST_OFFSETS, range(4, 8)), fields))


_send_log_ends: Final = partial(_send_offsets, replica_id=_DEBUGGING_CONSUMER)
_send_high_watermarks: Final = partial(_send_offsets, replica_id=_CONSUMER)
_send_log_starts: Final = partial(_send_offsets, replica_id=_CONSUMER, timestamp=_EARLIEST)


def _send_epoch_ends(
    client: UpstreamClient, topic: str, epochs: Mapping[int, int], wanted: Mapping[int, int]
) -> Awaitable[Mapping[int, Any]]:
    parts = [
        {"partition": partition, "current_leader_epoch": epoch, "leader_epoch": max(wanted[partition], 0)}
        for partition, epoch in epochs.items()
    ]
    fields = {"replica_id": _CONSUMER, "topics": [{"topic": topic, "partitions": parts}]}
    version = client.version(OFFSET_FOR_LEADER_EPOCH, range(2, 5))
    return _by_partition(client.send(OFFSET_FOR_LEADER_EPOCH, version, fields))


def _partition(part: Any) -> int:
    number: int = part.partition if "partition" in part else part.partition_index
    return number


def _send_reads(
    client: UpstreamClient, topic: str, epochs: Mapping[int, int], positions: Mapping[int, int]
) -> Awaitable[Mapping[int, Any]]:
    parts = [
        {
            "partition": partition,
            "current_leader_epoch": epoch,
            "fetch_offset": positions[partition],
            "partition_max_bytes": _READ_BYTES,
        }
        for partition, epoch in epochs.items()
    ]
    topics = [{"topic": topic, "partitions": parts}]
    fields = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": _MOST_BYTES, "topics": topics, "rack_id": ""}
    version = client.version(FETCH, range(FETCH_VERSION, FETCH_VERSION + 1))
    return _fetched(client.send_body(FETCH, version, [request(FETCH).build(version, fields)]))


async def _fetched(answer: asyncio.Future[memoryview]) -> Mapping[int, Fetched]:
    body = await answer
    try:
        return {partition: part for (_, partition), part in parse_fetched(body).partitions.items()}
    except WireError as error:
        raise UpstreamUnavailable(f"reading the ends of logs: {error}") from error


def describe_producers(
    client: UpstreamClient, topic: str, partitions: Iterable[int]
) -> Awaitable[Mapping[int, Described]]:
    """Asks a leader which producers it remembers of partitions of a topic (KIP-664); sent when this returns.

    Args:
        client: A connection to the leader.
        topic: Its name.
        partitions: That it leads.

    Returns:
        What is to be awaited: the answer by partition; or UpstreamUnavailable.
    """
    rows = {"name": topic, "partition_indexes": list(partitions)}
    body = request(DESCRIBE_PRODUCERS).build(VERSION, {"topics": [rows]})
    version = client.version(DESCRIBE_PRODUCERS, range(VERSION, VERSION + 1))
    return _described(client.send_body(DESCRIBE_PRODUCERS, version, [body]))


async def _described(answer: asyncio.Future[memoryview]) -> Mapping[int, Described]:
    body = await answer
    try:
        return {partition: told for (_, partition), told in parse_producers(body).items()}
    except WireError as error:
        raise UpstreamUnavailable(f"asking for producers: {error}") from error


def refuse(what: str, result: Any) -> None:
    """Raises what a result says, if it says an error.

    Raises:
        TopicsRefused: It does.
    """
    if result.error_code != Code.NONE:
        raise TopicsRefused(what, result.error_code, getattr(result, "error_message", None))
