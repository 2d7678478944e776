"""Many groups on one managed topic: what brokers are asked for it, and what is kept meanwhile (SHARED-READ)."""

import threading
import time
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer

from kordon.testing.managed_clients import create_managed, resize
from kordon.testing.proxy_process import ProxyProcess

pytestmark = pytest.mark.broker
COUNT, RECORD_BYTES = 12_000, 1_000
PATIENCE_SECONDS = 60.0


class Read(NamedTuple):
    """What a proxy has read and given out so far."""

    pulled_bytes: float
    served_bytes: float
    hits: float


def read_by(proxy: ProxyProcess) -> Read:
    values = dict(line.rsplit(" ", 1) for line in proxy.metrics().splitlines() if line.startswith("kordon_managed"))
    names = ("pulled_bytes_total", "served_bytes_total", 'cache_looks_total{outcome="hit"}')
    return Read(*(float(values[f"kordon_managed_{name}"]) for name in names))


def write(proxy: ProxyProcess, topic: str) -> None:
    producer = Producer({"bootstrap.servers": proxy.bootstrap, "enable.idempotence": True, "linger.ms": 5})
    for number in range(COUNT):
        producer.produce(topic, key=f"key-{number % 500}", value=bytes(RECORD_BYTES))
    assert producer.flush(PATIENCE_SECONDS) == 0


def read(proxy: ProxyProcess, topic: str, groups: int) -> Read:
    """Reads a topic to its end, as several groups at the same time; returns what that cost."""
    before, counts = read_by(proxy), [0] * groups
    ready = threading.Barrier(groups)

    def run(number: int) -> None:
        config = {"bootstrap.servers": proxy.bootstrap, "group.id": f"{topic}-{groups}-{number}"}
        consumer = Consumer({**config, "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        ready.wait()
        end = time.monotonic() + PATIENCE_SECONDS
        while counts[number] < COUNT and time.monotonic() < end:
            counts[number] += len(consumer.consume(500, 0.2))
        consumer.close()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(groups)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [COUNT] * groups
    return Read(*(now - then for now, then in zip(read_by(proxy), before, strict=True)))


def test_five_groups_cost_the_broker_what_one_does(proxy: ProxyProcess) -> None:
    """Upstream bytes per byte given out: about 1 for one group, about 1/5 for five that read side by side."""
    create_managed(proxy.bootstrap, "read-by-many")
    write(proxy, "read-by-many")
    one, five = read(proxy, "read-by-many", 1), read(proxy, "read-by-many", 5)
    assert one.pulled_bytes < 1.5 * one.served_bytes
    assert five.served_bytes > 4.5 * one.served_bytes
    assert five.pulled_bytes < 1.5 * one.pulled_bytes
    assert five.hits > one.hits


def test_a_growth_leaves_what_it_does_not_concern_in_the_cache(proxy: ProxyProcess) -> None:
    """3 grows to 4 while five groups read: one partition of three is split and read again, and no more than that."""
    admin = create_managed(proxy.bootstrap, "shared-and-grown")
    write(proxy, "shared-and-grown")
    done = resize(admin, "shared-and-grown", 4)
    five = read(proxy, "shared-and-grown", 5)
    done.result(60)
    assert five.pulled_bytes < 2 * COUNT * RECORD_BYTES * 1.1
