"""StreamsGroupDescribe, api key 89."""

from __future__ import annotations

from kordon.codecs.primitives import BOOL, GROUP_ID, INT16, INT32, INT64, STRING, TOPIC_NAME, UINT16
from kordon.codecs.schema import array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST = message(
    "StreamsGroupDescribeRequest",
    field("group_ids", array(GROUP_ID), "0+"),
    field("include_authorized_operations", BOOL, "0+"),
    key=89, versions="0", flexible="0+",
)

ENDPOINT = struct(
    field("host", STRING, "0+"),
    field("port", UINT16, "0+"),
)

TASK_OFFSET = struct(
    field("subtopology_id", STRING, "0+"),
    field("partition", INT32, "0+"),
    field("offset", INT64, "0+"),
)

TASK_IDS = struct(
    field("subtopology_id", STRING, "0+"),
    field("partitions", array(INT32), "0+"),
)

ASSIGNMENT = struct(
    field("active_tasks", array(TASK_IDS), "0+"),
    field("standby_tasks", array(TASK_IDS), "0+"),
    field("warmup_tasks", array(TASK_IDS), "0+"),
)

KEY_VALUE = struct(
    field("key", STRING, "0+"),
    field("value", STRING, "0+"),
)

TOPIC_INFO = struct(
    field("name", TOPIC_NAME, "0+"),
    field("partitions", INT32, "0+"),
    field("replication_factor", INT16, "0+"),
    field("topic_configs", array(KEY_VALUE), "0+"),
)

RESPONSE = message(
    "StreamsGroupDescribeResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("groups", array(struct(
        field("error_code", INT16, "0+"),
        field("error_message", STRING, "0+", nullable="0+", default=None),
        field("group_id", GROUP_ID, "0+"),
        field("group_state", STRING, "0+"),
        field("group_epoch", INT32, "0+"),
        field("assignment_epoch", INT32, "0+"),
        field("topology", struct(
            field("epoch", INT32, "0+"),
            field("subtopologies", array(struct(
                field("subtopology_id", STRING, "0+"),
                field("source_topics", array(TOPIC_NAME), "0+"),
                field("repartition_sink_topics", array(TOPIC_NAME), "0+"),
                field("state_changelog_topics", array(TOPIC_INFO), "0+"),
                field("repartition_source_topics", array(TOPIC_INFO), "0+"),
            )), "0+", nullable="0+", default=None),
        ), "0+", nullable="0+", default=None),
        field("members", array(struct(
            field("member_id", STRING, "0+"),
            field("member_epoch", INT32, "0+"),
            field("instance_id", STRING, "0+", nullable="0+", default=None),
            field("rack_id", STRING, "0+", nullable="0+", default=None),
            field("client_id", STRING, "0+"),
            field("client_host", STRING, "0+"),
            field("topology_epoch", INT32, "0+"),
            field("process_id", STRING, "0+"),
            field("user_endpoint", ENDPOINT, "0+", nullable="0+", default=None),
            field("client_tags", array(KEY_VALUE), "0+"),
            field("task_offsets", array(TASK_OFFSET), "0+"),
            field("task_end_offsets", array(TASK_OFFSET), "0+"),
            field("assignment", ASSIGNMENT, "0+"),
            field("target_assignment", ASSIGNMENT, "0+"),
            field("is_classic", BOOL, "0+"),
        )), "0+"),
        field("authorized_operations", INT32, "0+", default=-2147483648),
    )), "0+"),
    key=89, versions="0", flexible="0+",
)
