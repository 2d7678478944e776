"""EndTxn, api key 26."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import EndTxnRequest, EndTxnResponse
from kordon.codecs.primitives import BOOL, INT16, INT32, INT64, TRANSACTIONAL_ID
from kordon.codecs.schema import Api, Message, field, message

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[EndTxnRequest]] = message(
    "EndTxnRequest",
    field("transactional_id", TRANSACTIONAL_ID, "0+"),
    field("producer_id", INT64, "0+"),
    field("producer_epoch", INT16, "0+"),
    field("committed", BOOL, "0+"),
    key=26, versions="0-5", flexible="3+",
)

RESPONSE: Final[Message[EndTxnResponse]] = message(
    "EndTxnResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("error_code", INT16, "0+"),
    field("producer_id", INT64, "5+", default=-1),
    field("producer_epoch", INT16, "5+", default=-1),
    key=26, versions="0-5", flexible="3+",
)

API: Final = Api(REQUEST, RESPONSE)
