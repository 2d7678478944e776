"""Transactions on managed topics, written by real and by exact clients, as brokers have them in their logs."""

# pyright: reportPrivateImportUsage=false
import uuid
from collections.abc import Iterator
from functools import partial

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, AdminClient, ResourcePatternType, ResourceType

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.proxy.ordering.identity import NO_V, tag, writer_id
from kordon.proxy.ordering.transactions.events import Protocol
from kordon.testing.broker_features import SECOND_PROTOCOL, VERIFIED_TRANSACTIONS
from kordon.testing.cluster import Cluster
from kordon.testing.dialect.connection import DialectConnection
from kordon.testing.dialect.transactions import DialectTransactions
from kordon.testing.exact_transactions import ExactTransactions, TransactionRefused
from kordon.testing.managed_clients import TAKES, create_managed, create_ordinary, read_to_ends, resize
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.rights import Allowed, Secured, log_in, login
from kordon.testing.transaction_logs import log_words
from kordon.testing.waiting import wait_until

pytestmark = pytest.mark.skipif(VERIFIED_TRANSACTIONS.is_missing, reason=VERIFIED_TRANSACTIONS.reason)

BOTH = [
    pytest.param(Protocol.V1, id="v1"),
    pytest.param(
        Protocol.V2,
        id="v2",
        marks=pytest.mark.skipif(SECOND_PROTOCOL.is_missing, reason=SECOND_PROTOCOL.reason),
    ),
]


@pytest.fixture
def topic(takers: list[ProxyProcess]) -> str:
    """A managed topic with 3 partitions and 12 virtual ones."""
    name = f"transactions-{uuid.uuid4().hex[:8]}"
    create_managed(takers[0].bootstrap, name)
    return name


def witness(protocol: Protocol) -> str:
    return f"witness {1 if protocol is Protocol.V1 else 2}"


