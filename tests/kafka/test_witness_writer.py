"""Witnesses of v1, as they are sent (TXN-WITNESS)."""

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.codecs.records import look_batch
from kordon.codecs.witness import is_witness
from kordon.proxy.kafka.witness_writer import WitnessWriter
from kordon.proxy.ordering.transactions.beliefs import Claim
from kordon.testing.fake_broker import Answer, Asked, FakeBroker

CLAIM = Claim("", "orders-1", 1000, 4)


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
