"""ShareFetch, api key 78."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import ShareFetchRequest, ShareFetchResponse
from kordon.codecs.primitives import BOOL, GROUP_ID, INT8, INT16, INT32, INT64, RECORDS, STRING, TOPIC_ID
from kordon.codecs.schema import Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[ShareFetchRequest]] = message(
    "ShareFetchRequest",
    field("group_id", GROUP_ID, "0+", nullable="0+", default=None),
    field("member_id", STRING, "0+", nullable="0+"),
    field("share_session_epoch", INT32, "0+"),
    field("max_wait_ms", INT32, "0+"),
    field("min_bytes", INT32, "0+"),
    field("max_bytes", INT32, "0+", default=2**31 - 1),
    field("max_records", INT32, "1+"),
    field("batch_size", INT32, "1+"),
    field("share_acquire_mode", INT8, "2+"),
    field("is_renew_ack", BOOL, "2+"),
    field("topics", array(struct(
        field("topic_id", TOPIC_ID, "0+"),
        field("partitions", array(struct(
            field("partition_index", INT32, "0+"),
            field("partition_max_bytes", INT32, "0"),
            field("acknowledgement_batches", array(struct(
                field("first_offset", INT64, "0+"),
                field("last_offset", INT64, "0+"),
                field("acknowledge_types", array(INT8), "0+"),
            )), "0+"),
        )), "0+"),
    )), "0+"),
    field("forgotten_topics_data", array(struct(
        field("topic_id", TOPIC_ID, "0+"),
        field("partitions", array(INT32), "0+"),
    )), "0+"),
    key=78, versions="1-2", flexible="0+",
)

RESPONSE: Final[Message[ShareFetchResponse]] = message(
    "ShareFetchResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("error_code", INT16, "0+"),
    field("error_message", STRING, "0+", nullable="0+", default=None),
    field("acquisition_lock_timeout_ms", INT32, "1+"),
    field("responses", array(struct(
        field("topic_id", TOPIC_ID, "0+"),
        field("partitions", array(struct(
            field("partition_index", INT32, "0+"),
            field("error_code", INT16, "0+"),
            field("error_message", STRING, "0+", nullable="0+", default=None),
            field("acknowledge_error_code", INT16, "0+"),
            field("acknowledge_error_message", STRING, "0+", nullable="0+", default=None),
            field("current_leader", struct(
                field("leader_id", INT32, "0+"),
                field("leader_epoch", INT32, "0+"),
            ), "0+"),
            field("records", RECORDS, "0+", nullable="0"),
            field("acquired_records", array(struct(
                field("first_offset", INT64, "0+"),
                field("last_offset", INT64, "0+"),
                field("delivery_count", INT16, "0+"),
            )), "0+"),
        )), "0+"),
    )), "0+"),
    field("node_endpoints", array(struct(
        field("node_id", INT32, "0+"),
        field("host", STRING, "0+"),
        field("port", INT32, "0+"),
        field("rack", STRING, "0+", nullable="0+", default=None),
    )), "0+"),
    key=78, versions="1-2", flexible="0+",
)
