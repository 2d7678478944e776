"""ConsumerGroupDescribe, api key 69."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from kordon.codecs.primitives import BOOL, GROUP_ID, INT8, INT16, INT32, STRING, TOPIC_ID, TOPIC_NAME
from kordon.codecs.schema import Api, Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

TOPIC_PARTITIONS = struct(
    field("topic_id", TOPIC_ID, "0+"),
    field("topic_name", TOPIC_NAME, "0+"),
    field("partitions", array(INT32), "0+"),
)

ASSIGNMENT = struct(
    field("topic_partitions", array(TOPIC_PARTITIONS), "0+"),
)

REQUEST: Final[Message[ConsumerGroupDescribeRequest]] = message(
    "ConsumerGroupDescribeRequest",
    field("group_ids", array(GROUP_ID), "0+"),
    field("include_authorized_operations", BOOL, "0+"),
    key=69, versions="0-1", flexible="0+",
)

RESPONSE: Final[Message[ConsumerGroupDescribeResponse]] = message(
    "ConsumerGroupDescribeResponse",
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
            field("instance_id", STRING, "0+", nullable="0+", default=None),
            field("rack_id", STRING, "0+", nullable="0+", default=None),
            field("member_epoch", INT32, "0+"),
            field("client_id", STRING, "0+"),
            field("client_host", STRING, "0+"),
            field("subscribed_topic_names", array(TOPIC_NAME), "0+"),
            field("subscribed_topic_regex", STRING, "0+", nullable="0+", default=None),
            field("assignment", ASSIGNMENT, "0+"),
            field("target_assignment", ASSIGNMENT, "0+"),
            field("member_type", INT8, "1+", default=-1),
        )), "0+"),
        field("authorized_operations", INT32, "0+", default=-2147483648),
    )), "0+"),
    key=69, versions="0-1", flexible="0+",
)

API: Final = Api(REQUEST, RESPONSE)
