"""Transactions under attack by a client that may write to the topic, by one that may not, and by one that may nothing.

The broker holds all to ACLs. The proxy that leads takes no transactions; the one in front of the attackers does.
"""

# pyright: reportPrivateImportUsage=false
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, ResourcePatternType, ResourceType

from kordon.codecs import apis
from kordon.codecs.error_codes import Code, name_of
from kordon.codecs.retag import crc32c, retag
from kordon.codecs.witness import WITNESS_KEY
from kordon.proxy.kafka.batches import BatchIdentity, Copy, build_copies
from kordon.proxy.kafka.witness_batch import build_witness
from kordon.proxy.ordering.identity import LARGEST_CLIENT_ID, tag, writer_id
from kordon.proxy.ordering.transactions.events import Protocol
from kordon.testing.broker_config import USERS
from kordon.testing.broker_features import SECOND_PROTOCOL, VERIFIED_TRANSACTIONS
from kordon.testing.exact_transactions import ExactTransactions
from kordon.testing.managed_clients import create_managed
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.rights import LISTENER, Allowed, Secured, log_in, login
from kordon.testing.transaction_logs import log_words

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(VERIFIED_TRANSACTIONS.is_missing, reason=VERIFIED_TRANSACTIONS.reason),
]

OPEN, CLOSED = "attacked-orders", "attacked-closed"
ALICES, MALLORYS = "alice-orders", "mallory-orders"
TRANSACTIONAL, ANY = ResourceType.TRANSACTIONAL_ID, ResourcePatternType.PREFIXED
ACLS = (
    *(Allowed("kordon", AclOperation.ALL, name) for name in (OPEN, CLOSED)),
    *(Allowed(user, AclOperation.ALL, OPEN) for user in ("alice", "mallory")),
    Allowed("alice", AclOperation.ALL, CLOSED),
    Allowed("kordon", AclOperation.DESCRIBE, "*", TRANSACTIONAL),
    Allowed("kordon", AclOperation.DESCRIBE, "__transaction_state"),
    Allowed("kordon", AclOperation.DESCRIBE_CONFIGS, "kafka-cluster", ResourceType.BROKER),
    *(Allowed("kordon", AclOperation.WRITE, name, TRANSACTIONAL, ANY) for name in ("alice", "mallory")),
    *(Allowed(name, AclOperation.ALL, name, TRANSACTIONAL, ANY) for name in ("alice", "mallory")),
)
V1_PRODUCE, V2_PRODUCE = 11, 12
QUESTIONS = "kordon_managed_transaction_questions_total"
Attack = Callable[[PlainConnection, str, tuple[int, int]], int]
"""Returns the error code that it gets."""
CHECKED_AT, ATTRIBUTES_AT, CONTROL = 21, 22, 0x20


@pytest.fixture(scope="module")
def proxy(strict_cluster: Secured) -> Iterator[ProxyProcess]:
    """A proxy that takes transactions."""
    sasl = {"mechanism": "PLAIN", "username": "kordon", "password": USERS["kordon"]}
    address = strict_cluster.cluster.bootstrap(LISTENER)
    sections = {"upstream": {"bootstrap": address, "sasl": sasl}, "ordering": {"transactions": True}}
    with strict_cluster.allowed(*ACLS), ProxyProcess.start(address, config=sections) as started:
        for name in (OPEN, CLOSED):
            create_managed(started.bootstrap, name, login("admin"))
        yield started


def connect(user: str, address: str) -> PlainConnection:
    return log_in(PlainConnection(address), user)


def exact(proxy: ProxyProcess, user: str, transactional_id: str) -> ExactTransactions:
    return ExactTransactions(proxy.bootstrap, transactional_id, Protocol.V1, partial(connect, user))


@pytest.fixture
def alice(proxy: ProxyProcess) -> Iterator[ExactTransactions]:
    """A client with a transaction that is open on virtual partition 3."""
    with exact(proxy, "alice", ALICES) as client:
        client.init()
        client.add(OPEN, 3)
        client.produce(OPEN, 3, "mine")
        yield client
        client.commit()


@pytest.fixture
def mallory(proxy: ProxyProcess) -> Iterator[ExactTransactions]:
    """A client with a transactional id of its own."""
    with exact(proxy, "mallory", MALLORYS) as client:
        client.init()
        yield client


def produced(
    client: ExactTransactions, topic: str, batches: dict[int, bytes], version: int = V1_PRODUCE, **fields: Any
) -> dict[int, str]:
    """Sends batches in one request; returns the names of their errors."""
    rows = [{"name": topic, "partition_data": [{"index": v, "records": each} for v, each in batches.items()]}]
    asked = {"transactional_id": client.transactional_id, "acks": -1, "timeout_ms": 10_000, "topic_data": rows}
    answer = client.coordinator().ask(apis.PRODUCE, version, asked | fields)
    return {each.index: name_of(each.error_code) for each in answer.responses[0].partition_responses}


