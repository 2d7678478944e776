"""OffsetCommit, api key 8."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import OffsetCommitRequest, OffsetCommitResponse
from kordon.codecs.primitives import BYTES, GROUP_ID, INT16, INT32, INT64, STRING, TOPIC_ID, TOPIC_NAME
from kordon.codecs.schema import Api, Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

# Tags from 16384 up are fields of individual commit (docs/dialect.md); who does not know them skips them.

REQUEST: Final[Message[OffsetCommitRequest]] = message(
    "OffsetCommitRequest",
    field("group_id", GROUP_ID, "0+"),
    field("generation_id_or_member_epoch", INT32, "1+", default=-1),
    field("member_id", STRING, "1+"),
    field("group_instance_id", STRING, "7+", nullable="7+", default=None),
    field("retention_time_ms", INT64, "2-4", default=-1),
    field("topics", array(struct(
        field("name", TOPIC_NAME, "0-9"),
        field("topic_id", TOPIC_ID, "10+"),
        field("partitions", array(struct(
            field("partition_index", INT32, "0+"),
            field("committed_offset", INT64, "0+"),
            field("committed_leader_epoch", INT32, "6+", default=-1),
            field("commit_timestamp", INT64, "1", default=-1),
            field("committed_metadata", STRING, "0+", nullable="0+"),
            field("offset_ranges", BYTES, "8+", tag=16384, tagged="8+"),
            field("incarnation", INT64, "8+", tag=16385, tagged="8+"),
        )), "0+"),
    )), "0+"),
    key=8, versions="0-10", flexible="8+",
)

RESPONSE: Final[Message[OffsetCommitResponse]] = message(
    "OffsetCommitResponse",
    field("throttle_time_ms", INT32, "3+"),
    field("topics", array(struct(
        field("name", TOPIC_NAME, "0-9"),
        field("topic_id", TOPIC_ID, "10+"),
        field("partitions", array(struct(
            field("partition_index", INT32, "0+"),
            field("error_code", INT16, "0+"),
            field("last_stable_offset", INT64, "8+", tag=16384, tagged="8+", default=-1),
        )), "0+"),
    )), "0+"),
    key=8, versions="0-10", flexible="8+",
)

API: Final = Api(REQUEST, RESPONSE)
