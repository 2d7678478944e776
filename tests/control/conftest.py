"""What the tests of control share."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial

import pytest

from kordon.proxy.kafka.brokers import Brokers
from kordon.testing.cluster import Cluster
from kordon.testing.cluster_links import links_to


@pytest.fixture
async def worker_of() -> AsyncIterator[Callable[[Cluster], Awaitable[Brokers]]]:
    """Makes what a worker knows of a cluster's brokers, with connections of its own."""
    async with AsyncExitStack() as stack:

        async def make(cluster: Cluster) -> Brokers:
            return Brokers(await stack.enter_async_context(links_to(cluster)))

        yield make


@pytest.fixture
def new_worker(
    cluster: Cluster, worker_of: Callable[[Cluster], Awaitable[Brokers]]
) -> Callable[[], Awaitable[Brokers]]:
    """Makes what a worker knows of the shared cluster's brokers."""
    return partial(worker_of, cluster)


@pytest.fixture
async def brokers(new_worker: Callable[[], Awaitable[Brokers]]) -> Brokers:
    """The brokers of the shared cluster, as one worker of Kordon's knows them."""
    return await new_worker()
