"""Metadata, api key 3."""

from __future__ import annotations

from kordon.codecs.primitives import BOOL, INT16, INT32, STRING, TOPIC_ID, TOPIC_NAME
from kordon.codecs.schema import array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

# In version 0, an empty array of topics asks for all of them. In version 1 and higher, an empty array asks for none,
# and null asks for all.
# Version 2 and 3 are the same as version 1.
# Version 4 adds AllowAutoTopicCreation.
# Starting in version 8, authorized operations can be requested for cluster and topic resource.
# Version 9 is the first flexible version.
# Version 10 adds topicId and allows name field to be null; not implemented on the server before version 12.
# Version 11 deprecates IncludeClusterAuthorizedOperations. This is now exposed by the DescribeCluster API (KIP-700).
# Version 12 supports topic Id.
# Version 13 supports top-level error code in the response.
REQUEST = message(
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

# Tags from 16384 up are fields of Kordon's dialect (KIP-253); who does not know them skips them.
# Version 1 adds fields for the rack of each broker, the controller id, and whether or not the topic is internal.
# Version 2 adds the cluster ID field.
# Version 3 adds the throttle time.
# Version 4 is the same as version 3.
# Version 5 adds a per-partition offline_replicas field. This field specifies the list of replicas that are
# offline.
# Starting in version 6, on quota violation, brokers send out responses before throttling.
# Version 7 adds the leader epoch to the partition metadata.
# Starting in version 8, brokers can send authorized operations for topic and cluster.
# Version 9 is the first flexible version.
# Version 10 adds topicId.
# Version 11 deprecates ClusterAuthorizedOperations. This is now exposed by the DescribeCluster API (KIP-700).
# Version 12 supports topicId.
# Version 13 supports top-level error code in the response.
RESPONSE = message(
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
        field("partitions", array(struct(
            field("error_code", INT16, "0+"),
            field("partition_index", INT32, "0+"),
            field("leader_id", INT32, "0+"),
            field("leader_epoch", INT32, "7+", default=-1),
            field("replica_nodes", array(INT32), "0+"),
            field("isr_nodes", array(INT32), "0+"),
            field("offline_replicas", array(INT32), "5+"),
        )), "0+"),
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
