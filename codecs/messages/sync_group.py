"""SyncGroup, api key 14."""

from __future__ import annotations

from kordon.codecs.primitives import BYTES, GROUP_ID, INT16, INT32, STRING
from kordon.codecs.schema import array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

# Versions 1 and 2 are the same as version 0.
# Starting from version 3, we add a new field called groupInstanceId to indicate member identity across restarts.
# Version 4 is the first flexible version.
# Starting from version 5, the client sends the Protocol Type and the Protocol Name to the broker (KIP-559). The
# broker will reject the request if they are inconsistent with the Type and Name known by the broker.
REQUEST = message(
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

# Version 1 adds throttle time.
# Starting in version 2, on quota violation, brokers send out responses before throttling.
# Starting from version 3, syncGroupRequest supports a new field called groupInstanceId to indicate member
# identity across restarts.
# Version 4 is the first flexible version.
# Starting from version 5, the broker sends back the Protocol Type and the Protocol Name to the client (KIP-559).
RESPONSE = message(
    "SyncGroupResponse",
    field("throttle_time_ms", INT32, "1+"),
    field("error_code", INT16, "0+"),
    field("protocol_type", STRING, "5+", nullable="5+", default=None),
    field("protocol_name", STRING, "5+", nullable="5+", default=None),
    field("assignment", BYTES, "0+"),
    key=14, versions="0-5", flexible="4+",
)
