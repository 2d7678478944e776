"""Many clients write to a managed topic of a real broker while it moves and connections break."""

import asyncio
from dataclasses import dataclass, field
from random import Random

import pytest

from kordon.testing.cluster import Cluster
from kordon.testing.managed_writes import Worker, a_batch, a_worker

pytestmark = pytest.mark.broker

RETRIABLE = {6, 7, 20, 45}
WINDOW = 5


@dataclass
class Producer:
    """An idempotent producer on one virtual partition: five batches under way, retries in order, as Java does."""

    worker: Worker
    number: int
    v: int
    count: int
    acked: set[int] = field(default_factory=set[int])
    under_way: set[int] = field(default_factory=set[int])
    retries: int = 0

    async def run(self) -> None:
        """Returns when all is acknowledged."""
        tasks: set[asyncio.Task[None]] = set()
        while len(self.acked) < self.count:
            oldest = next(n for n in range(self.count) if n not in self.acked)
            for n in range(oldest, min(oldest + WINDOW, self.count)):
                if n not in self.acked and n not in self.under_way:
                    self.under_way.add(n)
                    tasks.add(asyncio.ensure_future(self.send(n)))
            done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()

    async def send(self, n: int) -> None:
        """Sends a batch; what is refused is sent again by `run`."""
        batch = a_batch(f"{self.number}-{n}", producer_id=self.number, epoch=0, sequence=n)
        ((code, _),) = await self.worker.send((self.v, batch))
        assert code in RETRIABLE | {0}, f"error {code}"
        self.under_way.discard(n)
        if code == 0:
            self.acked.add(n)
            return
        self.retries += 1
        if code == 45:
            assert any(before not in self.acked for before in range(n)), "fatal for librdkafka: it was next"
        await asyncio.sleep(0.01)


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
                for _ in range(3):
                    number = random.randrange(3)
                    (await worker.links.to(1, f"lane {number}")).close()
                    await asyncio.sleep(0.03)
                sealed = worker.seal(u)
                async with asyncio.timeout(20):
                    await asyncio.gather(*(each.lanes.drain(worker.topic.name, sealed) for each in workers))
                await worker.adopt(u)

        try:
            async with asyncio.timeout(100):
                await asyncio.gather(disturb(), *(producer.run() for producer in producers))
        finally:
            await other.lanes.close()
        for v in range(8):
            values = await worker.read(v)
            for producer in producers:
                if producer.v == v:
                    mine = [value for value in values if value.startswith(f"{producer.number}-")]
                    assert mine == [f"{producer.number}-{n}" for n in range(producer.count)]
        assert sum(producer.retries for producer in producers) > 0, "nothing was disturbed"
