"""DescribeTopicPartitions, api key 75."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
from kordon.codecs.primitives import BOOL, INT16, INT32, TOPIC_ID, TOPIC_NAME
from kordon.codecs.schema import Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[DescribeTopicPartitionsRequest]] = message(
    "DescribeTopicPartitionsRequest",
    field("topics", array(struct(
        field("name", TOPIC_NAME, "0+"),
    )), "0+"),
    field("response_partition_limit", INT32, "0+", default=2000),
    field("cursor", struct(
        field("topic_name", TOPIC_NAME, "0+"),
        field("partition_index", INT32, "0+"),
    ), "0+", nullable="0+", default=None),
    key=75, versions="0", flexible="0+",
)

RESPONSE: Final[Message[DescribeTopicPartitionsResponse]] = message(
    "DescribeTopicPartitionsResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("topics", array(struct(
        field("error_code", INT16, "0+"),
        field("name", TOPIC_NAME, "0+", nullable="0+"),
        field("topic_id", TOPIC_ID, "0+"),
        field("is_internal", BOOL, "0+"),
        field("partitions", array(struct(
            field("error_code", INT16, "0+"),
            field("partition_index", INT32, "0+"),
            field("leader_id", INT32, "0+"),
            field("leader_epoch", INT32, "0+", default=-1),
            field("replica_nodes", array(INT32), "0+"),
            field("isr_nodes", array(INT32), "0+"),
            field("eligible_leader_replicas", array(INT32), "0+", nullable="0+", default=None),
            field("last_known_elr", array(INT32), "0+", nullable="0+", default=None),
            field("offline_replicas", array(INT32), "0+"),
        )), "0+"),
        field("topic_authorized_operations", INT32, "0+", default=-2147483648),
    )), "0+"),
    field("next_cursor", struct(
        field("topic_name", TOPIC_NAME, "0+"),
        field("partition_index", INT32, "0+"),
    ), "0+", nullable="0+", default=None),
    key=75, versions="0", flexible="0+",
)
