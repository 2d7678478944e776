"""AlterShareGroupOffsets, api key 91."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse
from kordon.codecs.primitives import GROUP_ID, INT16, INT32, INT64, STRING, TOPIC_ID, TOPIC_NAME
from kordon.codecs.schema import Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[AlterShareGroupOffsetsRequest]] = message(
    "AlterShareGroupOffsetsRequest",
    field("group_id", GROUP_ID, "0+"),
    field("topics", array(struct(
        field("topic_name", TOPIC_NAME, "0+"),
        field("partitions", array(struct(
            field("partition_index", INT32, "0+"),
            field("start_offset", INT64, "0+"),
        )), "0+"),
    )), "0+"),
    key=91, versions="0", flexible="0+",
)

RESPONSE: Final[Message[AlterShareGroupOffsetsResponse]] = message(
    "AlterShareGroupOffsetsResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("error_code", INT16, "0+"),
    field("error_message", STRING, "0+", nullable="0+", default=None),
    field("responses", array(struct(
        field("topic_name", TOPIC_NAME, "0+"),
        field("topic_id", TOPIC_ID, "0+"),
        field("partitions", array(struct(
            field("partition_index", INT32, "0+"),
            field("error_code", INT16, "0+"),
            field("error_message", STRING, "0+", nullable="0+", default=None),
        )), "0+"),
    )), "0+"),
    key=91, versions="0", flexible="0+",
)
