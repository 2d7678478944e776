"""LeaveGroup, api key 13."""

from __future__ import annotations

from kordon.codecs.primitives import GROUP_ID, INT16, INT32, STRING
from kordon.codecs.schema import array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

# Version 1 and 2 are the same as version 0.
# Version 3 defines batch processing scheme with group.instance.id + member.id for identity
# Version 4 is the first flexible version.
# Version 5 adds the Reason field (KIP-800).
REQUEST = message(
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

# Version 1 adds the throttle time.
# Starting in version 2, on quota violation, brokers send out responses before throttling.
# Starting in version 3, we will make leave group request into batch mode and add group.instance.id.
# Version 4 is the first flexible version.
# Version 5 is the same as version 4.
RESPONSE = message(
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
