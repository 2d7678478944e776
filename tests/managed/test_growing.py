"""A managed topic grows and shrinks under real clients, through two proxies in front of a real broker."""

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from kordon.testing.managed_clients import VIRTUAL_PARTITIONS, Sender, create_managed, resize
from kordon.testing.proxy_process import ProxyProcess


def test_no_key_loses_its_order_while_a_topic_grows_and_shrinks(proxies: list[ProxyProcess]) -> None:
    """3 -> 4 -> 6 -> 12 -> 5 -> 3 under an idempotent producer: all read once, each key in order, no error seen."""
    admin = create_managed(proxies[0].bootstrap, "orders")
    sender = Sender(proxies[1].bootstrap, "orders")
    sender.send_for(1.0)
    for count in (4, 6, 12, 5, 3):
        done = resize(admin, "orders", count)
        sender.send_for(0.5, done)
        done.result(60)
    sender.finish()

    sender.assert_read_by(proxies[0].bootstrap)


def test_clients_see_virtual_partitions_and_nothing_of_kordons_own(proxies: list[ProxyProcess]) -> None:
    """Every client sees the same 12 partitions whatever changes underneath; faces and layouts are hidden."""
    admin = create_managed(proxies[0].bootstrap, "seen")
    for count in (3, 5):
        if count != 3:
            resize(admin, "seen", count).result(60)
        for proxy in proxies:
            topics = AdminClient({"bootstrap.servers": proxy.bootstrap}).list_topics(timeout=60).topics
            assert len(topics["seen"].partitions) == VIRTUAL_PARTITIONS
            assert not [name for name in topics if name.startswith("__kordon")]


@pytest.mark.parametrize(("count", "says"), [(2, "the least there can be"), (13, "some would stay empty")])
def test_impossible_counts_are_refused_with_what_would_work(proxies: list[ProxyProcess], count: int, says: str) -> None:
    """Kafka's own error code, and a message that helps."""
    topic = f"impossible-{count}"
    admin = create_managed(proxies[0].bootstrap, topic)
    error = resize(admin, topic, count).exception(60)
    assert "INVALID_PARTITIONS" in str(error)
    assert says in str(error)


def test_a_compacted_topic_is_not_managed(proxies: list[ProxyProcess]) -> None:
    """Compaction knows nothing of a key's new partition, so its old value would outlive the new one."""
    admin = AdminClient({"bootstrap.servers": proxies[0].bootstrap})
    config = {"kordon.virtual.partitions": "12", "cleanup.policy": "compact"}
    error = admin.create_topics([NewTopic("compacted", 3, 1, config=config)])["compacted"].exception(60)
    assert "is compacted" in str(error)


def test_all_proxies_know_a_topic_when_its_creation_is_answered(proxies: list[ProxyProcess]) -> None:
    """A client that goes to another proxy at once must not take the topic for an ordinary one, beside all fences."""
    for number in range(3):
        topic = f"known-{number}"
        create_managed(proxies[0].bootstrap, topic)
        seen = AdminClient({"bootstrap.servers": proxies[1].bootstrap}).list_topics(topic, timeout=60)
        assert len(seen.topics[topic].partitions) == VIRTUAL_PARTITIONS
