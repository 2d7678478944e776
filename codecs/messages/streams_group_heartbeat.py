"""StreamsGroupHeartbeat, api key 88."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse
from kordon.codecs.primitives import BOOL, GROUP_ID, INT8, INT16, INT32, INT64, STRING, TOPIC_NAME, UINT16
from kordon.codecs.schema import Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

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

REQUEST: Final[Message[StreamsGroupHeartbeatRequest]] = message(
    "StreamsGroupHeartbeatRequest",
    field("group_id", GROUP_ID, "0+"),
    field("member_id", STRING, "0+"),
    field("member_epoch", INT32, "0+"),
    field("endpoint_information_epoch", INT32, "0+"),
    field("instance_id", STRING, "0+", nullable="0+", default=None),
    field("rack_id", STRING, "0+", nullable="0+", default=None),
    field("rebalance_timeout_ms", INT32, "0+", default=-1),
    field("topology", struct(
        field("epoch", INT32, "0+"),
        field("subtopologies", array(struct(
            field("subtopology_id", STRING, "0+"),
            field("source_topics", array(TOPIC_NAME), "0+"),
            field("source_topic_regex", array(STRING), "0+"),
            field("state_changelog_topics", array(TOPIC_INFO), "0+"),
            field("repartition_sink_topics", array(TOPIC_NAME), "0+"),
            field("repartition_source_topics", array(TOPIC_INFO), "0+"),
            field("copartition_groups", array(struct(
                field("source_topics", array(INT16), "0+"),
                field("source_topic_regex", array(INT16), "0+"),
                field("repartition_source_topics", array(INT16), "0+"),
            )), "0+"),
        )), "0+"),
    ), "0+", nullable="0+", default=None),
    field("active_tasks", array(TASK_IDS), "0+", nullable="0+", default=None),
    field("standby_tasks", array(TASK_IDS), "0+", nullable="0+", default=None),
    field("warmup_tasks", array(TASK_IDS), "0+", nullable="0+", default=None),
    field("process_id", STRING, "0+", nullable="0+", default=None),
    field("user_endpoint", ENDPOINT, "0+", nullable="0+", default=None),
    field("client_tags", array(KEY_VALUE), "0+", nullable="0+", default=None),
    field("task_offsets", array(TASK_OFFSET), "0+", nullable="0+", default=None),
    field("task_end_offsets", array(TASK_OFFSET), "0+", nullable="0+", default=None),
    field("shutdown_application", BOOL, "0+"),
    key=88, versions="0-1", flexible="0+",
)

STATUS = struct(
    field("status_code", INT8, "0+"),
    field("status_detail", STRING, "0+"),
)

TOPIC_PARTITION = struct(
    field("topic", TOPIC_NAME, "0+"),
    field("partitions", array(INT32), "0+"),
)

# Version 1 asks for the topology's description (KIP-1331), has a wider lag, and a status for missing client tags.
RESPONSE: Final[Message[StreamsGroupHeartbeatResponse]] = message(
    "StreamsGroupHeartbeatResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("error_code", INT16, "0+"),
    field("error_message", STRING, "0+", nullable="0+", default=None),
    field("member_id", STRING, "0+"),
    field("member_epoch", INT32, "0+"),
    field("heartbeat_interval_ms", INT32, "0+"),
    field("acceptable_recovery_lag_legacy", INT32, "0"),
    field("task_offset_interval_ms", INT32, "0+"),
    field("acceptable_recovery_lag", INT64, "1+", default=-1),
    field("status", array(STATUS), "0+", nullable="0+"),
    field("active_tasks", array(TASK_IDS), "0+", nullable="0+", default=None),
    field("standby_tasks", array(TASK_IDS), "0+", nullable="0+", default=None),
    field("warmup_tasks", array(TASK_IDS), "0+", nullable="0+", default=None),
    field("topology_description_required", BOOL, "1+"),
    field("endpoint_information_epoch", INT32, "0+"),
    field("partitions_by_user_endpoint", array(struct(
        field("user_endpoint", ENDPOINT, "0+"),
        field("active_partitions", array(TOPIC_PARTITION), "0+"),
        field("standby_partitions", array(TOPIC_PARTITION), "0+"),
    )), "0+", nullable="0+", default=None),
    key=88, versions="0-1", flexible="0+",
)