def who(transactional_id: str, identity: tuple[int, int]) -> dict[str, Any]:
    return {"transactional_id": transactional_id, "producer_id": identity[0], "producer_epoch": identity[1]}


def ends(link: PlainConnection, transactional_id: str, identity: tuple[int, int]) -> int:
    code: int = link.ask(apis.END_TXN, 3, {**who(transactional_id, identity), "committed": False}).error_code
    return code


def inits(link: PlainConnection, transactional_id: str, identity: tuple[int, int]) -> int:
    asked = {**who(transactional_id, identity), "transaction_timeout_ms": 10_000}
    code: int = link.ask(apis.INIT_PRODUCER_ID, 4, asked).error_code
    return code


def added(link: PlainConnection, transactional_id: str, identity: tuple[int, int], *partitions: int) -> list[int]:
    asked = {f"v3_and_below_{name}": value for name, value in who(transactional_id, identity).items()}
    asked["v3_and_below_topics"] = [{"name": OPEN, "partitions": list(partitions)}]
    (row,) = link.ask(apis.ADD_PARTITIONS_TO_TXN, 3, asked).results_by_topic_v3_and_below
    return [each.partition_error_code for each in row.results_by_partition]


def adds(link: PlainConnection, transactional_id: str, identity: tuple[int, int]) -> int:
    (code,) = added(link, transactional_id, identity, 3)
    return code


def behind_nothing(attack: Attack, link: PlainConnection, transactional_id: str, identity: tuple[int, int]) -> int:
    """Adds no partition first: brokers answer that without an error, allowed or not."""
    assert added(link, transactional_id, identity) == []
    return attack(link, transactional_id, identity)


def writes(version: int, link: PlainConnection, transactional_id: str, identity: tuple[int, int]) -> int:
    batch = build_copies([Copy(b"k", b"forged", None)], BatchIdentity(*identity, 7), is_transactional=True)
    row = {"name": OPEN, "partition_data": [{"index": 0, "records": batch}]}
    asked = {"transactional_id": transactional_id, "acks": -1, "timeout_ms": 10_000, "topic_data": [row]}
    code: int = link.ask(apis.PRODUCE, version, asked).responses[0].partition_responses[0].error_code
    return code


def test_nobody_stops_the_transaction_of_another(proxy: ProxyProcess, alice: ExactTransactions) -> None:
    """OWN-TRANSACTION: what is believed of it stays, so no leader is asked for it again; a flood of that stopped it."""
    attacks: list[Attack] = [ends, partial(writes, V1_PRODUCE), adds, inits]
    attacks += [] if SECOND_PROTOCOL.is_missing else [partial(writes, V2_PRODUCE)]
    attacks += [partial(behind_nothing, attack) for attack in attacks[:3]]
    for user, transactional_id in (("mallory", ALICES), ("mallory", MALLORYS), ("bob", ALICES)):
        with connect(user, proxy.bootstrap) as link:
            for attack in attacks:
                code = attack(link, transactional_id, alice.identity)
                assert attack is inits or code != Code.NONE, (attack, user, transactional_id)
                asked = proxy.metric(QUESTIONS, asked="leader")
                alice.produce(OPEN, 3, "mine")
                assert proxy.metric(QUESTIONS, asked="leader") == asked, (attack, user, transactional_id)


def test_nobody_is_heard_before_the_log_in(proxy: ProxyProcess, alice: ExactTransactions) -> None:
    """The broker ends the connection."""
    for attack in (ends, inits, adds, partial(writes, V1_PRODUCE)):
        with PlainConnection(proxy.bootstrap) as link, pytest.raises((EOFError, ConnectionError)):
            attack(link, ALICES, alice.identity)
    asked = proxy.metric(QUESTIONS, asked="leader")
    alice.produce(OPEN, 3, "mine")
    assert proxy.metric(QUESTIONS, asked="leader") == asked


@pytest.mark.parametrize("version", [V1_PRODUCE, V2_PRODUCE])
def test_nobody_changes_a_topic_that_it_may_not_write_to(
    strict_cluster: Secured, mallory: ExactTransactions, version: int
) -> None:
    """RIGHTS-FIRST: that a topic takes transactions is for good."""
    code = produced(mallory, CLOSED, {0: mallory.batch(CLOSED, 0, "junk")}, version)
    assert code == {0: "TOPIC_AUTHORIZATION_FAILED"}
    assert mallory.add_once((CLOSED, [0])) == {(CLOSED, 0): Code.TOPIC_AUTHORIZATION_FAILED}
    allowed = [each["topic"] for each in strict_cluster.kordon.events("transactions_allowed")]
    assert CLOSED not in allowed


