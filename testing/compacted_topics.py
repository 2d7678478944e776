"""Compacted managed topics as clients see them, for tests: who writes keys, and who reads what is left of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from kordon.proxy import apis
from kordon.proxy.ordering.identity import tag
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import VIRTUAL_PARTITIONS
from kordon.testing.plain_connection import PlainConnection

# confluent_kafka.admin re-exports these without saying so.
# pyright: reportPrivateImportUsage=false

PATIENCE_SECONDS: Final = 90
HASTY: Final = {
    "cleanup.policy": "compact",
    "kordon.janitor": "true",
    "segment.ms": "300",
    "min.cleanable.dirty.ratio": "0.0",
    "delete.retention.ms": "100",
}
"""Topic configs by which brokers compact at once, and forget tombstones at once."""


class Writer:
    """Writes keys and deletes them; keeps what must be there."""

    def __init__(self, bootstrap: str, topic: str, **settings: str) -> None:
        self.truth: dict[bytes, bytes] = {}
        self.deleted: set[bytes] = set()
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **settings})
        self._rolls = 0

    def put(self, numbers: range, value: bytes | None) -> None:
        """Gives keys a value, or none; returns when that is acknowledged."""
        for number in numbers:
            key = b"key-%d" % number
            self._producer.produce(self._topic, value, key)
            self._producer.poll(0)
            self.truth.pop(key, None)
            if value is None:
                self.deleted.add(key)
            else:
                self.truth[key] = value
        assert self._producer.flush(PATIENCE_SECONDS) == 0

    def close(self) -> None:
        """Ends the client, which else goes on dialling when its proxy has gone."""
        self._producer.close()

    def roll(self) -> None:
        """Writes something to all partitions, so that brokers begin another file and compact those before."""
        self._rolls += 1
        for v in range(VIRTUAL_PARTITIONS):
            self._producer.produce(self._topic, b"%d" % self._rolls, b"roll-%d" % v, partition=v)
        assert self._producer.flush(PATIENCE_SECONDS) == 0


def read_from_0(bootstrap: str, topic: str, partitions: int = VIRTUAL_PARTITIONS) -> list[tuple[bytes, bytes | None]]:
    """Reads all there is of a topic, partition by partition to its end."""
    config = {"bootstrap.servers": bootstrap, "group.id": f"group-{time.time_ns()}", "enable.partition.eof": True}
    consumer = Consumer(config)
    consumer.assign([TopicPartition(topic, q, 0) for q in range(partitions)])
    got: list[tuple[bytes, bytes | None]] = []
    at_end: set[int] = set()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(at_end) < partitions:
        assert time.monotonic() < deadline, f"{sorted(at_end)} of {partitions} partitions read to their end"
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            at_end.add(message.partition() or 0)
        elif not (key := message.key() or b"").startswith((b"roll-", b"__kordon")):
            got.append((key, message.value()))
    consumer.close()
    return got


def land_strays(brokers: Cluster, topic: str, keys: Sequence[bytes]) -> None:
    """Has tombstones land on partition 0 with an identity that nobody has there: as those of a proxy that woke late."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, tag(0, 7, 5), 0, 0, 16_000_000)
    for offset, key in enumerate(keys):
        builder.append(offset, timestamp=time.time_ns() // 1_000_000, key=key, value=None, headers=[])
    row = {"name": topic, "partition_data": [{"index": 0, "records": bytes(builder.build())}]}
    with PlainConnection(brokers.bootstrap()) as broker:
        written = broker.ask(apis.PRODUCE, 9, {"acks": -1, "timeout_ms": 9_000, "topic_data": [row]})
        assert written.responses[0].partition_responses[0].error_code == 0


def configure(bootstrap: str, topic: str, values: Mapping[str, str]) -> None:
    set_ = AlterConfigOpType.SET
    entries = [ConfigEntry(name, value, incremental_operation=set_) for name, value in values.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(60)
