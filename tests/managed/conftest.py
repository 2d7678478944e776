"""What tests of managed topics share."""

from collections.abc import Generator, Iterator

import pytest

from kordon.testing.broker_features import DESCRIBED_PRODUCERS
from kordon.testing.cluster import Cluster
from kordon.testing.dialect_connection import DialectConnection
from kordon.testing.proxy_process import ProxyProcess


@pytest.fixture(scope="module")
def compacting_cluster() -> Generator[Cluster, None, None]:
    """One broker that looks for something to compact all the time."""
    if DESCRIBED_PRODUCERS.is_missing:
        pytest.skip(DESCRIBED_PRODUCERS.reason)
    with Cluster.start(config={"authorizer.class.name": "", "log.cleaner.backoff.ms": "100"}) as started:
        yield started


@pytest.fixture
def dialect(proxy: ProxyProcess) -> Iterator[DialectConnection]:
    """A connection through the proxy that has said that it speaks the dialect."""
    with DialectConnection(proxy.bootstrap) as connection:
        yield connection
