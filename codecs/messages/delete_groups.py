"""DeleteGroups, api key 42."""

from __future__ import annotations

from kordon.codecs.primitives import GROUP_ID, INT16, INT32, STRING
from kordon.codecs.schema import array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST = message(
    "DeleteGroupsRequest",
    field("groups_names", array(GROUP_ID), "0+"),
    key=42, versions="0-3", flexible="2+",
)

# Version 3 says why a group was not deleted.
RESPONSE = message(
    "DeleteGroupsResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("results", array(struct(
        field("group_id", GROUP_ID, "0+"),
        field("error_code", INT16, "0+"),
        field("error_message", STRING, "3+", nullable="3+", default=None),
    )), "0+"),
    key=42, versions="0-3", flexible="2+",
)
