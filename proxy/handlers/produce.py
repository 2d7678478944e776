"""Produce of managed topics."""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple
from uuid import UUID

from kordon.codecs.error_codes import Code
from kordon.codecs.primitives import RowBudget
from kordon.codecs.produce import (
    Outcome,
    PartitionData,
    ProduceRequest,
    TopicData,
    look_produce,
)
from kordon.codecs.schema import Buffer
from kordon.proxy.decisions.runs import Client
from kordon.proxy.handlers.batch_checks import Unfit, look_records
from kordon.proxy.ordering.layout import NO_COUNT, Layout
from kordon.proxy.ordering.line import Write
from kordon.proxy.ordering.streams import is_physical, physical_stream
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.proxy.topics.targets import Target, virtual_partition
from kordon.proxy.writes.lanes import Lanes
from kordon.proxy.writes.tickets import Pending, Ticket

_ACKS: Final = frozenset({-1, 0, 1})
_WITH_TOPIC_IDS: Final = 13


class Looked(NamedTuple):
    """A Produce request that was walked over."""

    request: ProduceRequest
    managed: bool
    """Whether it names a managed topic."""
    others: bool
    """Whether it names another one."""


def refusal(code: Code, layout: Layout, layout_epoch: int) -> Code:
    """Returns with what a write is refused whose partition is not known here.

    INVALID_PARTITION_METADATA would prove that it stands nowhere (COUNT-FENCE). Whoever is behind its client cannot say
    so, and has no lease for what it knows: the client asks again.

    Args:
        code: If it stands nowhere.
        layout: The newest one that is known here.
        layout_epoch: By which the client chose the partition.
    """
    return Code.NOT_LEADER_OR_FOLLOWER if layout_epoch > layout.epoch else code


class Meant(NamedTuple):
    """How the entries of a service's clients are read."""

    target: Target
    opened_bytes: int | None


class ProduceService:
    """Serves Produce requests.

    Args:
        topics: What is managed.
        lanes: Carry the writes.
        target: What clients mean by the number of a partition.
        opened_bytes: Most bytes of records that a compressed batch may hold where others open it; see `look_records`.
    """

    def __init__(
        self,
        topics: ManagedTopics,
        lanes: Lanes,
        target: Target = virtual_partition,
        opened_bytes: int | None = None,
    ) -> None:
        self._topics = topics
        self._lanes = lanes
        self._meant = Meant(target, opened_bytes)

    def look(self, version: int, body: Buffer, rows: RowBudget | None = None) -> Looked:
        """Walks over a request; its records stay where they are, and get their identities there when they are sent.

        Raises:
            WireError: It cannot be read, or has more rows than `rows` allows.
        """
        request = look_produce(version, body, rows)
        found = {self._is_held(version, row) for row in request.topic_data}
        return Looked(request, True in found, False in found)

    async def serve(self, version: int, request: Any, client: Client) -> dict[str, Any]:
        """Writes what a request asks for; see `write`.

        Args:
            version: Of the request.
            request: Parsed by the table, with managed topics only.
            client: Who asks.

        Returns:
            The response's fields.
        """
        topics = [
            TopicData(
                row.get("name", ""),
                row.get("topic_id"),
                [PartitionData(part.index, _view(part.records)) for part in row.partition_data],
                row.get("undeleted_partition_count", NO_COUNT),
                row.get("layout_epoch", -1),
            )
            for row in request.topic_data
        ]
        transactional_id = request.get("transactional_id")
        asked = ProduceRequest(transactional_id, request.acks, request.timeout_ms, topics)
        rows = await self.write(version, asked, client)
        return {
            "responses": [
                {"name": name, "topic_id": topic_id, "partition_responses": [_fields(each) for each in outcomes]}
                for name, topic_id, outcomes in rows
            ],
            "throttle_time_ms": 0,
        }

    async def write(
        self, version: int, request: ProduceRequest, client: Client
    ) -> list[tuple[str, UUID | None, list[Outcome]]]:
        """Writes what a request asks for.

        Args:
            version: Of the request.
            request: With managed topics only.
            client: Who asks.

        Returns:
            By topic the outcomes of its entries, when all are known. With acks=0 nobody is to be told; it serves to
            wait.

        Raises:
            asyncio.CancelledError: The client went away; what is unsent is not sent any more, but with acks=0: there
                a client may well close its connection behind its last write.
        """
        intake = _Intake(version, request, self._lanes, self._meant, client)
        for row in request.topic_data:  # no await before all are in their lines: requests come in their order
            intake.topic(self._find(version, row), row)
        try:
            outcomes = iter(await intake.pending.wait())
        except asyncio.CancelledError:
            if request.acks:
                self._lanes.forsake(intake.taken)
            raise
        return [(row.name, row.topic_id, [next(outcomes) for _ in row.partition_data]) for row in request.topic_data]

    def _is_held(self, version: int, row: TopicData) -> bool:
        is_named = version < _WITH_TOPIC_IDS
        return self._topics.is_held(row.name) if is_named else self._find(version, row) is not None

    def _find(self, version: int, row: TopicData) -> ManagedTopic | None:
        if version < _WITH_TOPIC_IDS:
            return self._topics.served(row.name)
        return self._topics.served_by_id(row.topic_id) if row.topic_id is not None else None


