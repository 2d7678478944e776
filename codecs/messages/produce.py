"""Produce, api key 0."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import ProduceRequest, ProduceResponse
from kordon.codecs.primitives import INT16, INT32, INT64, RECORDS, STRING, TOPIC_ID, TOPIC_NAME, TRANSACTIONAL_ID
from kordon.codecs.schema import Api, Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

# Tags from 16384 up are fields of Kordon's dialect (KIP-253); who does not know them skips them.
# Kafka 4 lists versions 0 to 2 because librdkafka looks for them, and refuses requests of them (KAFKA-18659).
# From version 12 on a write within a transaction also adds its partition to it (KIP-890).
REQUEST: Final[Message[ProduceRequest]] = message(
    "ProduceRequest",
    field("transactional_id", TRANSACTIONAL_ID, "3+", nullable="3+", default=None),
    field("acks", INT16, "0+"),
    field("timeout_ms", INT32, "0+"),
    field("topic_data", array(struct(
        field("name", TOPIC_NAME, "0-12"),
        field("topic_id", TOPIC_ID, "13+"),
        field("partition_data", array(struct(
            field("index", INT32, "0+"),
            field("records", RECORDS, "0+", nullable="0+"),
        )), "0+"),
        field("undeleted_partition_count", INT32, "9+", tag=16384, tagged="9+", default=-1),
        field("layout_epoch", INT32, "9+", tag=16385, tagged="9+", default=-1),
    )), "0+"),
    key=0, versions="0-13", flexible="9+",
)

RESPONSE: Final[Message[ProduceResponse]] = message(
    "ProduceResponse",
    field("responses", array(struct(
        field("name", TOPIC_NAME, "0-12"),
        field("topic_id", TOPIC_ID, "13+"),
        field("partition_responses", array(struct(
            field("index", INT32, "0+"),
            field("error_code", INT16, "0+"),
            field("base_offset", INT64, "0+"),
            field("log_append_time_ms", INT64, "2+", default=-1),
            field("log_start_offset", INT64, "5+", default=-1),
            field("record_errors", array(struct(
                field("batch_index", INT32, "8+"),
                field("batch_index_error_message", STRING, "8+", nullable="8+", default=None),
            )), "8+"),
            field("error_message", STRING, "8+", nullable="8+", default=None),
            field("current_leader", struct(
                field("leader_id", INT32, "10+", default=-1),
                field("leader_epoch", INT32, "10+", default=-1),
            ), "10+", tag=0, tagged="10+"),
        )), "0+"),
    )), "0+"),
    field("throttle_time_ms", INT32, "1+"),
    field("node_endpoints", array(struct(
        field("node_id", INT32, "10+"),
        field("host", STRING, "10+"),
        field("port", INT32, "10+"),
        field("rack", STRING, "10+", nullable="10+", default=None),
    )), "10+", tag=0, tagged="10+"),
    key=0, versions="0-13", flexible="9+",
)

API: Final = Api(REQUEST, RESPONSE)
