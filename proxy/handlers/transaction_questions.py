"""The questions about a transaction that go to its client's broker, on the client's own connection (TXN-WITNESS).

AddPartitionsToTxn of a partition that is not there has no effect: brokers look at the right to the transactional id,
then at each topic, and add nothing if one partition is unknown (KafkaApis.handleAddPartitionsToTxnRequest). Without any
partition they would answer nothing (seen with Kafka 3.9 and 4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from kordon.codecs.bodies import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
    AddPartitionsToTxnResponse,
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import add_partitions_to_txn, produce
from kordon.codecs.row import Row
from kordon.codecs.schema import Api
from kordon.proxy.core import verdicts
from kordon.proxy.core.interception import Question
from kordon.proxy.kafka.batches import BatchIdentity
from kordon.proxy.kafka.witness_batch import build_witness
from kordon.proxy.ordering.transactions.beliefs import ProducerClaim
from kordon.proxy.ordering.transactions.events import Protocol

NO_PARTITION: Final = 2**31 - 1
"""Of no topic: the broker refuses a request because of it, and adds nothing."""
_V2_SINCE: Final = 12
"""The first version of Produce that adds partitions to transactions (KIP-890): it says which protocol a batch has."""
_ADD_VERSION: Final = 0
_ALL: Final = -1

_AskedT = TypeVar("_AskedT", bound=Row)
_ToldT = TypeVar("_ToldT", bound=Row)


def protocol_of(version: int) -> Protocol:
    """Returns the protocol of a transaction, by the version of its Produce requests."""
    return Protocol.V2 if version >= _V2_SINCE else Protocol.V1


def right_question(claim: ProducerClaim, topic: str, told: Callable[[int], None]) -> Question:
    """Asks whether the client has the right to its transactional id.

    Args:
        topic: The name of a topic that the client wants to write to.
        told: Called with TRANSACTIONAL_ID_AUTHORIZATION_FAILED if the client has no right, and with NONE if it has.
    """
    body = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=claim.transactional_id,
        v3_and_below_producer_id=claim.producer_id,
        v3_and_below_producer_epoch=claim.epoch,
        v3_and_below_topics=[AddPartitionsToTxnRequestTopic(name=topic, partitions=[NO_PARTITION])],
    )

    def take(answer: AddPartitionsToTxnResponse) -> None:
        ((part,),) = (each.results_by_partition for each in answer.results_by_topic_v3_and_below)
        denied = part.partition_error_code == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        told(Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if denied else Code.NONE)

    return _question(add_partitions_to_txn.API, _ADD_VERSION, body, take)


def witness_question(
    claim: ProducerClaim,
    places: Iterable[tuple[str, int]],
    timeout_ms: int,
    told: Callable[[Mapping[tuple[str, int], int]], None],
) -> Question:
    """Writes a witness of the second protocol to each of some physical partitions.

    Args:
        places: The partitions, each with the name of its topic.
        timeout_ms: How long a leader waits for its followers, in milliseconds.
        told: Called with the error codes, by topic and partition; the answer may lack some.
    """
    batch = build_witness(BatchIdentity(claim.producer_id, claim.epoch, 0), Protocol.V2)
    rows: dict[str, ProduceRequestTopic] = {}
    for topic, partition in places:
        row = rows.setdefault(topic, ProduceRequestTopic(name=topic, partition_data=[]))
        row.partition_data.append(ProduceRequestPartition(index=partition, records=batch))
    body = ProduceRequest(
        transactional_id=claim.transactional_id, acks=_ALL, timeout_ms=timeout_ms, topic_data=list(rows.values())
    )

    def take(answer: ProduceResponse) -> None:
        told({(row.name, part.index): part.error_code for row in answer.responses for part in row.partition_responses})

    return _question(produce.API, _V2_SINCE, body, take)


def _question(api: Api[_AskedT, _ToldT], version: int, body: _AskedT, told: Callable[[_ToldT], None]) -> Question:
    route = verdicts.route(api.key, version)
    assert route is not None, "it is spoken"
    return Question(route, api.request.build(version, body), told)
