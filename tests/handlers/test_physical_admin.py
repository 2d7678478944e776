"""Admin requests about partitions on brokers, where clients were shown virtual ones."""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import ElectionType, KafkaError, Producer, TopicPartition

from kordon.codecs import apis
from kordon.codecs.messages import request, response
from kordon.proxy.core import verdicts
from kordon.proxy.handlers.alter_partition_reassignments import AlterPartitionReassignments
from kordon.proxy.handlers.alter_replica_log_dirs import AlterReplicaLogDirs
from kordon.proxy.handlers.describe_producers import DescribeProducers
from kordon.proxy.handlers.describe_transactions import DescribeTransactions
from kordon.proxy.handlers.elect_leaders import ElectLeaders
from kordon.proxy.ordering.identity import tag, writer_id
from kordon.proxy.ordering.images import Written
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.transactions.events import Protocol
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import VIRTUAL_PARTITIONS, create_managed
from kordon.testing.messages.as_read import as_read
from kordon.testing.proxy_process import ProxyProcess

HANDLERS = {
    each.key: each
    for each in (
        AlterPartitionReassignments(),
        AlterReplicaLogDirs(),
        ElectLeaders(),
        DescribeProducers(),
        DescribeTransactions(),
    )
}
UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST, ELECTION_NOT_NEEDED = 3, 42, 84
CLUSTER_AUTHORIZATION_FAILED, LOG_DIR_NOT_FOUND = 31, 57
ELECTED = {0: 0, 1: ELECTION_NOT_NEEDED, 9: UNKNOWN_TOPIC_OR_PARTITION}
"""What a broker says of physical partitions."""


def managed() -> ManagedTopics:
    """Knows `orders`: virtual partitions 0 and 1 live on partition 0, 2 and 3 moved to partition 1."""
    layout = Layout.created("orders", UUID(int=1), 1, 4)
    layout = layout.changed(layout.next_epoch(2), {0: 10, 1: 0})
    moved = [v for v, home in enumerate(layout.homes) if home == 1]
    topics = ManagedTopics()
    topics.add(ManagedTopic(layout, UUID(int=2), {v: {77: Written(0, 99)} for v in moved}))
    return topics


def homes() -> tuple[int | None, ...]:
    """Returns where the virtual partitions of `orders` live."""
    topic = managed().named("orders")
    assert topic is not None
    return topic.layout.homes


def exchange(api_key: int, version: int, asked: Mapping[str, Any], answer: Mapping[str, Any]) -> tuple[Any, Any]:
    """Returns the request as the broker reads it and its answer as the client does."""
    table = request(api_key)
    value = as_read(table, version, asked)
    HANDLERS[api_key].request(version, value, managed())
    sent = as_read(table, version, value)
    back = as_read(response(api_key), version, answer)
    original = as_read(table, version, asked)
    HANDLERS[api_key].response(version, back, managed(), original)
    return sent, as_read(response(api_key), version, back)


def versions(api_key: int) -> range:
    """Returns every version that Kordon lets through."""
    return verdicts.API_BY_KEY[api_key].versions


def by_partition(rows: Iterable[Any], index: str) -> dict[int, int]:
    return {row[index]: row.error_code for row in rows}


@pytest.mark.parametrize("version", versions(apis.ALTER_PARTITION_REASSIGNMENTS))
def test_partitions_of_managed_topics_are_not_moved_by_their_virtual_numbers(version: int) -> None:
    """The reason is told with each; other topics are moved."""
    rows = [{"name": name, "partitions": [{"partition_index": 1}]} for name in ("orders", "other")]
    answer = {"responses": [{"name": "other", "partitions": [{"partition_index": 1, "error_code": 0}]}]}
    sent, seen = exchange(apis.ALTER_PARTITION_REASSIGNMENTS, version, {"topics": rows}, answer)
    assert [row.name for row in sent.topics] == ["other"]
    assert {row.name: row.partitions[0].error_code for row in seen.responses} == {
        "other": 0,
        "orders": INVALID_REQUEST,
    }
    assert "orders is a managed topic" in seen.responses[1].partitions[0].error_message


