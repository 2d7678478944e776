"""Restart points at the group's coordinator, and the transactional ids of former owners at theirs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.errors import CommitFailedError, IncompatibleBrokerVersion, KafkaError, UnsupportedVersionError, for_code

from kordon.client.requests import WireRequest
from kordon.client.sources.errors import SourcePointError
from kordon.codecs.error_codes import Code
from kordon.codecs.source_points import OFFSET, Point, UnreadPoint, build, parse

_log = logging.getLogger(__name__)

_OFFSET_COMMIT: Final = 8
_OFFSET_FETCH: Final = 9
_HEARTBEAT: Final = 12
_INIT_PRODUCER_ID: Final = 22
_COMMIT_VERSIONS: Final = range(5, 9)
"""Those that name member and generation, and topics by their names."""
_FETCH_VERSIONS: Final = range(7, 8)
"""The first that leaves out what an open transaction may change (KIP-447), with one group."""
_HEARTBEAT_VERSIONS: Final = range(4)
_INIT_VERSIONS: Final = range(5)
_RETRY_SECONDS: Final = 0.05
_FENCE_TIMEOUT_MS: Final = 60_000
"""The transaction timeout that a fenced id has from then on; nobody uses it any more."""
_AT_ONCE: Final = 16
"""Ids that are fenced side by side."""
NOT_A_MEMBER: Final = frozenset(
    {Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION, Code.REBALANCE_IN_PROGRESS, Code.FENCED_INSTANCE_ID}
)
_MOVED: Final = frozenset({Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR})
_FENCED_LATER: Final = frozenset(
    {
        Code.CONCURRENT_TRANSACTIONS,
        Code.COORDINATOR_LOAD_IN_PROGRESS,
        Code.COORDINATOR_NOT_AVAILABLE,
        Code.NOT_COORDINATOR,
        Code.REQUEST_TIMED_OUT,
    }
)


@dataclass(frozen=True, slots=True)
class SourceMember:
    """The member that commits, with the generation of its assignment (NAMED-GENERATION)."""

    member_id: str
    generation: int


class GroupLink(Protocol):
    """The way to the group's coordinator."""

    async def ask(self, request: WireRequest) -> Any:
        """Sends a request, and returns its answer.

        Raises:
            KafkaError: There is no answer.
        """
        ...

    def look_again(self) -> None:
        """Notes that another broker coordinates the group now."""
        ...


