"""OffsetFetch, api key 9."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import OffsetFetchRequest, OffsetFetchResponse
from kordon.codecs.primitives import BOOL, BYTES, GROUP_ID, INT16, INT32, INT64, STRING, TOPIC_ID, TOPIC_NAME
from kordon.codecs.schema import Api, Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

# Tags from 16384 up are fields of individual commit (docs/dialect.md); who does not know them skips them.

REQUEST: Final[Message[OffsetFetchRequest]] = message(
    "OffsetFetchRequest",
    field("group_id", GROUP_ID, "0-7"),
    field("topics", array(struct(
        field("name", TOPIC_NAME, "0-7"),
        field("partition_indexes", array(INT32), "0-7"),
    )), "0-7", nullable="2-7"),
    field("groups", array(struct(
        field("group_id", GROUP_ID, "8+"),
        field("member_id", STRING, "9+", nullable="9+", default=None),
        field("member_epoch", INT32, "9+", default=-1),
        field("topics", array(struct(
            field("name", TOPIC_NAME, "8-9"),
            field("topic_id", TOPIC_ID, "10+"),
            field("partition_indexes", array(INT32), "8+"),
        )), "8+", nullable="8+"),
    )), "8+"),
    field("require_stable", BOOL, "7+"),
    field("with_ranges", BOOL, "8+", tag=16384, tagged="8+"),
    key=9, versions="0-10", flexible="6+",
)

RESPONSE: Final[Message[OffsetFetchResponse]] = message(
    "OffsetFetchResponse",
    field("throttle_time_ms", INT32, "3+"),
    field("topics", array(struct(
        field("name", TOPIC_NAME, "0-7"),
        field("partitions", array(struct(
            field("partition_index", INT32, "0-7"),
            field("committed_offset", INT64, "0-7"),
            field("committed_leader_epoch", INT32, "5-7", default=-1),
            field("metadata", STRING, "0-7", nullable="0-7"),
            field("error_code", INT16, "0-7"),
        )), "0-7"),
    )), "0-7"),
    field("error_code", INT16, "2-7"),
    field("groups", array(struct(
        field("group_id", GROUP_ID, "8+"),
        field("topics", array(struct(
            field("name", TOPIC_NAME, "8-9"),
            field("topic_id", TOPIC_ID, "10+"),
            field("partitions", array(struct(
                field("partition_index", INT32, "8+"),
                field("committed_offset", INT64, "8+"),
                field("committed_leader_epoch", INT32, "8+", default=-1),
                field("metadata", STRING, "8+", nullable="8+"),
                field("error_code", INT16, "8+"),
                field("committed_range_offsets", BYTES, "8+", tag=16384, tagged="8+"),
                field("incarnation", INT64, "8+", tag=16385, tagged="8+"),
            )), "8+"),
        )), "8+"),
        field("error_code", INT16, "8+"),
    )), "8+"),
    key=9, versions="0-10", flexible="6+",
)

API: Final = Api(REQUEST, RESPONSE)
