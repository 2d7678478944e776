"""DeleteRecords of a managed topic by a real admin client, over growth and shrink, through two proxies (OWN-FLOOR)."""

from collections import defaultdict
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportPrivateImportUsage]

from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import VIRTUAL_PARTITIONS, create_managed, read_all, resize, watermarks
from kordon.testing.proxy_process import ProxyProcess

pytestmark = pytest.mark.broker
COUNT = 600
VIRTUAL = range(VIRTUAL_PARTITIONS)


def write(bootstrap: str, topic: str, numbers: range) -> dict[int, dict[int, int]]:
    """Writes numbers; returns them by partition and offset."""
    written: defaultdict[int, dict[int, int]] = defaultdict(dict)

    def delivered(error: Any, message: Any) -> None:
        assert error is None
        written[message.partition()][message.offset()] = int(message.value())

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in numbers:
        producer.produce(topic, key=f"key-{number % 50}", value=str(number), on_delivery=delivered)
    assert producer.flush(60) == 0
    return dict(written)


def delete(admin: AdminClient, topic: str, offsets: dict[int, int]) -> dict[int, int]:
    """Deletes records; returns the low watermark of each partition."""
    wishes = [TopicPartition(topic, v, offset) for v, offset in offsets.items()]
    answers = admin.delete_records(wishes, request_timeout=60)
    return {part.partition: answer.result(60).low_watermark for part, answer in answers.items()}


def test_deleted_records_are_gone_and_no_others(proxies: list[ProxyProcess]) -> None:
    """Each virtual partition loses what lies below its own offset, seen through any proxy, and still after resizes."""
    admin = create_managed(proxies[0].bootstrap, "deleted")
    written = write(proxies[0].bootstrap, "deleted", range(COUNT))
    resize(admin, "deleted", 6).result(60)
    later = write(proxies[1].bootstrap, "deleted", range(COUNT, 2 * COUNT))
    for v, more in later.items():
        written.setdefault(v, {}).update(more)
    offsets = {v: sorted(mine)[len(mine) * (v % 4) // 4] for v, mine in written.items()}

    assert delete(admin, "deleted", offsets) == offsets

    left = sorted(number for v, mine in written.items() for offset, number in mine.items() if offset >= offsets[v])
    for count in (6, 4, 3):
        if count != 6:
            resize(admin, "deleted", count).result(60)
        for proxy in proxies:
            assert {v: low for v, (low, _) in watermarks(proxy.bootstrap, "deleted", VIRTUAL).items()} == offsets
        assert sorted(number for _, number in read_all(proxies[1].bootstrap, "deleted", len(left))) == left


def test_a_topic_that_is_emptied_frees_its_space(proxies: list[ProxyProcess], open_cluster: Cluster) -> None:
    """When no virtual partition needs what stands in them, the physical logs begin at their ends."""
    admin = create_managed(proxies[0].bootstrap, "emptied")
    write(proxies[0].bootstrap, "emptied", range(COUNT))
    resize(admin, "emptied", 4).result(60)
    high = {v: end for v, (_, end) in watermarks(proxies[0].bootstrap, "emptied", VIRTUAL).items()}

    assert delete(admin, "emptied", dict.fromkeys(high, -1)) == high

    for low, end in watermarks(open_cluster.bootstrap("PLAINTEXT"), "emptied", range(4)).values():
        assert low == end
    assert set(watermarks(proxies[1].bootstrap, "emptied", VIRTUAL).values()) == {(end, end) for end in high.values()}
    written = write(proxies[1].bootstrap, "emptied", range(50))
    numbers = sorted(number for mine in written.values() for number in mine.values())
    assert sorted(number for _, number in read_all(proxies[0].bootstrap, "emptied", 50)) == numbers == list(range(50))
