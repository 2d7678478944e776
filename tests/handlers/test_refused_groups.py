"""Groups that cannot be had on managed topics are refused at once, and their users are told why."""

from typing import Any
from uuid import UUID

import pytest

from kordon.codecs import apis
from kordon.codecs.messages import request, response
from kordon.proxy.core import verdicts
from kordon.proxy.handlers.share_group_heartbeat import RefusedShareGroupHeartbeat
from kordon.proxy.handlers.streams_group_heartbeat import StreamsGroupHeartbeat
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.testing.messages.as_read import as_read

HANDLERS = {each.key: each for each in (RefusedShareGroupHeartbeat(), StreamsGroupHeartbeat())}
INVALID_REQUEST, TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED, UNSUPPORTED_VERSION = 42, 29, 30, 35


def refused(api_key: int, version: int, fields: dict[str, Any], broker_says: int = INVALID_REQUEST) -> Any:
    """Returns the answer to a request as a client reads it, None where the broker is asked what the client asks."""
    topics = ManagedTopics()
    topics.add(ManagedTopic(Layout.created("orders", UUID(int=1), 1, 4), UUID(int=2)))
    value = as_read(request(api_key), version, fields)
    refusal = HANDLERS[api_key].look(value, topics)
    if refusal is None:
        return None
    assert value.member_epoch < -2  # by which a broker does nothing
    table = response(api_key)
    answer = as_read(table, version, {"error_code": broker_says})
    refusal(answer)
    return as_read(table, version, answer)


def topology(**names: Any) -> dict[str, Any]:
    """Returns the topology of a streams application."""
    return {"epoch": 0, "subtopologies": [{"subtopology_id": "0", "source_topics": ["other"]}, names]}


@pytest.mark.parametrize(
    ("api_key", "fields"),
    [
        (apis.SHARE_GROUP_HEARTBEAT, {"subscribed_topic_names": ["other", "orders"]}),
        (apis.STREAMS_GROUP_HEARTBEAT, {"topology": topology(source_topics=["orders"])}),
        (apis.STREAMS_GROUP_HEARTBEAT, {"topology": topology(repartition_source_topics=[{"name": "orders"}])}),
    ],
)
def test_a_member_that_names_a_managed_topic_is_told_which(api_key: int, fields: dict[str, Any]) -> None:
    """The answer is the member's own, so that its client takes it; all versions."""
    for version in verdicts.API_BY_KEY[api_key].versions:
        answer = refused(api_key, version, {"group_id": "g", "member_id": "m", "member_epoch": 0, **fields})
        assert (answer.error_code, answer.member_id) == (INVALID_REQUEST, "m")
        assert answer.error_message.startswith("orders is a managed topic")


@pytest.mark.parametrize("code", [TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED, UNSUPPORTED_VERSION])
def test_what_the_broker_has_against_a_member_is_its_answer(code: int) -> None:
    """Who may not know of the topic, or has no such groups, is not told that it is managed."""
    fields = {"group_id": "g", "member_id": "m", "subscribed_topic_names": ["orders"]}
    answer = refused(apis.SHARE_GROUP_HEARTBEAT, 1, fields, broker_says=code)
    assert (answer.error_code, answer.error_message) == (code, None)


@pytest.mark.parametrize(
    ("api_key", "fields"),
    [
        (apis.SHARE_GROUP_HEARTBEAT, {"subscribed_topic_names": ["other"]}),
        (apis.SHARE_GROUP_HEARTBEAT, {"subscribed_topic_names": None}),
        (apis.STREAMS_GROUP_HEARTBEAT, {"topology": topology(source_topics=["other2"])}),
        (apis.STREAMS_GROUP_HEARTBEAT, {"topology": None}),
    ],
)
def test_members_on_other_topics_are_the_brokers_concern(api_key: int, fields: dict[str, Any]) -> None:
    """So are heartbeats that change nothing."""
    for version in verdicts.API_BY_KEY[api_key].versions:
        assert refused(api_key, version, fields) is None
