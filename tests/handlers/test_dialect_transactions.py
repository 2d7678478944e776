"""Transactions on connections of the dialect, without brokers: their partitions are physical ones as such."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import request, response
from kordon.proxy.handlers.add_partitions_to_txn import AddedPartitions, AddPartitionsToTxn
from kordon.proxy.ordering.identity import writer_id
from kordon.proxy.ordering.transactions.adds import Announcement
from kordon.proxy.ordering.transactions.beliefs import Ground, ProducerClaim
from kordon.proxy.ordering.transactions.events import Protocol
from kordon.proxy.topics.managed_topics import Fence
from kordon.proxy.topics.views import PHYSICAL
from kordon.testing.transactions_in_memory import ID, TOPIC, P, TransactionsInMemory, asked_of, say_right, say_witness

ADD, VERSION, V2 = apis.ADD_PARTITIONS_TO_TXN, 3, 12
NO_PARTITION = 2**31 - 1


async def test_data_go_into_the_line_of_their_physical_partition() -> None:
    """V1: once the leader says that its producer is open there."""
    worker = TransactionsInMemory(view=PHYSICAL)
    worker.brokers.open(1)
    served = worker.decide(1)
    say_right(served.questions[0])
    assert await worker.codes(served) == [Code.NONE]
    (write,) = worker.brokers.added
    assert (write.producer_id, write.ground) == (writer_id(P, Protocol.V1), Ground(0, 3))
    assert list(worker.brokers.asked[0]) == [1]


async def test_a_witness_of_v2_is_written_to_the_partition_itself() -> None:
    """On the client's own connection."""
    worker = TransactionsInMemory(view=PHYSICAL)
    served = worker.decide(0, 1, version=V2)
    (witness,) = served.questions
    (row,) = asked_of(witness).topic_data
    assert [each.index for each in row.partition_data] == [0, 1]
    say_witness(witness)
    assert await worker.codes(served, V2) == [Code.NONE, Code.NONE]


async def test_data_without_a_transaction_are_refused() -> None:
    """TXN-WITNESS, as for stock clients."""
    worker = TransactionsInMemory(view=PHYSICAL)
    served = worker.decide(0)
    say_right(served.questions[0])
    assert await worker.codes(served) == [Code.INVALID_TXN_STATE]
    assert not worker.brokers.added


