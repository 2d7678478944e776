"""Questions about physical partitions, each put to the partition's leader, together with what else is asked of it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from kordon.codecs.error_codes import Code
from kordon.codecs.messages import api
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.broker_connections import BrokerConnections
from kordon.proxy.kafka.leaders import NO_NODE, Leader, Leaders

_T = TypeVar("_T")

_ATTEMPTS: Final = 2
_ELSEWHERE: Final = frozenset(
    {Code.UNKNOWN_TOPIC_OR_PARTITION, Code.LEADER_NOT_AVAILABLE, Code.NOT_LEADER_OR_FOLLOWER, Code.KAFKA_STORAGE_ERROR}
)
"""Answers that another broker may give otherwise."""

Row: TypeAlias = Mapping[str, Any]
"""What a broker says of a partition; `error_code` is always there."""


class PartitionQuestion(NamedTuple):
    """What is asked of one partition. There may be thousands at once: a tuple is made and found in no time."""

    topic: str
    partition: int
    fields: tuple[tuple[str, int], ...]
    """Further fields of its row, by name."""


@dataclass(frozen=True, slots=True)
class Form:
    """How an api asks partitions' leaders; response rows are named as those of the request."""

    api_key: int
    versions: range
    topic_field: str
    partition_field: str
    purpose: str
    """The purpose of the connections. Requests that a broker may delay are kept apart from the others."""


class PartitionLeaderRequests:
    """Asks the leaders of partitions; where one does not answer, the others' answers count all the same.

    `PartitionEnds` is for whoever needs the answers of all.
    """

    def __init__(self, links: BrokerConnections, leaders: Leaders) -> None:
        self._links = links
        self._leaders = leaders

    async def ask(
        self, form: Form, questions: Collection[PartitionQuestion], fields: Mapping[str, object] | None = None
    ) -> dict[PartitionQuestion, Row]:
        """Asks, and asks once more where the leader was another one.

        Args:
            fields: The fields of the requests, without their topics.

        Returns:
            An answer to each question; where no broker gave one, with a retriable error code.
        """
        rows: dict[PartitionQuestion, Row] = {}
        left = set(questions)
        for _ in range(_ATTEMPTS):
            rows |= await self._round(form, left, fields or {})
            left = {question for question in left if rows[question]["error_code"] in _ELSEWHERE}
            if not left:
                break
            for topic in {question.topic for question in left}:
                self._leaders.forget(topic)
        return rows

    def forget(self, topic: str) -> None:
        """Makes the next question look up who leads the topic's partitions."""
        self._leaders.forget(topic)

    async def _round(
        self, form: Form, questions: Collection[PartitionQuestion], fields: Mapping[str, object]
    ) -> dict[PartitionQuestion, Row]:
        topics = sorted({question.topic for question in questions})
        found = await _together([self._leaders_of(topic) for topic in topics])
        leaders = dict(zip(topics, found, strict=True))
        by_node: defaultdict[int, list[PartitionQuestion]] = defaultdict(list)
        for question in questions:
            leader = leaders[question.topic].get(question.partition)
            by_node[leader.node_id if leader else NO_NODE].append(question)
        parts = await _together([self._ask_node(form, node, asked, fields) for node, asked in by_node.items()])
        return {question: row for part in parts for question, row in part.items()}

    async def _leaders_of(self, topic: str) -> Mapping[int, Leader]:
        try:
            return await self._leaders.of(topic)
        except UpstreamUnavailable:
            return {}

    async def _ask_node(
        self, form: Form, node_id: int, questions: Collection[PartitionQuestion], fields: Mapping[str, object]
    ) -> dict[PartitionQuestion, Row]:
        if node_id == NO_NODE:
            return _failed(questions, Code.LEADER_NOT_AVAILABLE)
        try:
            client = await self._links.to(node_id, form.purpose)
            version = client.version(form.api_key, form.versions)
            layers = list(_layers(questions))
            bodies = [{**fields, "topics": _topics(form, layer)} for layer in layers]
            answers = await _together([client.ask(api(form.api_key), version, body) for body in bodies])
        except UpstreamUnavailable:
            return _failed(questions, Code.NOT_LEADER_OR_FOLLOWER)
        rows = _failed(questions, Code.UNKNOWN_TOPIC_OR_PARTITION)
        for layer, answer in zip(layers, answers, strict=True):
            rows |= _rows(form, layer, answer)
        return rows


async def _together(work: Sequence[Awaitable[_T]]) -> list[_T]:
    """Awaits all at once; one alone without a task, which would wait for its turn in a busy loop."""
    return [await work[0]] if len(work) == 1 else await asyncio.gather(*work)


def _failed(questions: Iterable[PartitionQuestion], code: Code) -> dict[PartitionQuestion, Row]:
    return {question: {"error_code": code} for question in questions}


def _layers(questions: Iterable[PartitionQuestion]) -> Iterable[dict[tuple[str, int], PartitionQuestion]]:
    """Splits questions into requests: brokers refuse a partition that is named twice (ListOffsets)."""
    layers: list[dict[tuple[str, int], PartitionQuestion]] = []
    for question in questions:
        place = (question.topic, question.partition)
        layer = next((layer for layer in layers if place not in layer), None)
        if layer is None:
            layer = {}
            layers.append(layer)
        layer[place] = question
    return layers


def _topics(form: Form, layer: Mapping[tuple[str, int], PartitionQuestion]) -> list[dict[str, object]]:
    by_topic: defaultdict[str, list[dict[str, int]]] = defaultdict(list)
    for question in layer.values():
        by_topic[question.topic].append({form.partition_field: question.partition, **dict(question.fields)})
    return [{form.topic_field: topic, "partitions": rows} for topic, rows in by_topic.items()]


def _rows(form: Form, layer: Mapping[tuple[str, int], PartitionQuestion], answer: Any) -> dict[PartitionQuestion, Row]:
    return {
        layer[topic[form.topic_field], row[form.partition_field]]: row
        for topic in answer["topics"]
        for row in topic.partitions
    }
