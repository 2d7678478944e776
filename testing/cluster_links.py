"""Kordon's own connections to brokers, as one worker has them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kordon.proxy.config import HostPort, Upstream
from kordon.proxy.managed.links import Links
from kordon.proxy.topology import Topology
from kordon.testing.cluster import Cluster


@asynccontextmanager
async def links_to(cluster: Cluster, **options: int) -> AsyncIterator[Links]:
    """Looks at a cluster once; ends the connections at the end."""
    bootstrap = tuple(map(HostPort.parse, cluster.bootstrap().split(",")))
    topology = Topology(Upstream.model_validate({"bootstrap": bootstrap, **options}), lambda _: None, lambda _: None)
    await topology.refresh()
    links = Links(topology)
    try:
        yield links
    finally:
        await links.close()
