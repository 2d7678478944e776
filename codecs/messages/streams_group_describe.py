"""StreamsGroupDescribe, api key 89."""

from __future__ import annotations

from kordon.codecs.primitives import BOOL, GROUP_ID, INT8, INT16, INT32, INT64, STRING, TOPIC_NAME, UINT16
from kordon.codecs.schema import array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

# Version 1 can ask for the topology's description (KIP-1331).
REQUEST = message(
    "StreamsGroupDescribeRequest",
    field("group_ids", array(GROUP_ID), "0+"),
    field("include_authorized_operations", BOOL, "0+"),
    field("include_topology_description", BOOL, "1+"),
    key=89, versions="0-1", flexible="0+",
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

NODE = struct(
    field("name", STRING, "1+"),
    field("node_type", INT8, "1+"),
    field("source_topics", array(TOPIC_NAME), "1+"),
    field("sink_topic", TOPIC_NAME, "1+", nullable="1+", default=None),
    field("stores", array(STRING), "1+"),
    field("successors", array(STRING), "1+"),
)

# Version 1 adds the topology's description (KIP-1331) and the assignor's name (KIP-1357).
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
        field("topology_description", struct(
            field("subtopologies", array(struct(
                field("subtopology_id", STRING, "1+"),
                field("nodes", array(NODE), "1+"),
            )), "1+"),
            field("global_stores", array(struct(
                field("source", NODE, "1+"),
                field("processor", NODE, "1+"),
            )), "1+"),
        ), "1+", nullable="1+", default=None),
        field("topology_description_status", INT8, "1+"),
        field("assignor_name", STRING, "1+", nullable="1+", default=None),
    )), "0+"),
    key=89, versions="0-1", flexible="0+",
)
