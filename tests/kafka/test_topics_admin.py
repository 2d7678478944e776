"""What control asks of a real broker about topics."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaProducer

from kordon.codecs.error_codes import Code
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.topics_admin import TopicsAdmin, TopicsRefused
from kordon.testing.broker_features import DESCRIBED_PRODUCERS
from kordon.testing.cluster import Cluster
from kordon.testing.waiting import until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(DESCRIBED_PRODUCERS.is_missing, reason=DESCRIBED_PRODUCERS.reason),
]

DAY_MS = 24 * 60 * 60 * 1000


@pytest.fixture
def admin(brokers: Brokers) -> TopicsAdmin:
    return TopicsAdmin(brokers)


@pytest.fixture
async def topic(admin: TopicsAdmin) -> str:
    """A topic with two partitions that no other test uses."""
    name = f"asked-{uuid4().hex[:8]}"
    assert await admin.create_topic(name, partitions=2, replicas=-1, configs={"retention.ms": "123456"})
    await admin.wait_for_leaders(name, partitions=2)
    return name


async def test_a_topic_is_created_as_asked_and_only_once(admin: TopicsAdmin, topic: str) -> None:
    """Its partitions and configs are those that were asked for; a second creation says that it was there."""
    assert (await admin.topic_configs(topic))["retention.ms"] == "123456"
    assert not await admin.create_topic(topic, partitions=5, replicas=-1, configs={})
    assert set(await admin.ends.leaders(topic)) == {0, 1}


async def test_brokers_tell_for_how_long_they_remember_silent_producers(admin: TopicsAdmin) -> None:
    """A day by default (KIP-854); a week where it still goes by transactional.id.expiration.ms."""
    assert await admin.producers_remembered_ms() in {DAY_MS, 7 * DAY_MS}


async def test_a_broker_that_does_not_answer_holds_up_no_change() -> None:
    """It is not known then; whoever asks takes the longest time."""

    class Silent:
        async def metadata(self, topics: list[str]) -> None:
            await asyncio.Event().wait()

    silent: Any = Silent()
    assert await TopicsAdmin(silent).producers_remembered_ms() is None


async def test_partitions_are_added_up_to_a_count(admin: TopicsAdmin, topic: str) -> None:
    """New ones can be asked at once after the wait; asking for fewer changes nothing."""
    await admin.create_partitions(topic, 5)
    assert set(await admin.wait_for_leaders(topic, partitions=5)) == set(range(5))
    assert (await admin.ends.snapshot(topic, 4)).is_cut
    await admin.create_partitions(topic, 3)
    assert len(await admin.ends.leaders(topic)) == 5


async def test_a_deleted_topic_is_gone_and_its_successor_has_another_id(admin: TopicsAdmin, topic: str) -> None:
    """The id tells a topic from one of the same name that is made later (SAME-TOPIC)."""
    before = await admin.topic_id(topic)
    assert await admin.delete_topic(topic)
    assert not await admin.delete_topic(topic)

    async def is_gone() -> bool:
        return not await admin.ends.leaders(topic)

    await until("the broker has heard of it", is_gone)
    await admin.create_topic(topic, partitions=1, replicas=-1, configs={})
    await admin.wait_for_leaders(topic, partitions=1)
    assert await admin.topic_id(topic) != before


async def test_a_snapshot_tells_the_end_and_who_wrote_up_to_it(
    cluster: Cluster, admin: TopicsAdmin, topic: str
) -> None:
    """Log end, high watermark and the producers' last sequences belong together (STILL-CUT)."""
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap(), enable_idempotence=True) as producer:
        for _ in range(3):
            await producer.send_and_wait(topic, b"value", partition=1)
    found = await admin.ends.snapshot(topic, 1)
    assert found.is_cut
    assert found.log_end_before == found.ends.log_end_offset == found.ends.high_watermark == 3
    assert [(row.producer_epoch, row.last_sequence, row.in_transaction) for row in found.producers] == [(0, 2, False)]
    assert list((await admin.ends.producers_of(topic, [1]))[1]) == list(found.producers)
    assert await admin.ends.ends_of(topic, [1]) == {1: found.ends}
    both = await admin.ends.snapshots(topic, [0, 1])
    assert (both[1].ends, list(both[1].producers)) == (found.ends, list(found.producers))
    assert (both[0].ends.log_end_offset, len(both[0].producers)) == (0, 0)


async def test_what_is_not_there_is_refused_by_name(admin: TopicsAdmin) -> None:
    """Kafka's own code says why."""
    with pytest.raises(TopicsRefused) as refusal:
        await admin.topic_id("no-such-topic")
    assert refusal.value.code == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert await admin.ends.leaders("no-such-topic") == {}
