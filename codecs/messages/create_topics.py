"""CreateTopics, api key 19."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import CreateTopicsRequest, CreateTopicsResponse
from kordon.codecs.primitives import BOOL, INT8, INT16, INT32, STRING, TOPIC_ID, TOPIC_NAME
from kordon.codecs.schema import Api, Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[CreateTopicsRequest]] = message(
    "CreateTopicsRequest",
    field("topics", array(struct(
        field("name", TOPIC_NAME, "0+"),
        field("num_partitions", INT32, "0+"),
        field("replication_factor", INT16, "0+"),
        field("assignments", array(struct(
            field("partition_index", INT32, "0+"),
            field("broker_ids", array(INT32), "0+"),
        )), "0+"),
        field("configs", array(struct(
            field("name", STRING, "0+"),
            field("value", STRING, "0+", nullable="0+"),
        )), "0+"),
    )), "0+"),
    field("timeout_ms", INT32, "0+", default=60000),
    field("validate_only", BOOL, "1+"),
    key=19, versions="0-7", flexible="5+",
)

RESPONSE: Final[Message[CreateTopicsResponse]] = message(
    "CreateTopicsResponse",
    field("throttle_time_ms", INT32, "2+"),
    field("topics", array(struct(
        field("name", TOPIC_NAME, "0+"),
        field("topic_id", TOPIC_ID, "7+"),
        field("error_code", INT16, "0+"),
        field("error_message", STRING, "1+", nullable="0+"),
        field("topic_config_error_code", INT16, "5+", tag=0, tagged="5+"),
        field("num_partitions", INT32, "5+", default=-1),
        field("replication_factor", INT16, "5+", default=-1),
        field("configs", array(struct(
            field("name", STRING, "5+"),
            field("value", STRING, "5+", nullable="5+"),
            field("read_only", BOOL, "5+"),
            field("config_source", INT8, "5+", default=-1),
            field("is_sensitive", BOOL, "5+"),
        )), "5+", nullable="5+"),
    )), "0+"),
    key=19, versions="0-7", flexible="5+",
)

API: Final = Api(REQUEST, RESPONSE)
