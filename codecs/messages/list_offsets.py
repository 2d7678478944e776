"""ListOffsets, api key 2."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import ListOffsetsRequest, ListOffsetsResponse
from kordon.codecs.primitives import INT8, INT16, INT32, INT64, TOPIC_NAME
from kordon.codecs.schema import Api, Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[ListOffsetsRequest]] = message(
    "ListOffsetsRequest",
    field("replica_id", INT32, "0+"),
    field("isolation_level", INT8, "2+"),
    field("topics", array(struct(
        field("name", TOPIC_NAME, "0+"),
        field("partitions", array(struct(
            field("partition_index", INT32, "0+"),
            field("current_leader_epoch", INT32, "4+", default=-1),
            field("timestamp", INT64, "0+"),
            field("max_num_offsets", INT32, "0", default=1),
        )), "0+"),
    )), "0+"),
    field("timeout_ms", INT32, "10+"),
    key=2, versions="0-11", flexible="6+",
)

RESPONSE: Final[Message[ListOffsetsResponse]] = message(
    "ListOffsetsResponse",
    field("throttle_time_ms", INT32, "2+"),
    field("topics", array(struct(
        field("name", TOPIC_NAME, "0+"),
        field("partitions", array(struct(
            field("partition_index", INT32, "0+"),
            field("error_code", INT16, "0+"),
            field("old_style_offsets", array(INT64), "0"),
            field("timestamp", INT64, "1+", default=-1),
            field("offset", INT64, "1+", default=-1),
            field("leader_epoch", INT32, "4+", default=-1),
        )), "0+"),
    )), "0+"),
    key=2, versions="0-11", flexible="6+",
)

API: Final = Api(REQUEST, RESPONSE)
