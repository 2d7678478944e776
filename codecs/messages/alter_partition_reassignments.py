"""AlterPartitionReassignments, api key 45."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse
from kordon.codecs.primitives import BOOL, INT16, INT32, STRING, TOPIC_NAME
from kordon.codecs.schema import Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[AlterPartitionReassignmentsRequest]] = message(
    "AlterPartitionReassignmentsRequest",
    field("timeout_ms", INT32, "0+", default=60000),
    field("allow_replication_factor_change", BOOL, "1+", default=True),
    field("topics", array(struct(
        field("name", TOPIC_NAME, "0+"),
        field("partitions", array(struct(
            field("partition_index", INT32, "0+"),
            field("replicas", array(INT32), "0+", nullable="0+", default=None),
        )), "0+"),
    )), "0+"),
    key=45, versions="0-1", flexible="0+",
)

RESPONSE: Final[Message[AlterPartitionReassignmentsResponse]] = message(
    "AlterPartitionReassignmentsResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("allow_replication_factor_change", BOOL, "1+", default=True),
    field("error_code", INT16, "0+"),
    field("error_message", STRING, "0+", nullable="0+"),
    field("responses", array(struct(
        field("name", TOPIC_NAME, "0+"),
        field("partitions", array(struct(
            field("partition_index", INT32, "0+"),
            field("error_code", INT16, "0+"),
            field("error_message", STRING, "0+", nullable="0+"),
        )), "0+"),
    )), "0+"),
    key=45, versions="0-1", flexible="0+",
)
