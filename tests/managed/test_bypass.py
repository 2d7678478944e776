"""A real producer that goes round Kordon to a managed topic, while others do not and the topic grows (rule F2)."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Generator

import pytest
from confluent_kafka import Producer

from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import Sender, create_managed, read_all, resize
from kordon.testing.proxy_process import ProxyProcess

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def proxy(open_cluster: Cluster) -> Generator[ProxyProcess, None, None]:
    """A proxy in front of one broker without ACLs."""
    with ProxyProcess.start(open_cluster.bootstrap("PLAINTEXT")) as started:
        yield started


class Stranger:
    """Writes to the brokers directly: numbers from 1,000,000 on, every third without a key, in every codec."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.written: set[int] = set()
        self._topic = topic
        self._producers = [
            Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": codec})
            for codec in ("none", "gzip", "snappy", "lz4", "zstd")
        ]

    def write(self, count: int) -> None:
        """Writes with each codec; all is acknowledged."""
        for producer in self._producers:
            for _ in range(count):
                number = 1_000_000 + len(self.written)
                key = None if number % 3 == 0 else f"key-{number % 50}"
                producer.produce(self._topic, key=key, value=str(number))
                self.written.add(number)
            assert producer.flush(30) == 0


def bypassed(proxy: ProxyProcess) -> float:
    """How many batches were counted."""
    return proxy.metric("kordon_managed_bypassed_batches_total", topic="bypassed")


def test_what_went_round_kordon_is_delivered_once_counted_and_shown(open_cluster: Cluster, proxy: ProxyProcess) -> None:
    """3 grows to 6 between and under its writes: each record of both kinds of producers is read exactly once."""
    admin = create_managed(proxy.bootstrap, "bypassed")
    sender, stranger = Sender(proxy.bootstrap, "bypassed"), Stranger(open_cluster.bootstrap("PLAINTEXT"), "bypassed")
    sender.send_for(0.3)
    assert bypassed(proxy) == 0
    stranger.write(100)
    done = resize(admin, "bypassed", 6)
    while not done.done():
        stranger.write(2)
        time.sleep(0.05)  # a change needs a moment in which nothing is written
    done.result(60)
    stranger.write(100)
    sender.send_for(0.3)
    sender.finish()

    numbers = sorted(number for _, number in read_all(proxy.bootstrap, "bypassed", sender.sent + len(stranger.written)))
    assert numbers == sorted({number for _, number in sender.acknowledged} | stranger.written)
    assert bypassed(proxy) > 0
    assert proxy.log().count("bypass_found") == 1
    with urllib.request.urlopen(f"http://{proxy.admin}/topics/bypassed", timeout=10) as answer:
        assert json.load(answer)["bypassed_batches"] == bypassed(proxy)
