"""What ShareFetch and ShareAcknowledge have in common on managed topics: sessions, rights, and the broker's part.

Each request goes to the client's broker with what is not managed, so its session goes on there. What the broker refuses
is refused. Only then is anything done for its member: brokers answer nobody who has not logged in or may not Read the
group.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final, TypeAlias, TypeVar
from uuid import UUID

from kordon.codecs.bodies import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeRequestTopic,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchRequestTopic,
    ShareFetchResponse,
)
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import response
from kordon.codecs.row import Row
from kordon.proxy.core.waiting import Answer
from kordon.proxy.handlers.api_handler import ApiHandler, Handled, HeldRequest, ServedRequest
from kordon.proxy.handlers.share_serving import ShareServing
from kordon.proxy.handlers.share_sessions import ShareSession, VirtualPartition
from kordon.proxy.handlers.topic_rows import named
from kordon.proxy.kafka.operations import Operation
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.share.acknowledging import AcknowledgementBatch
from kordon.proxy.topics.managed_topics import ManagedTopics

FINAL: Final = -1
"""The epoch of a request that ends its session."""
INITIAL: Final = 0
"""The epoch of one that begins a session."""

_Row = TypeVar("_Row", bound=Row)
ShareRequest: TypeAlias = ShareFetchRequest | ShareAcknowledgeRequest
ShareResponse: TypeAlias = ShareFetchResponse | ShareAcknowledgeResponse
ShareTopic: TypeAlias = ShareFetchRequestTopic | ShareAcknowledgeRequestTopic


@dataclass(slots=True)
class ManagedPart:
    """What a request says of managed topics.

    Attributes:
        named: All partitions that it names.
        unknown: Those of `named` that their topics do not have. No session keeps them, because a request can name very
            many.
        said: The member's acknowledgements by partition.
        forgotten: Partitions that the session is to name no more.
    """

    named: list[VirtualPartition] = field(default_factory=list[VirtualPartition])
    unknown: set[VirtualPartition] = field(default_factory=set[VirtualPartition])
    said: dict[VirtualPartition, list[AcknowledgementBatch]] = field(
        default_factory=dict[VirtualPartition, list[AcknowledgementBatch]]
    )
    forgotten: list[VirtualPartition] = field(default_factory=list[VirtualPartition])

    def __bool__(self) -> bool:
        """Whether it says anything."""
        return bool(self.named or self.forgotten)

    def add(self, topic: ShareTopic, layout: Layout) -> None:
        """Takes in a topic's row."""
        for row in topic.partitions:
            which = VirtualPartition(topic.topic_id, row.partition_index)
            self.named.append(which)
            if which.number < 0 or not layout.knows(which.number):
                self.unknown.add(which)
            if row.acknowledgement_batches:
                self.said[which] = [
                    AcknowledgementBatch(each.first_offset, each.last_offset, each.acknowledge_types)
                    for each in row.acknowledgement_batches
                ]


class ShareApi(ApiHandler):
    """Serves managed topics in one of the two APIs.

    Args:
        serving: The worker's share groups.
    """

    begins_sessions: ClassVar[bool]

    def __init__(self, serving: ShareServing) -> None:
        self.serving = serving

    def decide(self, held: HeldRequest) -> Handled:
        """Takes managed topics out of a request, and keeps the session in step with the broker's."""
        value: Any = held.read()
        part = self.take_out(value, held.topics)
        sessions, epoch = held.told.shares, value.share_session_epoch
        group_id, member_id = value.group_id or "", value.member_id or ""
        session = sessions.of(group_id, member_id)
        if epoch == INITIAL and self.begins_sessions:
            session = ShareSession(group_id, member_id, self.serving.give_back, held.client)
            sessions.begin(session)
        if session is None:
            return self.unknown(held, value) if part else None
        self.note(session, value, part)
        if not (part or session.partitions or session.held):
            if epoch == FINAL:
                sessions.drop(session)
            return None
        return self.served(held, value, part, session)

    def take_out(self, value: Any, topics: ManagedTopics) -> ManagedPart:
        """Takes managed topics out of a request; returns what it says of them."""
        part, others = ManagedPart(), []
        for row in value.topics:
            if (topic := topics.served_by_id(row.topic_id)) is not None:
                part.add(row, topic.layout)
            else:
                others.append(row)
        value.topics = others
        return part

    def note(self, session: ShareSession, value: Any, part: ManagedPart) -> None:
        """Takes in what a request changes in its session."""
        session.has_others = session.has_others or bool(value.topics)

    @abstractmethod
    def served(self, held: HeldRequest, value: Any, part: ManagedPart, session: ShareSession) -> ServedShare:
        """Returns the request that is to be served; `value` has what is not managed."""
        ...

    def unknown(self, held: HeldRequest, value: Any) -> ServedShare:
        """Returns a request that is refused, since its session was not begun on this connection."""
        value.topics = []
        value.share_session_epoch = FINAL  # the broker's session, if there is one, begins again as well
        nobody = ShareSession("", "", self.serving.give_back, held.client)
        return self.served(held, value, ManagedPart(), nobody).unknown()


