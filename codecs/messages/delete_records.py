"""DeleteRecords, api key 21."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import DeleteRecordsRequest, DeleteRecordsResponse
from kordon.codecs.primitives import INT16, INT32, INT64, TOPIC_NAME
from kordon.codecs.schema import Api, Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[DeleteRecordsRequest]] = message(
    "DeleteRecordsRequest",
    field("topics", array(struct(
        field("name", TOPIC_NAME, "0+"),
        field("partitions", array(struct(
            field("partition_index", INT32, "0+"),
            field("offset", INT64, "0+"),
        )), "0+"),
    )), "0+"),
    field("timeout_ms", INT32, "0+"),
    key=21, versions="0-2", flexible="2+",
)

RESPONSE: Final[Message[DeleteRecordsResponse]] = message(
    "DeleteRecordsResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("topics", array(struct(
        field("name", TOPIC_NAME, "0+"),
        field("partitions", array(struct(
            field("partition_index", INT32, "0+"),
            field("low_watermark", INT64, "0+"),
            field("error_code", INT16, "0+"),
        )), "0+"),
    )), "0+"),
    key=21, versions="0-2", flexible="2+",
)

API: Final = Api(REQUEST, RESPONSE)
