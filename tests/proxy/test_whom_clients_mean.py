"""A client says in ApiVersions which cluster and node it means (KIP-1242): through Kordon it has reached them."""

from collections.abc import Iterator

import pytest

from kordon.codecs import apis
from kordon.codecs.messages import REQUESTS
from kordon.testing.broker_features import MEANT_NODES
from kordon.testing.cluster import Cluster
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.proxy_process import ProxyProcess

pytestmark = pytest.mark.broker
REBOOTSTRAP_REQUIRED = 129
CLIENT = {"client_software_name": "kordon", "client_software_version": "1"}


@pytest.fixture(scope="module")
def proxy(cluster3: Cluster) -> Iterator[ProxyProcess]:
    """A proxy in front of three brokers."""
    with ProxyProcess.start(bootstrap=cluster3.bootstrap()) as started:
        yield started


def told(bootstrap: str, version: int, cluster_id: str | None = None, node_id: int = -1) -> int:
    """Returns the error of the answer to ApiVersions; it is the first field in all versions."""
    with PlainConnection(bootstrap) as connection:
        body = connection.ask_bytes(apis.API_VERSIONS, version, CLIENT | {"cluster_id": cluster_id, "node_id": node_id})
    return int.from_bytes(body[:2], "big")


@pytest.mark.skipif(MEANT_NODES.is_missing, reason=MEANT_NODES.reason)
def test_each_port_leads_to_the_node_that_is_told_there(proxy: ProxyProcess) -> None:
    """The node with its cluster's id answers; whoever means another node or cluster is told to begin anew."""
    with PlainConnection(proxy.bootstrap) as connection:
        known = connection.ask(apis.METADATA, 12, {"topics": []})
    nodes = {row.node_id: f"{row.host}:{row.port}" for row in known.brokers}
    assert len(nodes) == 3
    for node_id, at in nodes.items():
        answers = {meant: told(at, 5, known.cluster_id, meant) for meant in nodes}
        assert answers == {meant: 0 if meant == node_id else REBOOTSTRAP_REQUIRED for meant in nodes}
        assert told(at, 5, "another-cluster", node_id) == REBOOTSTRAP_REQUIRED
    assert told(proxy.bootstrap, 5) == 0


@pytest.mark.parametrize("version", REQUESTS[apis.API_VERSIONS].versions)
def test_brokers_that_do_not_know_a_version_say_so_through_kordon(
    proxy: ProxyProcess, cluster3: Cluster, version: int
) -> None:
    """Clients begin with the newest version that they have, whatever the broker has."""
    direct = cluster3.bootstrap().split(",")[0]
    assert told(proxy.bootstrap, version) == told(direct, version)
