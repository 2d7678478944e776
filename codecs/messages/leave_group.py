"""LeaveGroup, api key 13."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import LeaveGroupRequest, LeaveGroupResponse
from kordon.codecs.primitives import GROUP_ID, INT16, INT32, STRING
from kordon.codecs.schema import Api, Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[LeaveGroupRequest]] = message(
    "LeaveGroupRequest",
    field("group_id", GROUP_ID, "0+"),
    field("member_id", STRING, "0-2"),
    field("members", array(struct(
        field("member_id", STRING, "3+"),
        field("group_instance_id", STRING, "3+", nullable="3+", default=None),
        field("reason", STRING, "5+", nullable="5+", default=None),
    )), "3+"),
    key=13, versions="0-5", flexible="4+",
)

RESPONSE: Final[Message[LeaveGroupResponse]] = message(
    "LeaveGroupResponse",
    field("throttle_time_ms", INT32, "1+"),
    field("error_code", INT16, "0+"),
    field("members", array(struct(
        field("member_id", STRING, "3+"),
        field("group_instance_id", STRING, "3+", nullable="3+"),
        field("error_code", INT16, "3+"),
    )), "3+"),
    key=13, versions="0-5", flexible="4+",
)

API: Final = Api(REQUEST, RESPONSE)