def test_transactions_of_librdkafka(open_cluster: Cluster, takers: list[ProxyProcess], topic: str) -> None:
    """Each of a stock client's transactions has a witness in front of it in each log, and a marker behind it."""
    producer = Producer({"bootstrap.servers": takers[0].bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    for number, end in enumerate((producer.commit_transaction, producer.abort_transaction)):
        producer.begin_transaction()
        for v in (0, 5):
            producer.produce(topic, value=f"{number}-{v}", partition=v)
        producer.flush(60)
        end(60)
    for q, v in ((0, 0), (1, 5)):
        words = log_words(open_cluster.bootstrap(), topic, q)
        assert words == ["witness 1", f"v{v} v1 0-{v}", "commit", "witness 1", f"v{v} v1 1-{v}", "abort"]
    assert log_words(open_cluster.bootstrap(), topic, 2) == []


@pytest.mark.parametrize("protocol", BOTH)
def test_a_transaction_through_two_proxies(
    open_cluster: Cluster, takers: list[ProxyProcess], topic: str, protocol: Protocol
) -> None:
    """Whoever does not know that it is open asks: on v1 the leader; on v2 by a witness that the broker has already."""
    first, second = (ExactTransactions(each.bootstrap, topic, protocol) for each in takers)
    with first, second:
        for number in range(2):
            if number == 0:
                first.init()
            if protocol is Protocol.V1:
                first.add(topic, 3)
            first.produce(topic, 3, f"{number}-a")
            second.identity, second.sequences = first.identity, first.sequences
            second.produce(topic, 3, f"{number}-b")
            first.commit()
    one = [witness(protocol), f"v3 {protocol.value} {{}}-a", f"v3 {protocol.value} {{}}-b", "commit"]
    expected = [each.format(number) for number in range(2) for each in one]
    assert log_words(open_cluster.bootstrap(), topic, 0) == expected


@pytest.mark.parametrize("protocol", BOTH)
def test_a_transaction_goes_on_while_partitions_grow(
    open_cluster: Cluster, takers: list[ProxyProcess], topic: str, protocol: Protocol
) -> None:
    """TXN-WITNESS: behind a move its data have a witness in their new home too."""
    client = ExactTransactions(takers[0].bootstrap, topic, protocol)
    with client:
        client.init()
        if protocol is Protocol.V1:
            client.add(topic, *range(12))
            for v in range(12):
                client.produce(topic, v, f"early-{v}")
            client.commit()
        admin = AdminClient({"bootstrap.servers": takers[1].bootstrap})
        grown = resize(admin, topic, 4)
        number = 0
        while not grown.done():
            if protocol is Protocol.V1:
                client.add(topic, *range(12))
            for v in range(12):
                client.produce(topic, v, f"{number}-{v}")
            client.commit()
            number += 1
        grown.result()
        if protocol is Protocol.V1:
            client.add(topic, *range(12))
        for v in range(12):
            client.produce(topic, v, f"late-{v}")
        client.commit()
    late = [words for q in range(4) for words in outcomes(log_words(open_cluster.bootstrap(), topic, q))]
    assert sorted(value for value in late if value.startswith("late")) == sorted(f"late-{v}" for v in range(12))
    assert len(log_words(open_cluster.bootstrap(), topic, 3)) > 0


def outcomes(words: list[str]) -> list[str]:
    """Returns the values that stand between a witness and a commit; the client has one transaction at a time."""
    found: list[str] = []
    pending: list[str] = []
    is_open = False
    for each in words:
        if each.startswith("witness"):
            is_open = True
        elif each in ("commit", "abort"):
            found += pending if each == "commit" else []
            pending, is_open = [], False
        else:
            assert is_open, f"{each} has no witness"
            pending.append(each.split(" ")[2])
    assert not pending
    return found


def test_a_transaction_of_managed_and_ordinary_topics(
    open_cluster: Cluster, takers: list[ProxyProcess], topic: str
) -> None:
    """One AddPartitionsToTxn and one Produce name both; the coordinator decides on all."""
    other = f"{topic}-ordinary"
    create_ordinary(takers[0].bootstrap, other, 1)
    with ExactTransactions(takers[0].bootstrap, topic) as client:
        client.init()
        wait_until("it is added", lambda: not any(client.add_once((topic, [7]), (other, [0])).values()), 60)
        rows = [
            {"name": name, "partition_data": [{"index": at, "records": client.batch(name, at, "a")}]}
            for name, at in ((topic, 7), (other, 0))
        ]
        wait_until("the ordinary topic is led", partial(_is_led, open_cluster.bootstrap(), other), 60)
        answer = client.leader(topic, 7).ask(
            apis.PRODUCE, 11, {"transactional_id": topic, "acks": -1, "timeout_ms": 10_000, "topic_data": rows}
        )
        codes = {row.name: row.partition_responses[0].error_code for row in answer.responses}
        assert codes == {topic: Code.NONE, other: Code.NONE}
        client.commit()
    assert log_words(open_cluster.bootstrap(), topic, 1) == ["witness 1", "v7 v1 a", "commit"]
    assert log_words(open_cluster.bootstrap(), other, 0) == ["bypass a", "commit"]


def _is_led(bootstrap: str, topic: str) -> bool:
    asked = {"replica_id": -1, "topics": [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]}
    with PlainConnection(bootstrap) as connection:
        return bool(connection.ask(apis.LIST_OFFSETS, 4, asked).topics[0].partitions[0].error_code == Code.NONE)


def test_data_without_a_transaction_are_refused(open_cluster: Cluster, takers: list[ProxyProcess], topic: str) -> None:
    """TXN-WITNESS: v1 data on a partition that was not added, and those that come behind their commit."""
    with ExactTransactions(takers[0].bootstrap, topic) as client:
        client.init()
        client.add(topic, 0)
        with pytest.raises(TransactionRefused) as refused:
            client.produce(topic, 11, "nowhere")
        assert refused.value.code == Code.INVALID_TXN_STATE
        client.produce(topic, 0, "a")
        client.commit()
        with pytest.raises(TransactionRefused) as refused:
            client.produce(topic, 0, "late")
        assert refused.value.code == Code.INVALID_TXN_STATE
    assert log_words(open_cluster.bootstrap(), topic, 0) == ["witness 1", "v0 v1 a", "commit"]


@pytest.mark.skipif(SECOND_PROTOCOL.is_missing, reason=SECOND_PROTOCOL.reason)
def test_a_transaction_ends_by_the_protocol_that_opened_it(takers: list[ProxyProcess], topic: str) -> None:
    """Ended by v1, the epoch would go on, and the next witness would be taken for a repetition."""
    with ExactTransactions(takers[0].bootstrap, topic, Protocol.V2) as client:
        client.init()
        client.produce(topic, 0, "a")
        assert client.end_once(4, is_commit=True).error_code == Code.INVALID_TXN_STATE
        client.commit()


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": None}, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ({"acks": 1}, Code.INVALID_REQUIRED_ACKS),
    ],
)
def test_what_brokers_refuse_is_refused(
    takers: list[ProxyProcess], topic: str, fields: dict[str, object], code: Code
) -> None:
    """A batch of a transaction in a request without a transactional id, and one that waits for no copies."""
    with ExactTransactions(takers[0].bootstrap, topic) as client:
        client.init()
        client.add(topic, 0)
        assert client.send(topic, 0, client.batch(topic, 0, "a"), **fields).error_code == code


