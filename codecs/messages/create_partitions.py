"""CreatePartitions, api key 37."""

from __future__ import annotations

from kordon.codecs.primitives import BOOL, INT16, INT32, STRING, TOPIC_NAME
from kordon.codecs.schema import array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

# Version 1 is the same as version 0.
# Version 2 adds flexible version support
# Version 3 is identical to version 2 but may return a THROTTLING_QUOTA_EXCEEDED error in the response if the
# partitions creation is throttled (KIP-599).
REQUEST = message(
    "CreatePartitionsRequest",
    field("topics", array(struct(
        field("name", TOPIC_NAME, "0+"),
        field("count", INT32, "0+"),
        field("assignments", array(struct(
            field("broker_ids", array(INT32), "0+"),
        )), "0+", nullable="0+"),
    )), "0+"),
    field("timeout_ms", INT32, "0+"),
    field("validate_only", BOOL, "0+"),
    key=37, versions="0-3", flexible="2+",
)

# Starting in version 1, on quota violation, brokers send out responses before throttling.
# Version 2 adds flexible version support
# Version 3 is identical to version 2 but may return a THROTTLING_QUOTA_EXCEEDED error in the response if the
# partitions creation is throttled (KIP-599).
RESPONSE = message(
    "CreatePartitionsResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("results", array(struct(
        field("name", TOPIC_NAME, "0+"),
        field("error_code", INT16, "0+"),
        field("error_message", STRING, "0+", nullable="0+", default=None),
    )), "0+"),
    key=37, versions="0-3", flexible="2+",
)
