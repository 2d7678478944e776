"""CreateAcls, api key 30."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import CreateAclsRequest, CreateAclsResponse
from kordon.codecs.primitives import INT8, INT16, INT32, RESOURCE_NAME, STRING
from kordon.codecs.schema import Api, Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[CreateAclsRequest]] = message(
    "CreateAclsRequest",
    field("creations", array(struct(
        field("resource_type", INT8, "0+"),
        field("resource_name", RESOURCE_NAME, "0+"),
        field("resource_pattern_type", INT8, "1+", default=3),
        field("principal", STRING, "0+"),
        field("host", STRING, "0+"),
        field("operation", INT8, "0+"),
        field("permission_type", INT8, "0+"),
    )), "0+"),
    key=30, versions="0-3", flexible="2+",
)

RESPONSE: Final[Message[CreateAclsResponse]] = message(
    "CreateAclsResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("results", array(struct(
        field("error_code", INT16, "0+"),
        field("error_message", STRING, "0+", nullable="0+"),
    )), "0+"),
    key=30, versions="0-3", flexible="2+",
)

API: Final = Api(REQUEST, RESPONSE)
