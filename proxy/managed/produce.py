"""Produce of managed topics."""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple
from uuid import UUID

from kordon.codecs.produce import (
    Outcome,
    PartitionData,
    ProduceRequest,
    TopicData,
    look_produce,
)
from kordon.codecs.schema import Buffer
from kordon.proxy.control.codes import Code
from kordon.proxy.managed.batch_checks import Unfit, look_records
from kordon.proxy.managed.course import Pending, Ticket
from kordon.proxy.managed.lanes import Lanes
from kordon.proxy.managed.topics import ManagedTopic, ManagedTopics
from kordon.proxy.ordering.line import Write

_ACKS: Final = frozenset({-1, 0, 1})
_WITH_TOPIC_IDS: Final = 13


class Looked(NamedTuple):
    """A Produce request that was walked over."""

    request: ProduceRequest
    managed: bool
    """Whether it names a managed topic."""
    others: bool
    """Whether it names another one."""


class ProduceService:
    """Serves Produce requests.

    Args:
        topics: What is managed.
        lanes: Carry the writes.
    """

    def __init__(self, topics: ManagedTopics, lanes: Lanes) -> None:
        self._topics = topics
        self._lanes = lanes

    def look(self, version: int, body: Buffer) -> Looked:
        """Walks over a request; its records stay where they are, and get their identities there when they are sent.

        Raises:
            WireError: It cannot be read.
        """
        request = look_produce(version, body)
        found = {self._find(version, row) is not None for row in request.topic_data}
        return Looked(request, True in found, False in found)

    async def serve(self, version: int, request: Any) -> dict[str, Any]:
        """Writes what a request asks for; see `write`.

        Args:
            version: Of the request.
            request: Parsed by the table, with managed topics only.

        Returns:
            The response's fields.
        """
        topics = [
            TopicData(
                row.get("name", ""),
                row.get("topic_id"),
                [PartitionData(part.index, _view(part.records)) for part in row.partition_data],
            )
            for row in request.topic_data
        ]
        transactional_id = request.get("transactional_id")
        rows = await self.write(version, ProduceRequest(transactional_id, request.acks, request.timeout_ms, topics))
        return {
            "responses": [
                {"name": name, "topic_id": topic_id, "partition_responses": [_fields(each) for each in outcomes]}
                for name, topic_id, outcomes in rows
            ],
            "throttle_time_ms": 0,
        }

    async def write(self, version: int, request: ProduceRequest) -> list[tuple[str, UUID | None, list[Outcome]]]:
        """Writes what a request asks for.

        Args:
            version: Of the request.
            request: With managed topics only.

        Returns:
            By topic the outcomes of its entries, when all are known. With acks=0 nobody is to be told; it serves to
            wait.

        Raises:
            asyncio.CancelledError: The client went away; what is unsent is not sent any more, but with acks=0: there
                a client may well close its connection behind its last write.
        """
        intake = _Intake(version, request, self._lanes)
        for row in request.topic_data:  # no await before all are in their lines: requests come in their order
            intake.topic(self._find(version, row), row)
        try:
            outcomes = iter(await intake.pending.wait())
        except asyncio.CancelledError:
            if request.acks:
                self._lanes.forsake(intake.taken)
            raise
        return [
            (name, topic_id, [next(outcomes) for _ in partitions]) for name, topic_id, partitions in request.topic_data
        ]

    def _find(self, version: int, row: TopicData) -> ManagedTopic | None:
        if version < _WITH_TOPIC_IDS:
            return self._topics.served(row.name)
        return self._topics.served_by_id(row.topic_id) if row.topic_id is not None else None


class _Intake:
    """Takes a request's entries into their lines."""

    def __init__(self, version: int, request: ProduceRequest, lanes: Lanes) -> None:
        self.pending = Pending()
        self.taken: list[tuple[ManagedTopic, Write]] = []
        self._version = version
        self._lanes = lanes
        self._acks = request.acks
        self._timeout_ms = request.timeout_ms
        self._now = asyncio.get_running_loop().time()

    def topic(self, topic: ManagedTopic | None, row: TopicData) -> None:
        """Takes all of a topic."""
        for v, records in row.partition_data:
            if topic is None:
                code = Code.UNKNOWN_TOPIC_ID if self._version >= _WITH_TOPIC_IDS else Code.UNKNOWN_TOPIC_OR_PARTITION
                self.pending.place(Outcome(v, code))
            else:
                self._partition(topic, v, records)

    def _partition(self, topic: ManagedTopic, v: int, records: memoryview | None) -> None:
        if not 0 <= v < topic.layout.v_count or topic.layout.homes[v] is None:
            self.pending.place(Outcome(v, Code.UNKNOWN_TOPIC_OR_PARTITION))
            return
        if self._acks not in _ACKS:
            self.pending.place(Outcome(v, Code.INVALID_REQUIRED_ACKS))
            return
        batch = look_records(self._version, records)
        if isinstance(batch, Unfit) or records is None:
            assert isinstance(batch, Unfit), "without records there is no batch"
            self.pending.place(Outcome(v, batch.code, error_message=batch.message))
            return
        ticket = Ticket(self.pending, self.pending.place(), records, self._timeout_ms)
        acks = -1 if self._acks < 0 else 1  # rule I5: the answer to acks=0 is waited for, here
        write = Write(*batch, size=len(records), acks=acks, since=self._now, payload=ticket)
        self.taken.append((topic, write))
        self._lanes.add(topic, v, write)


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
