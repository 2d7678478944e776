"""Attacks on what is Kordon's own, through Kordon, with a real broker: on stock connections and on dialect ones.

Without Kordon in between each of them succeeds in a cluster without ACLs.
"""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka.admin import NewTopic  # pyright: ignore[reportPrivateImportUsage]

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.proxy.core import verdicts
from kordon.testing.broker_features import LISTED_CONFIGS, NEW_GROUPS, PRODUCE_BY_ID
from kordon.testing.cluster import Cluster
from kordon.testing.dialect.connection import DialectConnection
from kordon.testing.managed_clients import create_managed
from kordon.testing.managed_writes import a_batch
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.steps import plain
from kordon.testing.waiting import wait_until

LAYOUTS, TOPIC, ORDINARY = "__kordon.layouts", "closed-orders", "closed-ordinary"
FACE = f"__kordon.{TOPIC}"
GROUP, WRITER = "kordon", "kordon.layouts"
NO_TOPIC, NO_ID = Code.UNKNOWN_TOPIC_OR_PARTITION, Code.UNKNOWN_TOPIC_ID
NO_GROUP, NO_WRITER = Code.GROUP_AUTHORIZATION_FAILED, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
LEAVE_GROUP, SYNC_GROUP, ADD_OFFSETS, END_TXN = 13, 14, 25, 26
WRITTEN = {"partition_data": [{"index": 0, "records": a_batch("forged")}]}
PRODUCED = {"acks": -1, "timeout_ms": 1000}
FETCHED = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1000, "isolation_level": 0, "session_epoch": -1}
READ = {"partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]}
COMMITTED = {"partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]}
JOINED = {
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 1000,
    "member_id": "",
    "protocol_type": "kordon",
    "protocols": [{"name": "kordon-1", "metadata": b"[" * 200_000}],
}


@pytest.fixture(scope="module")
def proxy(open_cluster: Cluster) -> Iterator[ProxyProcess]:
    with ProxyProcess.start(open_cluster.bootstrap()) as started:
        admin = create_managed(started.bootstrap, TOPIC)
        admin.create_topics([NewTopic(ORDINARY, 1, 1)])[ORDINARY].result(60)
        topic_id = id_of(open_cluster, LAYOUTS)
        asked = {"topics": [{"topic_id": topic_id, **READ}], **FETCHED}
        with PlainConnection(started.bootstrap) as connection:
            wait_until("the id is known", lambda: errors(connection.ask(apis.FETCH, 16, asked)) == {0, NO_ID})
        yield started


@pytest.fixture(params=[PlainConnection, DialectConnection], ids=["stock", "dialect"])
def attacker(request: pytest.FixtureRequest, proxy: ProxyProcess) -> Iterator[PlainConnection]:
    """A connection through the proxy, of a client that may do whatever the broker allows: everything."""
    with request.param(proxy.bootstrap) as connection:
        yield connection


def id_of(cluster: Cluster, topic: str) -> UUID:
    """By what the brokers know a topic."""
    with PlainConnection(cluster.bootstrap()) as connection:
        found: UUID = connection.ask(apis.METADATA, 12, {"topics": [{"name": topic}]}).topics[0].topic_id
    return found


def errors(answer: Any) -> set[int]:
    found: set[int] = set()
    for name, value in answer.items():
        if name.endswith("error_code"):
            found.add(value)
        for each in value if isinstance(value, list) else ():
            found |= errors(each) if isinstance(each, dict) else set()
    return found


BY_NAME: dict[tuple[int, int], Callable[[str], dict[str, Any]]] = {
    (apis.PRODUCE, 3): lambda name: {**PRODUCED, "topic_data": [{"name": name, **WRITTEN}]},
    (apis.PRODUCE, 9): lambda name: {**PRODUCED, "topic_data": [{"name": name, **WRITTEN}]},
    (apis.FETCH, 11): lambda name: {**FETCHED, "replica_id": -1, "topics": [{"topic": name, **READ}]},
    (apis.LIST_OFFSETS, 7): lambda name: {
        "replica_id": -1,
        "topics": [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]}],
    },
    (apis.OFFSET_COMMIT, 8): lambda name: {
        "group_id": "closed-any",
        "generation_id_or_member_epoch": -1,
        "topics": [{"name": name, **COMMITTED}],
    },
    (apis.METADATA, 9): lambda name: {"topics": [{"name": name}], "allow_auto_topic_creation": True},
    (apis.DELETE_TOPICS, 5): lambda name: {"topic_names": [name], "timeout_ms": 1000},
    (apis.DELETE_TOPICS, 6): lambda name: {"topics": [{"name": name}], "timeout_ms": 1000},
    (apis.DELETE_RECORDS, 2): lambda name: {
        "topics": [{"name": name, "partitions": [{"partition_index": 0, "offset": -1}]}],
        "timeout_ms": 1000,
    },
    (apis.OFFSET_FOR_LEADER_EPOCH, 4): lambda name: {
        "replica_id": -1,
        "topics": [{"topic": name, "partitions": [{"partition": 0, "leader_epoch": 0}]}],
    },
    (apis.DESCRIBE_CONFIGS, 4): lambda name: {"resources": [{"resource_type": 2, "resource_name": name}]},
    (apis.INCREMENTAL_ALTER, 1): lambda name: {
        "resources": [
            {
                "resource_type": 2,
                "resource_name": name,
                "configs": [{"name": "retention.ms", "config_operation": 0, "value": "1"}],
            }
        ]
    },
    (apis.CREATE_PARTITIONS, 3): lambda name: {"topics": [{"name": name, "count": 99}], "timeout_ms": 1000},
    (apis.ELECT_LEADERS, 2): lambda name: {
        "election_type": 0,
        "topic_partitions": [{"topic": name, "partitions": [0]}],
        "timeout_ms": 1000,
    },
    (apis.ALTER_PARTITION_REASSIGNMENTS, 0): lambda name: {
        "topics": [{"name": name, "partitions": [{"partition_index": 0, "replicas": [1]}]}],
        "timeout_ms": 1000,
    },
    (apis.DESCRIBE_PRODUCERS, 0): lambda name: {"topics": [{"name": name, "partition_indexes": [0]}]},
    (apis.DESCRIBE_TOPIC_PARTITIONS, 0): lambda name: {"topics": [{"name": name}], "response_partition_limit": 10},
}


