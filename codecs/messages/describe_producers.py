"""DescribeProducers, api key 61."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import DescribeProducersRequest, DescribeProducersResponse
from kordon.codecs.primitives import INT16, INT32, INT64, STRING, TOPIC_NAME
from kordon.codecs.schema import Api, Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[DescribeProducersRequest]] = message(
    "DescribeProducersRequest",
    field("topics", array(struct(
        field("name", TOPIC_NAME, "0+"),
        field("partition_indexes", array(INT32), "0+"),
    )), "0+"),
    key=61, versions="0", flexible="0+",
)

RESPONSE: Final[Message[DescribeProducersResponse]] = message(
    "DescribeProducersResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("topics", array(struct(
        field("name", TOPIC_NAME, "0+"),
        field("partitions", array(struct(
            field("partition_index", INT32, "0+"),
            field("error_code", INT16, "0+"),
            field("error_message", STRING, "0+", nullable="0+", default=None),
            field("active_producers", array(struct(
                field("producer_id", INT64, "0+"),
                field("producer_epoch", INT32, "0+"),
                field("last_sequence", INT32, "0+", default=-1),
                field("last_timestamp", INT64, "0+", default=-1),
                field("coordinator_epoch", INT32, "0+"),
                field("current_txn_start_offset", INT64, "0+", default=-1),
            )), "0+"),
        )), "0+"),
    )), "0+"),
    key=61, versions="0", flexible="0+",
)

API: Final = Api(REQUEST, RESPONSE)
