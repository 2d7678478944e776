"""AddPartitionsToTxn, api key 24."""

from __future__ import annotations

from typing import Final

from kordon.codecs.bodies import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from kordon.codecs.primitives import BOOL, INT16, INT32, INT64, TOPIC_NAME, TRANSACTIONAL_ID
from kordon.codecs.schema import Api, Message, array, field, message, struct

# A table reads line by line like its schema.
# fmt: off

ADD_PARTITIONS_TO_TXN_TOPIC = struct(
    field("name", TOPIC_NAME, "0+"),
    field("partitions", array(INT32), "0+"),
)

ADD_PARTITIONS_TO_TXN_PARTITION_RESULT = struct(
    field("partition_index", INT32, "0+"),
    field("partition_error_code", INT16, "0+"),
)

ADD_PARTITIONS_TO_TXN_TOPIC_RESULT = struct(
    field("name", TOPIC_NAME, "0+"),
    field("results_by_partition", array(ADD_PARTITIONS_TO_TXN_PARTITION_RESULT), "0+"),
)

# Clients ask in versions up to 3; brokers ask each other in the later ones.
REQUEST: Final[Message[AddPartitionsToTxnRequest]] = message(
    "AddPartitionsToTxnRequest",
    field("transactions", array(struct(
        field("transactional_id", TRANSACTIONAL_ID, "4+"),
        field("producer_id", INT64, "4+"),
        field("producer_epoch", INT16, "4+"),
        field("verify_only", BOOL, "4+"),
        field("topics", array(ADD_PARTITIONS_TO_TXN_TOPIC), "4+"),
    )), "4+"),
    field("v3_and_below_transactional_id", TRANSACTIONAL_ID, "0-3"),
    field("v3_and_below_producer_id", INT64, "0-3"),
    field("v3_and_below_producer_epoch", INT16, "0-3"),
    field("v3_and_below_topics", array(ADD_PARTITIONS_TO_TXN_TOPIC), "0-3"),
    key=24, versions="0-5", flexible="3+",
)

RESPONSE: Final[Message[AddPartitionsToTxnResponse]] = message(
    "AddPartitionsToTxnResponse",
    field("throttle_time_ms", INT32, "0+"),
    field("error_code", INT16, "4+"),
    field("results_by_transaction", array(struct(
        field("transactional_id", TRANSACTIONAL_ID, "4+"),
        field("topic_results", array(ADD_PARTITIONS_TO_TXN_TOPIC_RESULT), "4+"),
    )), "4+"),
    field("results_by_topic_v3_and_below", array(ADD_PARTITIONS_TO_TXN_TOPIC_RESULT), "0-3"),
    key=24, versions="0-5", flexible="3+",
)

API: Final = Api(REQUEST, RESPONSE)
