"""AddPartitionsToTxn: a request that names managed topics is refused as a whole (NO-TRANSACTIONS), in both views.

The broker would not know most of the partitions, and clients would ask again until their transaction times out. Upon
INVALID_TXN_STATE Java and librdkafka call their producer failed at once, and franz-go fails its producer id.

The broker is asked all the same, with a producer id that no transaction has (`replies.py` says why): it looks at the
rights to the transactional id and to each topic first.

Source: Request.json in Kafka 4.3; KafkaApis.handleAddPartitionsToTxnRequest, TransactionCoordinator
(Kafka 4.3); TransactionManager.AddPartitionsToTxnHandler (Java), rd_kafka_txn_handle_AddPartitionsToTxn (librdkafka),
sink.doTxnReq (franz-go).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from kordon.codecs import apis
from kordon.codecs.bodies import AddPartitionsToTxnRequest as Request
from kordon.codecs.bodies import AddPartitionsToTxnRequestTopic as Topic
from kordon.codecs.bodies import AddPartitionsToTxnRequestTransaction as Transaction
from kordon.codecs.bodies import AddPartitionsToTxnResponse as Response
from kordon.codecs.bodies import AddPartitionsToTxnResponseResultsByTransaction as TransactionResult
from kordon.codecs.bodies import AddPartitionsToTxnResponseTopicResult as TopicResult
from kordon.codecs.error_codes import Code
from kordon.proxy.handlers.replies import RepliedApi, Reply
from kordon.proxy.runtime.log_limits import client_log
from kordon.proxy.topics.managed_topics import ManagedTopics
from kordon.proxy.topics.names import listed

log = client_log(__name__)

_NOBODY: Final = -1
"""In place of a producer's id and epoch."""
_BY_FORM: Final = frozenset({Code.NONE, Code.INVALID_PRODUCER_ID_MAPPING, Code.OPERATION_NOT_ATTEMPTED})
"""What a broker answers that has nothing against the client: the request is spoiled, or another of its rows is bad."""
_OF_MANAGED: Final = _BY_FORM | {Code.UNKNOWN_TOPIC_OR_PARTITION}
"""Likewise for a managed topic, of which the broker does not know all partitions."""


class RefusedTransaction(Reply[Response]):
    """A transaction that is not to write to managed topics.

    Args:
        value: The request; spoiled.
        topics: The managed topics that it names.
    """

    changed = True

    def __init__(self, value: Request, topics: Collection[str]) -> None:
        self.refused = topics
        self._transactional_id = value.get("v3_and_below_transactional_id", "")
        if "v3_and_below_producer_id" in value:
            value.update({"v3_and_below_producer_id": _NOBODY, "v3_and_below_producer_epoch": _NOBODY})
        for each in value.get("transactions", list[Transaction]()):
            each.update({"producer_id": _NOBODY, "producer_epoch": _NOBODY})

    def __call__(self, answer: Response) -> None:
        """Refuses what the broker has nothing against: as with brokers, a row that fails keeps all others out."""
        for row in _answered(answer):
            is_managed = row.name in self.refused
            judged, code = (
                (_OF_MANAGED, Code.INVALID_TXN_STATE) if is_managed else (_BY_FORM, Code.OPERATION_NOT_ATTEMPTED)
            )
            for each in row.results_by_partition:
                if each.partition_error_code in judged:
                    each["partition_error_code"] = code
                    self.stands |= is_managed
        if self.stands:
            log.warning("transaction_refused", transactional_id=self._transactional_id, topics=listed(self.refused))


class AddPartitionsToTxn(RepliedApi[Request, Response]):
    """Refuses transactions that are to write to a managed topic."""

    key = apis.ADD_PARTITIONS_TO_TXN

    def look(self, value: Request, topics: ManagedTopics) -> RefusedTransaction | None:
        """Looks at the topics that a request names."""
        transactions = value.get("transactions", list[Transaction]())
        rows = [
            *value.get("v3_and_below_topics", list[Topic]()),
            *(row for each in transactions for row in each.topics),
        ]
        managed = sorted({row.name for row in rows if topics.named(row.name) is not None})
        return RefusedTransaction(value, managed) if managed else None


def _answered(answer: Response) -> Iterable[TopicResult]:
    yield from answer.get("results_by_topic_v3_and_below", list[TopicResult]())
    for each in answer.get("results_by_transaction", list[TransactionResult]()):
        yield from each.topic_results
