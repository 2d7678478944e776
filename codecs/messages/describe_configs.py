"""DescribeConfigs, api key 32."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import DescribeConfigsRequest, DescribeConfigsResponse
from kordon.codecs.primitives import BOOL, INT8, INT16, INT32, RESOURCE_NAME, STRING
from kordon.codecs.schema import Api, Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[DescribeConfigsRequest]] = message(
    "DescribeConfigsRequest",
    field("resources", array(struct(
        field("resource_type", INT8, "0+"),
        field("resource_name", RESOURCE_NAME, "0+"),
        field("configuration_keys", array(STRING), "0+", nullable="0+"),
    )), "0+"),
    field("include_synonyms", BOOL, "1+"),
    field("include_documentation", BOOL, "3+"),
    key=32, versions="0-4", flexible="4+",
)

RESPONSE: Final[Message[DescribeConfigsResponse]] = message(
    "DescribeConfigsResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("results", array(struct(
        field("error_code", INT16, "0+"),
        field("error_message", STRING, "0+", nullable="0+"),
        field("resource_type", INT8, "0+"),
        field("resource_name", RESOURCE_NAME, "0+"),
        field("configs", array(struct(
            field("name", STRING, "0+"),
            field("value", STRING, "0+", nullable="0+"),
            field("read_only", BOOL, "0+"),
            field("is_default", BOOL, "0"),
            field("config_source", INT8, "1+", default=-1),
            field("is_sensitive", BOOL, "0+"),
            field("synonyms", array(struct(
                field("name", STRING, "1+"),
                field("value", STRING, "1+", nullable="0+"),
                field("source", INT8, "1+"),
            )), "1+"),
            field("config_type", INT8, "3+"),
            field("documentation", STRING, "3+", nullable="0+"),
        )), "0+"),
    )), "0+"),
    key=32, versions="0-4", flexible="4+",
)

API: Final = Api(REQUEST, RESPONSE)
