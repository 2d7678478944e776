"""ListPartitionReassignments, api key 46."""

from __future__ import annotations

from kordon.codecs.primitives import INT16, INT32, STRING, TOPIC_NAME
from kordon.codecs.schema import array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST = message(
    "ListPartitionReassignmentsRequest",
    field("timeout_ms", INT32, "0+", default=60000),
    field("topics", array(struct(
        field("name", TOPIC_NAME, "0+"),
        field("partition_indexes", array(INT32), "0+"),
    )), "0+", nullable="0+", default=None),
    key=46, versions="0", flexible="0+",
)

RESPONSE = message(
    "ListPartitionReassignmentsResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("error_code", INT16, "0+"),
    field("error_message", STRING, "0+", nullable="0+"),
    field("topics", array(struct(
        field("name", TOPIC_NAME, "0+"),
        field("partitions", array(struct(
            field("partition_index", INT32, "0+"),
            field("replicas", array(INT32), "0+"),
            field("adding_replicas", array(INT32), "0+"),
            field("removing_replicas", array(INT32), "0+"),
        )), "0+"),
    )), "0+"),
    key=46, versions="0", flexible="0+",
)
