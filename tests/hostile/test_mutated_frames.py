"""Damaged requests of every kind against a real proxy and broker: they end their own connections, and nothing else."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from kordon.codecs import apis
from kordon.codecs.messages import REQUESTS, request
from kordon.codecs.primitives import RowBudget
from kordon.proxy.core import verdicts
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import create_managed
from kordon.testing.messages.mutated_frames import Mutator, send_mutated
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

log = logging.getLogger(__name__)
pytestmark = pytest.mark.broker
MANAGED = "fuzz-managed"
GROWTH_BYTES = 100 * 2**20


def test_the_same_seed_makes_the_same_frames() -> None:
    """A failing run can be repeated."""
    one, other = Mutator(7, [MANAGED]), Mutator(7, [MANAGED])
    assert [one.frame() for _ in range(50)] == [other.frame() for _ in range(50)]


def test_every_kind_of_request_is_sent() -> None:
    """All that have a table, which are all that Kordon reads."""
    mutator = Mutator(1, [MANAGED])
    keys = {int.from_bytes(mutator.frame()[4:6], "big") for _ in range(5000)}
    assert keys == {key for key in REQUESTS if verdicts.API_BY_KEY[key].versions} - {apis.API_VERSIONS}
    assert request(apis.FETCH).at(4).parse(bytes(30), RowBudget(1))


@contextmanager
def another_client(bootstrap: str, topic: str) -> Iterator[list[int]]:
    """Asks for the ends of a managed topic on one connection all the while; yields the error codes so far."""
    done, codes = threading.Event(), list[int]()
    partitions = [{"partition_index": 0, "timestamp": -1}]
    asked = {"replica_id": -1, "topics": [{"name": topic, "partitions": partitions}]}

    def ask() -> None:
        with PlainConnection(bootstrap) as connection:
            while not done.is_set():
                (row,) = connection.ask(apis.LIST_OFFSETS, 7, asked).topics
                codes.append(row.partitions[0].error_code)
                done.wait(0.05)
        codes.append(0)  # the connection has lived until here

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield codes
    finally:
        done.set()
        thread.join(60)


def fuzz(cluster: Cluster, seed: int, frames: int) -> None:
    """Sends damaged frames; what must hold then.

    A few of them wait at the broker for longer than their clients (JoinGroup for other members): it keeps their
    connections until then, as it does without a proxy.
    """
    topic = f"{MANAGED}-{seed}"
    with ProxyProcess.start(cluster.bootstrap("PLAINTEXT")) as proxy:
        create_managed(proxy.bootstrap, topic)
        process = psutil.Process(proxy.pid)
        asyncio.run(send_mutated(proxy.bootstrap, Mutator(0, [topic]), 200))  # takes what is taken once
        before = process.memory_info().rss
        with another_client(proxy.bootstrap, topic) as codes:
            asyncio.run(send_mutated(proxy.bootstrap, Mutator(seed, [topic]), frames))
            asked = len(codes)
            wait_until("the other client is answered still", lambda: len(codes) > asked + 1)
        assert codes[-1] == 0
        wait_until("few connections are left", lambda: proxy.status()["connections"]["open"] <= frames / 1000)
        wait_until("hardly anything is held for them", lambda: proxy.metric("kordon_held_bytes") <= 100 * frames / 10)
        failures = [line for line in proxy.log().splitlines() if "Traceback" in line]
        assert not failures, failures[:3]
        assert proxy.metric("kordon_connections_closed_total", cause="internal_error") == 0
        assert proxy.metric("kordon_requests_total") > frames / 10, "most frames never came to be read"
        assert process.memory_info().rss - before < GROWTH_BYTES


def test_ten_thousand_damaged_frames_harm_nobody(open_cluster: Cluster) -> None:
    """No task fails, no memory stays, and the connection of another client lives on."""
    fuzz(open_cluster, seed=14, frames=10_000)


@pytest.mark.deep
@pytest.mark.timeout(7200)
def test_a_million_damaged_frames_harm_nobody(open_cluster: Cluster) -> None:
    """The same, for as long as it takes."""
    for seed in range(10):
        fuzz(open_cluster, seed=seed, frames=100_000)
        log.info("%d frames sent", (seed + 1) * 100_000)
