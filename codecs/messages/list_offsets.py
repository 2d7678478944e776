"""ListOffsets, api key 2."""

from __future__ import annotations

from kordon.codecs.primitives import INT8, INT16, INT32, INT64, TOPIC_NAME
from kordon.codecs.schema import array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

# Version 0 was removed in Apache Kafka 4.0.
# Version 1 removes MaxNumOffsets. From this version forward, only a single offset can be returned.
# Version 2 adds the isolation level, which is used for transactional reads.
# Version 3 is the same as version 2.
# Version 4 adds the current leader epoch, which is used for fencing.
# Version 5 is the same as version 4.
# Version 6 enables flexible versions.
# Version 7 enables listing offsets by max timestamp (KIP-734).
# Version 8 enables listing offsets by local log start offset (KIP-405).
# Version 9 enables listing offsets by last tiered offset (KIP-1005).
# Version 10 enables async remote list offsets support (KIP-1075)
# Version 11 enables listing offsets by earliest pending upload offset (KIP-1023)
REQUEST = message(
    "ListOffsetsRequest",
    field("replica_id", INT32, "0+"),
    field("isolation_level", INT8, "2+"),
    field("topics", array(struct(
        field("name", TOPIC_NAME, "0+"),
        field("partitions", array(struct(
            field("partition_index", INT32, "0+"),
            field("current_leader_epoch", INT32, "4+", default=-1),
            field("timestamp", INT64, "0+"),
            field("max_num_offsets", INT32, "0", default=1),
        )), "0+"),
    )), "0+"),
    field("timeout_ms", INT32, "10+"),
    key=2, versions="0-11", flexible="6+",
)

# Version 0 was removed in Apache Kafka 4.0.
# Version 1 removes the offsets array in favor of returning a single offset.
# Version 1 also adds the timestamp associated with the returned offset.
# Version 2 adds the throttle time.
# Starting in version 3, on quota violation, brokers send out responses before throttling.
# Version 4 adds the leader epoch, which is used for fencing.
# Version 5 adds a new error code, OFFSET_NOT_AVAILABLE.
# Version 6 enables flexible versions.
# Version 7 is the same as version 6 (KIP-734).
# Version 8 enables listing offsets by local log start offset. This is the earliest log start offset in the local
# log. (KIP-405).
# Version 9 enables listing offsets by last tiered offset (KIP-1005).
# Version 10 enables async remote list offsets support (KIP-1075)
# Version 11 enables listing offsets by earliest pending upload offset (KIP-1023)
RESPONSE = message(
    "ListOffsetsResponse",
    field("throttle_time_ms", INT32, "2+"),
    field("topics", array(struct(
        field("name", TOPIC_NAME, "0+"),
        field("partitions", array(struct(
            field("partition_index", INT32, "0+"),
            field("error_code", INT16, "0+"),
            field("old_style_offsets", array(INT64), "0"),
            field("timestamp", INT64, "1+", default=-1),
            field("offset", INT64, "1+", default=-1),
            field("leader_epoch", INT32, "4+", default=-1),
        )), "0+"),
    )), "0+"),
    key=2, versions="0-11", flexible="6+",
)
