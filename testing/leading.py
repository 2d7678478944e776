"""Brokers on which topics can be managed, and a Kordon that leads all that come and go in front of them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from kordon.testing.broker_features import DESCRIBED_PRODUCERS
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import VIRTUAL_PARTITIONS
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

_TOPIC: Final = "managed-by-the-leader"
_PATIENCE_SECONDS: Final = 180
"""Against hanging only: all tests on shared brokers wait for this."""


@contextmanager
def without_authorizer() -> Generator[Cluster, None, None]:
    """Starts one broker that holds nobody to ACLs; skips the test where the broker is too old for managed topics."""
    if DESCRIBED_PRODUCERS.is_missing:
        pytest.skip(DESCRIBED_PRODUCERS.reason)
    with Cluster.start(brokers=1, config={"authorizer.class.name": ""}) as started:
        yield started


@contextmanager
def led(cluster: Cluster) -> Generator[ProxyProcess, None, None]:
    """Starts a Kordon that leads the proxies of a cluster, which had none; the topic that made it do so is gone."""
    wanted = NewTopic(_TOPIC, 3, 1, config={"kordon.virtual.partitions": str(VIRTUAL_PARTITIONS)})
    with ProxyProcess.start(cluster.bootstrap()) as leader:
        admin = AdminClient({"bootstrap.servers": leader.bootstrap})
        admin.create_topics([wanted], request_timeout=_PATIENCE_SECONDS)[_TOPIC].result(_PATIENCE_SECONDS)
        wait_until("it leads", leader.leads, _PATIENCE_SECONDS)
        admin.delete_topics([_TOPIC], request_timeout=_PATIENCE_SECONDS)[_TOPIC].result(_PATIENCE_SECONDS)
        wait_until("its topic is gone", lambda: _TOPIC not in admin.list_topics(timeout=60).topics, _PATIENCE_SECONDS)
        yield leader
