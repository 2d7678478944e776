"""Witnesses of v1, as they are sent (TXN-WITNESS)."""

import asyncio
from collections.abc import Mapping

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.codecs.records import look_batch
from kordon.codecs.witness import is_witness
from kordon.proxy.kafka.witness_writer import WitnessWriter
from kordon.proxy.ordering.transactions.beliefs import ProducerClaim
from kordon.testing.fake_broker import Answer, Asked, FakeBroker

CLAIM = ProducerClaim("", "orders-1", 1000, 4)


async def test_a_witness_of_v1_is_verified_and_adds_nothing() -> None:
    """By Produce up to 11: from 12 on the broker would add the partition, and open a transaction that nobody ends."""
    asked: list[Asked] = []

    def produce(each: Asked) -> Answer:
        asked.append(each)
        rows = [{"index": 3, "error_code": Code.NONE, "base_offset": 9}]
        return {"responses": [{"name": "orders", "partition_responses": rows}]}

    broker = FakeBroker(handlers={apis.PRODUCE: produce})
    writer = WitnessWriter(broker)
    assert await writer.write("orders", 3, 1, CLAIM, 17) == Code.NONE
    await broker.close()
    (each,) = asked
    assert each.version == 11
    assert (each.body.transactional_id, each.body.acks) == ("orders-1", -1)
    batch = each.body.topic_data[0].partition_data[0].records
    header = look_batch(batch, 0)
    assert is_witness(header, batch)
    identity = header.producer_id, header.producer_epoch, header.base_sequence, header.records_count
    assert identity == (1000, 4, 17, 1)
    assert writer.outcomes == {"written": 1}


async def test_a_witness_without_an_answer_may_be_written() -> None:
    """The leader is asked again before another one is sent."""
    broker = FakeBroker()
    broker.is_away = True
    writer = WitnessWriter(broker)
    assert await writer.write("orders", 3, 1, CLAIM, 17) == Code.NOT_LEADER_OR_FOLLOWER
    assert writer.outcomes == {"NOT_LEADER_OR_FOLLOWER": 1}


class Leader:
    """Takes witnesses of any partition, and answers each with its code."""

    def __init__(self, codes: Mapping[int, int] | None = None) -> None:
        self.asked: list[list[tuple[str, int]]] = []
        """Topics and partitions of each request."""
        self._codes = codes or {}
        self.broker = FakeBroker(handlers={apis.PRODUCE: self._produce})
        self.writer = WitnessWriter(self.broker)

    def _produce(self, each: Asked) -> Answer:
        topics = each.body.topic_data
        self.asked.append([(row.name, part.index) for row in topics for part in row.partition_data])
        rows = [
            {
                "name": row.name,
                "partition_responses": [
                    {"index": part.index, "error_code": self._codes.get(part.index, Code.NONE)}
                    for part in row.partition_data
                ],
            }
            for row in topics
        ]
        return {"responses": rows}


async def test_witnesses_that_are_asked_for_at_once_go_in_one_request() -> None:
    """A broker works on one request of a connection at a time, and each waits for copies and a coordinator."""
    leader = Leader({4: Code.REQUEST_TIMED_OUT})
    places = [("orders", 3), ("orders", 4), ("bills", 3)]
    codes = await asyncio.gather(*(leader.writer.write(topic, q, 1, CLAIM, q) for topic, q in places))
    assert codes == [Code.NONE, Code.REQUEST_TIMED_OUT, Code.NONE]
    assert leader.asked == [places]
    assert await leader.writer.write("orders", 4, 1, CLAIM, 5) == Code.REQUEST_TIMED_OUT
    assert leader.asked[1:] == [[("orders", 4)]]
    await leader.broker.close()


async def test_a_request_has_one_transaction_one_broker_and_each_partition_once() -> None:
    """Of two batches of a partition in one request, a broker would take one."""
    leader = Leader()
    other = CLAIM._replace(transactional_id="orders-2")
    asked = [(3, 1, CLAIM), (3, 1, CLAIM), (4, 1, CLAIM), (4, 2, CLAIM), (5, 1, other)]
    await asyncio.gather(*(leader.writer.write("orders", q, node, claim, 0) for q, node, claim in asked))
    assert sorted(leader.asked) == [
        [("orders", 3)],
        [("orders", 3), ("orders", 4)],
        [("orders", 4)],
        [("orders", 5)],
    ]
    await leader.broker.close()


async def test_a_witness_whose_first_asker_has_gone_may_be_written() -> None:
    """Who has joined its request asks the leader again, and waits for nobody."""
    leader = Leader()
    first = asyncio.ensure_future(leader.writer.write("orders", 3, 1, CLAIM, 0))
    second = asyncio.ensure_future(leader.writer.write("orders", 4, 1, CLAIM, 0))
    await asyncio.sleep(0)
    first.cancel()
    async with asyncio.timeout(10):
        assert await second == Code.NOT_LEADER_OR_FOLLOWER
        assert await leader.writer.write("orders", 4, 1, CLAIM, 0) == Code.NONE
    await leader.broker.close()