class ServedShare(ServedRequest):
    """A request about managed topics.

    Args:
        value: The request to the broker.
    """

    right = Operation.READ

    def __init__(
        self, handler: ShareApi, held: HeldRequest, value: Any, part: ManagedPart, session: ShareSession
    ) -> None:
        self.handler = handler
        self.held = held
        self.part = part
        self.session = session
        self.epoch: int = value.share_session_epoch
        self.is_renewal = bool(value.get("is_renew_ack", False))
        self.denied: dict[str, int] = {}
        self.rest = held.build(value)
        self._is_unknown = False

    def unknown(self) -> ServedShare:
        """Has it refused."""
        self._is_unknown = True
        return self

    def _all(self) -> Iterator[VirtualPartition]:
        yield from self.session.partitions
        yield from self.part.named

    def name_of(self, which: VirtualPartition) -> str:
        """Returns the name of a partition's topic; "" if nobody knows it any more."""
        return named("", which.topic_id, self.held.topics)

    def names(self) -> Iterable[str]:
        """Returns the names of its topics, those of the session included."""
        return {self.name_of(which) for which in self._all()}

    def refuse(self, codes: Mapping[str, int]) -> ServedRequest:
        """Takes topics out."""
        self.denied.update(codes)
        return self

    def refusal(self, which: VirtualPartition) -> int:
        """Returns with which error a partition is refused; 0: with none."""
        if not (name := self.name_of(which)):
            return Code.UNKNOWN_TOPIC_ID
        return self.denied.get(name) or (Code.UNKNOWN_TOPIC_OR_PARTITION if which in self.part.unknown else Code.NONE)

    async def answer(self, part: Awaitable[Any] | None) -> Answer:
        """Has the handler answer what the broker does not refuse."""
        try:
            told = await self._told(part)
        finally:
            if self.epoch == FINAL:
                self.held.told.shares.drop(self.session)
                self.session.end()
        return partial(response(self.handler.key).build_pieces, self.held.version, told)

    async def _told(self, part: Awaitable[Any] | None) -> ShareResponse:
        assert part is not None, "the broker is asked always"
        told: ShareResponse = await part
        if told.error_code:
            self.held.told.shares.drop(self.session)
        elif self._is_unknown:
            told.error_code = int(Code.SHARE_SESSION_NOT_FOUND)
            told.responses = []
        else:
            if lock_ms := told.get("acquisition_lock_timeout_ms", 0):
                self.session.lock_ms = lock_ms
            async with self.session.lock:
                await self.serve(told)
        return told

    async def acknowledged(self) -> dict[VirtualPartition, int]:
        """Takes what the member makes of records; returns by partition with which code."""
        said = self.part.said
        codes = {which: self.refusal(which) for which in said}
        open_ = [which for which, code in codes.items() if not code]
        if not open_:
            return codes
        serving, session = self.handler.serving, self.session
        group = await serving.opened(session)
        if isinstance(group, Code):
            return codes | dict.fromkeys(open_, int(group))
        judged = await asyncio.gather(
            *(serving.acknowledge(session, group, each, said[each], may_renew=self.is_renewal) for each in open_)
        )
        return codes | dict(zip(open_, map(int, judged), strict=True))

    @abstractmethod
    async def serve(self, told: Any) -> None:
        """Adds the answer for managed topics to the broker's."""
        ...


def by_topic(rows: Mapping[VirtualPartition, _Row]) -> dict[UUID, list[_Row]]:
    """Returns rows of partitions by topic."""
    found: dict[UUID, list[_Row]] = {}
    for which, row in rows.items():
        found.setdefault(which.topic_id, []).append(row)
    return found