class _Intake:
    """Takes a request's entries into their lines."""

    def __init__(self, version: int, request: ProduceRequest, lanes: Lanes, meant: Meant, client: Client) -> None:
        self.pending = Pending(client)
        self.taken: list[tuple[ManagedTopic, Write]] = []
        self._version = version
        self._lanes = lanes
        self._target, self._opened_bytes = meant
        self._acks = request.acks
        self._timeout_ms = request.timeout_ms
        self._now = asyncio.get_running_loop().time()

    def topic(self, topic: ManagedTopic | None, row: TopicData) -> None:
        """Takes all of a topic."""
        unknown = Code.UNKNOWN_TOPIC_ID if self._version >= _WITH_TOPIC_IDS else Code.UNKNOWN_TOPIC_OR_PARTITION
        # With a count, a client that has met a proxy which speaks the dialect means physical partitions.
        is_mistaken = row.undeleted_partition_count != NO_COUNT and self._target is virtual_partition
        for number, records in row.partition_data:
            if topic is None or is_mistaken:
                self._refuse(topic, row.name, Outcome(number, Code.INVALID_REQUEST if is_mistaken else unknown))
            else:
                self._partition(topic, number, records, row)

    def _partition(self, topic: ManagedTopic, number: int, records: memoryview | None, row: TopicData) -> None:
        stream = self._target(topic.layout, number)
        if isinstance(stream, Code):
            self._refuse(topic, row.name, Outcome(number, refusal(stream, topic.layout, row.layout_epoch)))
            return
        if self._acks not in _ACKS:
            self._refuse(topic, row.name, Outcome(number, Code.INVALID_REQUIRED_ACKS))
            return
        batch = look_records(self._version, records, self._opened_bytes)
        if isinstance(batch, Unfit) or records is None:
            assert isinstance(batch, Unfit), "without records there is no batch"
            self._refuse(topic, row.name, Outcome(number, batch.code, error_message=batch.message))
            return
        ticket = Ticket(self.pending, self.pending.place(), records, self._timeout_ms)
        acks = -1 if self._acks < 0 else 1  # LENT-IDENTITY: the answer to acks=0 is waited for, here
        write = Write(*batch, size=len(records), acks=acks, since=self._now, payload=ticket)
        if is_physical(stream):
            write.undeleted_partition_count, write.layout_epoch = row.undeleted_partition_count, row.layout_epoch
        self.taken.append((topic, write))
        self._lanes.add(topic, stream, write)

    def _refuse(self, topic: ManagedTopic | None, name: str, outcome: Outcome) -> None:
        self.pending.place(outcome)
        stream = outcome.partition if self._target is virtual_partition else physical_stream(outcome.partition)
        self._lanes.decisions.unfit(self.pending.client, topic, name, stream, outcome.error_code)


def _view(records: bytes | None) -> memoryview | None:
    return None if records is None else memoryview(bytearray(records))


def _fields(outcome: Outcome) -> dict[str, Any]:
    return {
        "index": outcome.partition,
        "error_code": outcome.error_code,
        "base_offset": outcome.base_offset,
        "log_append_time_ms": outcome.log_append_time_ms,
        "log_start_offset": outcome.log_start_offset,
        "record_errors": [
            {"batch_index": index, "batch_index_error_message": message} for index, message in outcome.record_errors
        ],
        "error_message": outcome.error_message,
    }
