"""Transactions straight at the brokers: open on a physical partition, as by a witness, until somebody ends them."""

from __future__ import annotations

import uuid
from typing import Any, Final, Self

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.proxy.kafka.batches import BatchIdentity
from kordon.proxy.kafka.witness_batch import build_witness
from kordon.proxy.ordering.records import WishRecord, dump
from kordon.proxy.ordering.transactions.events import Protocol
from kordon.proxy.ordering.wishes import AllowTransactions
from kordon.proxy.own_topics.layouts_topic import LAYOUTS_TOPIC
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

# confluent_kafka.admin re-exports these without saying so.
# pyright: reportPrivateImportUsage=false

_SECONDS: Final = 60.0
_VERIFIED: Final = "transaction.partition.verification.enable"


class NativeTransaction:
    """A transaction that has written one record to a partition at its broker, and goes on.

    Args:
        bootstrap: host:port of a broker.
        timeout_ms: After which its coordinator ends it.
    """

    def __init__(
        self, bootstrap: str, transactional_id: str, topic: str, partition: int, *, timeout_ms: int = 600_000
    ) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "log_level": 0,
            }
        )
        self._producer.init_transactions(_SECONDS)
        self._producer.begin_transaction()
        self._topic, self._partition = topic, partition
        self.write()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        del self._producer

    def write(self) -> None:
        """Writes one more record."""
        self._producer.produce(self._topic, b"value", partition=self._partition)
        assert self._producer.flush(_SECONDS) == 0

    def commit(self) -> None:
        self._producer.commit_transaction(_SECONDS)

    def begin(self) -> None:
        """Begins the next one, and writes a record."""
        self._producer.begin_transaction()
        self.write()


def fence_producers(bootstrap: str, transactional_id: str) -> None:
    """Does what Admin.fenceProducers does: InitProducerId of a transactional id, which ends what is open under it."""
    Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0}).init_transactions(
        _SECONDS
    )


def allow_transactions(proxy: ProxyProcess, bootstrap: str, topic: str) -> None:
    """Wishes, as a worker does before the first transaction of a topic, that it may have some; waits until it may.

    Args:
        bootstrap: host:port of a broker.
    """
    wish_id = uuid.uuid4().hex
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(LAYOUTS_TOPIC, dump(WishRecord(AllowTransactions(topic))), f"wish/{wish_id}")
    assert producer.flush(_SECONDS) == 0
    wait_until(f"{topic} may have transactions", lambda: proxy.topic(topic)["has_transactions"])


def hang(bootstrap: str, topic: str, partition: int, producer_id: int) -> None:
    """Leaves a transaction open that no coordinator knows, as an unclean election does that takes a marker.

    A broker takes it only while it does not verify transactions.
    """
    verify(bootstrap, is_on=False)
    records = build_witness(BatchIdentity(producer_id, 0, 0), Protocol.V1)
    with PlainConnection(bootstrap) as connection:
        rows = [{"index": partition, "records": records}]
        topics = [{"name": topic, "partition_data": rows}]
        fields: dict[str, Any] = {"transactional_id": "nobody", "acks": -1, "timeout_ms": 30_000, "topic_data": topics}

        def is_taken() -> bool:
            (answer,) = connection.ask(apis.PRODUCE, 8, fields).responses[0].partition_responses
            return bool(answer.error_code == Code.NONE)

        wait_until("the broker does not verify any more", is_taken)
    verify(bootstrap, is_on=True)


def verify(bootstrap: str, *, is_on: bool) -> None:
    """Has all brokers verify transactions or not."""
    entry = ConfigEntry(_VERIFIED, str(is_on).lower(), incremental_operation=AlterConfigOpType.SET)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    brokers = map(str, admin.list_topics(timeout=_SECONDS).brokers)
    resources = [ConfigResource(ResourceType.BROKER, each, incremental_configs=[entry]) for each in brokers]
    for done in admin.incremental_alter_configs(resources).values():
        done.result(_SECONDS)
