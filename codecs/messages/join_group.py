"""JoinGroup, api key 11."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import JoinGroupRequest, JoinGroupResponse
from kordon.codecs.primitives import BOOL, BYTES, GROUP_ID, INT16, INT32, STRING
from kordon.codecs.schema import Api, Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[JoinGroupRequest]] = message(
    "JoinGroupRequest",
    field("group_id", GROUP_ID, "0+"),
    field("session_timeout_ms", INT32, "0+"),
    field("rebalance_timeout_ms", INT32, "1+", default=-1),
    field("member_id", STRING, "0+"),
    field("group_instance_id", STRING, "5+", nullable="5+", default=None),
    field("protocol_type", STRING, "0+"),
    field("protocols", array(struct(
        field("name", STRING, "0+"),
        field("metadata", BYTES, "0+"),
    )), "0+"),
    field("reason", STRING, "8+", nullable="8+", default=None),
    key=11, versions="0-9", flexible="6+",
)

RESPONSE: Final[Message[JoinGroupResponse]] = message(
    "JoinGroupResponse",
    field("throttle_time_ms", INT32, "2+"),
    field("error_code", INT16, "0+"),
    field("generation_id", INT32, "0+", default=-1),
    field("protocol_type", STRING, "7+", nullable="7+", default=None),
    field("protocol_name", STRING, "0+", nullable="7+"),
    field("leader", STRING, "0+"),
    field("skip_assignment", BOOL, "9+"),
    field("member_id", STRING, "0+"),
    field("members", array(struct(
        field("member_id", STRING, "0+"),
        field("group_instance_id", STRING, "5+", nullable="5+", default=None),
        field("metadata", BYTES, "0+"),
    )), "0+"),
    key=11, versions="0-9", flexible="6+",
)

API: Final = Api(REQUEST, RESPONSE)
