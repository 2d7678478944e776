"""DescribeTransactions, api key 65."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import DescribeTransactionsRequest, DescribeTransactionsResponse
from kordon.codecs.primitives import INT16, INT32, INT64, STRING, TOPIC_NAME, TRANSACTIONAL_ID
from kordon.codecs.schema import Api, Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

REQUEST: Final[Message[DescribeTransactionsRequest]] = message(
    "DescribeTransactionsRequest",
    field("transactional_ids", array(TRANSACTIONAL_ID), "0+"),
    key=65, versions="0", flexible="0+",
)

RESPONSE: Final[Message[DescribeTransactionsResponse]] = message(
    "DescribeTransactionsResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("transaction_states", array(struct(
        field("error_code", INT16, "0+"),
        field("transactional_id", TRANSACTIONAL_ID, "0+"),
        field("transaction_state", STRING, "0+"),
        field("transaction_timeout_ms", INT32, "0+"),
        field("transaction_start_time_ms", INT64, "0+"),
        field("producer_id", INT64, "0+"),
        field("producer_epoch", INT16, "0+"),
        field("topics", array(struct(
            field("topic", TOPIC_NAME, "0+"),
            field("partitions", array(INT32), "0+"),
        )), "0+"),
    )), "0+"),
    key=65, versions="0", flexible="0+",
)

API: Final = Api(REQUEST, RESPONSE)