@pytest.mark.parametrize("version", versions(apis.ALTER_PARTITION_REASSIGNMENTS))
def test_who_may_move_nothing_is_not_told_what_is_managed(version: int) -> None:
    """The broker's error of the whole answer stands at each partition, as brokers have it."""
    asked = {"topics": [{"name": name, "partitions": [{"partition_index": 1}]} for name in ("orders",)]}
    answer = {"error_code": CLUSTER_AUTHORIZATION_FAILED, "error_message": "no"}
    _, seen = exchange(apis.ALTER_PARTITION_REASSIGNMENTS, version, asked, answer)
    told = [(row.partitions[0].error_code, row.partitions[0].error_message) for row in seen.responses]
    assert told == [(CLUSTER_AUTHORIZATION_FAILED, "no")]


@pytest.mark.parametrize("version", versions(apis.ALTER_REPLICA_LOG_DIRS))
def test_replicas_of_managed_topics_are_not_moved_by_their_virtual_numbers(version: int) -> None:
    """Other topics of the same directory are; the broker says whether the client may move anything."""
    rows = [{"name": name, "partitions": [0, 1]} for name in ("orders", "other")]
    asked = {"dirs": [{"path": "/d", "topics": rows}]}
    for code, expected in ((LOG_DIR_NOT_FOUND, INVALID_REQUEST), (CLUSTER_AUTHORIZATION_FAILED,) * 2):
        told = {name: [{"partition_index": q, "error_code": code} for q in (0, 1)] for name in ("orders", "other")}
        answer = {"results": [{"topic_name": name, "partitions": told[name]} for name in told]}
        sent, seen = exchange(apis.ALTER_REPLICA_LOG_DIRS, version, asked, answer)
        assert [(row.path, [each.name for each in row.topics]) for row in sent.dirs] == [
            ("/d", ["other"]),
            ("", ["orders"]),
        ]
        assert by_partition(seen.results[0].partitions, "partition_index") == {0: expected, 1: expected}
        assert by_partition(seen.results[1].partitions, "partition_index") == {0: code, 1: code}


