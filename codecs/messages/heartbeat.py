"""Heartbeat, api key 12."""

from __future__ import annotations

from kordon.codecs.primitives import GROUP_ID, INT16, INT32, STRING
from kordon.codecs.schema import field, message

# A table reads line by line like its schema.
# fmt: off

# Version 1 and version 2 are the same as version 0.
# Starting from version 3, we add a new field called groupInstanceId to indicate member identity across restarts.
# Version 4 is the first flexible version.
REQUEST = message(
    "HeartbeatRequest",
    field("group_id", GROUP_ID, "0+"),
    field("generation_id", INT32, "0+"),
    field("member_id", STRING, "0+"),
    field("group_instance_id", STRING, "3+", nullable="3+", default=None),
    key=12, versions="0-4", flexible="4+",
)

# Version 1 adds throttle time.
# Starting in version 2, on quota violation, brokers send out responses before throttling.
# Starting from version 3, heartbeatRequest supports a new field called groupInstanceId to indicate member
# identity across restarts.
# Version 4 is the first flexible version.
RESPONSE = message(
    "HeartbeatResponse",
    field("throttle_time_ms", INT32, "1+"),
    field("error_code", INT16, "0+"),
    key=12, versions="0-4", flexible="4+",
)
