"""What the tests of control share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

import pytest

from kordon.proxy.config import HostPort, Upstream
from kordon.proxy.control.brokers import Brokers
from kordon.proxy.managed.links import Links
from kordon.proxy.topology import Topology

if TYPE_CHECKING:
    from kordon.testing.cluster import Cluster


@pytest.fixture
async def worker_of() -> AsyncIterator[Callable[[Cluster], Awaitable[Brokers]]]:
    """Makes what a worker knows of a cluster's brokers, with connections of its own."""
    made: list[Links] = []

    async def make(cluster: Cluster) -> Brokers:
        bootstrap = tuple(HostPort.parse(address) for address in cluster.bootstrap().split(","))
        topology = Topology(Upstream(bootstrap=bootstrap), lambda node_id: None, lambda node_id: None)
        await topology.refresh()
        made.append(Links(topology))
        return Brokers(made[-1])

    yield make
    for links in made:
        await links.close()


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
