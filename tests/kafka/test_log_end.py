"""The log end of a partition whose followers are behind: no cut may be taken from it (STILL-CUT)."""

from collections.abc import Awaitable, Callable
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaProducer

from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.topics_admin import TopicsAdmin
from kordon.testing.broker_features import DESCRIBED_PRODUCERS
from kordon.testing.cluster import Cluster
from kordon.testing.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.skipif(DESCRIBED_PRODUCERS.is_missing, reason=DESCRIBED_PRODUCERS.reason)]


async def test_what_is_not_replicated_is_seen_in_the_log_end_and_forbids_a_cut(
    cluster3: Cluster, worker_of: Callable[[Cluster], Awaitable[Brokers]]
) -> None:
    """While a follower hangs, records that only the leader has stand before the log end, beyond the high watermark."""
    admin, topic = TopicsAdmin(await worker_of(cluster3)), f"behind-{uuid4().hex[:8]}"
    await admin.create_topic(topic, partitions=1, replicas=3, configs={"min.insync.replicas": "1"})
    leader = (await admin.wait_for_leaders(topic, partitions=1))[0]
    follower = next(broker for broker in cluster3.brokers if broker.node_id != leader.node_id)
    async with AIOKafkaProducer(bootstrap_servers=cluster3.bootstrap(), acks=1) as producer:
        await producer.send_and_wait(topic, b"replicated")

        async def is_settled() -> bool:
            return (await admin.ends.ends_of(topic, [0]))[0].is_settled

        await until("the follower has it", is_settled)
        follower.pause()
        try:
            await producer.send_and_wait(topic, b"of the leader only")
            behind = await admin.ends.snapshot(topic, 0)
        finally:
            follower.resume()
    assert (behind.ends.log_end_offset, behind.ends.high_watermark) == (2, 1)
    assert not behind.is_cut
