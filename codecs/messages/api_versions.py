"""ApiVersions, api key 18."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import ApiVersionsRequest, ApiVersionsResponse
from kordon.codecs.primitives import BOOL, INT16, INT32, INT64, STRING
from kordon.codecs.schema import Api, Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

# Tags from 16384 up are fields of Kordon's dialect (KIP-253); who does not know them skips them.
# Version 5 says whom the client means to reach; whoever is somebody else answers so (KIP-1242).
REQUEST: Final[Message[ApiVersionsRequest]] = message(
    "ApiVersionsRequest",
    field("client_software_name", STRING, "3+"),
    field("client_software_version", STRING, "3+"),
    field("cluster_id", STRING, "5+", nullable="5+", default=None),
    field("node_id", INT32, "5+", default=-1),
    field("kordon_client", INT16, "3+", tag=16384, tagged="3+"),
    key=18, versions="0-5", flexible="3+",
)

# A broker that speaks version 5 may tell a client to bootstrap again: REBOOTSTRAP_REQUIRED (KIP-1242).
# Its header has no tagged fields in any version: a client reads it before it knows what the broker speaks.
# An answer of UNSUPPORTED_VERSION is of version 0, and says which versions of ApiVersions there are (KIP-511).
RESPONSE: Final[Message[ApiVersionsResponse]] = message(
    "ApiVersionsResponse",
    field("error_code", INT16, "0+"),
    field("api_keys", array(struct(
        field("api_key", INT16, "0+"),
        field("min_version", INT16, "0+"),
        field("max_version", INT16, "0+"),
    )), "0+"),
    field("throttle_time_ms", INT32, "1+"),
    field("supported_features", array(struct(
        field("name", STRING, "3+"),
        field("min_version", INT16, "3+"),
        field("max_version", INT16, "3+"),
    )), "3+", tag=0, tagged="3+"),
    field("finalized_features_epoch", INT64, "3+", tag=1, tagged="3+", default=-1),
    field("finalized_features", array(struct(
        field("name", STRING, "3+"),
        field("max_version_level", INT16, "3+"),
        field("min_version_level", INT16, "3+"),
    )), "3+", tag=2, tagged="3+"),
    field("zk_migration_ready", BOOL, "3+", tag=3, tagged="3+"),
    key=18, versions="0-5", flexible="3+",
)

API: Final = Api(REQUEST, RESPONSE)