@pytest.mark.parametrize("name", [LAYOUTS, FACE])
@pytest.mark.parametrize(("api_key", "version"), BY_NAME)
def test_a_topic_of_kordons_own_does_not_exist(
    attacker: PlainConnection, api_key: int, version: int, name: str
) -> None:
    """Neither the layouts nor a face: it is not read, not written to, not changed and not deleted (t2, t3)."""
    answer = attacker.ask(api_key, version, BY_NAME[api_key, version](name))
    assert errors(answer) - {0} == {NO_TOPIC}
    assert name in str(plain(answer))
    assert "//" not in str(plain(answer))


def test_a_topic_of_kordons_own_does_not_exist_by_its_id_either(
    attacker: PlainConnection, open_cluster: Cluster
) -> None:
    """DeleteTopics by the id of the layouts deletes nothing (t11)."""
    own = id_of(open_cluster, LAYOUTS)
    by_id: list[tuple[int, int, dict[str, Any]]] = [
        (apis.FETCH, 16, {**FETCHED, "topics": [{"topic_id": own, **READ}]}),
        (apis.METADATA, 12, {"topics": [{"topic_id": own, "name": None}]}),
        (apis.DELETE_TOPICS, 6, {"topics": [{"topic_id": own, "name": None}], "timeout_ms": 1000}),
    ]
    if not PRODUCE_BY_ID.is_missing:
        by_id.append((apis.PRODUCE, 13, {**PRODUCED, "topic_data": [{"topic_id": own, **WRITTEN}]}))
    for api_key, version, fields in by_id:
        answer = attacker.ask(api_key, version, fields)
        assert errors(answer) - {0} == {NO_ID}, answer
        assert str(own) in str(plain(answer))
    assert id_of(open_cluster, LAYOUTS) == own


def test_what_a_request_names_besides_is_done(attacker: PlainConnection) -> None:
    """One that names a topic of Kordon's own among others."""
    both = [{"name": LAYOUTS, **WRITTEN}, {"name": ORDINARY, **WRITTEN}]
    answer = attacker.ask(apis.PRODUCE, 9, {**PRODUCED, "topic_data": both})
    assert {row.name: errors(row) for row in answer.responses} == {LAYOUTS: {NO_TOPIC}, ORDINARY: {0}}
    found = attacker.ask(apis.DESCRIBE_GROUPS, 5, {"groups": [GROUP, "closed-nobody"]}).groups
    assert {row.group_id: row.error_code for row in found} == {GROUP: NO_GROUP, "closed-nobody": 0}


