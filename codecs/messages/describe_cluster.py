"""DescribeCluster, api key 60."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import DescribeClusterRequest, DescribeClusterResponse
from kordon.codecs.primitives import BOOL, INT8, INT16, INT32, STRING
from kordon.codecs.schema import Api, Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[DescribeClusterRequest]] = message(
    "DescribeClusterRequest",
    field("include_cluster_authorized_operations", BOOL, "0+"),
    field("endpoint_type", INT8, "1+", default=1),
    field("include_fenced_brokers", BOOL, "2+"),
    key=60, versions="0-2", flexible="0+",
)

RESPONSE: Final[Message[DescribeClusterResponse]] = message(
    "DescribeClusterResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("error_code", INT16, "0+"),
    field("error_message", STRING, "0+", nullable="0+", default=None),
    field("endpoint_type", INT8, "1+", default=1),
    field("cluster_id", STRING, "0+"),
    field("controller_id", INT32, "0+", default=-1),
    field("brokers", array(struct(
        field("broker_id", INT32, "0+"),
        field("host", STRING, "0+"),
        field("port", INT32, "0+"),
        field("rack", STRING, "0+", nullable="0+", default=None),
        field("is_fenced", BOOL, "2+"),
    )), "0+"),
    field("cluster_authorized_operations", INT32, "0+", default=-2147483648),
    key=60, versions="0-2", flexible="0+",
)

API: Final = Api(REQUEST, RESPONSE)
