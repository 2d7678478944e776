"""`kordon check --cluster`: whether Kordon reaches the brokers, and whether rights there are as they should be."""

from __future__ import annotations

import asyncio
from typing import Final

from kordon.proxy.access.wrong_rights import Access, principal_of
from kordon.proxy.config.config import Ordering, Upstream
from kordon.proxy.config.host_port import HostPort
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.broker_connections import BrokerConnections
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.topology import Topology
from kordon.proxy.kafka.upstream import UpstreamClient
from kordon.proxy.runtime.tls import upstream_context

_NEEDS_LOG_IN: Final = "the brokers require a log-in: give Kordon an account in upstream.sasl (docs/security.md#sasl)"


async def problems_of(upstream: Upstream, ordering: Ordering, principal: str | None = None) -> list[str]:
    """Asks the brokers, and changes nothing there.

    Args:
        ordering: Rights are looked at where it is enabled.
        principal: Kordon's principal at the brokers, if `upstream` does not show it.

    Returns:
        What is wrong, a line each, with what puts it right; nothing: all is well.

    Raises:
        OSError: A TLS file cannot be used.
    """
    context = upstream_context(upstream.tls) if upstream.tls is not None else None
    topology = Topology(upstream, lambda _: None, lambda _: None, context)
    topology.learn_given()
    await topology.refresh()
    problems = await _unreached(topology)
    if topology.needs_log_in and (ordering.enabled or not upstream.brokers):
        return [*problems, _NEEDS_LOG_IN]
    if ordering.enabled and any(node.error is None for node in topology.nodes.values()):
        problems += await _rights(topology, principal or principal_of(upstream), ordering)
    return problems


async def _unreached(topology: Topology) -> list[str]:
    """Says which brokers do not let Kordon in; those that the cluster names have been tried already."""
    nodes = sorted(topology.nodes.values(), key=lambda node: node.node_id)
    named = {node.address for node in nodes}
    others = [address for address in topology.config.bootstrap if address not in named]
    errors = await asyncio.gather(*(_try(address, topology) for address in others))
    told = [f"upstream.bootstrap: {error}" for error in errors if error is not None]
    return told + [f"broker {node.node_id}: {node.error}" for node in nodes if node.error is not None]


async def _try(address: HostPort, topology: Topology) -> str | None:
    try:
        async with UpstreamClient(address, topology.config, topology.context):
            return None
    except UpstreamUnavailable as error:
        return str(error)


async def _rights(topology: Topology, principal: str | None, ordering: Ordering) -> list[str]:
    links = BrokerConnections(topology)
    access = Access(Brokers(links), principal, ordering.group, share_groups=ordering.share_groups)
    try:
        authorizer = await access.has_authorizer()
        found = await access.find(await access.managed(), authorizer=authorizer)
    except UpstreamUnavailable as error:
        return [f"rights cannot be checked: {error}"]
    finally:
        await links.close()
    return [*found.missing, *found.open]
