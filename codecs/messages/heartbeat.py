"""Heartbeat, api key 12."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import HeartbeatRequest, HeartbeatResponse
from kordon.codecs.primitives import GROUP_ID, INT16, INT32, STRING
from kordon.codecs.schema import Api, Message, field, message

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[HeartbeatRequest]] = message(
    "HeartbeatRequest",
    field("group_id", GROUP_ID, "0+"),
    field("generation_id", INT32, "0+"),
    field("member_id", STRING, "0+"),
    field("group_instance_id", STRING, "3+", nullable="3+", default=None),
    key=12, versions="0-4", flexible="4+",
)

RESPONSE: Final[Message[HeartbeatResponse]] = message(
    "HeartbeatResponse",
    field("throttle_time_ms", INT32, "1+"),
    field("error_code", INT16, "0+"),
    key=12, versions="0-4", flexible="4+",
)

API: Final = Api(REQUEST, RESPONSE)
