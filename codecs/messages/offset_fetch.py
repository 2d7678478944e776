"""OffsetFetch, api key 9."""

from __future__ import annotations

from kordon.codecs.primitives import BOOL, GROUP_ID, INT16, INT32, INT64, STRING, TOPIC_ID, TOPIC_NAME
from kordon.codecs.schema import array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

# Version 0 was removed in Apache Kafka 4.0.
# In version 0, the request read offsets from ZK.
# Starting in version 1, the broker supports fetching offsets from the internal __consumer_offsets topic.
# Starting in version 2, the request can contain a null topics array to indicate that offsets for all topics
# should be fetched. It also returns a top level error code for group or coordinator level errors.
# Version 3, 4, and 5 are the same as version 2.
# Version 6 is the first flexible version.
# Version 7 is adding the require stable flag.
# Version 8 is adding support for fetching offsets for multiple groups at a time.
# Version 9 is the first version that can be used with the new consumer group protocol (KIP-848). It adds the
# MemberId and MemberEpoch fields. Those are filled in and validated when the new consumer protocol is used.
# Version 10 adds support for topic ids and removes support for topic names (KIP-848).
REQUEST = message(
    "OffsetFetchRequest",
    field("group_id", GROUP_ID, "0-7"),
    field("topics", array(struct(
        field("name", TOPIC_NAME, "0-7"),
        field("partition_indexes", array(INT32), "0-7"),
    )), "0-7", nullable="2-7"),
    field("groups", array(struct(
        field("group_id", GROUP_ID, "8+"),
        field("member_id", STRING, "9+", nullable="9+", default=None),
        field("member_epoch", INT32, "9+", default=-1),
        field("topics", array(struct(
            field("name", TOPIC_NAME, "8-9"),
            field("topic_id", TOPIC_ID, "10+"),
            field("partition_indexes", array(INT32), "8+"),
        )), "8+", nullable="8+"),
    )), "8+"),
    field("require_stable", BOOL, "7+"),
    key=9, versions="0-10", flexible="6+",
)

# Version 0 was removed in Apache Kafka 4.0.
# Version 1 is the same as version 0.
# Version 2 adds a top-level error code.
# Version 3 adds the throttle time.
# Starting in version 4, on quota violation, brokers send out responses before throttling.
# Version 5 adds the leader epoch to the committed offset.
# Version 6 is the first flexible version.
# Version 7 adds pending offset commit as new error response on partition level.
# Version 8 is adding support for fetching offsets for multiple groups
# Version 9 is the first version that can be used with the new consumer group protocol (KIP-848). The response is
# the same as version 8 but can return STALE_MEMBER_EPOCH and UNKNOWN_MEMBER_ID errors when the new consumer group
# protocol is used.
# Version 10 adds support for topic ids and removes support for topic names (KIP-848). It can return
# UNKNOWN_TOPIC_ID if topic IDs used and the topic is not found in metadata.
RESPONSE = message(
    "OffsetFetchResponse",
    field("throttle_time_ms", INT32, "3+"),
    field("topics", array(struct(
        field("name", TOPIC_NAME, "0-7"),
        field("partitions", array(struct(
            field("partition_index", INT32, "0-7"),
            field("committed_offset", INT64, "0-7"),
            field("committed_leader_epoch", INT32, "5-7", default=-1),
            field("metadata", STRING, "0-7", nullable="0-7"),
            field("error_code", INT16, "0-7"),
        )), "0-7"),
    )), "0-7"),
    field("error_code", INT16, "2-7"),
    field("groups", array(struct(
        field("group_id", GROUP_ID, "8+"),
        field("topics", array(struct(
            field("name", TOPIC_NAME, "8-9"),
            field("topic_id", TOPIC_ID, "10+"),
            field("partitions", array(struct(
                field("partition_index", INT32, "8+"),
                field("committed_offset", INT64, "8+"),
                field("committed_leader_epoch", INT32, "8+", default=-1),
                field("metadata", STRING, "8+", nullable="8+"),
                field("error_code", INT16, "8+"),
            )), "8+"),
        )), "8+"),
        field("error_code", INT16, "8+"),
    )), "8+"),
    key=9, versions="0-10", flexible="6+",
)
