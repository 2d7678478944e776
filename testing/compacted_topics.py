"""Compacted managed topics as clients see them, for tests: who writes keys, and who reads what is left of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from kordon.proxy.ordering.identity import tag
from kordon.testing.audits.play_requests import assert_accepted, produce
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import VIRTUAL_PARTITIONS, read_to_ends, set_configs
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
    """Reads all there is of the first partitions, but for what `Writer.roll` and Kordon have written."""
    read = read_to_ends({"bootstrap.servers": bootstrap}, topic, range(partitions))
    records = [(message.key() or b"", message.value()) for message in read]
    return [(key, value) for key, value in records if not key.startswith((b"roll-", b"__kordon"))]


def land_strays(brokers: Cluster, topic: str, keys: Sequence[bytes]) -> None:
    """Has tombstones land on partition 0 with an identity that nobody has there: as those of a proxy that woke late."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, tag(0, 7, 5), 0, 0, 16_000_000)
    for offset, key in enumerate(keys):
        builder.append(offset, timestamp=time.time_ns() // 1_000_000, key=key, value=None, headers=[])
    with PlainConnection(brokers.bootstrap()) as broker:
        assert_accepted(produce(broker, topic, 0, bytes(builder.build())))


def configure(bootstrap: str, topic: str, values: Mapping[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})  # lives until it is answered
    set_configs(admin, topic, values).result(60)
