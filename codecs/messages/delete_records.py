"""DeleteRecords, api key 21."""

from __future__ import annotations

from kordon.codecs.primitives import INT16, INT32, INT64, TOPIC_NAME
from kordon.codecs.schema import array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST = message(
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

RESPONSE = message(
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
