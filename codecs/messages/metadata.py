"""Metadata, api key 3."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import MetadataRequest, MetadataResponse, MetadataResponsePartition
from kordon.codecs.primitives import BOOL, INT16, INT32, STRING, TOPIC_ID, TOPIC_NAME
from kordon.codecs.schema import Api, Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

# All topics are asked for by an empty array in version 0, and by null in later ones.
# Brokers take an id without a name from version 12 on.
REQUEST: Final[Message[MetadataRequest]] = message(
    "MetadataRequest",
    field("topics", array(struct(
        field("topic_id", TOPIC_ID, "10+"),
        field("name", TOPIC_NAME, "0+", nullable="10+"),
    )), "0+", nullable="1+"),
    field("allow_auto_topic_creation", BOOL, "4+", default=True),
    field("include_cluster_authorized_operations", BOOL, "8-10"),
    field("include_topic_authorized_operations", BOOL, "8+"),
    key=3, versions="0-13", flexible="9+",
)

PARTITION: Final[Message[MetadataResponsePartition]] = message(
    "MetadataResponsePartition",
    field("error_code", INT16, "0+"),
    field("partition_index", INT32, "0+"),
    field("leader_id", INT32, "0+"),
    field("leader_epoch", INT32, "7+", default=-1),
    field("replica_nodes", array(INT32), "0+"),
    field("isr_nodes", array(INT32), "0+"),
    field("offline_replicas", array(INT32), "5+"),
    key=3, versions="0-13", flexible="9+",
)

# Tags from 16384 up are fields of Kordon's dialect (KIP-253); who does not know them skips them.
RESPONSE: Final[Message[MetadataResponse]] = message(
    "MetadataResponse",
    field("throttle_time_ms", INT32, "3+"),
    field("brokers", array(struct(
        field("node_id", INT32, "0+"),
        field("host", STRING, "0+"),
        field("port", INT32, "0+"),
        field("rack", STRING, "1+", nullable="1+", default=None),
    )), "0+"),
    field("cluster_id", STRING, "2+", nullable="2+", default=None),
    field("controller_id", INT32, "1+", default=-1),
    field("topics", array(struct(
        field("error_code", INT16, "0+"),
        field("name", TOPIC_NAME, "0+", nullable="12+"),
        field("topic_id", TOPIC_ID, "10+"),
        field("is_internal", BOOL, "1+"),
        field("partitions", array(struct(*PARTITION.fields)), "0+"),
        field("topic_authorized_operations", INT32, "8+", default=-2147483648),
        field("initial_partition_count", INT32, "9+", tag=16384, tagged="9+", default=-1),
        field("undeleted_partition_count", INT32, "9+", tag=16385, tagged="9+", default=-1),
        field("virtual_partition_count", INT32, "9+", tag=16386, tagged="9+", default=-1),
        field("layout_epoch", INT32, "9+", tag=16387, tagged="9+", default=-1),
        field("enable_ordered_delivery", BOOL, "9+", tag=16388, tagged="9+", default=True),
    )), "0+"),
    field("cluster_authorized_operations", INT32, "8-10", default=-2147483648),
    field("error_code", INT16, "13+"),
    key=3, versions="0-13", flexible="9+",
)

API: Final = Api(REQUEST, RESPONSE)
