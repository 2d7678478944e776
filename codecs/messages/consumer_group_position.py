"""ConsumerGroupPosition, api key 16384: KIP-253's, "Protocol" 3 and 4; only Kordon's dialect has it."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import ConsumerGroupPositionRequest, ConsumerGroupPositionResponse
from kordon.codecs.dialect import CONSUMER_GROUP_POSITION
from kordon.codecs.primitives import BOOL, GROUP_ID, INT16, INT32, INT64, STRING, TOPIC_NAME
from kordon.codecs.schema import Message, array, field, message, struct

# A table reads line by line like the proposal's.
# fmt: off

# Two tagged fields are not the proposal's. With the group instance id (KIP-345 came later) a fenced static member is
# told so. The sequence rises whenever a member says something new, or again what was not answered: so a report that
# was held up on its way does not count after a later one.
REQUEST: Final[Message[ConsumerGroupPositionRequest]] = message(
    "ConsumerGroupPositionRequest",
    field("group_id", GROUP_ID, "0+"),
    field("generation_id", INT32, "0+"),
    field("member_id", STRING, "0+"),
    field("topics", array(struct(
        field("topic", TOPIC_NAME, "0+"),
        field("partitions", array(struct(
            field("partition", INT32, "0+"),
            field("need_position", BOOL, "0+"),
            field("position", INT64, "0+", default=-1),
        )), "0+"),
    )), "0+"),
    field("group_instance_id", STRING, "0+", nullable="0+", tag=16384, tagged="0+", default=None),
    field("report_sequence", INT64, "0+", tag=16385, tagged="0+", default=-1),
    key=CONSUMER_GROUP_POSITION, versions="0", flexible="0+",
)

RESPONSE: Final[Message[ConsumerGroupPositionResponse]] = message(
    "ConsumerGroupPositionResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("topics", array(struct(
        field("topic", TOPIC_NAME, "0+"),
        field("partitions", array(struct(
            field("partition", INT32, "0+"),
            field("need_position", BOOL, "0+"),
            field("position", INT64, "0+", default=-1),
        )), "0+"),
    )), "0+"),
    field("error_code", INT16, "0+"),
    key=CONSUMER_GROUP_POSITION, versions="0", flexible="0+",
)
