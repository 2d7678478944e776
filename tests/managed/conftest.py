"""What tests of managed topics share."""

from collections.abc import Generator

import pytest

from kordon.testing.broker_features import DESCRIBED_PRODUCERS
from kordon.testing.cluster import Cluster
from kordon.testing.proxy_process import ProxyProcess


@pytest.fixture(scope="module")
def proxies(open_cluster: Cluster) -> Generator[list[ProxyProcess], None, None]:
    """Two proxies in front of one broker without ACLs."""
    bootstrap = open_cluster.bootstrap("PLAINTEXT")
    with ProxyProcess.start(bootstrap) as first, ProxyProcess.start(bootstrap) as second:
        yield [first, second]


@pytest.fixture(scope="module")
def compacting_cluster() -> Generator[Cluster, None, None]:
    """One broker that looks for something to compact all the time."""
    if DESCRIBED_PRODUCERS.is_missing:
        pytest.skip(DESCRIBED_PRODUCERS.reason)
    with Cluster.start(config={"authorizer.class.name": "", "log.cleaner.backoff.ms": "100"}) as started:
        yield started
