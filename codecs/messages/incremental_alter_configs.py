"""IncrementalAlterConfigs, api key 44."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from kordon.codecs.primitives import BOOL, INT8, INT16, INT32, RESOURCE_NAME, STRING
from kordon.codecs.schema import Api, Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[IncrementalAlterConfigsRequest]] = message(
    "IncrementalAlterConfigsRequest",
    field("resources", array(struct(
        field("resource_type", INT8, "0+"),
        field("resource_name", RESOURCE_NAME, "0+"),
        field("configs", array(struct(
            field("name", STRING, "0+"),
            field("config_operation", INT8, "0+"),
            field("value", STRING, "0+", nullable="0+"),
        )), "0+"),
    )), "0+"),
    field("validate_only", BOOL, "0+"),
    key=44, versions="0-1", flexible="1+",
)

RESPONSE: Final[Message[IncrementalAlterConfigsResponse]] = message(
    "IncrementalAlterConfigsResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("responses", array(struct(
        field("error_code", INT16, "0+"),
        field("error_message", STRING, "0+", nullable="0+"),
        field("resource_type", INT8, "0+"),
        field("resource_name", RESOURCE_NAME, "0+"),
    )), "0+"),
    key=44, versions="0-1", flexible="1+",
)

API: Final = Api(REQUEST, RESPONSE)
