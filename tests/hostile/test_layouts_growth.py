"""What clients and restarts leave behind in `__kordon.layouts` on real brokers, where it is read at every start."""

import logging
import os
import time
from collections import Counter
from typing import Any, Final

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from kordon.proxy.own_topics.wishing import WISH_SECONDS
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import Sender, create_managed, read_to_ends
from kordon.testing.proxy_process import ProxyProcess

# confluent_kafka.admin re-exports these without saying so.
# pyright: reportPrivateImportUsage=false

pytestmark = pytest.mark.broker

log = logging.getLogger(__name__)

LAYOUTS: Final = "__kordon.layouts"
TOPIC: Final = "deleted-from"
REQUESTS: Final = int(os.environ.get("GROWTH_REQUESTS", "10000"))
RESTARTS: Final = int(os.environ.get("GROWTH_RESTARTS", "200"))


def kept(bootstrap: str) -> set[str]:
    """Returns the keys that compaction leaves."""
    found = {each.key() or b"": each.value() for each in read_to_ends({"bootstrap.servers": bootstrap}, LAYOUTS)}
    return {key.decode() for key, value in found.items() if value is not None}


def kinds(keys: set[str]) -> Counter[str]:
    """Counts keys by the kind of record."""
    return Counter(key.partition("/")[0] for key in keys)


def delete(admin: AdminClient, offsets: dict[int, int]) -> list[Any]:
    """Asks for records to be deleted, one request for each partition, all at once."""
    asked = [admin.delete_records([TopicPartition(TOPIC, v, offset)]) for v, offset in offsets.items()]
    return [each.result(60).low_watermark for futures in asked for each in futures.values()]


def test_deleting_what_is_deleted_already_leaves_nothing(open_cluster: Cluster) -> None:
    """A client may ask for it once a second for ever; what does rise is told in as few wishes as can be."""
    brokers = open_cluster.bootstrap("PLAINTEXT")
    with ProxyProcess.start(brokers) as proxy:
        admin = create_managed(proxy.bootstrap, TOPIC)
        Sender.sent_for(1.0, proxy.bootstrap, TOPIC, partitions=range(12))
        before = kept(brokers)
        for _ in range(20):
            assert delete(admin, {0: 0, 1: 0, 2: 0}) == [0, 0, 0]
        assert kept(brokers) <= before
        assert delete(admin, {v: 1 + v for v in range(12)}) == [1 + v for v in range(12)]
        left = kept(brokers) - before
        assert kinds(left).keys() == {"outcome"}
        assert len(left) <= 12
        assert delete(admin, dict.fromkeys(range(12), 1)) == [1 + v for v in range(12)]
        assert kept(brokers) - before <= left


@pytest.mark.deep
@pytest.mark.timeout(7200)
def test_ten_thousand_requests_and_two_hundred_restarts_leave_next_to_nothing(unled_cluster: Cluster) -> None:
    """Fewer than 100 keys after compaction, and a start reads no more than the first did."""
    brokers = unled_cluster.bootstrap("PLAINTEXT")
    with ProxyProcess.start(brokers) as proxy, ProxyProcess.start(brokers) as other:
        admin = create_managed(proxy.bootstrap, TOPIC)
        Sender.sent_for(20.0, proxy.bootstrap, TOPIC, partitions=range(12))
        for number in range(REQUESTS // 12):
            delete(admin, dict.fromkeys(range(12), number % 200))
        log.info("kept behind the requests: %s", kinds(kept(brokers)))
        starts: list[float] = []
        for _ in range(RESTARTS):
            other.stop()
            began = time.monotonic()
            other.start_again()
            starts.append(time.monotonic() - began)
            if not len(starts) % 20:
                log.info("starts %d, the last in %s s", len(starts), [round(each, 1) for each in starts[-5:]])
        log.info("kept behind the restarts: %s", kinds(kept(brokers)))
        deadline = time.monotonic() + 3 * WISH_SECONDS
        while len(kept(brokers)) >= 100:
            assert time.monotonic() < deadline
            time.sleep(5.0)
        log.info("kept in the end: %s", kinds(kept(brokers)))
