"""AlterReplicaLogDirs, api key 34."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from kordon.codecs.primitives import INT16, INT32, STRING, TOPIC_NAME
from kordon.codecs.schema import Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[AlterReplicaLogDirsRequest]] = message(
    "AlterReplicaLogDirsRequest",
    field("dirs", array(struct(
        field("path", STRING, "0+"),
        field("topics", array(struct(
            field("name", TOPIC_NAME, "0+"),
            field("partitions", array(INT32), "0+"),
        )), "0+"),
    )), "0+"),
    key=34, versions="0-2", flexible="2+",
)

RESPONSE: Final[Message[AlterReplicaLogDirsResponse]] = message(
    "AlterReplicaLogDirsResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("results", array(struct(
        field("topic_name", TOPIC_NAME, "0+"),
        field("partitions", array(struct(
            field("partition_index", INT32, "0+"),
            field("error_code", INT16, "0+"),
        )), "0+"),
    )), "0+"),
    key=34, versions="0-2", flexible="2+",
)