def test_a_partition_that_is_not_there_is_not_added(takers: list[ProxyProcess], topic: str) -> None:
    """As with brokers, nothing else of the request is added."""
    with ExactTransactions(takers[0].bootstrap, topic) as client:
        client.init()
        codes = client.add_once((topic, [0, 12]))
        assert codes == {(topic, 0): Code.OPERATION_NOT_ATTEMPTED, (topic, 12): Code.UNKNOWN_TOPIC_OR_PARTITION}


def test_a_producer_that_brokers_have_forgotten_aborts_once_and_goes_on(takers: list[ProxyProcess], topic: str) -> None:
    """On v1 it keeps its sequences over transactions, and Kordon cannot tell it from one whose batches were lost."""
    with ExactTransactions(takers[0].bootstrap, topic) as client:
        client.init()
        client.add(topic, 0)
        client.sequences[topic, 0] = 7
        with pytest.raises(TransactionRefused, match="UNKNOWN_PRODUCER_ID"):
            client.produce(topic, 0, "behind what is forgotten")
        client.abort()
        client.init()
        client.add(topic, 0)
        client.produce(topic, 0, "under the next epoch")
        client.commit()


def test_partitions_that_were_never_added_are_written_to_only_beside_one_that_was(
    open_cluster: Cluster, takers: list[ProxyProcess], topic: str
) -> None:
    """On v1: Kordon, like brokers, knows of physical partitions whether a transaction is open there."""
    with ExactTransactions(takers[0].bootstrap, topic) as client:
        client.init()
        client.add(topic, 0)
        client.produce(topic, 3, "beside 0")
        with pytest.raises(TransactionRefused, match="INVALID_TXN_STATE"):
            client.produce(topic, 4, "elsewhere")
        client.commit()
    assert log_words(open_cluster.bootstrap(), topic, 0) == ["witness 1", "v3 v1 beside 0", "commit"]


@pytest.mark.parametrize("protocol", BOTH)
def test_a_transaction_of_the_dialect(
    open_cluster: Cluster, takers: list[ProxyProcess], topic: str, protocol: Protocol
) -> None:
    """What was chosen by another count is refused and leaves no gap; readers of both kinds wait for the commit."""
    with DialectTransactions(takers[0].bootstrap, topic, protocol) as client:
        client.init()
        if protocol is Protocol.V1:
            client.add(topic, 1)
        client.produce(topic, 1, "a")
        client.count = 4
        with pytest.raises(TransactionRefused, match="INVALID_PARTITION_METADATA"):
            client.produce(topic, 1, "chosen by another count")
        client.count = 3
        client.produce(topic, 1, "b")
        assert read_committed(takers[1], topic) == []
        client.commit()
        if protocol is Protocol.V1:
            client.add(topic, 1)
        client.produce(topic, 1, "c")
        client.abort()
    assert sorted(read_committed(takers[1], topic)) == ["a", "b"]
    kind = f"v{NO_V} {protocol.value}"
    one = [witness(protocol), f"{kind} a", f"{kind} b", "commit"]
    assert log_words(open_cluster.bootstrap(), topic, 1)[:4] == one


def read_committed(proxy: ProxyProcess, topic: str) -> list[str]:
    settings = {"bootstrap.servers": proxy.bootstrap, "isolation.level": "read_committed"}
    return [(each.value() or b"").decode() for each in read_to_ends(settings, topic)]


def test_brokers_offer_no_two_phase_commits(open_cluster: Cluster, takers: list[ProxyProcess]) -> None:
    """InitProducerId 6 is unstable up to Kafka 4.4. A version that offers it has to be looked at (KIP-939)."""
    for bootstrap in (open_cluster.bootstrap(), takers[0].bootstrap):
        with PlainConnection(bootstrap) as client:
            offered = {row.api_key: row.max_version for row in client.ask(apis.API_VERSIONS, 0, {}).api_keys}
        assert offered[apis.INIT_PRODUCER_ID] < 6


