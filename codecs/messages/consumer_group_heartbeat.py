"""ConsumerGroupHeartbeat, api key 68."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from kordon.codecs.primitives import GROUP_ID, INT16, INT32, STRING, TOPIC_ID, TOPIC_NAME
from kordon.codecs.schema import Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

TOPIC_PARTITIONS = struct(
    field("topic_id", TOPIC_ID, "0+"),
    field("partitions", array(INT32), "0+"),
)

REQUEST: Final[Message[ConsumerGroupHeartbeatRequest]] = message(
    "ConsumerGroupHeartbeatRequest",
    field("group_id", GROUP_ID, "0+"),
    field("member_id", STRING, "0+"),
    field("member_epoch", INT32, "0+"),
    field("instance_id", STRING, "0+", nullable="0+", default=None),
    field("rack_id", STRING, "0+", nullable="0+", default=None),
    field("rebalance_timeout_ms", INT32, "0+", default=-1),
    field("subscribed_topic_names", array(TOPIC_NAME), "0+", nullable="0+", default=None),
    field("subscribed_topic_regex", STRING, "1+", nullable="1+", default=None),
    field("server_assignor", STRING, "0+", nullable="0+", default=None),
    field("topic_partitions", array(struct(
        field("topic_id", TOPIC_ID, "0+"),
        field("partitions", array(INT32), "0+"),
    )), "0+", nullable="0+", default=None),
    key=68, versions="0-1", flexible="0+",
)

RESPONSE: Final[Message[ConsumerGroupHeartbeatResponse]] = message(
    "ConsumerGroupHeartbeatResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("error_code", INT16, "0+"),
    field("error_message", STRING, "0+", nullable="0+", default=None),
    field("member_id", STRING, "0+", nullable="0+", default=None),
    field("member_epoch", INT32, "0+"),
    field("heartbeat_interval_ms", INT32, "0+"),
    field("assignment", struct(
        field("topic_partitions", array(TOPIC_PARTITIONS), "0+"),
    ), "0+", nullable="0+", default=None),
    key=68, versions="0-1", flexible="0+",
)
