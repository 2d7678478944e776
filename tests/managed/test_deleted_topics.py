"""Managed topics that are deleted, with Kordon's help or without: layouts are bound to the topic's id (SAME-TOPIC)."""

from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from kordon.codecs import apis
from kordon.testing.cluster import Cluster
from kordon.testing.emptied import emptied
from kordon.testing.managed_clients import (
    CHANGE_SECONDS,
    VIRTUAL_PARTITIONS,
    Sender,
    committed,
    create_managed,
    resize,
)
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = pytest.mark.broker
PARTITIONS = 3


@pytest.fixture(scope="module")
def open_cluster(spare_cluster: Cluster) -> Cluster:
    """One that nobody leads yet: the controller counts what is found, and that is one of the module's two proxies."""
    return emptied(spare_cluster)


@pytest.fixture
def direct(open_cluster: Cluster) -> AdminClient:
    """An admin client that goes round Kordon."""
    return AdminClient({"bootstrap.servers": open_cluster.bootstrap("PLAINTEXT")})


def a_used_topic(proxies: list[ProxyProcess], topic: str) -> AdminClient:
    """A managed topic that has grown, with records, and with commits of a group."""
    admin = create_managed(proxies[0].bootstrap, topic)
    sender = Sender(proxies[1].bootstrap, topic)
    sender.send_for(0.3)
    resize(admin, topic, 4).result(60)
    sender.finish()
    commit = ConsumerGroupTopicPartitions(f"readers-of-{topic}", [TopicPartition(topic, 5, 1)])
    admin.alter_consumer_group_offsets([commit])[commit.group_id].result(60)
    return admin


def partitions(admin: AdminClient, topic: str) -> int:
    """How many partitions a client sees; 0: there is no such topic."""
    return len(admin.list_topics(topic, timeout=60).topics[topic].partitions)


def names(admin: AdminClient) -> set[str]:
    return set(admin.list_topics(timeout=60).topics)


def findings(proxy: ProxyProcess) -> dict[str, Any]:
    """What a proxy shows of topics that something went wrong with, by name."""
    return {each["topic"]: each for each in proxy.topics()["findings"]}


def counted(proxies: list[ProxyProcess], kind: str) -> float:
    """How many findings of a kind the proxies count together."""
    return sum(proxy.metric("kordon_managed_findings_total", kind=kind) for proxy in proxies)


def test_a_topic_deleted_through_kordon_goes_with_its_face_and_can_be_made_again(
    proxies: list[ProxyProcess], direct: AdminClient
) -> None:
    """Nothing of it is left, nothing is found wrong, and a managed topic of the same name begins from nothing."""
    admin = a_used_topic(proxies, "thrown-away")
    admin.delete_topics(["thrown-away"])["thrown-away"].result(60)

    wait_until("both are gone", lambda: not {"thrown-away", "__kordon.thrown-away"} & names(direct))
    create_managed(proxies[1].bootstrap, "thrown-away")
    sender = Sender.sent_for(0.3, proxies[0].bootstrap, "thrown-away")
    sender.assert_read_by(proxies[1].bootstrap)
    assert "thrown-away" not in findings(proxies[0])


@pytest.mark.parametrize("known_by", ["the broker's id", "the id that clients know"])
def test_a_topic_is_deleted_by_an_id_as_by_its_name(
    proxies: list[ProxyProcess], direct: AdminClient, open_cluster: Cluster, known_by: str
) -> None:
    """A client may have the broker's from before the topic was managed; it went round the layouts, as a loss."""
    topic = f"by-{known_by.rsplit(maxsplit=1)[-1]}"
    create_managed(proxies[0].bootstrap, topic)
    asked = open_cluster.bootstrap("PLAINTEXT") if "broker" in known_by else proxies[0].bootstrap
    with PlainConnection(asked) as connection:
        (row,) = connection.ask(apis.METADATA, 12, {"topics": [{"name": topic}]}).topics
    deleted = {"topics": [{"name": None, "topic_id": row.topic_id}], "timeout_ms": 30_000}
    with PlainConnection(proxies[1].bootstrap) as connection:
        (told,) = connection.ask(apis.DELETE_TOPICS, 6, deleted).responses
    assert (told.name, told.topic_id, told.error_code) == (topic, row.topic_id, 0)
    wait_until("both are gone", lambda: not {topic, f"__kordon.{topic}"} & names(direct))
    assert topic not in findings(proxies[0])


