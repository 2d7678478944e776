"""DescribeClientQuotas, api key 48."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from kordon.codecs.primitives import BOOL, FLOAT64, INT8, INT16, INT32, STRING
from kordon.codecs.schema import Api, Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[DescribeClientQuotasRequest]] = message(
    "DescribeClientQuotasRequest",
    field("components", array(struct(
        field("entity_type", STRING, "0+"),
        field("match_type", INT8, "0+"),
        field("match", STRING, "0+", nullable="0+"),
    )), "0+"),
    field("strict", BOOL, "0+"),
    key=48, versions="0-1", flexible="1+",
)

RESPONSE: Final[Message[DescribeClientQuotasResponse]] = message(
    "DescribeClientQuotasResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("error_code", INT16, "0+"),
    field("error_message", STRING, "0+", nullable="0+"),
    field("entries", array(struct(
        field("entity", array(struct(
            field("entity_type", STRING, "0+"),
            field("entity_name", STRING, "0+", nullable="0+"),
        )), "0+"),
        field("values", array(struct(
            field("key", STRING, "0+"),
            field("value", FLOAT64, "0+"),
        )), "0+"),
    )), "0+", nullable="0+"),
    key=48, versions="0-1", flexible="1+",
)

API: Final = Api(REQUEST, RESPONSE)
