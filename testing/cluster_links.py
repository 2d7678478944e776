"""Kordon's own connections to brokers, as one worker has them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from pydantic import SecretStr

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import api
from kordon.proxy.config.config import Upstream, UpstreamSasl, UpstreamTls
from kordon.proxy.config.host_port import HostPort
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.broker_connections import BrokerConnections
from kordon.proxy.kafka.topology import Topology
from kordon.proxy.runtime.tls import upstream_context
from kordon.testing.broker_config import USERS
from kordon.testing.cluster import Cluster
from kordon.testing.waiting import until


@asynccontextmanager
async def links_to(cluster: Cluster, **options: int) -> AsyncIterator[BrokerConnections]:
    """Looks at a cluster once; ends the connections at the end."""
    bootstrap = tuple(map(HostPort.parse, cluster.bootstrap().split(",")))
    topology = Topology(Upstream.model_validate({"bootstrap": bootstrap, **options}), lambda _: None, lambda _: None)
    await topology.refresh()
    links = BrokerConnections(topology)
    try:
        yield links
    finally:
        await links.close()


async def create_topic(links: BrokerConnections, topic: Mapping[str, Any]) -> None:
    """Creates a topic, however long that takes: a question to any broker is given up after seconds.

    Args:
        links: To its cluster.
        topic: A row of CreateTopics; nobody has made a topic of that name.

    Raises:
        TimeoutError: No broker answers.
    """
    expected = {Code.NONE}

    async def is_there() -> bool:
        try:
            answer = await links.ask_any(
                "admin", api(apis.CREATE_TOPICS), range(5, 6), {"topics": [topic], "timeout_ms": 10_000}
            )
        except UpstreamUnavailable:
            expected.add(Code.TOPIC_ALREADY_EXISTS)  # by what was asked for and not answered
            return False
        (created,) = answer.topics
        assert created.error_code in expected
        return True

    await until(f"{topic['name']} is created", is_there)


async def topology_over_tls(cluster: Cluster, user: str) -> Topology:
    """Looks at a cluster over TLS, as a user who logs in by SCRAM; returns what is to be seen."""
    sasl = UpstreamSasl(mechanism="SCRAM-SHA-512", username=user, password=SecretStr(USERS[user]))
    tls = UpstreamTls(ca=cluster.certificates.ca)
    bootstrap = (HostPort.parse(cluster.bootstrap("SASL_SSL")),)
    upstream = Upstream(bootstrap=bootstrap, tls=tls, sasl=sasl)
    topology = Topology(upstream, lambda _: None, lambda _: None, upstream_context(tls))
    await topology.refresh()
    return topology
