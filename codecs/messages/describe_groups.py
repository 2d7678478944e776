"""DescribeGroups, api key 15."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import DescribeGroupsRequest, DescribeGroupsResponse
from kordon.codecs.primitives import BOOL, BYTES, GROUP_ID, INT16, INT32, STRING
from kordon.codecs.schema import Api, Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[DescribeGroupsRequest]] = message(
    "DescribeGroupsRequest",
    field("groups", array(GROUP_ID), "0+"),
    field("include_authorized_operations", BOOL, "3+"),
    key=15, versions="0-6", flexible="5+",
)

RESPONSE: Final[Message[DescribeGroupsResponse]] = message(
    "DescribeGroupsResponse",
    field("throttle_time_ms", INT32, "1+"),
    field("groups", array(struct(
        field("error_code", INT16, "0+"),
        field("error_message", STRING, "6+", nullable="6+", default=None),
        field("group_id", GROUP_ID, "0+"),
        field("group_state", STRING, "0+"),
        field("protocol_type", STRING, "0+"),
        field("protocol_data", STRING, "0+"),
        field("members", array(struct(
            field("member_id", STRING, "0+"),
            field("group_instance_id", STRING, "4+", nullable="4+", default=None),
            field("client_id", STRING, "0+"),
            field("client_host", STRING, "0+"),
            field("member_metadata", BYTES, "0+"),
            field("member_assignment", BYTES, "0+"),
        )), "0+"),
        field("authorized_operations", INT32, "3+", default=-2147483648),
    )), "0+"),
    key=15, versions="0-6", flexible="5+",
)

API: Final = Api(REQUEST, RESPONSE)
