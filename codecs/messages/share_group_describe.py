"""ShareGroupDescribe, api key 77."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from kordon.codecs.primitives import BOOL, GROUP_ID, INT16, INT32, STRING, TOPIC_ID, TOPIC_NAME
from kordon.codecs.schema import Api, Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[ShareGroupDescribeRequest]] = message(
    "ShareGroupDescribeRequest",
    field("group_ids", array(GROUP_ID), "0+"),
    field("include_authorized_operations", BOOL, "0+"),
    key=77, versions="1", flexible="0+",
)

TOPIC_PARTITIONS = struct(
    field("topic_id", TOPIC_ID, "0+"),
    field("topic_name", TOPIC_NAME, "0+"),
    field("partitions", array(INT32), "0+"),
)

ASSIGNMENT = struct(
    field("topic_partitions", array(TOPIC_PARTITIONS), "0+"),
)

RESPONSE: Final[Message[ShareGroupDescribeResponse]] = message(
    "ShareGroupDescribeResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("groups", array(struct(
        field("error_code", INT16, "0+"),
        field("error_message", STRING, "0+", nullable="0+", default=None),
        field("group_id", GROUP_ID, "0+"),
        field("group_state", STRING, "0+"),
        field("group_epoch", INT32, "0+"),
        field("assignment_epoch", INT32, "0+"),
        field("assignor_name", STRING, "0+"),
        field("members", array(struct(
            field("member_id", STRING, "0+"),
            field("rack_id", STRING, "0+", nullable="0+", default=None),
            field("member_epoch", INT32, "0+"),
            field("client_id", STRING, "0+"),
            field("client_host", STRING, "0+"),
            field("subscribed_topic_names", array(TOPIC_NAME), "0+"),
            field("assignment", ASSIGNMENT, "0+"),
        )), "0+"),
        field("authorized_operations", INT32, "0+", default=-2147483648),
    )), "0+"),
    key=77, versions="1", flexible="0+",
)

API: Final = Api(REQUEST, RESPONSE)
