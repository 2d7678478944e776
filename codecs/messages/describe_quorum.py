"""DescribeQuorum, api key 55."""

from __future__ import annotations

from kordon.codecs.primitives import INT16, INT32, INT64, STRING, TOPIC_NAME, UINT16, UUID
from kordon.codecs.schema import array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REPLICA_STATE = struct(
    field("replica_id", INT32, "0+"),
    field("replica_directory_id", UUID, "2+"),
    field("log_end_offset", INT64, "0+"),
    field("last_fetch_timestamp", INT64, "1+", default=-1),
    field("last_caught_up_timestamp", INT64, "1+", default=-1),
)

REQUEST = message(
    "DescribeQuorumRequest",
    field("topics", array(struct(
        field("topic_name", TOPIC_NAME, "0+"),
        field("partitions", array(struct(
            field("partition_index", INT32, "0+"),
        )), "0+"),
    )), "0+"),
    key=55, versions="0-2", flexible="0+",
)

RESPONSE = message(
    "DescribeQuorumResponse",
    field("error_code", INT16, "0+"),
    field("error_message", STRING, "2+", nullable="2+"),
    field("topics", array(struct(
        field("topic_name", TOPIC_NAME, "0+"),
        field("partitions", array(struct(
            field("partition_index", INT32, "0+"),
            field("error_code", INT16, "0+"),
            field("error_message", STRING, "2+", nullable="2+"),
            field("leader_id", INT32, "0+"),
            field("leader_epoch", INT32, "0+"),
            field("high_watermark", INT64, "0+"),
            field("current_voters", array(REPLICA_STATE), "0+"),
            field("observers", array(REPLICA_STATE), "0+"),
        )), "0+"),
    )), "0+"),
    field("nodes", array(struct(
        field("node_id", INT32, "2+"),
        field("listeners", array(struct(
            field("name", STRING, "2+"),
            field("host", STRING, "2+"),
            field("port", UINT16, "2+"),
        )), "2+"),
    )), "2+"),
    key=55, versions="0-2", flexible="0+",
)
