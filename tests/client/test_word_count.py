"""The example of stateful processing: every word is counted once, while its topic grows and a counter is killed."""

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kordon.client.examples.word_count import Store
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import create_managed, resize
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = pytest.mark.broker

TOPIC = "words-of-the-example"
WORDS = [f"word-{n}" for n in range(60)]


def counter(bootstrap: str, store: Path) -> subprocess.Popen[str]:
    """Starts a counter as a user would."""
    what = ["--bootstrap", bootstrap, "--topic", TOPIC, "--store", str(store)]
    command = [sys.executable, "-m", "kordon.client.examples.word_count", *what]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE)


def test_every_word_is_counted_once_while_the_topic_grows(open_cluster: Cluster, tmp_path: Path) -> None:
    """Three counters with counts in memory; 3 -> 6 -> 4 partitions; one is killed; the store has it all in the end."""
    path, chance, written = tmp_path / "counts.db", random.Random(7), Counter[str]()
    with ProxyProcess.start(open_cluster.bootstrap("PLAINTEXT")) as proxy:
        admin = create_managed(proxy.bootstrap, TOPIC)
        store, producer = Store(path), Producer({"bootstrap.servers": proxy.bootstrap, "enable.idempotence": True})
        counters = [counter(proxy.bootstrap, path) for _ in range(3)]
        try:
            for partitions in (6, 4):
                changed = resize(admin, TOPIC, partitions)
                while not changed.done():
                    for word in chance.choices(WORDS, k=50):
                        producer.produce(TOPIC, key=word)
                        written[word] += 1
                    producer.poll(0.02)
                assert producer.flush(60) == 0
                wait_until("something is counted", lambda: sum(store.counts().values()) > 0, 60)
                counters[0].kill()
            wait_until("all is counted, and once", lambda: store.counts() == dict(written), 90)
            for each in counters[1:]:
                each.terminate()
                told, _ = each.communicate(timeout=60)
                assert {line.split()[1]: int(line.split()[0]) for line in told.splitlines()} == dict(written)
        finally:
            for each in counters:
                each.kill()
                each.communicate(timeout=60)
            store.close()
            producer.close()