@pytest.fixture(scope="module")
def guarded() -> Iterator[Secured]:
    """A broker that allows nothing that no ACL allows, and a Kordon that takes transactions and may describe them."""
    transactional, prefixed = ResourceType.TRANSACTIONAL_ID, ResourcePatternType.PREFIXED
    with Secured.start(**TAKES) as found:
        found.allow(*(Allowed(user, AclOperation.ALL, "guarded") for user in ("kordon", "alice", "mallory")))
        found.allow(Allowed("kordon", AclOperation.ALL, "alice", transactional, prefixed))
        found.allow(Allowed("kordon", AclOperation.DESCRIBE, "*", transactional))
        found.allow(Allowed("kordon", AclOperation.DESCRIBE, "__transaction_state"))
        found.allow(Allowed("kordon", AclOperation.DESCRIBE_CONFIGS, "kafka-cluster", ResourceType.BROKER))
        found.allow(Allowed("alice", AclOperation.ALL, "alice", transactional, prefixed))
        create_managed(found.kordon.bootstrap, "guarded", login("admin"))
        yield found


def exact(
    secured: Secured,
    user: str,
    transactional_id: str,
    protocol: Protocol,
    kind: type[ExactTransactions] = ExactTransactions,
) -> ExactTransactions:
    def connect(address: str) -> PlainConnection:
        introduced = DialectConnection if kind is DialectTransactions else PlainConnection
        return log_in(introduced(address), user)

    return kind(secured.kordon.bootstrap, transactional_id, protocol, connect)


@pytest.mark.broker
@pytest.mark.parametrize("protocol", BOTH)
def test_nobody_writes_into_anothers_transaction(guarded: Secured, protocol: Protocol) -> None:
    """OWN-TRANSACTION: who may write to the topic still may not use the transactional id, id and epoch of another."""
    name = f"alice-{protocol.value}"
    alice, mallory = exact(guarded, "alice", name, protocol), exact(guarded, "mallory", name, protocol)
    with alice, mallory:
        alice.init()
        if protocol is Protocol.V1:
            alice.add("guarded", 3)
        mallory.identity = alice.identity
        for _ in range(2):
            forged = mallory.send("guarded", 3, mallory.batch("guarded", 3, "forged"))
            assert forged.error_code == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            alice.produce("guarded", 3, "mine")
        alice.commit()
    words = log_words(guarded.cluster.bootstrap(), "guarded", 0)
    assert not [each for each in words if "forged" in each]
    assert words[-4:] == [witness(protocol), *[f"v3 {protocol.value} mine"] * 2, "commit"]


@pytest.mark.broker
@pytest.mark.parametrize("protocol", BOTH)
def test_nobody_writes_into_anothers_transaction_by_the_dialect(guarded: Secured, protocol: Protocol) -> None:
    """OWN-TRANSACTION: nor with ids that look like those in the log."""
    name = f"alice-dialect-{protocol.value}"
    alice = exact(guarded, "alice", name, protocol)
    mallory = exact(guarded, "mallory", name, protocol, DialectTransactions)
    with alice, mallory:
        alice.init()
        if protocol is Protocol.V1:
            alice.add("guarded", 11)
        alice.produce("guarded", 11, "mine")
        producer_id, epoch = alice.identity
        for forged_id, code in (
            (producer_id, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
            (producer_id | 1 << 39, Code.INVALID_PRODUCER_ID_MAPPING),
            (tag(11, 0, writer_id(producer_id, protocol)), Code.INVALID_PRODUCER_ID_MAPPING),
        ):
            mallory.identity = forged_id, epoch
            assert mallory.send("guarded", 2, mallory.batch("guarded", 2, "forged")).error_code == code
        asked: dict[str, object] = {
            "v3_and_below_transactional_id": name,
            "v3_and_below_producer_id": producer_id,
            "v3_and_below_producer_epoch": epoch,
            "v3_and_below_topics": [{"name": "guarded", "partitions": list(range(5_000))}],
        }
        (row,) = mallory.leader("guarded", 2).ask(apis.ADD_PARTITIONS_TO_TXN, 3, asked).results_by_topic_v3_and_below
        codes = {each.partition_error_code for each in row.results_by_partition}
        assert codes == {Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
        alice.produce("guarded", 11, "mine")
        alice.commit()
    words = log_words(guarded.cluster.bootstrap(), "guarded", 2)
    assert words[-4:] == [witness(protocol), *[f"v11 {protocol.value} mine"] * 2, "commit"]
