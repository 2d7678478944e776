"""StreamsGroupTopologyDescriptionUpdate, api key 93."""

from __future__ import annotations

from kordon.codecs.primitives import GROUP_ID, INT8, INT16, INT32, STRING, TOPIC_NAME
from kordon.codecs.schema import array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

NODE = struct(
    field("name", STRING, "0+"),
    field("node_type", INT8, "0+"),
    field("source_topics", array(TOPIC_NAME), "0+"),
    field("sink_topic", TOPIC_NAME, "0+", nullable="0+", default=None),
    field("stores", array(STRING), "0+"),
    field("successors", array(STRING), "0+"),
)

REQUEST = message(
    "StreamsGroupTopologyDescriptionUpdateRequest",
    field("group_id", GROUP_ID, "0+"),
    field("member_id", STRING, "0+"),
    field("topology_epoch", INT32, "0+"),
    field("topology_description", struct(
        field("subtopologies", array(struct(
            field("subtopology_id", STRING, "0+"),
            field("nodes", array(NODE), "0+"),
        )), "0+"),
        field("global_stores", array(struct(
            field("source", NODE, "0+"),
            field("processor", NODE, "0+"),
        )), "0+"),
    ), "0+"),
    key=93, versions="0", flexible="0+",
)

RESPONSE = message(
    "StreamsGroupTopologyDescriptionUpdateResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("error_code", INT16, "0+"),
    field("error_message", STRING, "0+", nullable="0+", default=None),
    key=93, versions="0", flexible="0+",
)
