"""OffsetDelete, api key 47."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import OffsetDeleteRequest, OffsetDeleteResponse
from kordon.codecs.primitives import GROUP_ID, INT16, INT32, TOPIC_NAME
from kordon.codecs.schema import Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[OffsetDeleteRequest]] = message(
    "OffsetDeleteRequest",
    field("group_id", GROUP_ID, "0+"),
    field("topics", array(struct(
        field("name", TOPIC_NAME, "0+"),
        field("partitions", array(struct(
            field("partition_index", INT32, "0+"),
        )), "0+"),
    )), "0+"),
    key=47, versions="0",
)

RESPONSE: Final[Message[OffsetDeleteResponse]] = message(
    "OffsetDeleteResponse",
    field("error_code", INT16, "0+"),
    field("throttle_time_ms", INT32, "0+"),
    field("topics", array(struct(
        field("name", TOPIC_NAME, "0+"),
        field("partitions", array(struct(
            field("partition_index", INT32, "0+"),
            field("error_code", INT16, "0+"),
        )), "0+"),
    )), "0+"),
    key=47, versions="0",
)
