"""DescribeLogDirs, api key 35."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import DescribeLogDirsRequest, DescribeLogDirsResponse
from kordon.codecs.primitives import BOOL, INT16, INT32, INT64, STRING, TOPIC_NAME
from kordon.codecs.schema import Api, Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[DescribeLogDirsRequest]] = message(
    "DescribeLogDirsRequest",
    field("topics", array(struct(
        field("topic", TOPIC_NAME, "0+"),
        field("partitions", array(INT32), "0+"),
    )), "0+", nullable="0+"),
    key=35, versions="0-5", flexible="2+",
)

RESPONSE: Final[Message[DescribeLogDirsResponse]] = message(
    "DescribeLogDirsResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("error_code", INT16, "3+"),
    field("results", array(struct(
        field("error_code", INT16, "0+"),
        field("log_dir", STRING, "0+"),
        field("topics", array(struct(
            field("name", TOPIC_NAME, "0+"),
            field("partitions", array(struct(
                field("partition_index", INT32, "0+"),
                field("partition_size", INT64, "0+"),
                field("offset_lag", INT64, "0+"),
                field("is_future_key", BOOL, "0+"),
            )), "0+"),
        )), "0+"),
        field("total_bytes", INT64, "4+", default=-1),
        field("usable_bytes", INT64, "4+", default=-1),
        field("is_cordoned", BOOL, "5+"),
    )), "0+"),
    key=35, versions="0-5", flexible="2+",
)

API: Final = Api(REQUEST, RESPONSE)