class PointStore:
    """The restart points of one group and source topic.

    Args:
        group_id: The group's id.
        topic: The source topic.
        link: The connection to the group's coordinator.
        client: Connections to all other brokers.
    """

    def __init__(self, group_id: str, topic: str, link: GroupLink, client: AIOKafkaClient) -> None:
        self._group_id = group_id
        self._topic = topic
        self._link = link
        self._client = client
        self._told: set[str] = set()

    async def read(self, partitions: Collection[int], *, settled: bool) -> dict[int, Point] | None:
        """Returns what is on record of partitions; those of which nothing is are missing.

        Args:
            settled: Whether to wait for open transactions (SETTLED-POINT).

        Returns:
            None if such a transaction may still change one of the points.

        Raises:
            SourcePointError: One of the commits is no restart point.
            KafkaError: The coordinator's answer cannot be obtained.
        """
        body = {
            "group_id": self._group_id,
            "topics": [{"name": self._topic, "partition_indexes": sorted(partitions)}],
            "require_stable": settled,
        }
        answer = await self._asked(WireRequest(_OFFSET_FETCH, _FETCH_VERSIONS, body))
        self._check(answer.error_code)
        rows = [row for topic in answer.topics if topic.name == self._topic for row in topic.partitions]
        if any(row.error_code == Code.UNSTABLE_OFFSET_COMMIT for row in rows):
            return None
        found: dict[int, Point] = {}
        for row in rows:
            self._check(row.error_code)
            if row.committed_offset >= 0 and row.partition_index in partitions:
                found[row.partition_index] = self._point(row.partition_index, row.metadata)
        return found

    async def write(self, points: Mapping[int, Point], member: SourceMember) -> None:
        """Puts points on record in no transaction.

        Raises:
            CommitFailedError: The group has moved on.
            KafkaError: The outcome of the commit is unknown.
        """
        if not points:
            return
        rows = [
            {"partition_index": each, "committed_offset": OFFSET, "committed_metadata": build(point)}
            for each, point in sorted(points.items())
        ]
        body = {
            "group_id": self._group_id,
            "generation_id_or_member_epoch": member.generation,
            "member_id": member.member_id,
            "topics": [{"name": self._topic, "partitions": rows}],
        }
        answer = await self._asked(WireRequest(_OFFSET_COMMIT, _COMMIT_VERSIONS, body))
        for topic in answer.topics:
            for row in topic.partitions:
                self._check(row.error_code)

    async def confirm(self, member: SourceMember) -> None:
        """Asks the group whether the member's generation is still the group's (MEMBER-FENCES).

        Raises:
            CommitFailedError: The generation is not current, and other members may own this member's partitions.
            KafkaError: The coordinator's answer cannot be obtained.
        """
        body = {"group_id": self._group_id, "generation_id": member.generation, "member_id": member.member_id}
        answer = await self._asked(WireRequest(_HEARTBEAT, _HEARTBEAT_VERSIONS, body))
        if answer.error_code != Code.REBALANCE_IN_PROGRESS:  # of the next generation; this one is not over
            self._check(answer.error_code)

    async def fence(self, owners: Collection[str], seconds: float) -> None:
        """Ends the transactions that former owners have left open, and has them begin no other one (DEAD-FENCED).

        What cannot be fenced in time is told in the log: its transaction ends after its own timeout.
        """
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(owner: str) -> None:
            async with gate:
                await self._fence(f"{self._group_id}.{owner}", seconds)

        await asyncio.gather(*map(one, sorted(owners)))

    async def _fence(self, transactional_id: str, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                code = await self._init(transactional_id)
                while code in _FENCED_LATER:
                    await asyncio.sleep(_RETRY_SECONDS)
                    code = await self._init(transactional_id)
        except TimeoutError:
            self._warn(transactional_id, f"no answer in {seconds:g} s: look at the brokers")
            return
        if code == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            self._warn(transactional_id, f"allow Write on the transactional ids that begin with {self._group_id}.")
        elif code != Code.NONE:
            self._warn(transactional_id, repr(for_code(code)()))
        else:
            _log.info("The transactions of %s are ended: it has left the group without a word", transactional_id)

    async def _init(self, transactional_id: str) -> int:
        body = {"transactional_id": transactional_id, "transaction_timeout_ms": _FENCE_TIMEOUT_MS}
        request = WireRequest(_INIT_PRODUCER_ID, _INIT_VERSIONS, body)
        try:
            node = await self._client.coordinator_lookup(CoordinationType.TRANSACTION, transactional_id)
            if not await self._client.ready(node, group=ConnectionGroup.COORDINATION):
                return Code.COORDINATOR_NOT_AVAILABLE
            answer: Any = await self._client.send(node, request, group=ConnectionGroup.COORDINATION)
        except KafkaError as error:
            code = getattr(error, "errno", None)
            return Code.COORDINATOR_NOT_AVAILABLE if error.retriable or not isinstance(code, int) else code
        return int(answer.error_code)

    def _warn(self, transactional_id: str, why: str) -> None:
        if transactional_id not in self._told:
            self._told.add(transactional_id)
            _log.warning(
                "A transaction of %s, which has left the group without a word, may stay open until its own timeout "
                "(transaction_timeout_ms), and readers wait for it: %s",
                transactional_id,
                why,
            )

    async def _asked(self, request: WireRequest) -> Any:
        try:
            return await self._link.ask(request)
        except (IncompatibleBrokerVersion, UnsupportedVersionError) as error:
            raise UnsupportedVersionError(
                "a SourceProducer needs brokers of Kafka 2.5 or newer: older ones neither tell whether a restart point "
                "is settled, nor take the generation of who commits it (KIP-447)"
            ) from error

    def _check(self, code: int) -> None:
        if code in NOT_A_MEMBER:
            raise CommitFailedError("the group has shared its source partitions out anew")
        if code in _MOVED:
            self._link.look_again()
        if code != Code.NONE:
            raise for_code(code)()

    def _point(self, partition: int, metadata: str | None) -> Point:
        try:
            return parse(metadata)
        except UnreadPoint as error:
            raise SourcePointError(self._topic, self._group_id, partition, str(error)) from error