def test_the_group_of_the_proxies_is_closed(attacker: PlainConnection) -> None:
    """Nobody joins it, tells members to leave it, learns of its members, or commits in its name (t5)."""
    member = {"group_id": GROUP, "generation_id": 1, "member_id": "alien"}
    requests: tuple[tuple[int, int, dict[str, Any]], ...] = (
        (apis.JOIN_GROUP, 5, {"group_id": GROUP, **JOINED}),
        (apis.JOIN_GROUP, 2, {"group_id": GROUP, **JOINED}),
        (SYNC_GROUP, 5, {**member, "assignments": []}),
        (apis.HEARTBEAT, 4, member),
        (LEAVE_GROUP, 5, {"group_id": GROUP, "members": [{"member_id": "alien"}]}),
        (
            apis.OFFSET_COMMIT,
            8,
            {"group_id": GROUP, "generation_id_or_member_epoch": -1, "topics": [{"name": ORDINARY, **COMMITTED}]},
        ),
        (apis.OFFSET_FETCH, 5, {"group_id": GROUP, "topics": None}),
        (apis.OFFSET_FETCH, 8, {"groups": [{"group_id": GROUP, "topics": None}]}),
        (
            apis.OFFSET_DELETE,
            0,
            {"group_id": GROUP, "topics": [{"name": ORDINARY, "partitions": [{"partition_index": 0}]}]},
        ),
        (apis.DELETE_GROUPS, 2, {"groups_names": [GROUP]}),
        (apis.DESCRIBE_GROUPS, 5, {"groups": [GROUP]}),
        (apis.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": [GROUP]}),
        (apis.FIND_COORDINATOR, 1, {"key_type": 0, "key": GROUP}),
    )
    for api_key, version, fields in requests:
        answer = attacker.ask(api_key, version, fields)
        assert errors(answer) - {0} == {NO_GROUP}, (verdicts.api_name(api_key), answer)
    assert not attacker.ask(apis.DESCRIBE_GROUPS, 5, {"groups": [GROUP]}).groups[0].members


def test_the_transactional_id_of_the_controller_is_closed(attacker: PlainConnection) -> None:
    """Nobody fences the controller, or writes in its name (t9)."""
    producer = {"transactional_id": WRITER, "producer_id": 1, "producer_epoch": 0}
    mine = attacker.ask(apis.INIT_PRODUCER_ID, 4, {"transactional_id": None, "transaction_timeout_ms": 1000})
    assert mine.error_code == 0
    partitions = {"topics": [{"name": ORDINARY, "partitions": [0]}]}
    requests: tuple[tuple[int, int, dict[str, Any]], ...] = (
        (apis.INIT_PRODUCER_ID, 4, {"transactional_id": WRITER, "transaction_timeout_ms": 1000}),
        (END_TXN, 3, {**producer, "committed": True}),
        (ADD_OFFSETS, 3, {**producer, "group_id": "closed-any"}),
        (
            apis.ADD_PARTITIONS_TO_TXN,
            3,
            {
                "v3_and_below_transactional_id": WRITER,
                "v3_and_below_producer_id": 1,
                "v3_and_below_topics": partitions["topics"],
            },
        ),
        (apis.PRODUCE, 9, {**PRODUCED, "transactional_id": WRITER, "topic_data": [{"name": ORDINARY, **WRITTEN}]}),
        (apis.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [WRITER]}),
    )
    for api_key, version, fields in requests:
        answer = attacker.ask(api_key, version, fields)
        assert errors(answer) - {0} == {NO_WRITER}, (verdicts.api_name(api_key), answer)


def test_no_transaction_is_opened_on_the_layouts(attacker: PlainConnection) -> None:
    """It would keep the last stable offset where it is, for which proxies that start wait."""
    name = f"closed-writer-{type(attacker).__name__}"
    asked = {"transactional_id": name, "transaction_timeout_ms": 60_000}
    wait_until("a coordinator", lambda: attacker.ask(apis.INIT_PRODUCER_ID, 4, asked).error_code == 0)
    mine = attacker.ask(apis.INIT_PRODUCER_ID, 4, asked)
    added = {
        "v3_and_below_transactional_id": name,
        "v3_and_below_producer_id": mine.producer_id,
        "v3_and_below_producer_epoch": mine.producer_epoch,
        "v3_and_below_topics": [{"name": LAYOUTS, "partitions": [0]}, {"name": ORDINARY, "partitions": [0]}],
    }
    answer = attacker.ask(apis.ADD_PARTITIONS_TO_TXN, 3, added)
    found = {row.name: errors(row) for row in answer.results_by_topic_v3_and_below}
    assert found == {LAYOUTS: {NO_TOPIC}, ORDINARY: {Code.OPERATION_NOT_ATTEMPTED}}
    committed = {
        "transactional_id": name,
        "group_id": GROUP,
        "producer_id": mine.producer_id,
        "producer_epoch": mine.producer_epoch,
        "topics": [{"name": ORDINARY, **COMMITTED}],
    }
    assert errors(attacker.ask(apis.TXN_OFFSET_COMMIT, 3, committed)) == {NO_GROUP}


