"""DescribeAcls, api key 29."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import DescribeAclsRequest, DescribeAclsResponse
from kordon.codecs.primitives import INT8, INT16, INT32, RESOURCE_NAME, STRING
from kordon.codecs.schema import Api, Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[DescribeAclsRequest]] = message(
    "DescribeAclsRequest",
    field("resource_type_filter", INT8, "0+"),
    field("resource_name_filter", RESOURCE_NAME, "0+", nullable="0+"),
    field("pattern_type_filter", INT8, "1+", default=3),
    field("principal_filter", STRING, "0+", nullable="0+"),
    field("host_filter", STRING, "0+", nullable="0+"),
    field("operation", INT8, "0+"),
    field("permission_type", INT8, "0+"),
    key=29, versions="0-3", flexible="2+",
)

RESPONSE: Final[Message[DescribeAclsResponse]] = message(
    "DescribeAclsResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("error_code", INT16, "0+"),
    field("error_message", STRING, "0+", nullable="0+"),
    field("resources", array(struct(
        field("resource_type", INT8, "0+"),
        field("resource_name", RESOURCE_NAME, "0+"),
        field("pattern_type", INT8, "1+", default=3),
        field("acls", array(struct(
            field("principal", STRING, "0+"),
            field("host", STRING, "0+"),
            field("operation", INT8, "0+"),
            field("permission_type", INT8, "0+"),
        )), "0+"),
    )), "0+"),
    key=29, versions="0-3", flexible="2+",
)

API: Final = Api(REQUEST, RESPONSE)
