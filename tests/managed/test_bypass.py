"""A real producer that goes round Kordon to a managed topic, while others do not and it grows (BYPASS-SHARED)."""

import json
import time

import pytest
from confluent_kafka import Producer

from kordon.testing.cluster import Cluster
from kordon.testing.dialect.reader import DialectReader
from kordon.testing.managed_clients import Sender, create_managed, read_all, resize
from kordon.testing.proxy_process import ProxyProcess

pytestmark = pytest.mark.broker


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
            assert producer.flush(90) == 0


def bypassed(proxy: ProxyProcess, topic: str = "bypassed") -> float:
    """How many batches were counted."""
    return proxy.metric("kordon_managed_bypassed_batches_total", topic=topic)


def warnings(proxy: ProxyProcess, topic: str) -> int:
    """How often the log says of a topic that something was found."""
    events = map(json.loads, proxy.log().splitlines())
    return sum(event["event"] == "bypass_found" and event["topic"] == topic for event in events)


def test_what_went_round_kordon_is_counted_where_only_clients_of_the_dialect_read(
    open_cluster: Cluster, proxy: ProxyProcess
) -> None:
    """Each batch once for what is read once; what came through Kordon is not."""
    topic = "bypassed-dialect"
    create_managed(proxy.bootstrap, topic)
    sender, stranger = Sender(proxy.bootstrap, topic), Stranger(open_cluster.bootstrap("PLAINTEXT"), topic)
    sender.send_for(0.2)
    sender.finish()
    reader = DialectReader(proxy.bootstrap, topic)
    reader.read_until(sender.sent)
    assert len(reader.delivered) == sender.sent
    assert bypassed(proxy, topic) == 0

    stranger.write(50)
    reader.read_until(sender.sent + len(stranger.written))
    assert len(reader.delivered) == sender.sent + len(stranger.written)
    reader.close()
    assert bypassed(proxy, topic) > 0
    assert warnings(proxy, topic) == 1


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
    assert warnings(proxy, "bypassed") == 1
    assert proxy.topic("bypassed")["bypassed_batches"] == bypassed(proxy)
