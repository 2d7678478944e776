"""OffsetDelete, api key 47."""

from __future__ import annotations

from kordon.codecs.primitives import INT16, INT32, STRING
from kordon.codecs.schema import array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST = message(
    "OffsetDeleteRequest",
    field("group_id", STRING, "0+"),
    field("topics", array(struct(
        field("name", STRING, "0+"),
        field("partitions", array(struct(
            field("partition_index", INT32, "0+"),
        )), "0+"),
    )), "0+"),
    key=47, versions="0",
)

RESPONSE = message(
    "OffsetDeleteResponse",
    field("error_code", INT16, "0+"),
    field("throttle_time_ms", INT32, "0+"),
    field("topics", array(struct(
        field("name", STRING, "0+"),
        field("partitions", array(struct(
            field("partition_index", INT32, "0+"),
            field("error_code", INT16, "0+"),
        )), "0+"),
    )), "0+"),
    key=47, versions="0",
)
