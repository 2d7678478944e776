"""What the tests of control share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

from kordon.proxy.config import HostPort, Upstream
from kordon.proxy.control.brokers import Brokers
from kordon.proxy.topology import Topology

if TYPE_CHECKING:
    from kordon.testing.cluster import Cluster


@pytest.fixture
async def brokers(cluster: Cluster) -> AsyncIterator[Brokers]:
    """The brokers of the shared cluster, as a worker of Kordon's knows them."""
    bootstrap = tuple(HostPort.parse(address) for address in cluster.bootstrap().split(","))
    made = Brokers(Topology(Upstream(bootstrap=bootstrap), lambda node_id: None, lambda node_id: None))
    yield made
    made.close()
