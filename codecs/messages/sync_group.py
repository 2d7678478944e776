"""SyncGroup, api key 14."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import SyncGroupRequest, SyncGroupResponse
from kordon.codecs.primitives import BYTES, GROUP_ID, INT16, INT32, STRING
from kordon.codecs.schema import Api, Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[SyncGroupRequest]] = message(
    "SyncGroupRequest",
    field("group_id", GROUP_ID, "0+"),
    field("generation_id", INT32, "0+"),
    field("member_id", STRING, "0+"),
    field("group_instance_id", STRING, "3+", nullable="3+", default=None),
    field("protocol_type", STRING, "5+", nullable="5+", default=None),
    field("protocol_name", STRING, "5+", nullable="5+", default=None),
    field("assignments", array(struct(
        field("member_id", STRING, "0+"),
        field("assignment", BYTES, "0+"),
    )), "0+"),
    key=14, versions="0-5", flexible="4+",
)

RESPONSE: Final[Message[SyncGroupResponse]] = message(
    "SyncGroupResponse",
    field("throttle_time_ms", INT32, "1+"),
    field("error_code", INT16, "0+"),
    field("protocol_type", STRING, "5+", nullable="5+", default=None),
    field("protocol_name", STRING, "5+", nullable="5+", default=None),
    field("assignment", BYTES, "0+"),
    key=14, versions="0-5", flexible="4+",
)

API: Final = Api(REQUEST, RESPONSE)
