"""Managed topics for clients that speak TLS with Kordon and log in at the brokers by SCRAM, as Kordon itself does."""

# pyright: reportPrivateImportUsage=false
import time
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from kordon.testing.broker_config import USERS
from kordon.testing.broker_features import GROUP_PROTOCOLS, PEM_FILES
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import VIRTUAL_PARTITIONS, create_managed, read, resize
from kordon.testing.rights import kordon_over_tls

pytestmark = [
    pytest.mark.broker,
    pytest.mark.deep,
    pytest.mark.timeout(300),
    pytest.mark.skipif(PEM_FILES.is_missing, reason=PEM_FILES.reason),
]

LISTENER, TOPIC, KEYS = "SASL_SSL", "secured", 20
SESSION_SECONDS = 6


def write(settings: Mapping[str, str], admin: AdminClient) -> int:
    """Writes numbers while the topic grows and shrinks, for longer than a session lasts; returns how many."""
    producer, errors = Producer({**settings, "enable.idempotence": True, "linger.ms": 5}), list[Any]()
    end, count = time.monotonic() + 1.5 * SESSION_SECONDS, 0
    changes = [resize(admin, TOPIC, 6)]
    while time.monotonic() < end or not changes[-1].done():
        if changes[-1].done() and len(changes) == 1:
            changes.append(resize(admin, TOPIC, 4))
        for _ in range(KEYS):
            producer.produce(
                TOPIC, str(count), f"key-{count % KEYS}", on_delivery=lambda error, _: errors.append(error)
            )
            count += 1
        producer.poll(0.05)
    assert producer.flush(60) == 0
    assert set(errors) == {None}
    for change in changes:
        change.result(60)
    return count


def test_clients_over_tls_and_scram_use_a_managed_topic_over_resizes() -> None:
    """They create, write over a growth, a shrink and new log-ins of their sessions, and read as groups, in order."""
    config = {"connections.max.reauth.ms": str(SESSION_SECONDS * 1000)}
    with (
        Cluster.start(listeners=("PLAINTEXT", LISTENER), config=config) as cluster,
        kordon_over_tls(cluster, "admin") as proxy,
    ):
        settings = {
            "bootstrap.servers": proxy.bootstrap,
            "security.protocol": LISTENER,
            "ssl.ca.location": str(cluster.certificates.ca),
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "alice",
            "sasl.password": USERS["alice"],
        }
        admin = create_managed(proxy.bootstrap, TOPIC, settings)
        count = write(settings, admin)
        assert len(admin.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions) == VIRTUAL_PARTITIONS
        for protocol in GROUP_PROTOCOLS:
            group = {"group.id": f"readers-{protocol}", "group.protocol": protocol}
            got = [(each.key(), int(each.value() or b"-1")) for each in read({**settings, **group}, TOPIC, count)]
            assert sorted(number for _, number in got) == list(range(count)), protocol
            for key in {key for key, _ in got}:
                numbers = [number for each, number in got if each == key]
                assert numbers == sorted(numbers), f"{protocol}: {key!r}"