@pytest.mark.parametrize("version", versions(apis.ELECT_LEADERS))
def test_a_leader_is_elected_where_the_virtual_partition_lives(version: int) -> None:
    """Each physical partition is named once, and each virtual one answered."""
    asked = {"topic_partitions": [{"topic": "orders", "partitions": [0, 1, 2, 3, 9]}]}
    results = [{"partition_id": q, "error_code": code} for q, code in ELECTED.items()]
    answer = {"replica_election_results": [{"topic": "orders", "partition_result": results}]}
    sent, seen = exchange(apis.ELECT_LEADERS, version, asked, answer)
    assert [(row.topic, list(row.partitions)) for row in sent.topic_partitions] == [("orders", [0, 1, 9])]
    expected = {v: ELECTION_NOT_NEEDED if home else 0 for v, home in enumerate(homes())}
    told = by_partition(seen.replica_election_results[0].partition_result, "partition_id")
    assert told == {**expected, 9: UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize("version", versions(apis.ELECT_LEADERS))
def test_an_election_everywhere_tells_of_virtual_partitions(version: int) -> None:
    """Brokers tell of those where there was something to do."""
    results = [{"partition_id": 1, "error_code": 0}]
    rows = [{"topic": name, "partition_result": results} for name in ("orders", "other")]
    sent, seen = exchange(apis.ELECT_LEADERS, version, {"topic_partitions": None}, {"replica_election_results": rows})
    assert sent.topic_partitions is None
    assert {
        row.topic: [each.partition_id for each in row.partition_result] for row in seen.replica_election_results
    } == {
        "orders": [v for v, home in enumerate(homes()) if home == 1],
        "other": [1],
    }


def test_producers_are_told_by_the_ids_and_sequences_that_they_know() -> None:
    """Of the virtual partition that is asked for, since its last move; strays and neighbours are left out."""
    first, second = (v for v, home in enumerate(homes()) if home == 1)
    written = [(tag(first, 1, 77), 4), (tag(second, 1, 77), 5), (tag(first, 0, 77), 6), (tag(first, 1, 78), 7), (79, 8)]
    producers = [{"producer_id": number, "last_sequence": sequence} for number, sequence in written]
    asked = {
        "topics": [{"name": "orders", "partition_indexes": [first, 9]}, {"name": "other", "partition_indexes": [1]}]
    }
    told = [{"partition_index": 1, "active_producers": producers}]
    missing = {"partition_index": 9, "error_code": UNKNOWN_TOPIC_OR_PARTITION}
    answer = {"topics": [{"name": "orders", "partitions": [*told, missing]}, {"name": "other", "partitions": told}]}
    sent, seen = exchange(apis.DESCRIBE_PRODUCERS, 0, asked, answer)
    assert [list(row.partition_indexes) for row in sent.topics] == [[1, 9], [1]]
    mine, unknown = seen.topics[0].partitions
    assert [(row.producer_id, row.last_sequence) for row in mine.active_producers] == [(77, 104), (78, 7)]
    assert (unknown.partition_index, unknown.error_code) == (9, UNKNOWN_TOPIC_OR_PARTITION)
    assert [row.producer_id for row in seen.topics[1].partitions[0].active_producers] == [row[0] for row in written]


def test_a_producer_in_a_transaction_is_told_once_with_where_that_began() -> None:
    """Of its rows in the log the last one counts; its own tells the transaction, as an offset of the partition."""
    v = next(each for each, home in enumerate(homes()) if home == 1)
    rows = [
        {"producer_id": tag(v, 1, 77), "last_sequence": 4, "last_timestamp": 1},
        {"producer_id": tag(v, 1, writer_id(77, Protocol.V1)), "last_sequence": 8, "last_timestamp": 2},
        {"producer_id": 77, "last_sequence": 0, "last_timestamp": 3, "current_txn_start_offset": 5},
        {"producer_id": 78, "last_sequence": 0, "last_timestamp": 3, "current_txn_start_offset": 1},
    ]
    of_all = {"producer_epoch": 3, "coordinator_epoch": 6, "current_txn_start_offset": -1}
    told = [{"partition_index": 1, "active_producers": [of_all | row for row in rows]}]
    asked = {"topics": [{"name": "orders", "partition_indexes": [v]}]}
    _, seen = exchange(apis.DESCRIBE_PRODUCERS, 0, asked, {"topics": [{"name": "orders", "partitions": told}]})
    topic = managed().named("orders")
    assert topic is not None
    (mine,) = seen.topics[0].partitions[0].active_producers
    delta = topic.layout.chains[v].stays[-1].delta
    assert (mine.producer_id, mine.last_sequence, mine.coordinator_epoch) == (77, 8, 6)
    assert mine.current_txn_start_offset == 5 + delta


def test_transactions_are_told_with_virtual_partitions() -> None:
    """All that live where they have written; other topics stay as they are."""
    rows = [{"topic": name, "partitions": [1]} for name in ("orders", "other")]
    state = {"error_code": 0, "transactional_id": "t", "transaction_state": "Ongoing", "topics": rows}
    more = {"transaction_timeout_ms": 1, "transaction_start_time_ms": 1, "producer_id": 1, "producer_epoch": 1}
    answer = {"transaction_states": [state | more]}
    _, seen = exchange(apis.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["t"]}, answer)
    managed_one, other = seen.transaction_states[0].topics
    assert managed_one.partitions == [v for v, home in enumerate(homes()) if home == 1]
    assert other.partitions == [1]


@pytest.mark.broker
def test_real_admin_clients_see_no_trace_of_kordons_own_topics(open_cluster: Cluster) -> None:
    """Kafka's tools show disk usage and producers; librdkafka has leaders elected."""
    with ProxyProcess.start(open_cluster.bootstrap()) as proxy:
        admin = create_managed(proxy.bootstrap, "lying")
        producer = Producer({"bootstrap.servers": proxy.bootstrap, "enable.idempotence": True})
        for v in range(VIRTUAL_PARTITIONS):
            producer.produce("lying", b"value", partition=v)
        assert producer.flush(90) == 0
        server = ("--bootstrap-server", proxy.bootstrap)
        log_dirs = open_cluster.tool("kafka-log-dirs", *server, "--describe").stdout
        producers = open_cluster.tool(
            "kafka-transactions", *server, "describe-producers", "--topic", "lying", "--partition", "11"
        ).stdout
        every = [TopicPartition("lying", v) for v in range(VIRTUAL_PARTITIONS)]
        elected = admin.elect_leaders(ElectionType.PREFERRED, every).result(60)
    assert "lying-0" in log_dirs
    assert "__kordon" not in log_dirs
    header, row = (line.split() for line in producers.splitlines())
    told = dict(zip(header, row, strict=False))
    assert (int(told["ProducerId"]) < 2**40, told["ProducerEpoch"], told["LastSequence"]) == (True, "0", "0")
    assert {part.partition: error.code() for part, error in elected.items()} == dict.fromkeys(
        range(VIRTUAL_PARTITIONS), KafkaError.ELECTION_NOT_NEEDED
    )
