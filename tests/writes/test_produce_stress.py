"""Many clients write to a managed topic of a real broker while it moves and connections break."""

import asyncio
from random import Random

import pytest

from kordon.testing.broker_features import DESCRIBED_PRODUCERS
from kordon.testing.cluster import Cluster
from kordon.testing.managed_writes import Producer, a_worker, write_meanwhile
from kordon.testing.waiting import until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(DESCRIBED_PRODUCERS.is_missing, reason=DESCRIBED_PRODUCERS.reason),
]


async def test_nothing_is_lost_doubled_or_reordered(cluster: Cluster) -> None:
    """1 → 8 → 3 → 8 → 2 partitions, two workers, broken connections: each record stands once and in order."""
    random = Random(1)
    async with a_worker(cluster, n=1, u=8, v_count=8) as worker:
        other = worker.another()
        workers = [worker, other]
        producers = [Producer(workers[n % 2], n + 1, random.randrange(8), 150) for n in range(24)]

        async def disturb() -> None:
            for u in (8, 3, 8, 2, 5):
                await asyncio.sleep(0.2)
                retries = sum(producer.retries for producer in producers)

                async def break_a_lane(before: int = retries) -> bool:
                    (await worker.links.to(1, f"lane {random.randrange(3)}")).close()
                    return sum(producer.retries for producer in producers) > before

                await until("somebody was disturbed", break_a_lane, pause=0.03)
                sealed = worker.seal(u)
                await asyncio.gather(*(each.dispatcher.drain(worker.topic.name, sealed) for each in workers))
                await worker.adopt(u)

        try:
            async with asyncio.timeout(100):
                await write_meanwhile(disturb(), producers)
        finally:
            await other.dispatcher.close()
        for producer in producers:
            await producer.check()
