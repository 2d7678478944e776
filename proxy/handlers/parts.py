"""Requests that name managed topics among others: taken apart, and their answers put together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kordon.codecs import apis
from kordon.codecs.messages import request
from kordon.proxy.topics.managed_topics import ManagedTopics


@dataclass(frozen=True, slots=True)
class TopicRows:
    """Where a request names topics, and where its response does."""

    asked: str
    """The field of the request with a row per topic."""
    name: str
    """The field of such a row with the topic's name, in versions that have names."""
    answered: str
    """The field of the response with a row per topic."""


ROWS: Final[Mapping[int, TopicRows]] = {
    apis.PRODUCE: TopicRows("topic_data", "name", "responses"),
    apis.FETCH: TopicRows("topics", "topic", "responses"),
    apis.LIST_OFFSETS: TopicRows("topics", "name", "topics"),
    apis.DELETE_RECORDS: TopicRows("topics", "name", "topics"),
    apis.OFFSET_FOR_LEADER_EPOCH: TopicRows("topics", "topic", "topics"),
    apis.CONSUMER_GROUP_POSITION: TopicRows("topics", "topic", "topics"),
    apis.PARTITION_LEADER_EPOCHS: TopicRows("topics", "topic", "topics"),
}
"""By api key: the requests that Kordon answers itself where they name managed topics."""


_NO_SESSION: Final = -1
_NOTHING_READ: Final[Mapping[str, int]] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1}
"""Of a Fetch whose answer is most likely not used: that it comes soon, and is small."""


@dataclass(frozen=True, slots=True)
class RequestParts:
    """A request, taken apart."""

    managed: Any
    """The request with its managed topics only."""
    rest: bytes | None
    """Its body with the others only; None if there are none."""


def take_apart(api_key: int, version: int, value: Any, topics: ManagedTopics) -> RequestParts | None:
    """Takes the managed topics out of a request.

    Args:
        api_key: One of `ROWS`.
        version: Of the request.
        value: Parsed; changed where it has a rest.
        topics: What is managed.

    Returns:
        None if it names no managed topic.
    """
    rows = ROWS[api_key]
    managed: list[Any] = []
    others: list[Any] = []
    for row in value[rows.asked] or ():
        (managed if is_managed(row, rows.name, topics) else others).append(row)
    if not managed:
        return None
    restricted = value.copy()
    restricted.update({rows.asked: managed})
    goes_on = continues_session(api_key, restricted)
    if not (others or goes_on):
        return RequestParts(restricted, None)
    value.update({rows.asked: others})
    if goes_on:
        value.update(_NOTHING_READ)
    elif api_key == apis.FETCH:
        value.update({"session_id": 0, "session_epoch": _NO_SESSION, "forgotten_topics_data": []})
    return RequestParts(restricted, request(api_key).build(version, value))


def continues_session(api_key: int, value: Any) -> bool:
    """Whether a Fetch only says what has changed in a session that the broker keeps (KIP-227).

    A session cannot hold managed topics: such a request is answered FETCH_SESSION_ID_NOT_FOUND, upon which clients name
    all their partitions; and that is answered without a session. But who may not read the topics is told that alone, so
    the broker's session goes on.
    """
    return api_key == apis.FETCH and value.get("session_epoch", _NO_SESSION) > 0


def is_managed(row: Any, name_field: str, topics: ManagedTopics) -> bool:
    """Whether a topic's row names a topic that is answered for here, by name or by an id that clients know."""
    name = row.get(name_field)
    if name:
        return topics.is_held(name)
    topic_id = row.get("topic_id")
    return topic_id is not None and topics.served_by_id(topic_id) is not None


def merge(api_key: int, served: Mapping[str, Any], part: Any) -> dict[str, Any]:
    """Puts what Kordon answers and what the broker answered to the rest into one response.

    Args:
        api_key: One of `ROWS`.
        served: The response's fields, for managed topics.
        part: The broker's response, parsed; None if it was not asked.
    """
    if part is None:
        return dict(served)
    answered = ROWS[api_key].answered
    merged = dict(part) | {answered: [*part[answered], *served[answered]]}
    merged["throttle_time_ms"] = max(part.get("throttle_time_ms") or 0, served.get("throttle_time_ms") or 0)
    return merged
