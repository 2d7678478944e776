"""EndTxn and InitProducerId pass, and end what is believed of its producer (TXN-WITNESS)."""

from typing import Any

import pytest

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import request, response
from kordon.proxy.core.interception import Translate
from kordon.proxy.handlers.end_txn import EndTxn
from kordon.proxy.handlers.init_producer_id import InitProducerId
from kordon.proxy.ordering.transactions.beliefs import Ground, ProducerClaim
from kordon.testing.transactions_in_memory import ID, P, TransactionsInMemory

NO_LENDING: Any = None
CLAIM, GROUND = ProducerClaim("", ID, P, 0), Ground(0, 3)


def end(worker: TransactionsInMemory, version: int, epoch: int = 0) -> Translate:
    fields = {"transactional_id": ID, "producer_id": P, "producer_epoch": epoch, "committed": True}
    decision = EndTxn(worker.transactions).decide(worker.held(apis.END_TXN, version, fields))
    assert isinstance(decision, Translate)
    return decision


def answered(decision: Translate, version: int, code: int) -> int:
    told = response(apis.END_TXN)
    answer: Any = told.parse(version, told.build(version, {"error_code": code}))
    decision.back(answer)
    return int(answer.error_code)


def believe(worker: TransactionsInMemory) -> None:
    beliefs = worker.transactions.beliefs(worker.topic)
    beliefs.confirm(beliefs.inquire(CLAIM, 0, GROUND))


async def test_a_belief_ends_when_the_request_passes_and_when_it_is_answered() -> None:
    """Between the two, leaders may still tell of the transaction that ends."""
    worker = TransactionsInMemory()
    worker.own(CLAIM)
    beliefs = worker.transactions.beliefs(worker.topic)
    believe(worker)
    decision = end(worker, 3)
    assert decision.body is None
    assert not beliefs.is_open(CLAIM, 0, GROUND)
    believe(worker)
    assert answered(decision, 3, Code.NONE) == Code.NONE
    assert not beliefs.is_open(CLAIM, 0, GROUND)
    assert worker.brokers.dropped == [P, P], "what it has not sent would fall into its next transaction"


async def test_a_belief_ends_with_another_instance_of_the_producer() -> None:
    """InitProducerId fences who was before; its answer says whose producer id it is."""
    worker = TransactionsInMemory()
    beliefs = worker.transactions.beliefs(worker.topic)
    handler = InitProducerId(NO_LENDING, worker.transactions)
    held = worker.held(apis.INIT_PRODUCER_ID, 4, {"transactional_id": ID, "transaction_timeout_ms": 1_000})
    held.offer.learn(4)
    worker.own(CLAIM)
    believe(worker)
    decision = handler.decide(held)
    assert isinstance(decision, Translate)
    assert decision.body is None
    assert not beliefs.is_open(CLAIM, 0, GROUND)
    believe(worker)
    told = response(apis.INIT_PRODUCER_ID)
    decision.back(told.parse(4, told.build(4, {"producer_id": P, "producer_epoch": 1})))
    assert not beliefs.is_open(CLAIM, 0, GROUND)


@pytest.mark.parametrize(
    "code",
    [Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Code.INVALID_PRODUCER_ID_MAPPING, Code.NOT_COORDINATOR],
    ids=["no right to it", "the producer of another", "a broker that does not know"],
)
async def test_nobody_ends_what_is_believed_of_others(code: Code) -> None:
    """OWN-TRANSACTION: a flood of it would keep a producer from ever writing again."""
    worker = TransactionsInMemory()
    beliefs = worker.transactions.beliefs(worker.topic)
    believe(worker)
    under_way = beliefs.inquire(CLAIM, 1, GROUND)
    assert answered(end(worker, 3), 3, code) == code
    init = InitProducerId(NO_LENDING, worker.transactions)
    fields = {"transactional_id": ID, "transaction_timeout_ms": 1_000, "producer_id": P, "producer_epoch": 0}
    held = worker.held(apis.INIT_PRODUCER_ID, 4, fields)
    held.offer.learn(4)
    decision = init.decide(held)
    assert isinstance(decision, Translate)
    told = response(apis.INIT_PRODUCER_ID)
    decision.back(told.parse(4, told.build(4, {"error_code": code, "producer_id": -1, "producer_epoch": -1})))
    beliefs.confirm(under_way)
    assert beliefs.is_open(CLAIM, 0, GROUND)
    assert beliefs.is_open(CLAIM, 1, GROUND)
    assert not worker.brokers.dropped


async def test_only_the_connection_whose_partitions_were_taken_ends_them_at_once() -> None:
    """For one transactional id; it is no right to others."""
    worker = TransactionsInMemory()
    beliefs = worker.transactions.beliefs(worker.topic)
    worker.own(CLAIM._replace(transactional_id="mine"))
    believe(worker)
    end(worker, 3)
    worker.own(CLAIM._replace(producer_id=P + 1))
    end(worker, 3)
    worker.own(CLAIM)
    worker.another_client()
    end(worker, 3)
    assert beliefs.is_open(CLAIM, 0, GROUND)


@pytest.mark.parametrize(
    ("version", "epoch", "is_refused"), [(4, 0, True), (5, 0, False), (4, 1, False)], ids=["v1", "v2", "another epoch"]
)
async def test_a_transaction_of_v2_is_ended_by_v2(version: int, epoch: int, *, is_refused: bool) -> None:
    """Ended by v1 it would keep its epoch, and its next witness would be taken for a repetition."""
    worker = TransactionsInMemory()
    worker.transactions.opened_by_v2(CLAIM)
    decision = end(worker, version, epoch)
    assert (decision.body is not None) == is_refused
    if decision.body is not None:
        assert request(apis.END_TXN).parse(version, decision.body).producer_id == -1
        assert answered(decision, version, Code.INVALID_PRODUCER_ID_MAPPING) == Code.INVALID_TXN_STATE
        assert answered(decision, version, Code.NOT_COORDINATOR) == Code.NOT_COORDINATOR