def forged(client: ExactTransactions, producer_id: int, epoch: int, sequence: int = 0, attributes: int = 0) -> bytes:
    batch = bytearray(client.batch(OPEN, 0, "forged"))
    batch[ATTRIBUTES_AT] |= attributes
    retag(memoryview(batch), 0, producer_id, epoch, sequence)
    batch[CHECKED_AT - 4 : CHECKED_AT] = crc32c(batch[CHECKED_AT:]).to_bytes(4, "big")
    return bytes(batch)


def test_batches_that_no_client_sends(
    strict_cluster: Secured, alice: ExactTransactions, mallory: ExactTransactions
) -> None:
    """Each is refused by itself; in the log nothing is forged, and records with the witness's key are records."""
    mallory.add(OPEN, 0, 1)
    producer_id, epoch = mallory.identity
    refused = {
        "INVALID_PRODUCER_ID_MAPPING": [
            {0: forged(mallory, LARGEST_CLIENT_ID + 1, epoch)},
            {0: forged(mallory, writer_id(producer_id, Protocol.V1), epoch)},
            {0: forged(mallory, tag(0, 0, writer_id(alice.identity[0], Protocol.V2)), epoch)},
        ],
        "INVALID_RECORD": [
            {0: forged(mallory, producer_id, -1)},
            {0: forged(mallory, -1, -1, -1)},
            {0: forged(mallory, producer_id, epoch, attributes=CONTROL)},
        ],
        "INVALID_TXN_STATE": [
            {0: forged(mallory, producer_id, 2**15 - 1)},
            {0: forged(mallory, producer_id + 1_000_000, 0)},
            {11: forged(mallory, producer_id, epoch)},
        ],
    }
    for code, requests in refused.items():
        for batches in requests:
            assert produced(mallory, OPEN, batches) == dict.fromkeys(batches, code), (code, batches)
    others: list[tuple[dict[str, Any], Code]] = [
        ({"transactional_id": None}, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ({"acks": 1}, Code.INVALID_REQUIRED_ACKS),
    ]
    for fields, refusal in others:
        assert produced(mallory, OPEN, {0: forged(mallory, producer_id, epoch)}, **fields) == {0: name_of(refusal)}
    both = {0: forged(mallory, producer_id, epoch), 3: forged(mallory, *alice.identity, sequence=9)}
    assert produced(mallory, OPEN, both) == {0: "NONE", 3: "INVALID_PRODUCER_ID_MAPPING"}
    witness = build_witness(BatchIdentity(producer_id, epoch, 1), Protocol.V1)
    plain = build_copies([Copy(WITNESS_KEY, None, None)], BatchIdentity(-1, -1, -1))
    assert produced(mallory, OPEN, {0: witness}) == {0: "NONE"}
    assert produced(mallory, OPEN, {1: plain}) == {1: "NONE"}
    mallory.commit()
    words = [each for q in range(3) for each in log_words(strict_cluster.cluster.bootstrap(), OPEN, q, is_open=True)]
    assert not [each for each in words if "native" in each or "bypass" in each]
    assert words.count("v0 v1 forged") == 1
    assert {"v0 v1 ", "v1 plain "} <= set(words)


def test_additions_that_no_client_asks_for(mallory: ExactTransactions) -> None:
    """Thousands of partitions, named twice and not there, and what only brokers ask for: nothing of it is added."""
    many = {OPEN: [*range(12), *range(12), *range(2**31 - 10_000, 2**31)], "nowhere": [0, 0]}
    codes = mallory.add_once(*many.items())
    assert {codes[OPEN, v] for v in range(12)} == {Code.OPERATION_NOT_ATTEMPTED}
    assert Code.NONE not in codes.values()
    topics = [{"name": OPEN, "partitions": [0, 3]}]
    for verify_only in (False, True):
        transaction = {**who(MALLORYS, mallory.identity), "verify_only": verify_only, "topics": topics}
        answer = mallory.coordinator().ask(apis.ADD_PARTITIONS_TO_TXN, 5, {"transactions": [transaction] * 50})
        rows = [
            part
            for each in answer.results_by_transaction
            for row in each.topic_results
            for part in row.results_by_partition
        ]
        assert answer.error_code == Code.CLUSTER_AUTHORIZATION_FAILED or rows
        assert all(each.partition_error_code for each in rows)
    assert mallory.send(OPEN, 0, mallory.batch(OPEN, 0, "junk")).error_code == Code.INVALID_TXN_STATE
