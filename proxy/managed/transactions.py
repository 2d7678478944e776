"""AddPartitionsToTxn that names managed topics: refused as a whole (rule I9).

The broker would not know most of the partitions, and clients would ask again until their transaction times out. Upon
INVALID_TXN_STATE Java and librdkafka call their producer failed at once, and franz-go fails its producer id.

Source: AddPartitionsToTxnRequest.json in Kafka 4.3; TransactionManager.AddPartitionsToTxnHandler (Java),
rd_kafka_txn_handle_AddPartitionsToTxn (librdkafka), sink.doTxnReq (franz-go).
"""

from __future__ import annotations

from typing import Any

from kordon.proxy.control.codes import Code
from kordon.proxy.log_limits import client_log
from kordon.proxy.managed.topics import ManagedTopics

log = client_log(__name__)


def refusal(value: Any, topics: ManagedTopics) -> dict[str, Any] | None:
    """Refuses a transaction that is to write to a managed topic.

    Args:
        value: The request, parsed.
        topics: What is managed.

    Returns:
        The response's fields; None: it names no managed topic.
    """
    transactions = value.get("transactions", ())
    rows = [*value.get("v3_and_below_topics", ()), *(row for each in transactions for row in each.topics)]
    managed = sorted({row.name for row in rows if topics.named(row.name) is not None})
    if not managed:
        return None
    name = value.get("v3_and_below_transactional_id")
    log.warning("transaction_refused", transactional_id=name, topics=managed, reason="virtual partitions")
    return {
        "results_by_topic_v3_and_below": _results(value.get("v3_and_below_topics", ()), topics),
        "results_by_transaction": [
            {"transactional_id": each.transactional_id, "topic_results": _results(each.topics, topics)}
            for each in transactions
        ],
    }


def _results(rows: Any, topics: ManagedTopics) -> list[dict[str, Any]]:
    """Returns a code for each partition: as with brokers, one that fails keeps all others out."""
    found: list[dict[str, Any]] = []
    for row in rows:
        code = Code.OPERATION_NOT_ATTEMPTED if topics.named(row.name) is None else Code.INVALID_TXN_STATE
        partitions = [{"partition_index": index, "partition_error_code": code} for index in row.partitions]
        found.append({"name": row.name, "results_by_partition": partitions})
    return found
