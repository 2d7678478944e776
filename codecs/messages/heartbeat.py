"""Heartbeat, api key 12."""

from __future__ import annotations

from kordon.codecs.primitives import GROUP_ID, INT16, INT32, STRING
from kordon.codecs.schema import field, message

# A table reads line by line like its schema.
# fmt: off

REQUEST = message(
    "HeartbeatRequest",
    field("group_id", GROUP_ID, "0+"),
    field("generation_id", INT32, "0+"),
    field("member_id", STRING, "0+"),
    field("group_instance_id", STRING, "3+", nullable="3+", default=None),
    key=12, versions="0-4", flexible="4+",
)

RESPONSE = message(
    "HeartbeatResponse",
    field("throttle_time_ms", INT32, "1+"),
    field("error_code", INT16, "0+"),
    key=12, versions="0-4", flexible="4+",
)
