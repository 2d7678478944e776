"""ListConfigResources, api key 74."""

from __future__ import annotations

from kordon.codecs.primitives import INT8, INT16, INT32, RESOURCE_NAME
from kordon.codecs.schema import array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST = message(
    "ListConfigResourcesRequest",
    field("resource_types", array(INT8), "1+"),
    key=74, versions="0-1", flexible="0+",
)

RESPONSE = message(
    "ListConfigResourcesResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("error_code", INT16, "0+"),
    field("config_resources", array(struct(
        field("resource_name", RESOURCE_NAME, "0+"),
        field("resource_type", INT8, "1+", default=16),
    )), "0+"),
    key=74, versions="0-1", flexible="0+",
)
