"""OffsetCommit, api key 8."""

from __future__ import annotations

from kordon.codecs.primitives import GROUP_ID, INT16, INT32, INT64, STRING, TOPIC_ID, TOPIC_NAME
from kordon.codecs.schema import array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

# Versions 0-1 were removed in Apache Kafka 4.0.
# Version 1 adds timestamp and group membership information, as well as the commit timestamp.
# Version 2 adds retention time. It removes the commit timestamp added in version 1.
# Version 3 and 4 are the same as version 2.
# Version 5 removes the retention time, which is now controlled only by a broker configuration.
# Version 6 adds the leader epoch for fencing.
# version 7 adds a new field called groupInstanceId to indicate member identity across restarts.
# Version 8 is the first flexible version.
# Version 9 is the first version that can be used with the new consumer group protocol (KIP-848). The request is
# the same as version 8.
# Version 10 adds support for topic ids and removes support for topic names (KIP-848).
REQUEST = message(
    "OffsetCommitRequest",
    field("group_id", GROUP_ID, "0+"),
    field("generation_id_or_member_epoch", INT32, "1+", default=-1),
    field("member_id", STRING, "1+"),
    field("group_instance_id", STRING, "7+", nullable="7+", default=None),
    field("retention_time_ms", INT64, "2-4", default=-1),
    field("topics", array(struct(
        field("name", TOPIC_NAME, "0-9"),
        field("topic_id", TOPIC_ID, "10+"),
        field("partitions", array(struct(
            field("partition_index", INT32, "0+"),
            field("committed_offset", INT64, "0+"),
            field("committed_leader_epoch", INT32, "6+", default=-1),
            field("commit_timestamp", INT64, "1", default=-1),
            field("committed_metadata", STRING, "0+", nullable="0+"),
        )), "0+"),
    )), "0+"),
    key=8, versions="0-10", flexible="8+",
)

# Versions 0-1 were removed in Apache Kafka 4.0.
# Versions 1 and 2 are the same as version 0.
# Version 3 adds the throttle time to the response.
# Starting in version 4, on quota violation, brokers send out responses before throttling.
# Versions 5 and 6 are the same as version 4.
# Version 7 offsetCommitRequest supports a new field called groupInstanceId to indicate member identity across
# restarts.
# Version 8 is the first flexible version.
# Version 9 is the first version that can be used with the new consumer group protocol (KIP-848). The response is
# the same as version 8 but can return STALE_MEMBER_EPOCH when the new consumer group protocol is used and
# GROUP_ID_NOT_FOUND when the group does not exist for both protocols.
# Version 10 adds support for topic ids and removes support for topic names (KIP-848).
RESPONSE = message(
    "OffsetCommitResponse",
    field("throttle_time_ms", INT32, "3+"),
    field("topics", array(struct(
        field("name", TOPIC_NAME, "0-9"),
        field("topic_id", TOPIC_ID, "10+"),
        field("partitions", array(struct(
            field("partition_index", INT32, "0+"),
            field("error_code", INT16, "0+"),
        )), "0+"),
    )), "0+"),
    key=8, versions="0-10", flexible="8+",
)
