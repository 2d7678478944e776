"""FindCoordinator, api key 10."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import FindCoordinatorRequest, FindCoordinatorResponse
from kordon.codecs.primitives import COORDINATOR_KEY, INT8, INT16, INT32, STRING
from kordon.codecs.schema import Api, Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

# The key of a share group (type 2) is its group, topic id and partition, with colons between them (KIP-932).
REQUEST: Final[Message[FindCoordinatorRequest]] = message(
    "FindCoordinatorRequest",
    field("key", COORDINATOR_KEY, "0-3"),
    field("key_type", INT8, "1+"),
    field("coordinator_keys", array(COORDINATOR_KEY), "4+"),
    key=10, versions="0-6", flexible="3+",
)

RESPONSE: Final[Message[FindCoordinatorResponse]] = message(
    "FindCoordinatorResponse",
    field("throttle_time_ms", INT32, "1+"),
    field("error_code", INT16, "0-3"),
    field("error_message", STRING, "1-3", nullable="1-3"),
    field("node_id", INT32, "0-3"),
    field("host", STRING, "0-3"),
    field("port", INT32, "0-3"),
    field("coordinators", array(struct(
        field("key", COORDINATOR_KEY, "4+"),
        field("node_id", INT32, "4+"),
        field("host", STRING, "4+"),
        field("port", INT32, "4+"),
        field("error_code", INT16, "4+"),
        field("error_message", STRING, "4+", nullable="4+"),
    )), "4+"),
    key=10, versions="0-6", flexible="3+",
)

API: Final = Api(REQUEST, RESPONSE)
