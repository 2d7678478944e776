"""Writes to a managed topic whose leaders are elsewhere than this worker believes."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.leaders import Leader, Leaders
from kordon.proxy.kafka.topics_admin import TopicsAdmin
from kordon.testing.broker_features import DESCRIBED_PRODUCERS
from kordon.testing.cluster import Cluster
from kordon.testing.managed_writes import Producer, a_worker, write_meanwhile
from kordon.testing.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.skipif(DESCRIBED_PRODUCERS.is_missing, reason=DESCRIBED_PRODUCERS.reason)]


class MisledLeaders(Leaders):
    """Believes in wrong leaders for as long as it is misled, whoever forgets them and asks again."""

    misled = False

    def known(self, topic: str) -> Mapping[int, Leader] | None:
        """Names the node behind the right one."""
        known = super().known(topic)
        if known is None or not self.misled:
            return known
        return {q: replace(leader, node_id=leader.node_id % 3 + 1) for q, leader in known.items()}


async def test_a_broker_that_does_not_lead_is_left(cluster3: Cluster) -> None:
    """NO-OVERTAKING: its answer has the client send again, to the leader, and nothing is lost, doubled or reordered."""
    async with a_worker(cluster3, n=3, u=3, v_count=3, replicas=3, make_leaders=MisledLeaders) as worker:
        leaders = worker.leaders
        assert isinstance(leaders, MisledLeaders)
        producers = [Producer(worker, n + 1, n % 3, 0) for n in range(6)]

        async def mislead() -> None:
            """Sends all to wrong brokers, until each client has been told to send again."""
            before = {producer.number: producer.retries for producer in producers}
            leaders.misled = True
            await until(
                "brokers have said to all that they do not lead",
                lambda: all(each.retries > before[each.number] for each in producers),
            )
            leaders.misled = False

        for _ in range(3):
            await write_meanwhile(mislead(), producers)
        for producer in producers:
            await producer.check()


async def test_who_leads_new_partitions_is_found_out_before_they_are_written_to(cluster3: Cluster) -> None:
    """Until then the leaders that are known go on being good: no other partition waits for it."""
    async with a_worker(cluster3, n=3, u=3, v_count=12, replicas=3) as worker:
        await Producer(worker, 1, 0, 20).run()
        name = worker.topic.name
        brokers = TopicsAdmin(Brokers(worker.links))
        await brokers.create_partitions(name, 6)
        await brokers.wait_for_leaders(name, partitions=6)
        known = worker.leaders.known(name)
        assert known is not None
        assert len(known) == 3
        expecting = asyncio.ensure_future(worker.dispatcher.expect(name, frozenset({0, 3, 4, 5})))
        await asyncio.sleep(0)
        assert worker.leaders.known(name) == known
        assert not expecting.done()
        await expecting
        assert set(worker.leaders.known(name) or ()) == set(range(6))