async def test_whoever_may_not_use_the_transactional_id_writes_nothing() -> None:
    """OWN-TRANSACTION: producer ids are no secret."""
    worker = TransactionsInMemory(view=PHYSICAL)
    worker.brokers.open(0)
    served = worker.decide(0)
    say_right(served.questions[0], Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    assert await worker.codes(served) == [Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    assert not worker.brokers.added


@pytest.mark.parametrize("acks", [0, 1])
async def test_data_that_wait_for_no_copies_are_refused(acks: int) -> None:
    """As by brokers."""
    worker = TransactionsInMemory(view=PHYSICAL)
    served = worker.decide(0, acks=acks)
    assert served.questions == ()
    if acks:
        assert await worker.codes(served) == [Code.INVALID_REQUIRED_ACKS]
    assert not worker.brokers.added


async def test_a_partition_that_no_layout_has_is_the_clients_to_look_up() -> None:
    """Nobody is asked about it."""
    worker = TransactionsInMemory(view=PHYSICAL)
    served = worker.decide(7)
    assert served.questions == ()
    assert await worker.codes(served) == [Code.INVALID_PARTITION_METADATA]


async def test_data_are_not_held_by_a_fence() -> None:
    """It may outlast their transaction."""
    worker = TransactionsInMemory(view=PHYSICAL)
    worker.topic.raise_fence(Fence("f", frozenset({0})))
    served = worker.decide(0)
    assert await worker.codes(served) == [Code.NOT_LEADER_OR_FOLLOWER]
    assert not worker.brokers.added


class Adding:
    """A client of the dialect that adds partitions."""

    def __init__(self) -> None:
        self.worker = TransactionsInMemory(view=PHYSICAL)
        self._handler = AddPartitionsToTxn(self.worker.produce, PHYSICAL)

    async def add(self, *partitions: int, meanwhile: Callable[[], None] | None = None) -> tuple[list[int], list[int]]:
        """Returns what the client's broker was asked for, and the error codes.

        Args:
            meanwhile: What happens when the broker has answered.
        """
        rows = [{"name": TOPIC, "partitions": list(partitions)}]
        fields: dict[str, Any] = {"v3_and_below_transactional_id": ID, "v3_and_below_topics": rows}
        fields |= {"v3_and_below_producer_id": P, "v3_and_below_producer_epoch": 0}
        decision = self._handler.decide(self.worker.held(ADD, VERSION, fields))
        assert isinstance(decision, AddedPartitions)
        assert decision.rest is not None
        (asked,) = request(ADD).parse(VERSION, decision.rest).v3_and_below_topics
        fails = NO_PARTITION in asked.partitions
        codes = dict.fromkeys(asked.partitions, Code.OPERATION_NOT_ATTEMPTED if fails else Code.NONE)
        codes |= {NO_PARTITION: Code.UNKNOWN_TOPIC_OR_PARTITION} if fails else {}
        results = [{"partition_index": q, "partition_error_code": code} for q, code in codes.items()]
        told = {"results_by_topic_v3_and_below": [{"name": TOPIC, "results_by_partition": results}]}
        part = asyncio.get_running_loop().create_future()
        part.set_result(response(ADD).parse(VERSION, response(ADD).build(VERSION, told)))
        if meanwhile is not None:
            meanwhile()
        async with asyncio.timeout(20):
            answer: Any = await decision.answer(part)
        (row,) = response(ADD).parse(VERSION, answer()).results_by_topic_v3_and_below
        return asked.partitions, [each.partition_error_code for each in row.results_by_partition]


async def test_physical_partitions_mean_themselves() -> None:
    """Each has a witness when its client is told."""
    client = Adding()
    assert await client.add(1, 0) == ([0, 1], [Code.NONE, Code.NONE])
    assert sorted(client.worker.brokers.witnesses) == [(0, 0), (1, 0)]
    beliefs = client.worker.transactions.beliefs(client.worker.topic)
    assert beliefs.is_open(ProducerClaim("", ID, P, 0), 1, Ground(0, 3))


async def test_a_change_to_come_adds_nothing() -> None:
    """What is announced is of virtual partitions; whoever chose a physical one chooses again behind the change."""
    client = Adding()
    client.worker.topic.announce(Announcement(1, {0: 5, 1: 6}))
    assert await client.add(0, 1) == ([0, 1], [Code.NONE, Code.NONE])
    assert sorted(client.worker.brokers.witnesses) == [(0, 0), (1, 0)]


async def test_a_retired_partition_is_taken() -> None:
    """Produce says that it is retired, and only of a batch that is not there already (OUTCOME-FIRST)."""
    client = Adding()
    topic = client.worker.topic
    for u, cuts in ((3, {0: 0, 1: 0, 2: 0}), (2, {0: 0, 1: 0, 2: 9})):
        following = topic.layout.next_epoch(u)
        topic.adopt(topic.layout.changed(following, cuts), {})
    assert await client.add(2) == ([2], [Code.NONE])


async def test_partitions_that_are_not_there_keep_all_out() -> None:
    """Whatever numbers are named, the broker is asked for one that is not there."""
    client = Adding()
    numbers = (2**31 - 1, -1, -(2**31), *range(2, 5_000))
    asked, codes = await client.add(0, *numbers)
    assert asked == [0, NO_PARTITION]
    assert codes == [Code.OPERATION_NOT_ATTEMPTED] + [Code.UNKNOWN_TOPIC_OR_PARTITION] * len(numbers)
    assert not client.worker.brokers.witnesses


async def test_without_a_lease_nothing_is_answered_as_done() -> None:
    """LIVE-LEASE, as for stock clients."""
    client = Adding()

    def end_lease() -> None:
        client.worker.serves = False

    assert (await client.add(0, meanwhile=end_lease))[1] == [Code.CONCURRENT_TRANSACTIONS]
