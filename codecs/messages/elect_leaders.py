"""ElectLeaders, api key 43."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import ElectLeadersRequest, ElectLeadersResponse
from kordon.codecs.primitives import INT8, INT16, INT32, STRING, TOPIC_NAME
from kordon.codecs.schema import Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[ElectLeadersRequest]] = message(
    "ElectLeadersRequest",
    field("election_type", INT8, "1+"),
    field("topic_partitions", array(struct(
        field("topic", TOPIC_NAME, "0+"),
        field("partitions", array(INT32), "0+"),
    )), "0+", nullable="0+"),
    field("timeout_ms", INT32, "0+", default=60000),
    key=43, versions="0-2", flexible="2+",
)

RESPONSE: Final[Message[ElectLeadersResponse]] = message(
    "ElectLeadersResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("error_code", INT16, "1+"),
    field("replica_election_results", array(struct(
        field("topic", TOPIC_NAME, "0+"),
        field("partition_result", array(struct(
            field("partition_id", INT32, "0+"),
            field("error_code", INT16, "0+"),
            field("error_message", STRING, "0+", nullable="0+"),
        )), "0+"),
    )), "0+"),
    key=43, versions="0-2", flexible="2+",
)
