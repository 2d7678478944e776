"""Produce of managed topics."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from uuid import UUID

from kordon.codecs.produce import Outcome
from kordon.codecs.schema import Buffer
from kordon.proxy.control.codes import Code
from kordon.proxy.managed.batch_checks import Unfit, look_records
from kordon.proxy.managed.course import Pending, Ticket
from kordon.proxy.managed.lanes import Lanes
from kordon.proxy.managed.topics import ManagedTopic, ManagedTopics
from kordon.proxy.ordering.line import Write

_ACKS: Final = frozenset({-1, 0, 1})
_WITH_TOPIC_IDS: Final = 13


class ProduceService:
    """Serves Produce requests.

    Args:
        topics: What is managed.
        lanes: Carry the writes.
    """

    def __init__(self, topics: ManagedTopics, lanes: Lanes) -> None:
        self._topics = topics
        self._lanes = lanes

    async def serve(self, version: int, request: Any) -> dict[str, Any]:
        """Writes what a request asks for.

        Args:
            version: Of the request.
            request: Parsed, with managed topics only.

        Returns:
            The response's fields, when all has an outcome. With acks=0 nobody is to be told; it serves to wait.

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
        return {"responses": [_row(version, row, outcomes) for row in request.topic_data], "throttle_time_ms": 0}

    def _find(self, version: int, row: Any) -> ManagedTopic | None:
        if version < _WITH_TOPIC_IDS:
            return self._topics.named(row.name)
        topic_id = row.topic_id
        return self._topics.with_face_id(topic_id) if isinstance(topic_id, UUID) else None


class _Intake:
    """Takes a request's entries into their lines."""

    def __init__(self, version: int, request: Any, lanes: Lanes) -> None:
        self.pending = Pending()
        self.taken: list[tuple[ManagedTopic, Write]] = []
        self._version = version
        self._lanes = lanes
        self._acks: int = request.acks
        self._timeout_ms: int = request.timeout_ms
        self._now = asyncio.get_running_loop().time()

    def topic(self, topic: ManagedTopic | None, row: Any) -> None:
        """Takes all of a topic."""
        for part in row.partition_data:
            if topic is None:
                code = Code.UNKNOWN_TOPIC_ID if self._version >= _WITH_TOPIC_IDS else Code.UNKNOWN_TOPIC_OR_PARTITION
                self.pending.place(Outcome(part.index, code))
            else:
                self._partition(topic, part.index, part.records)

    def _partition(self, topic: ManagedTopic, v: int, records: Buffer | None) -> None:
        if not 0 <= v < topic.layout.v_count or topic.layout.homes[v] is None:
            self.pending.place(Outcome(v, Code.UNKNOWN_TOPIC_OR_PARTITION))
            return
        if self._acks not in _ACKS:
            self.pending.place(Outcome(v, Code.INVALID_REQUIRED_ACKS))
            return
        batch = look_records(self._version, records)
        if isinstance(batch, Unfit):
            self.pending.place(Outcome(v, batch.code, error_message=batch.message))
            return
        assert records is not None, "or else there is no batch"
        ticket = Ticket(self.pending, self.pending.place(), memoryview(records), self._timeout_ms)
        acks = -1 if self._acks < 0 else 1  # rule I5: the answer to acks=0 is waited for, here
        write = Write(*batch, size=len(records), acks=acks, since=self._now, payload=ticket)
        self.taken.append((topic, write))
        self._lanes.add(topic, v, write)


def _row(version: int, row: Any, outcomes: Any) -> dict[str, Any]:
    """Makes a topic's row of the response; outcomes come in the order of the request."""
    named = {"topic_id": row.topic_id} if version >= _WITH_TOPIC_IDS else {"name": row.name}
    return named | {"partition_responses": [_partition(next(outcomes)) for _ in row.partition_data]}


def _partition(outcome: Outcome) -> dict[str, Any]:
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
