"""AddOffsetsToTxn, api key 25."""

from __future__ import annotations

from kordon.codecs.primitives import GROUP_ID, INT16, INT32, INT64, TRANSACTIONAL_ID
from kordon.codecs.schema import field, message

# A table reads line by line like its schema.
# fmt: off

REQUEST = message(
    "AddOffsetsToTxnRequest",
    field("transactional_id", TRANSACTIONAL_ID, "0+"),
    field("producer_id", INT64, "0+"),
    field("producer_epoch", INT16, "0+"),
    field("group_id", GROUP_ID, "0+"),
    key=25, versions="0-4", flexible="3+",
)

RESPONSE = message(
    "AddOffsetsToTxnResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("error_code", INT16, "0+"),
    key=25, versions="0-4", flexible="3+",
)
