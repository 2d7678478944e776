"""DescribeGroups, api key 15."""

from __future__ import annotations

from kordon.codecs.primitives import BOOL, BYTES, GROUP_ID, INT16, INT32, STRING
from kordon.codecs.schema import array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

# Versions 1 and 2 are the same as version 0.
# Starting in version 3, authorized operations can be requested.
# Starting in version 4, the response will include group.instance.id info for members.
# Version 5 is the first flexible version.
# Version 6 returns error code GROUP_ID_NOT_FOUND if the group ID is not found (KIP-1043).
REQUEST = message(
    "DescribeGroupsRequest",
    field("groups", array(GROUP_ID), "0+"),
    field("include_authorized_operations", BOOL, "3+"),
    key=15, versions="0-6", flexible="5+",
)

# Version 1 added throttle time.
# Starting in version 2, on quota violation, brokers send out responses before throttling.
# Starting in version 3, brokers can send authorized operations.
# Starting in version 4, the response will optionally include group.instance.id info for members.
# Version 5 is the first flexible version.
# Version 6 returns error code GROUP_ID_NOT_FOUND if the group ID is not found (KIP-1043).
RESPONSE = message(
    "DescribeGroupsResponse",
    field("throttle_time_ms", INT32, "1+"),
    field("groups", array(struct(
        field("error_code", INT16, "0+"),
        field("error_message", STRING, "6+", nullable="6+", default=None),
        field("group_id", GROUP_ID, "0+"),
        field("group_state", STRING, "0+"),
        field("protocol_type", STRING, "0+"),
        field("protocol_data", STRING, "0+"),
        field("members", array(struct(
            field("member_id", STRING, "0+"),
            field("group_instance_id", STRING, "4+", nullable="4+", default=None),
            field("client_id", STRING, "0+"),
            field("client_host", STRING, "0+"),
            field("member_metadata", BYTES, "0+"),
            field("member_assignment", BYTES, "0+"),
        )), "0+"),
        field("authorized_operations", INT32, "3+", default=-2147483648),
    )), "0+"),
    key=15, versions="0-6", flexible="5+",
)
