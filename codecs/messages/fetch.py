"""Fetch, api key 1."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import FetchRequest, FetchResponse, FetchResponsePartition
from kordon.codecs.primitives import INT8, INT16, INT32, INT64, RECORDS, STRING, TOPIC_ID, TOPIC_NAME, UUID
from kordon.codecs.schema import Api, Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

# Tags from 16384 up are fields of Kordon's dialect (KIP-253); who does not know them skips them.
REQUEST: Final[Message[FetchRequest]] = message(
    "FetchRequest",
    field("cluster_id", STRING, "12+", nullable="12+", tag=0, tagged="12+", default=None),
    field("replica_id", INT32, "0-14", default=-1),
    field("replica_state", struct(
        field("replica_id", INT32, "15+", default=-1),
        field("replica_epoch", INT64, "15+", default=-1),
    ), "15+", tag=1, tagged="15+"),
    field("max_wait_ms", INT32, "0+"),
    field("min_bytes", INT32, "0+"),
    field("max_bytes", INT32, "3+", default=2**31 - 1),
    field("isolation_level", INT8, "4+"),
    field("session_id", INT32, "7+"),
    field("session_epoch", INT32, "7+", default=-1),
    field("topics", array(struct(
        field("topic", TOPIC_NAME, "0-12"),
        field("topic_id", TOPIC_ID, "13+"),
        field("partitions", array(struct(
            field("partition", INT32, "0+"),
            field("current_leader_epoch", INT32, "9+", default=-1),
            field("fetch_offset", INT64, "0+"),
            field("last_fetched_epoch", INT32, "12+", default=-1),
            field("log_start_offset", INT64, "5+", default=-1),
            field("partition_max_bytes", INT32, "0+"),
            field("replica_directory_id", UUID, "17+", tag=0, tagged="17+"),
            field("high_watermark", INT64, "18+", tag=1, tagged="18+", default=2**63 - 1),
        )), "0+"),
        field("undeleted_partition_count", INT32, "12+", tag=16384, tagged="12+", default=-1),
        field("positions", array(struct(
            field("partition", INT32, "12+"),
            field("position", INT64, "12+"),
        )), "12+", tag=16385, tagged="12+"),
    )), "0+"),
    field("forgotten_topics_data", array(struct(
        field("topic", TOPIC_NAME, "7-12"),
        field("topic_id", TOPIC_ID, "13+"),
        field("partitions", array(INT32), "7+"),
    )), "7+"),
    field("rack_id", STRING, "11+"),
    field("group_id", STRING, "12+", tag=16384, tagged="12+"),
    field("generation_id", INT32, "12+", tag=16385, tagged="12+", default=-1),
    field("member_id", STRING, "12+", tag=16386, tagged="12+"),
    key=1, versions="0-18", flexible="12+",
)

PARTITION_DATA: Final[Message[FetchResponsePartition]] = message(
    "PartitionData",
    field("partition_index", INT32, "0+"),
    field("error_code", INT16, "0+"),
    field("high_watermark", INT64, "0+"),
    field("last_stable_offset", INT64, "4+", default=-1),
    field("log_start_offset", INT64, "5+", default=-1),
    field("diverging_epoch", struct(
        field("epoch", INT32, "12+", default=-1),
        field("end_offset", INT64, "12+", default=-1),
    ), "12+", tag=0, tagged="12+"),
    field("current_leader", struct(
        field("leader_id", INT32, "12+", default=-1),
        field("leader_epoch", INT32, "12+", default=-1),
    ), "12+", tag=1, tagged="12+"),
    field("snapshot_id", struct(
        field("end_offset", INT64, "0+", default=-1),
        field("epoch", INT32, "0+", default=-1),
    ), "12+", tag=2, tagged="12+"),
    field("aborted_transactions", array(struct(
        field("producer_id", INT64, "4+"),
        field("first_offset", INT64, "4+"),
    )), "4+", nullable="4+"),
    field("preferred_read_replica", INT32, "11+", default=-1),
    field("records", RECORDS, "0+", nullable="0+"),
    versions="0-18", flexible="12+",
)
"""A partition's row of the response; it has its version and is built alone where it is told again and again."""

RESPONSE: Final[Message[FetchResponse]] = message(
    "FetchResponse",
    field("throttle_time_ms", INT32, "1+"),
    field("error_code", INT16, "7+"),
    field("session_id", INT32, "7+"),
    field("responses", array(struct(
        field("topic", TOPIC_NAME, "0-12"),
        field("topic_id", TOPIC_ID, "13+"),
        field("partitions", array(struct(*PARTITION_DATA.fields)), "0+"),
    )), "0+"),
    field("node_endpoints", array(struct(
        field("node_id", INT32, "16+"),
        field("host", STRING, "16+"),
        field("port", INT32, "16+"),
        field("rack", STRING, "16+", nullable="16+", default=None),
    )), "16+", tag=0, tagged="16+"),
    key=1, versions="0-18", flexible="12+",
)

API: Final = Api(REQUEST, RESPONSE)
