"""Asks brokers, or a Kordon that stands for them, on connections to each of them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.broker_connections import BrokerConnections
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.topology import Topology
from kordon.proxy.runtime.logs import silence
from kordon.proxy.runtime.tls import upstream_context

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from kordon.proxy.config.config import Upstream

Result = TypeVar("Result")


@asynccontextmanager
async def brokers_at(upstream: Upstream) -> AsyncGenerator[Brokers, None]:
    """Knows the brokers as those of the bootstrap list name them; ends its connections at the end.

    Args:
        upstream: How to connect, and to whom first.

    Raises:
        OSError: A TLS file cannot be used.
        UpstreamUnavailable: Nobody answers, or nobody tells of brokers.
    """
    context = upstream_context(upstream.tls) if upstream.tls is not None else None
    topology = Topology(upstream, lambda _: None, lambda _: None, context)
    topology.learn_given()
    await topology.refresh()
    if not topology.nodes:
        raise UpstreamUnavailable(topology.error or "they want a log-in (--username)")
    links = BrokerConnections(topology)
    try:
        yield Brokers(links)
    finally:
        await links.close()


async def with_brokers(upstream: Upstream, do: Callable[[Brokers], Awaitable[Result]]) -> Result:
    """Does something with the brokers of a cluster, and logs nothing.

    Args:
        upstream: How to connect, and to whom first.

    Raises:
        OSError: A TLS file cannot be used.
        UpstreamUnavailable: No broker answers.
    """
    with silence():
        async with brokers_at(upstream) as brokers:
            return await do(brokers)
