"""ListTransactions, api key 66."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import ListTransactionsRequest, ListTransactionsResponse
from kordon.codecs.primitives import INT16, INT32, INT64, STRING, TRANSACTIONAL_ID
from kordon.codecs.schema import Api, Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[ListTransactionsRequest]] = message(
    "ListTransactionsRequest",
    field("state_filters", array(STRING), "0+"),
    field("producer_id_filters", array(INT64), "0+"),
    field("duration_filter", INT64, "1+", default=-1),
    field("transactional_id_pattern", STRING, "2+", nullable="2+", default=None),
    key=66, versions="0-2", flexible="0+",
)

RESPONSE: Final[Message[ListTransactionsResponse]] = message(
    "ListTransactionsResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("error_code", INT16, "0+"),
    field("unknown_state_filters", array(STRING), "0+"),
    field("transaction_states", array(struct(
        field("transactional_id", TRANSACTIONAL_ID, "0+"),
        field("producer_id", INT64, "0+"),
        field("transaction_state", STRING, "0+"),
    )), "0+"),
    key=66, versions="0-2", flexible="0+",
)

API: Final = Api(REQUEST, RESPONSE)