LISTS: tuple[tuple[int, int, dict[str, Any]], ...] = (
    (apis.METADATA, 12, {"topics": None}),
    (apis.METADATA, 0, {"topics": []}),
    (apis.DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": [], "response_partition_limit": 1000}),
    (apis.LIST_GROUPS, 4, {}),
    (apis.DESCRIBE_LOG_DIRS, 4, {"topics": None}),
    (apis.LIST_PARTITION_REASSIGNMENTS, 0, {"topics": None, "timeout_ms": 1000}),
    (apis.ELECT_LEADERS, 2, {"topic_partitions": None, "timeout_ms": 1000}),
    (apis.LIST_TRANSACTIONS, 0, {}),
    *(() if LISTED_CONFIGS.is_missing else ((apis.LIST_CONFIG_RESOURCES, 1, dict[str, Any]()),)),
)


@pytest.mark.parametrize(("api_key", "version", "fields"), LISTS, ids=[verdicts.api_name(row[0]) for row in LISTS])
def test_nothing_of_it_is_listed(
    attacker: PlainConnection, open_cluster: Cluster, api_key: int, version: int, fields: dict[str, Any]
) -> None:
    """Where a client asks for all there is."""
    with PlainConnection(open_cluster.bootstrap()) as broker:
        direct = str(plain(broker.ask(api_key, version, fields)))
    assert "kordon" in direct or api_key in (apis.LIST_PARTITION_REASSIGNMENTS, apis.ELECT_LEADERS)
    seen = str(plain(attacker.ask(api_key, version, fields))).replace("'kordon-copy-", "'")  # a user's groups
    seen = seen.replace(str(open_cluster_folder(direct)), "")
    for own in ("transactional_id", "group_id"):  # clients of other tests may call theirs so: mutated frames do
        seen = seen.replace(f"'{own}': '__kordon.", "")
    assert "__kordon." not in seen
    assert "'kordon" not in seen


def open_cluster_folder(direct: str) -> str:
    """The folder of the broker in an answer of DescribeLogDirs, whose name is nobody's secret."""
    return direct.partition("'log_dir': ")[2].partition(",")[0] or "-"


@pytest.mark.skipif(NEW_GROUPS.is_missing, reason=NEW_GROUPS.reason)
@pytest.mark.parametrize(
    "subscription",
    [
        {"subscribed_topic_names": [LAYOUTS, ORDINARY]},
        {"subscribed_topic_regex": ".*"},
        {"subscribed_topic_regex": "__kordon.*|closed-ordinary"},
        {"subscribed_topic_regex": "(__kordon[.]layouts|closed-ordinary)"},
    ],
    ids=["name", "all", "prefix", "alternative"],
)
def test_no_assignment_tells_an_id_of_it(
    proxy: ProxyProcess, open_cluster: Cluster, subscription: dict[str, Any]
) -> None:
    """Members of KIP-848 groups are given what they subscribe to by its id (t10)."""
    own = {id_of(open_cluster, name) for name in (LAYOUTS,)}
    joined = {
        "group_id": f"closed-{abs(hash(str(subscription)))}",
        "member_id": "AAAAAAAAAAAAAAAAAAAAAA",
        "member_epoch": 0,
        "rebalance_timeout_ms": 5000,
        "topic_partitions": [],
        **subscription,
    }
    wanted = id_of(open_cluster, ORDINARY)
    assigned: set[UUID] = set()
    member = {"group_id": joined["group_id"], "member_id": joined["member_id"]}
    with PlainConnection(proxy.bootstrap) as connection:

        def is_assigned() -> bool:
            asked = joined if not epoch else {**member, "member_epoch": epoch[-1], "rebalance_timeout_ms": -1}
            answer = connection.ask(apis.CONSUMER_GROUP_HEARTBEAT, 1, asked)
            if not answer.error_code:
                epoch.append(answer.member_epoch)
                assigned.update(
                    row.topic_id for row in (answer.assignment or {"topic_partitions": []})["topic_partitions"]
                )
            return wanted in assigned

        epoch: list[int] = []
        wait_until("what it may have is assigned", is_assigned)
    assert not assigned & own
    with PlainConnection(open_cluster.bootstrap()) as broker:
        described = broker.ask(apis.CONSUMER_GROUP_DESCRIBE, 0, {"group_ids": [joined["group_id"]]}).groups[0]
    targets = {row.topic_name for each in described.members for row in each.target_assignment.topic_partitions}
    assert LAYOUTS not in targets
    assert ORDINARY in targets
