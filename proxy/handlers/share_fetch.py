"""ShareFetch: Kordon gives members of share groups records of managed topics, each key in order (KIP-932).

Clients need the right to read the topic, and the group as their broker says. A session may name managed topics and
others. The broker has the others, and answers for them at once; Kordon waits no longer than 0.1 s for the managed ones
then.

Batches of which a member is given some records only are built again. What a member asks for is a bound for all
partitions (`max_records`), whether it says so (`share_acquire_mode`) or not.

Source: ShareFetchRequest.json, KafkaApis.handleShareFetchRequest (Kafka 4.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kordon.codecs import apis
from kordon.codecs.bodies import (
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchResponseAcquiredRecord,
    ShareFetchResponseCurrentLeader,
    ShareFetchResponsePartition,
    ShareFetchResponseTopic,
)
from kordon.codecs.error_codes import Code
from kordon.proxy.handlers.api_handler import HeldRequest
from kordon.proxy.handlers.share_requests import FINAL, INITIAL, ManagedPart, ServedShare, ShareApi, by_topic
from kordon.proxy.handlers.share_serving import ServedPartition, ShareLimits
from kordon.proxy.handlers.share_sessions import ShareSession, VirtualPartition
from kordon.proxy.ordering.share.acquiring import GivenRecord
from kordon.proxy.topics.managed_topics import ManagedTopics

_MOST_WAIT_MS: Final = 60_000
"""Longer no request waits, whatever it asks for; its client comes again."""


class ShareFetch(ShareApi):
    """Gives records, and takes what members make of those before."""

    key = apis.SHARE_FETCH
    begins_sessions = True

    def take_out(self, value: ShareFetchRequest, topics: ManagedTopics) -> ManagedPart:
        """Takes managed topics out of a request, also those that it wants no more."""
        part = super().take_out(value, topics)
        others = []
        for row in value.forgotten_topics_data:
            if topics.answers_for(row.topic_id):
                part.forgotten += [VirtualPartition(row.topic_id, number) for number in row.partitions]
            else:
                others.append(row)
        value.forgotten_topics_data = others
        return part

    def note(self, session: ShareSession, value: ShareFetchRequest, part: ManagedPart) -> None:
        """Takes in which partitions the session names from now on."""
        super().note(session, value, part)
        if value.share_session_epoch == FINAL:
            return
        for which in part.named:
            if which not in part.unknown:
                session.partitions[which] = None
        for which in part.forgotten:
            session.partitions.pop(which, None)

    def served(
        self, held: HeldRequest, value: ShareFetchRequest, part: ManagedPart, session: ShareSession
    ) -> ServedShare:
        """Returns the request that is to be served."""
        limits = ShareLimits(min(max(value.max_wait_ms, 0), _MOST_WAIT_MS), max(value.max_records, 0), value.max_bytes)
        value.max_wait_ms = 0
        return _ServedFetch(self, held, value, part, session, limits=limits)


class _ServedFetch(ServedShare):
    """A ShareFetch about managed topics."""

    def __init__(
        self,
        handler: ShareFetch,
        held: HeldRequest,
        value: ShareFetchRequest,
        part: ManagedPart,
        session: ShareSession,
        *,
        limits: ShareLimits,
    ) -> None:
        super().__init__(handler, held, value, part, session)
        self._limits = limits

    async def serve(self, told: ShareFetchResponse) -> None:
        """Takes acknowledgements first, and gives records then."""
        if self.part.said and self.epoch == INITIAL:
            told.error_code = int(Code.INVALID_REQUEST)
            told.error_message = "the first request of a session acknowledges nothing"
            told.responses = []
            return
        rows = {which: _row(which, acknowledge=code) for which, code in (await self.acknowledged()).items()}
        wanted = [] if self.epoch == FINAL or self.is_renewal else [*self.session.partitions, *self.part.unknown]
        open_ = list[VirtualPartition]()
        for which in wanted:
            if code := self.refusal(which):
                rows[which] = _row(which, error=code, acknowledge=_said(rows.get(which)))
            else:
                open_.append(which)
        if open_:
            self.session.turn()
            for which, row in (await self._given(open_, told, has_rows=bool(rows))).items():
                row.acknowledge_error_code = _said(rows.get(which))
                rows[which] = row
        topics = by_topic(rows).items()
        told.responses += [ShareFetchResponseTopic(topic_id=each, partitions=these) for each, these in topics]

    async def _given(
        self, wanted: Sequence[VirtualPartition], told: ShareFetchResponse, *, has_rows: bool
    ) -> dict[VirtualPartition, ShareFetchResponsePartition]:
        """Returns what the member is given; it waits for nothing if there is something to say anyway."""
        group = await self.handler.serving.opened(self.session)
        if isinstance(group, Code):
            return {which: _row(which, error=group) for which in wanted}
        told.acquisition_lock_timeout_ms = self.session.lock_ms or group.config.lock_ms
        limits = self._limits.within(self.session.client.most_fetch_bytes)
        if has_rows or _has_records(told):
            limits = limits._replace(max_wait_ms=0)
        given = await self.handler.serving.give(self.session, group, wanted, limits)
        return {each.which: _served_row(each) for each in given}


def _row(which: VirtualPartition, *, error: int = 0, acknowledge: int = 0) -> ShareFetchResponsePartition:
    return ShareFetchResponsePartition(
        partition_index=which.number,
        error_code=int(error),
        error_message=None,
        acknowledge_error_code=int(acknowledge),
        acknowledge_error_message=None,
        current_leader=ShareFetchResponseCurrentLeader(leader_id=-1, leader_epoch=-1),
        records=b"",
        acquired_records=[],
    )


def _said(row: ShareFetchResponsePartition | None) -> int:
    return row.acknowledge_error_code if row is not None else 0


def _served_row(served: ServedPartition) -> ShareFetchResponsePartition:
    row = _row(served.which, error=served.error)
    row.error_message = served.message
    row.records = b"".join(served.records)
    row.acquired_records = _acquired(served.given)
    return row


def _acquired(given: Sequence[GivenRecord]) -> list[ShareFetchResponseAcquiredRecord]:
    """Returns records as ranges of offsets that were given equally often."""
    found = list[ShareFetchResponseAcquiredRecord]()
    for offset, tries in given:
        last = found[-1] if found else None
        if last is not None and (last.last_offset + 1, last.delivery_count) == (offset, tries):
            last.last_offset = offset
        else:
            found.append(
                ShareFetchResponseAcquiredRecord(first_offset=offset, last_offset=offset, delivery_count=tries)
            )
    return found


def _has_records(told: ShareFetchResponse) -> bool:
    return any(row.acquired_records for topic in told.responses for row in topic.partitions)
