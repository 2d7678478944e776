"""DeleteTopics, api key 20."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import DeleteTopicsRequest, DeleteTopicsResponse
from kordon.codecs.primitives import INT16, INT32, STRING, TOPIC_ID, TOPIC_NAME
from kordon.codecs.schema import Api, Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[DeleteTopicsRequest]] = message(
    "DeleteTopicsRequest",
    field("topics", array(struct(
        field("name", TOPIC_NAME, "6+", nullable="6+", default=None),
        field("topic_id", TOPIC_ID, "6+"),
    )), "6+"),
    field("topic_names", array(TOPIC_NAME), "0-5"),
    field("timeout_ms", INT32, "0+"),
    key=20, versions="0-6", flexible="4+",
)

RESPONSE: Final[Message[DeleteTopicsResponse]] = message(
    "DeleteTopicsResponse",
    field("throttle_time_ms", INT32, "1+"),
    field("responses", array(struct(
        field("name", TOPIC_NAME, "0+", nullable="6+"),
        field("topic_id", TOPIC_ID, "6+"),
        field("error_code", INT16, "0+"),
        field("error_message", STRING, "5+", nullable="5+", default=None),
    )), "0+"),
    key=20, versions="0-6", flexible="4+",
)

API: Final = Api(REQUEST, RESPONSE)
