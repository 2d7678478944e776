"""A client of managed topics is held to its byte rates as by its broker (CLIENT-QUOTA)."""

import select
from collections.abc import Iterator
from typing import Any

import pytest

from kordon.codecs import apis
from kordon.testing.client_quotas import ask_as, set_quotas, write_as
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import create_managed, create_ordinary
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = pytest.mark.broker
BOUNDED, FREE = "bounded", "free"
BYTES_PER_SECOND = 10_000
BATCH_BYTES = 90_000
MANAGED, ORDINARY = "with-quota", "with-quota-of-broker"
QUOTAS = ("producer_byte_rate", "consumer_byte_rate")
WINDOW_MS = range(10_000, 11_001)
FETCH_VERSION = 11
MUTED_SECONDS, HEARD_SECONDS = 0.3, 10.0
"""Whoever waits gets nothing in the one; who does not gets an answer in the other, in which his quota would hold it."""


@pytest.fixture(scope="module")
def bounded_cluster(open_cluster: Cluster, proxy: ProxyProcess) -> Iterator[Cluster]:
    """A managed topic and an ordinary one, and a client whose quotas the proxy knows."""
    create_managed(proxy.bootstrap, MANAGED)
    create_ordinary(proxy.bootstrap, ORDINARY, 3)
    set_quotas(open_cluster.bootstrap(), {"client-id": BOUNDED}, dict.fromkeys(QUOTAS, float(BYTES_PER_SECOND)))
    wait_until("quotas are known", lambda: proxy.metric("kordon_client_quotas", kind=QUOTAS[0]) == 1)
    yield open_cluster
    set_quotas(open_cluster.bootstrap(), {"client-id": BOUNDED}, dict.fromkeys(QUOTAS))


def writes(connection: PlainConnection, topic: str, client_id: str = BOUNDED) -> int:
    """Writes a batch; returns for how long the client is told to wait, in ms."""
    return write_as(client_id, connection, topic, BATCH_BYTES)


def reads(connection: PlainConnection, topic: str, client_id: str = BOUNDED) -> int:
    """Reads the first batch of partition 0; returns for how long the client is told to wait, in ms."""
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}
    asked: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1, "session_epoch": -1}
    asked |= {"topics": [{"topic": topic, "partitions": [part]}]}
    throttled: int = ask_as(client_id, connection, apis.FETCH, FETCH_VERSION, asked).throttle_time_ms
    return throttled


def is_muted(connection: PlainConnection, seconds: float = MUTED_SECONDS) -> bool:
    """Whether a request gets no answer for so long."""
    connection.tell(apis.API_VERSIONS, 0, {})
    return not select.select([connection.fileno()], [], [], seconds)[0]


def test_a_client_waits_as_long_as_at_its_broker(bounded_cluster: Cluster, proxy: ProxyProcess) -> None:
    """Two batches, each of nine seconds' worth: they exceed a burst of ten, and are told as 18 s without the window.

    The same is asked of the broker and of Kordon, for a write and for a read; then neither reads from its client.
    """
    told: list[int] = []
    for bootstrap, topic in ((bounded_cluster.bootstrap(), ORDINARY), (proxy.bootstrap, MANAGED)):
        for ask in (writes, reads):
            with PlainConnection(bootstrap) as connection:
                assert ask(connection, topic) == 0
                told.append(ask(connection, topic))
                assert is_muted(connection)
    total_ms = 2 * BATCH_BYTES / BYTES_PER_SECOND * 1000
    assert all(total_ms - WINDOW_MS[-1] <= each <= total_ms * 1.01 - WINDOW_MS[0] for each in told), told
    assert proxy.metric("kordon_client_quota_throttles_total") == 2


def test_others_and_ordinary_topics_are_as_before(bounded_cluster: Cluster, proxy: ProxyProcess) -> None:
    """A client without a quota waits for nothing; at ordinary topics the broker alone says who waits."""
    with PlainConnection(proxy.bootstrap) as connection:
        assert [writes(connection, MANAGED, FREE) for _ in range(3)] == [0, 0, 0]
        assert not is_muted(connection, HEARD_SECONDS)
    before = proxy.metric("kordon_client_quota_throttles_total")
    with PlainConnection(proxy.bootstrap) as connection:
        writes(connection, ORDINARY)
    assert proxy.metric("kordon_client_quota_throttles_total") == before


def test_a_quota_that_is_gone_binds_nobody(bounded_cluster: Cluster, proxy: ProxyProcess) -> None:
    """Kordon looks every few seconds."""
    set_quotas(bounded_cluster.bootstrap(), {"client-id": BOUNDED}, dict.fromkeys(QUOTAS))
    wait_until("quotas are gone", lambda: proxy.metric("kordon_client_quotas", kind=QUOTAS[0]) == 0)
    with PlainConnection(proxy.bootstrap) as connection:
        assert writes(connection, MANAGED) == 0
