"""InitProducerId, api key 22."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import InitProducerIdRequest, InitProducerIdResponse
from kordon.codecs.primitives import BOOL, INT16, INT32, INT64, TRANSACTIONAL_ID
from kordon.codecs.schema import Api, Message, field, message

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[InitProducerIdRequest]] = message(
    "InitProducerIdRequest",
    field("transactional_id", TRANSACTIONAL_ID, "0+", nullable="0+"),
    field("transaction_timeout_ms", INT32, "0+"),
    field("producer_id", INT64, "3+", default=-1),
    field("producer_epoch", INT16, "3+", default=-1),
    field("enable2_pc", BOOL, "6+"),
    field("keep_prepared_txn", BOOL, "6+"),
    key=22, versions="0-6", flexible="2+",
)

RESPONSE: Final[Message[InitProducerIdResponse]] = message(
    "InitProducerIdResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("error_code", INT16, "0+"),
    field("producer_id", INT64, "0+", default=-1),
    field("producer_epoch", INT16, "0+"),
    field("ongoing_txn_producer_id", INT64, "6+", default=-1),
    field("ongoing_txn_producer_epoch", INT16, "6+", default=-1),
    key=22, versions="0-6", flexible="2+",
)

API: Final = Api(REQUEST, RESPONSE)
