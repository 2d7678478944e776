"""Source topics on real brokers: all proxies know them, and stock clients do no harm to their restart points."""

import asyncio
import uuid
from collections.abc import Mapping
from functools import partial

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]
from confluent_kafka.admin import AlterConfigOpType as Op  # pyright: ignore[reportPrivateImportUsage]
from confluent_kafka.admin import ConfigEntry as Entry  # pyright: ignore[reportPrivateImportUsage]
from confluent_kafka.admin import ConfigResource as Resource  # pyright: ignore[reportPrivateImportUsage]

from kordon.client import SourceProducer
from kordon.codecs import apis
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.group_visits import visit
from kordon.testing.broker_features import BUMPED_EPOCHS
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import wait_told_of
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import until

pytestmark = pytest.mark.broker

SECONDS = 30.0
SESSION_MS = 10_000


def committed(bootstrap: str, name: str) -> str:
    """Returns the metadata that the group has committed on the first partition of its source topic."""
    with PlainConnection(bootstrap) as connection:  # confluent_kafka reads behind the end of metadata
        asked = {"group_id": name, "topics": [{"name": name, "partition_indexes": [0]}]}
        return str(connection.ask(apis.OFFSET_FETCH, 5, asked).topics[0].partitions[0].metadata)


def knows(proxy: ProxyProcess, topic: str) -> bool:
    """Whether a proxy takes a topic for a source topic; there may be others."""
    admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
    (described,) = admin.describe_configs([Resource(Resource.Type.TOPIC, topic)]).values()
    source = described.result(SECONDS).get("kordon.source")
    return source is not None and source.value == "true"


def written(bootstrap: str, topic: str, settings: Mapping[str, object]) -> KafkaError | None:
    """Returns what came of one record."""
    told: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    if "transactional.id" in settings:
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
    producer.produce(topic, b"x", partition=0, on_delivery=lambda error, _: told.append(error))
    producer.flush(SECONDS)
    return told[0]


def set_source(admin: AdminClient, topic: str, value: str) -> None:
    """Sets kordon.source as operators do."""
    entry = Entry("kordon.source", value, incremental_operation=Op.SET)
    resource = Resource(Resource.Type.TOPIC, topic, incremental_configs=[entry])
    (done,) = admin.incremental_alter_configs([resource]).values()
    done.result(SECONDS)


async def test_stock_clients_do_no_harm_to_a_source(open_cluster: Cluster, proxies: list[ProxyProcess]) -> None:
    name, data = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("source", "data"))
    first, second = (proxy.bootstrap for proxy in proxies)
    async with SourceProducer(bootstrap_servers=first, group_id=name, source_partition_count=1) as producer:
        await producer.subscribe()
        async with producer.transaction():
            await producer.send(data, b"row")
            producer.restart_at({0: "12:34"})
    point = committed(first, name)
    assert point.startswith("ks1;1;")
    await until("both know it", lambda: all(knows(proxy, name) for proxy in proxies))
    for bootstrap in (first, second):
        for settings in ({}, {"enable.idempotence": True}, {"transactional.id": name}):
            error = await asyncio.to_thread(written, bootstrap, name, settings)
            assert error is not None
            assert error.code() == KafkaError.POLICY_VIOLATION
            assert await asyncio.to_thread(written, bootstrap, data, {}) is None
    consumer = Consumer({"bootstrap.servers": second, "group.id": name})
    with pytest.raises(KafkaException, match="offset data size"):
        consumer.commit(offsets=[TopicPartition(name, 0, 0)], asynchronous=False)
    consumer.close()
    assert committed(open_cluster.bootstrap(), name) == point
    assert proxies[1].metric("kordon_source_refusals_total", reason="no_point") == 1
    assert proxies[1].metric("kordon_source_refusals_total", reason="records") == 3
    assert proxies[0].events("source_topic_takes_no_records")[0]["topic"] == name
    proxies[1].kill()
    proxies[1].start_again()
    error = await asyncio.to_thread(written, proxies[1].bootstrap, name, {})
    assert error is not None
    async with SourceProducer(bootstrap_servers=second, group_id=name, source_partition_count=1) as producer:
        assert await producer.subscribe() == {0: "12:34"}


def test_a_topic_is_a_source_topic_as_long_as_its_config_says_so(proxies: list[ProxyProcess]) -> None:
    name = f"source-{uuid.uuid4().hex[:8]}"
    bootstrap = proxies[0].bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (made,) = admin.create_topics([NewTopic(name, 1, 1)]).values()
    made.result(SECONDS)
    wait_told_of(admin, name)
    set_source(admin, name, "true")
    assert written(bootstrap, name, {}) is not None
    (described,) = admin.describe_configs([Resource(Resource.Type.TOPIC, name)]).values()
    assert described.result(SECONDS)["kordon.source"].value == "true"
    set_source(admin, name, "false")
    assert written(bootstrap, name, {}) is None
    with pytest.raises(KafkaException, match="has records"):
        set_source(admin, name, "true")
    (gone,) = admin.delete_topics([name]).values()
    gone.result(SECONDS)


@pytest.mark.skipif(BUMPED_EPOCHS.is_missing, reason="KIP-447 came with Kafka 2.5")
async def test_a_group_without_members_is_visited_and_keeps_its_commits(brokers: Brokers, cluster: Cluster) -> None:
    name = f"source-{uuid.uuid4().hex[:8]}"
    async with SourceProducer(bootstrap_servers=cluster.bootstrap(), group_id=name, source_partition_count=1) as member:
        await member.subscribe()
        async with member.transaction():
            await member.send(f"data-{name}", b"row")
            member.restart_at({0: "12:34"})
        assert not await visit(brokers, name, SESSION_MS), "it has a member"
    point = committed(cluster.bootstrap(), name)
    assert await visit(brokers, name, SESSION_MS)
    assert await visit(brokers, name, SESSION_MS), "the one before has left it"
    assert committed(cluster.bootstrap(), name) == point
    assert not await visit(brokers, f"not-{name}", SESSION_MS), "none is made"


@pytest.mark.deep
@pytest.mark.timeout(600)
async def test_restart_points_outlive_the_retention_of_commits() -> None:
    """With a minute, the least that there is; those of a group on a topic that nobody has declared are gone."""
    config = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}
    with Cluster.start(config=config) as made, ProxyProcess.start(made.bootstrap()) as proxy:
        for group, bootstrap in (("kept", proxy.bootstrap), ("lost", made.bootstrap())):
            async with SourceProducer(bootstrap_servers=bootstrap, group_id=group, source_partition_count=1) as member:
                await member.subscribe()
                async with member.transaction():
                    await member.send("data", b"row")
                    member.restart_at({0: group})
        visits = partial(proxy.metric, "kordon_source_group_visits_total", outcome="visited")
        await until("the other's are gone", lambda: "ks1" not in committed(made.bootstrap(), "lost"), 240.0)
        before = visits()
        await until("more visits", lambda: visits() > before + 4, 240.0)
        async with SourceProducer(
            bootstrap_servers=proxy.bootstrap, group_id="kept", source_partition_count=1
        ) as member:
            assert await member.subscribe() == {0: "kept"}
