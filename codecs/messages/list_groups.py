"""ListGroups, api key 16."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import ListGroupsRequest, ListGroupsResponse
from kordon.codecs.primitives import GROUP_ID, INT16, INT32, STRING
from kordon.codecs.schema import Api, Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[ListGroupsRequest]] = message(
    "ListGroupsRequest",
    field("states_filter", array(STRING), "4+"),
    field("types_filter", array(STRING), "5+"),
    key=16, versions="0-5", flexible="3+",
)

RESPONSE: Final[Message[ListGroupsResponse]] = message(
    "ListGroupsResponse",
    field("throttle_time_ms", INT32, "1+"),
    field("error_code", INT16, "0+"),
    field("groups", array(struct(
        field("group_id", GROUP_ID, "0+"),
        field("protocol_type", STRING, "0+"),
        field("group_state", STRING, "4+"),
        field("group_type", STRING, "5+"),
    )), "0+"),
    key=16, versions="0-5", flexible="3+",
)

API: Final = Api(REQUEST, RESPONSE)
