"""AlterConfigs, api key 33."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import AlterConfigsRequest, AlterConfigsResponse
from kordon.codecs.primitives import BOOL, INT8, INT16, INT32, RESOURCE_NAME, STRING
from kordon.codecs.schema import Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[AlterConfigsRequest]] = message(
    "AlterConfigsRequest",
    field("resources", array(struct(
        field("resource_type", INT8, "0+"),
        field("resource_name", RESOURCE_NAME, "0+"),
        field("configs", array(struct(
            field("name", STRING, "0+"),
            field("value", STRING, "0+", nullable="0+"),
        )), "0+"),
    )), "0+"),
    field("validate_only", BOOL, "0+"),
    key=33, versions="0-2", flexible="2+",
)

RESPONSE: Final[Message[AlterConfigsResponse]] = message(
    "AlterConfigsResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("responses", array(struct(
        field("error_code", INT16, "0+"),
        field("error_message", STRING, "0+", nullable="0+"),
        field("resource_type", INT8, "0+"),
        field("resource_name", RESOURCE_NAME, "0+"),
    )), "0+"),
    key=33, versions="0-2", flexible="2+",
)