def test_a_topic_deleted_at_the_brokers_is_let_go_and_the_loss_is_told(
    proxies: list[ProxyProcess], direct: AdminClient
) -> None:
    """Its face and the commits go; log, metric and /topics say what has happened, at every proxy."""
    admin = a_used_topic(proxies, "deleted")
    before = counted(proxies, "topic_deleted")
    direct.delete_topics(["deleted"])["deleted"].result(60)

    wait_until("a finding", lambda: all("deleted" in findings(proxy) for proxy in proxies))
    assert findings(proxies[0])["deleted"]["kind"] == "topic_deleted"
    assert counted(proxies, "topic_deleted") == before + 1
    assert sum('"event": "finding"' in line and '"deleted"' in line for p in proxies for line in p.log().splitlines())
    wait_until("its face is gone", lambda: "__kordon.deleted" not in names(direct))
    assert "deleted" not in names(admin)
    # A broker lets go of a topic that is gone, and only then of what groups have committed of it.
    wait_until("its commits are gone", lambda: not committed(proxies[0].bootstrap, "readers-of-deleted"))


def test_a_topic_made_again_at_the_brokers_is_an_ordinary_one(proxies: list[ProxyProcess], direct: AdminClient) -> None:
    """Within seconds all clients see its own partitions; nothing of the former one is shown, nor taken for it."""
    a_used_topic(proxies, "replaced")
    (controller,) = (proxy for proxy in proxies if proxy.leads())
    with controller.asleep():  # so that it does not find the topic gone before there is another one
        direct.delete_topics(["replaced"])["replaced"].result(60)
        direct.create_topics([NewTopic("replaced", PARTITIONS, 1)])["replaced"].result(60)

    admins = [AdminClient({"bootstrap.servers": proxy.bootstrap}) for proxy in proxies]
    wait_until("3 partitions", lambda: [partitions(each, "replaced") for each in admins] == [PARTITIONS, PARTITIONS])
    sender = Sender.sent_for(0.3, proxies[0].bootstrap, "replaced")
    for bootstrap in (proxies[1].bootstrap, proxies[0].bootstrap):
        sender.assert_read_by(bootstrap)
    assert findings(proxies[1])["replaced"]["kind"] == "topic_replaced"
    assert counted(proxies, "topic_replaced") == 1


@pytest.mark.parametrize("config", [{}, {"kordon.virtual.partitions": str(VIRTUAL_PARTITIONS)}])
def test_a_topic_made_again_through_kordon_can_be_used_when_its_creation_is_answered(
    proxies: list[ProxyProcess], direct: AdminClient, config: dict[str, str]
) -> None:
    """As an ordinary one, or as a managed one if that is asked for, though the former was deleted at the brokers."""
    topic = f"again-{len(config)}"
    admin = a_used_topic(proxies, topic)
    direct.delete_topics([topic])[topic].result(60)
    admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=config)])[topic].result(60)
    wait_until("the broker tells what its controller has made", lambda: partitions(direct, topic) == PARTITIONS)

    assert partitions(admin, topic) == (VIRTUAL_PARTITIONS if config else PARTITIONS)
    sender = Sender.sent_for(0.2, proxies[0].bootstrap, topic)
    sender.assert_read_by(proxies[0].bootstrap)


def test_creating_a_topic_that_is_there_lets_nothing_go(proxies: list[ProxyProcess]) -> None:
    """It is refused as brokers refuse it, and stays managed."""
    admin = create_managed(proxies[0].bootstrap, "there")
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([NewTopic("there", PARTITIONS, 1)])["there"].result(60)
    assert partitions(admin, "there") == VIRTUAL_PARTITIONS


def test_a_change_of_a_topic_that_was_deleted_ends_with_an_error(
    proxies: list[ProxyProcess], direct: AdminClient
) -> None:
    """Whoever asks is told so within seconds, and does not wait for a topic that will not come back."""
    admin = a_used_topic(proxies, "grown-too-late")
    direct.delete_topics(["grown-too-late"])["grown-too-late"].result(60)
    error = resize(admin, "grown-too-late", 6).exception(CHANGE_SECONDS)
    assert "UNKNOWN_TOPIC_OR_PART" in str(error)
