"""DeleteTopics, api key 20."""

from __future__ import annotations

from kordon.codecs.primitives import INT16, INT32, STRING, TOPIC_ID, TOPIC_NAME
from kordon.codecs.schema import array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

# Version 0 was removed in Apache Kafka 4.0.
# Versions 0, 1, 2, and 3 are the same.
# Version 4 is the first flexible version.
# Version 5 adds ErrorMessage in the response and may return a THROTTLING_QUOTA_EXCEEDED error in the response if
# the topics deletion is throttled (KIP-599).
# Version 6 reorganizes topics, adds topic IDs and allows topic names to be null.
REQUEST = message(
    "DeleteTopicsRequest",
    field("topics", array(struct(
        field("name", TOPIC_NAME, "6+", nullable="6+", default=None),
        field("topic_id", TOPIC_ID, "6+"),
    )), "6+"),
    field("topic_names", array(TOPIC_NAME), "0-5"),
    field("timeout_ms", INT32, "0+"),
    key=20, versions="0-6", flexible="4+",
)

# Version 0 was removed in Apache Kafka 4.0.
# Version 1 adds the throttle time.
# Starting in version 2, on quota violation, brokers send out responses before throttling.
# Starting in version 3, a TOPIC_DELETION_DISABLED error code may be returned.
# Version 4 is the first flexible version.
# Version 5 adds ErrorMessage in the response and may return a THROTTLING_QUOTA_EXCEEDED error in the response if
# the topics deletion is throttled (KIP-599).
# Version 6 adds topic ID to responses. An UNSUPPORTED_VERSION error code will be returned when attempting to
# delete using topic IDs when IBP < 2.8. UNKNOWN_TOPIC_ID error code will be returned when IBP is at least 2.8,
# but the topic ID was not found.
RESPONSE = message(
    "DeleteTopicsResponse",
    field("throttle_time_ms", INT32, "1+"),
    field("responses", array(struct(
        field("name", TOPIC_NAME, "0+", nullable="6+"),
        field("topic_id", TOPIC_ID, "6+"),
        field("error_code", INT16, "0+"),
        field("error_message", STRING, "5+", nullable="5+", default=None),
    )), "0+"),
    key=20, versions="0-6", flexible="4+",
)
