"""OffsetForLeaderEpoch, api key 23."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from kordon.codecs.primitives import INT16, INT32, INT64, TOPIC_NAME
from kordon.codecs.schema import Api, Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

# A replica id of -2 is a reader who may know of ends beyond the high watermark.
REQUEST: Final[Message[OffsetForLeaderEpochRequest]] = message(
    "OffsetForLeaderEpochRequest",
    field("replica_id", INT32, "3+", default=-2),
    field("topics", array(struct(
        field("topic", TOPIC_NAME, "0+"),
        field("partitions", array(struct(
            field("partition", INT32, "0+"),
            field("current_leader_epoch", INT32, "2+", default=-1),
            field("leader_epoch", INT32, "0+"),
        )), "0+"),
    )), "0+"),
    key=23, versions="0-4", flexible="4+",
)

RESPONSE: Final[Message[OffsetForLeaderEpochResponse]] = message(
    "OffsetForLeaderEpochResponse",
    field("throttle_time_ms", INT32, "2+"),
    field("topics", array(struct(
        field("topic", TOPIC_NAME, "0+"),
        field("partitions", array(struct(
            field("error_code", INT16, "0+"),
            field("partition", INT32, "0+"),
            field("leader_epoch", INT32, "1+", default=-1),
            field("end_offset", INT64, "0+", default=-1),
        )), "0+"),
    )), "0+"),
    key=23, versions="0-4", flexible="4+",
)

API: Final = Api(REQUEST, RESPONSE)
