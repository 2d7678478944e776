"""FindCoordinator, api key 10."""

from __future__ import annotations

from kordon.codecs.primitives import COORDINATOR_KEY, INT8, INT16, INT32, STRING
from kordon.codecs.schema import array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

# Version 1 adds KeyType.
# Version 2 is the same as version 1.
# Version 3 is the first flexible version.
# Version 4 adds support for batching via CoordinatorKeys (KIP-699)
# Version 5 adds support for new error code TRANSACTION_ABORTABLE (KIP-890).
# Version 6 adds support for share groups (KIP-932). For key type SHARE (2), the coordinator key format is
# "groupId:topicId:partition".
REQUEST = message(
    "FindCoordinatorRequest",
    field("key", COORDINATOR_KEY, "0-3"),
    field("key_type", INT8, "1+"),
    field("coordinator_keys", array(COORDINATOR_KEY), "4+"),
    key=10, versions="0-6", flexible="3+",
)

# Version 1 adds throttle time and error messages.
# Starting in version 2, on quota violation, brokers send out responses before throttling.
# Version 3 is the first flexible version.
# Version 4 adds support for batching via Coordinators (KIP-699)
# Version 5 adds support for new error code TRANSACTION_ABORTABLE (KIP-890).
# Version 6 adds support for share groups (KIP-932).
RESPONSE = message(
    "FindCoordinatorResponse",
    field("throttle_time_ms", INT32, "1+"),
    field("error_code", INT16, "0-3"),
    field("error_message", STRING, "1-3", nullable="1-3"),
    field("node_id", INT32, "0-3"),
    field("host", STRING, "0-3"),
    field("port", INT32, "0-3"),
    field("coordinators", array(struct(
        field("key", COORDINATOR_KEY, "4+"),
        field("node_id", INT32, "4+"),
        field("host", STRING, "4+"),
        field("port", INT32, "4+"),
        field("error_code", INT16, "4+"),
        field("error_message", STRING, "4+", nullable="4+"),
    )), "4+"),
    key=10, versions="0-6", flexible="3+",
)
