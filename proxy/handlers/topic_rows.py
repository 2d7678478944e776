"""Requests with a row per topic that Kordon answers itself: taken apart, and their answers put together."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import ClassVar, Generic, NamedTuple
from uuid import UUID

from kordon.codecs.messages import response
from kordon.codecs.row import Row
from kordon.proxy.core.waiting import Answer, Body
from kordon.proxy.decisions.runs import Client
from kordon.proxy.handlers.api_handler import ApiHandler, AskedT, Handled, HeldRequest, ServedRequest, ToldT
from kordon.proxy.kafka.operations import Operation
from kordon.proxy.topics.managed_topics import ManagedTopics


class TopicRows(NamedTuple):
    """The fields in which a request names topics and partitions, and those of its response.

    Attributes:
        asked: The field of the request with a row per topic.
        name: The field of such a row with the topic's name, in versions that have names.
        answered: The field of the response with a row per topic.
        partitions: The field of a topic's row in the request with a row per partition.
        number: The field of such a row with the partition's number.
        answered_partitions: The same in the response.
        answered_number: The same in the response.
        error: Further fields of a partition that is refused.
    """

    asked: str
    name: str
    answered: str
    partitions: str = "partitions"
    number: str = "partition_index"
    answered_partitions: str = "partitions"
    answered_number: str = "partition_index"
    error: Mapping[str, object] = MappingProxyType({})

    def name_of(self, row: Row, topics: ManagedTopics) -> str:
        """Returns the name of a row's topic, be it named or known by an id; "" if nobody knows it."""
        return named(row.get(self.name, ""), row.get("topic_id", None), topics)

    def is_managed(self, row: Row, topics: ManagedTopics) -> bool:
        """Whether a row names a topic that is answered for here, by name or by an id that clients know."""
        topic: str | UUID | None = row.get(self.name, "") or row.get("topic_id", None)
        return topic is not None and topics.answers_for(topic)

    def refused(self, row: Row, code: int) -> Row:
        """Returns the row of the response that refuses all partitions of a row of the request."""
        asked: Sequence[Row] = row.get(self.partitions, ())
        partitions = [{self.answered_number: each[self.number], "error_code": code, **self.error} for each in asked]
        kept = {field: row[field] for field in ("name", "topic", "topic_id") if field in row}
        return Row({**kept, self.answered_partitions: partitions})

    def topics_of(self, answer: Row) -> Sequence[Row]:
        """Returns the rows of a response's topics."""
        return answer.get(self.answered, ())


def named(name: str, topic_id: UUID | None, topics: ManagedTopics) -> str:
    """Returns the name of a topic that is named, or known by an id; "" if nobody knows it."""
    if name or topic_id is None:
        return name
    topic = topics.served_by_id(topic_id)
    return topic.name if topic is not None else topics.sources.name_of(topic_id)


class ServedApi(ApiHandler, Generic[AskedT, ToldT]):
    """A handler that answers for managed topics by itself, while the broker answers for the others."""

    rows: ClassVar[TopicRows]
    right: ClassVar[Operation]
    """What a client must be allowed to do with a managed topic (RIGHTS-FIRST)."""
    records_itself: ClassVar[bool] = False
    """Whether `serve` records what it refuses, with what that rests on."""

    @abstractmethod
    async def serve(self, version: int, request: AskedT, client: Client) -> ToldT:
        """Answers a request that names managed topics only."""
        ...

    def decide(self, held: HeldRequest) -> Handled:
        """Takes managed topics out of a request; it passes if it names none."""
        value: AskedT = held.read()
        managed: list[Row] = []
        others: list[Row] = []
        for row in value.get(self.rows.asked, list[Row]()):
            (managed if self.rows.is_managed(row, held.topics) else others).append(row)
        if not managed:
            return None
        restricted = value.copy()
        restricted.update({self.rows.asked: managed})
        return ServedTopics(self, held, restricted, rest=self.leave(held, value, others))

    def leave(self, held: HeldRequest, value: AskedT, others: Sequence[Row]) -> bytes | None:
        """Returns the body of what the broker is asked; None: nothing.

        Args:
            value: The same, read; changed.
            others: The rows of topics that are not managed.
        """
        if not others:
            return None
        value.update({self.rows.asked: others})
        return held.build(value)

    def refused(self, row: Row, code: int) -> Row:
        """Returns the row of the response that refuses a topic."""
        return self.rows.refused(row, code)

    async def answer(self, asked: ServedTopics[AskedT, ToldT], part: Awaitable[ToldT] | None) -> Answer:
        """Returns the response to a request."""
        return self.built_later(asked.held, await self.merged(asked, part))

    async def merged(self, asked: ServedTopics[AskedT, ToldT], part: Awaitable[ToldT] | None) -> Row:
        """Returns what Kordon answers for managed topics and the broker for the others, as one response."""
        served, answered = await self.told(asked), self.rows.answered
        if part is None:
            return served
        others = await part
        others[answered] = [*self.rows.topics_of(others), *self.rows.topics_of(served)]
        others["throttle_time_ms"] = max(others.get("throttle_time_ms", 0), served.get("throttle_time_ms", 0))
        return others

    def built_later(self, held: HeldRequest, answer: Row) -> Callable[[], Body]:
        """Returns what builds the response."""
        return partial(response(self.key).build_pieces, held.version, answer)

    async def told(self, asked: ServedTopics[AskedT, ToldT]) -> Row:
        """Returns the response for managed topics, refused ones included."""
        answered = self.rows.answered
        if not asked.rows:
            return Row({answered: asked.refused})
        served = await self.serve(asked.held.version, asked.value, asked.held.client)
        if not self.records_itself:
            await asked.held.record_errors(served)
        if asked.refused:
            served[answered] = [*self.rows.topics_of(served), *asked.refused]
        return served


class ServedTopics(ServedRequest, Generic[AskedT, ToldT]):
    """The managed topics of a request.

    Args:
        value: The same, parsed, with managed topics only.
        rest: The body of what the broker is asked besides.
        refused: Rows of the response for topics that are refused already.
    """

    def __init__(
        self,
        handler: ServedApi[AskedT, ToldT],
        held: HeldRequest,
        value: AskedT,
        *,
        rest: bytes | None = None,
        refused: Sequence[Row] = (),
    ) -> None:
        self.held = held
        self.value = value
        self.rest = rest
        self.refused = refused
        self.right = handler.right
        self._handler = handler

    @property
    def rows(self) -> Sequence[Row]:
        """The topics that are not refused."""
        return self.value.get(self._handler.rows.asked, ())

    def names(self) -> Iterable[str]:
        """Returns the names of the topics that are not refused."""
        return (self._handler.rows.name_of(row, self.held.topics) for row in self.rows)

    def refuse(self, codes: Mapping[str, int]) -> ServedTopics[AskedT, ToldT]:
        """Replaces rows of the request by rows of the response."""
        handler, refused = self._handler, [*self.refused]
        left: list[Row] = []
        for row in self.rows:
            if code := codes.get(handler.rows.name_of(row, self.held.topics)):
                refused.append(handler.refused(row, code))
            else:
                left.append(row)
        allowed = self.value.copy()
        allowed.update({handler.rows.asked: left})
        return ServedTopics(handler, self.held, allowed, rest=self.rest, refused=refused)

    async def answer(self, part: Awaitable[ToldT] | None) -> Answer:
        """Has the handler answer."""
        return await self._handler.answer(self, part)
