"""CreatePartitions, api key 37."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import CreatePartitionsRequest, CreatePartitionsResponse
from kordon.codecs.primitives import BOOL, INT16, INT32, STRING, TOPIC_NAME
from kordon.codecs.schema import Api, Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[CreatePartitionsRequest]] = message(
    "CreatePartitionsRequest",
    field("topics", array(struct(
        field("name", TOPIC_NAME, "0+"),
        field("count", INT32, "0+"),
        field("assignments", array(struct(
            field("broker_ids", array(INT32), "0+"),
        )), "0+", nullable="0+"),
    )), "0+"),
    field("timeout_ms", INT32, "0+"),
    field("validate_only", BOOL, "0+"),
    key=37, versions="0-3", flexible="2+",
)

RESPONSE: Final[Message[CreatePartitionsResponse]] = message(
    "CreatePartitionsResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("results", array(struct(
        field("name", TOPIC_NAME, "0+"),
        field("error_code", INT16, "0+"),
        field("error_message", STRING, "0+", nullable="0+", default=None),
    )), "0+"),
    key=37, versions="0-3", flexible="2+",
)

API: Final = Api(REQUEST, RESPONSE)
