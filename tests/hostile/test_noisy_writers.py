"""Writers without idempotence share an identity per partition: what is wrong with one's batches is nobody else's."""

import os
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from kordon.codecs import apis
from kordon.testing.cluster import Cluster
from kordon.testing.compacted_topics import read_from_0
from kordon.testing.managed_clients import create_managed
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.proxy_process import ProxyProcess

pytestmark = pytest.mark.broker
WRITERS, ROUNDS, EACH = 4, 40, 20
TOO_LARGE = 1_100_000
"""Above max.message.bytes, which is looked at by brokers."""


class Writer:
    """Writes to partition 0 without idempotence and without a retry, so that it hears of every error."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.errors: list[int] = []
        self.written = 0
        self._topic = topic
        settings = {"message.max.bytes": 2_000_000, "retries": 0, "linger.ms": 0, "max.in.flight": 5}
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": False, **settings})

    def write(self, key: str, value: bytes) -> None:
        self._producer.produce(self._topic, value, key, partition=0, on_delivery=self._told)
        self._producer.poll(0)

    def finish(self) -> None:
        assert self._producer.flush(90) == 0
        self._producer.close()

    def _told(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self.errors.append(error.code())
        else:
            self.written += 1


def epochs_of(cluster: Cluster, topic: str) -> set[int]:
    """Returns the producer epochs under which partition 0 was written, as its broker knows them."""
    with PlainConnection(cluster.bootstrap("PLAINTEXT")) as broker:
        asked = {"topics": [{"name": topic, "partition_indexes": [0]}]}
        ((partition,),) = (row.partitions for row in broker.ask(apis.DESCRIBE_PRODUCERS, 0, asked).topics)
    return {each.producer_epoch for each in partition.active_producers}


def test_batches_that_are_too_large_hurt_nobody_but_their_writer(open_cluster: Cluster, proxy: ProxyProcess) -> None:
    """All others' records are written without an error, once and in order; not even an epoch is spent."""
    create_managed(proxy.bootstrap, "noisy")
    writers = [Writer(proxy.bootstrap, "noisy") for _ in range(WRITERS)]
    noisy = Writer(proxy.bootstrap, "noisy")
    junk = os.urandom(TOO_LARGE)
    for done in range(ROUNDS):
        noisy.write("noisy", junk)
        for number in range(done * EACH, (done + 1) * EACH):
            for name, writer in enumerate(writers):
                writer.write(f"writer-{name}", b"%d" % number)
    for writer in (noisy, *writers):
        writer.finish()
    assert noisy.errors == [KafkaError.MSG_SIZE_TOO_LARGE] * ROUNDS
    assert [(writer.errors, writer.written) for writer in writers] == [([], ROUNDS * EACH)] * WRITERS
    read = read_from_0(proxy.bootstrap, "noisy")
    for name in range(WRITERS):
        found = [int(value or b"-1") for key, value in read if key == b"writer-%d" % name]
        assert found == list(range(ROUNDS * EACH))
    assert len(read) == WRITERS * ROUNDS * EACH
    assert epochs_of(open_cluster, "noisy") == {0}
