"""ShareGroupHeartbeat, api key 76."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kordon.codecs.primitives import GROUP_ID, INT16, INT32, STRING, TOPIC_ID, TOPIC_NAME
from kordon.codecs.schema import Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[ShareGroupHeartbeatRequest]] = message(
    "ShareGroupHeartbeatRequest",
    field("group_id", GROUP_ID, "0+"),
    field("member_id", STRING, "0+"),
    field("member_epoch", INT32, "0+"),
    field("rack_id", STRING, "0+", nullable="0+", default=None),
    field("subscribed_topic_names", array(TOPIC_NAME), "0+", nullable="0+", default=None),
    key=76, versions="1", flexible="0+",
)

TOPIC_PARTITIONS = struct(
    field("topic_id", TOPIC_ID, "0+"),
    field("partitions", array(INT32), "0+"),
)

RESPONSE: Final[Message[ShareGroupHeartbeatResponse]] = message(
    "ShareGroupHeartbeatResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("error_code", INT16, "0+"),
    field("error_message", STRING, "0+", nullable="0+", default=None),
    field("member_id", STRING, "0+", nullable="0+", default=None),
    field("member_epoch", INT32, "0+"),
    field("heartbeat_interval_ms", INT32, "0+"),
    field("assignment", struct(
        field("topic_partitions", array(TOPIC_PARTITIONS), "0+"),
    ), "0+", nullable="0+", default=None),
    key=76, versions="1", flexible="0+",
)
