"""Rights on managed topics, with a real authorizer: Kordon lets nobody do what a broker would not let him do."""

# pyright: reportPrivateImportUsage=false
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic, ResourcePatternType, ResourceType

from kordon.codecs import apis
from kordon.proxy.commands.cli import main
from kordon.testing.broker_config import USERS
from kordon.testing.broker_features import GROUP_PROTOCOLS, PRODUCE_BY_ID
from kordon.testing.client_quotas import set_quotas, write_as
from kordon.testing.managed_clients import VIRTUAL_PARTITIONS, create_managed, manage, resize, wait_told_of
from kordon.testing.managed_writes import a_batch
from kordon.testing.messages.every_request import NO_ID, About
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.rights import Allowed, Secured, log_in, login
from kordon.testing.steps import plain
from kordon.testing.waiting import wait_until

SASL_AUTHENTICATE = 36
TOPIC, ORDINARY = "guarded-orders", "guarded-ordinary"
NONE, TOPIC_AUTHORIZATION_FAILED = 0, 29
RIGHTS_SECONDS = 1.0
"""The default of ordering.rights_ms."""
_CLOSED = (OSError, EOFError)
"""Of a connection that ended in place of an answer."""
BY_NAME = (
    *((apis.PRODUCE, 9), (apis.FETCH, 11), (apis.LIST_OFFSETS, 7), (apis.OFFSET_FOR_LEADER_EPOCH, 4)),
    *((apis.DELETE_RECORDS, 2), (apis.CREATE_PARTITIONS, 3), (apis.METADATA, 12)),
)
_GROUP, _PREFIXED = ResourceType.GROUP, ResourcePatternType.PREFIXED


@pytest.fixture(scope="module")
def secured(strict_cluster: Secured) -> Secured:
    """A broker that allows nothing that no ACL allows, with a managed topic of which alice may do all."""
    found = strict_cluster
    found.allow(*(Allowed(user, AclOperation.ALL, TOPIC) for user in ("kordon", "alice")))
    found.allow(Allowed("alice", AclOperation.ALL, ORDINARY))
    found.allow(*(Allowed(user, AclOperation.READ, "group-", _GROUP, _PREFIXED) for user in ("alice", "bob")))
    found.operator.create_topics([NewTopic(ORDINARY, VIRTUAL_PARTITIONS, 1)])[ORDINARY].result(60)
    create_managed(found.kordon.bootstrap, TOPIC, login("admin"))
    return found


def produce(settings: Mapping[str, Any], topic: str, count: int = 24) -> list[str | None]:
    """Writes records; returns the error of each, None for those that were acknowledged."""
    outcomes: list[str | None] = []
    producer = Producer(dict(settings))
    for number in range(count):
        producer.produce(
            topic,
            str(number),
            key=str(number),
            on_delivery=lambda error, _: outcomes.append(None if error is None else str(error)),
        )
    assert producer.flush(90) == 0
    return outcomes


def logged_in(bootstrap: str, user: str) -> PlainConnection:
    """Returns a connection on which a user has logged in."""
    return log_in(PlainConnection(bootstrap), user)


def requests_about(name: str, topic_id: UUID) -> dict[tuple[int, int], dict[str, Any]]:
    """Requests by api key and version that name one partition of a topic."""
    config = {"name": "kordon.virtual.partitions", "config_operation": 0, "value": "24"}
    managing = {"resource_type": 2, "resource_name": name, "configs": [config]}
    by_name, by_id = About(name, NO_ID, "", 1), About(name, topic_id, "", 1)
    return {
        **{(key, version): by_name.fields(key, version) for key, version in BY_NAME},
        **{(key, version): by_id.fields(key, version) for key, version in ((apis.PRODUCE, 13), (apis.FETCH, 16))},
        (apis.INCREMENTAL_ALTER, 1): {"resources": [managing], "validate_only": False},
    }


def topic_id(connection: PlainConnection, name: str) -> UUID:
    """Returns the id by which clients know a topic; `connection` is of one who may."""
    (row,) = connection.ask(apis.METADATA, 12, {"topics": [{"name": name}]}).topics
    return UUID(int=row.topic_id.int)


def comparable(answer: Any, name: str, known_id: UUID) -> str:
    """Returns an answer as text without what differs between two topics or two moments."""
    text = str(plain(answer)).replace(name, "<topic>").replace(str(known_id), "<id>").replace(known_id.hex, "<id>")
    return text.replace(repr(known_id.bytes), "<id>")


@pytest.mark.parametrize("describes", [False, True], ids=["no right", "describe only"])
def test_a_client_without_rights_gets_the_answers_of_a_broker(secured: Secured, *, describes: bool) -> None:
    """Request by request, field by field: what Kordon serves is refused as the broker refuses an ordinary topic."""
    more = tuple(Allowed("bob", AclOperation.DESCRIBE, name) for name in (TOPIC, ORDINARY)) if describes else ()
    with secured.allowed(*more):
        compare_refusals(secured, describes=describes)


def compare_refusals(secured: Secured, *, describes: bool) -> None:
    """Asks for a managed and an ordinary topic what bob may not have."""
    port = secured.kordon.bootstrap
    with logged_in(port, "alice") as alice, logged_in(port, "bob") as bob:
        wait_until("bob's rights are known", lambda: metadata_code(bob) == (NONE if describes else 29))
        ids = {name: topic_id(alice, name) for name in (TOPIC, ORDINARY)}
        ordinary = requests_about(ORDINARY, ids[ORDINARY])
        compared = 0
        for (key, version), fields in requests_about(TOPIC, ids[TOPIC]).items():
            if describes and key in (apis.LIST_OFFSETS, apis.OFFSET_FOR_LEADER_EPOCH, apis.METADATA):
                continue  # allowed by it
            if (key, version) == (apis.PRODUCE, 13) and PRODUCE_BY_ID.is_missing:
                continue
            managed = bob.ask(key, version, fields)
            assert str(TOPIC_AUTHORIZATION_FAILED) in str(plain(managed)), (key, version)
            expected = bob.ask(key, version, ordinary[key, version])
            assert comparable(managed, TOPIC, ids[TOPIC]) == comparable(expected, ORDINARY, ids[ORDINARY]), key
            compared += 1
        assert compared == (7 if describes else 10) - PRODUCE_BY_ID.is_missing


def metadata_code(connection: PlainConnection) -> int:
    """Returns what a client is told of the managed topic."""
    (row,) = connection.ask(apis.METADATA, 12, {"topics": [{"name": TOPIC}]}).topics
    return int(row.error_code)


@pytest.fixture
def bob_describes(secured: Secured) -> Iterator[None]:
    """Bob may look at both topics, but not write to them: clients look before they write."""
    rights = [Allowed("bob", AclOperation.DESCRIBE, name) for name in (TOPIC, ORDINARY)]
    with secured.allowed(*rights):
        yield


@pytest.mark.parametrize("topic", [TOPIC, ORDINARY])
@pytest.mark.usefixtures("bob_describes")
def test_a_write_without_an_answer_that_is_refused_ends_the_connection(secured: Secured, topic: str) -> None:
    """With acks=0 librdkafka is disconnected as by a broker, where it may not write, and only there."""
    with closing(SilentWriter(secured.settings("bob"), topic)) as bob:
        wait_until("bob is disconnected", lambda: bob.write() > 1)
    with closing(SilentWriter(secured.settings("alice"), topic)) as alice:
        assert [alice.write() for _ in range(20)] == [0] * 20


class SilentWriter:
    """A librdkafka producer that waits for no answers, and counts what it hears of its connections."""

    def __init__(self, settings: Mapping[str, Any], topic: str) -> None:
        self._topic = topic
        self._errors: list[str] = []
        self._producer = Producer({**settings, "acks": 0, "error_cb": self._heard})

    def write(self) -> int:
        """Writes a record; returns how often it was disconnected so far."""
        self._producer.produce(self._topic, "silent", key="silent")
        self._producer.poll(0.1)
        return len(self._errors)

    def close(self) -> None:
        """Ends it; what is not sent is dropped."""
        self._producer.purge()
        self._producer.close()

    def _heard(self, error: Any) -> None:
        self._errors.append(error.name())


@pytest.mark.parametrize("topics", [(TOPIC,), (ORDINARY,), (TOPIC, ORDINARY)], ids=str)
def test_one_refused_topic_of_a_write_without_an_answer_is_enough(secured: Secured, topics: tuple[str, ...]) -> None:
    """Whichever of them is managed; what the same request writes to other topics is written."""
    written = {"partition_data": [{"index": 1, "records": a_batch("one")}]}
    fields = {"acks": 0, "timeout_ms": 1000, "topic_data": [{"name": name, **written} for name in topics]}
    with logged_in(secured.kordon.bootstrap, "bob") as bob:
        bob.tell(apis.PRODUCE, 9, fields)
        wait_until("it is closed", partial(is_closed, bob))


def is_closed(connection: PlainConnection) -> bool:
    """Asks something that everybody may; returns whether the other side has closed the connection."""
    try:
        connection.ask(apis.METADATA, 12, {"topics": []})
    except _CLOSED:
        return True
    return False


@pytest.mark.parametrize("protocol", GROUP_PROTOCOLS)
def test_a_group_reads_and_commits_by_the_rights_of_the_topic(secured: Secured, protocol: str) -> None:
    """Alice may, through the ACLs of the face that mirror her topic's; bob, whose reads would be cached, may not."""
    assert produce(secured.settings("alice"), TOPIC) == [None] * 24
    for user in ("alice", "bob"):
        config = {"group.id": f"group-{user}-{protocol}", "auto.offset.reset": "earliest", "group.protocol": protocol}
        consumer = Consumer({**secured.settings(user), **config, "enable.auto.commit": False})
        with closing(consumer):
            consumer.subscribe([TOPIC])
            got, errors = 0, set[str]()
            deadline = time.monotonic() + 90
            while not errors and got < 24 and time.monotonic() < deadline:
                message = consumer.poll(0.5)
                if message is not None and (error := message.error()) is not None:
                    errors.add(error.name())
                got += message is not None and message.error() is None
            if user == "alice":
                assert (got, errors) == (24, set())
                committed = consumer.commit(asynchronous=False)
                assert [each.error for each in committed or ()] == [None] * len(committed or ())
            else:
                assert (got, errors) == (0, {"TOPIC_AUTHORIZATION_FAILED"})


def test_a_right_that_is_revoked_holds_for_a_second_at_most(secured: Secured) -> None:
    """Writes and reads of a busy connection end within ordering.rights_ms, and go on when the right is back."""
    secured.allow(Allowed("bob", AclOperation.READ, TOPIC), Allowed("bob", AclOperation.WRITE, TOPIC))
    with logged_in(secured.kordon.bootstrap, "bob") as bob:
        for key, version, operation in (
            (apis.PRODUCE, 9, AclOperation.WRITE),
            (apis.FETCH, 11, AclOperation.READ),
        ):
            fields = requests_about(TOPIC, NO_ID)[key, version]
            right = Allowed("bob", operation, TOPIC)
            may = partial(is_allowed, bob, key, version, fields)
            wait_until("bob may", may)
            secured.revoke(right)
            believed_until = time.monotonic() + RIGHTS_SECONDS
            while time.monotonic() < believed_until:
                may()  # a connection that is busy all the time is believed no longer than others
            assert not may()
            secured.allow(right)
            wait_until("bob may again", may)
    secured.revoke(Allowed("bob", AclOperation.READ, TOPIC), Allowed("bob", AclOperation.WRITE, TOPIC))


def code_of(connection: PlainConnection, key: int, version: int, fields: dict[str, Any]) -> int:
    """Asks; returns the one partition's error code."""
    (topic,) = connection.ask(key, version, fields).responses
    (row,) = topic.get("partition_responses") or topic.partitions
    return int(row.error_code)


def is_allowed(connection: PlainConnection, key: int, version: int, fields: dict[str, Any]) -> bool:
    """Asks; returns whether nothing is refused."""
    return code_of(connection, key, version, fields) == NONE


def test_a_connection_cannot_become_somebody_elses(secured: Secured) -> None:
    """Kafka refuses another principal in a later log-in, so what was told of a connection stays true of it."""
    with logged_in(secured.kordon.bootstrap, "alice") as alice:
        fields = requests_about(TOPIC, NO_ID)[apis.FETCH, 11]
        assert code_of(alice, apis.FETCH, 11, fields) == NONE
        assert alice.ask(apis.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}).error_code == NONE
        token = f"\0bob\0{USERS['bob']}".encode()
        assert alice.ask(SASL_AUTHENTICATE, 2, {"auth_bytes": token}).error_code != NONE
        with pytest.raises(_CLOSED):
            code_of(alice, apis.FETCH, 11, fields)


def test_acls_of_a_topic_reach_its_face_and_leave_it(secured: Secured) -> None:
    """Prefixed ones as literal ones, reading only; within moments, in both directions."""
    prefixed = Allowed("bob", AclOperation.ALL, "guarded-ord", pattern=ResourcePatternType.PREFIXED)
    face = f"__kordon.{TOPIC}"
    wanted = {("User:bob", "READ"), ("User:bob", "DESCRIBE")}
    with secured.allowed(prefixed):
        wait_until("the face has them", lambda: wanted <= secured.on_topic(face))
        assert not {("User:bob", "WRITE"), ("User:bob", "ALL")} & secured.on_topic(face)
    wait_until("the face has them no more", lambda: not wanted & secured.on_topic(face))


def test_the_acls_of_a_face_go_with_its_topic(secured: Secured) -> None:
    """A topic of the same name that is made later begins without them."""
    topic = "short-lived"
    secured.allow(Allowed("kordon", AclOperation.ALL, topic), Allowed("alice", AclOperation.READ, topic))
    admin = create_managed(secured.kordon.bootstrap, topic, login("admin"))
    wait_until("the face has them", lambda: ("User:alice", "READ") in secured.on_topic(f"__kordon.{topic}"))
    admin.delete_topics([topic])[topic].result(60)
    wait_until("they are gone", lambda: not secured.on_topic(f"__kordon.{topic}"))


def test_a_right_that_kordon_lacks_is_named_with_the_command_that_gives_it(secured: Secured) -> None:
    """Whoever wants a topic managed learns it at once, and nothing is begun."""
    topic = "not-kordons"
    secured.operator.create_topics([NewTopic(topic, 3, 1)])[topic].result(60)
    wait_told_of(secured.operator, topic)
    secured.allow(Allowed("kordon", AclOperation.READ, topic))
    admin = AdminClient(dict(secured.settings("admin")))
    with pytest.raises(KafkaException) as refused:
        manage(admin, topic).result(70)
    text = str(refused.value)
    assert "TOPIC_AUTHORIZATION_FAILED" in text
    assert "lacks Write, Alter, Delete, DescribeConfigs" in text
    assert "--add --allow-principal User:kordon --operation Write --operation Alter" in text
    assert f"--topic {topic}" in text


def test_a_dry_run_is_refused_where_the_command_would_be(secured: Secured, tmp_path: Path) -> None:
    """For a right of whoever asks, or of Kordon's; who may not see the cluster is told of all but bytes."""

    def says(user: str, *command: str) -> Result:
        file = tmp_path / user
        file.write_text(USERS[user])
        flags = ("--username", user, "--password-file", str(file), "--sasl-mechanism", "PLAIN", "--dry-run")
        to = ("--bootstrap", secured.kordon.bootstrap)
        return CliRunner().invoke(main, ["topics", *command, *to, *flags], catch_exceptions=False)

    grow = ("grow", TOPIC, "6")
    result = says("alice", *grow)
    assert (result.exit_code, "Not known: bytes: " in result.stdout) == (0, True), result.output
    assert "you lack DescribeConfigs on guarded-orders: give it by" in says("bob", *grow).stderr
    sees = [Allowed("bob", AclOperation[each], TOPIC) for each in ("DESCRIBE", "DESCRIBE_CONFIGS")]
    with secured.allowed(*sees):
        for command, right in ((grow, "Alter"), (("unmanage", TOPIC), "AlterConfigs")):
            result = says("bob", *command)
            assert result.exit_code == 1
            assert f"It would be refused now: TOPIC_AUTHORIZATION_FAILED; you lack {right} on" in result.stderr
    topic = "planned"
    secured.operator.create_topics([NewTopic(topic, 3, 1)])[topic].result(60)
    wait_told_of(secured.operator, topic)
    result = says("admin", "manage", topic, "--virtual", "12")
    assert (result.exit_code, "Kordon (User:kordon) lacks Describe, Read" in result.stderr) == (1, True), result.output


def test_a_growth_that_brokers_refuse_is_given_up_with_their_error(secured: Secured) -> None:
    """Nothing is left under way that would stand in the way of the next attempt (ONE-CHANGE)."""
    topic, alter = "fixed", Allowed("kordon", AclOperation.ALTER, "fixed")
    others = ("READ", "WRITE", "DESCRIBE", "DELETE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")
    secured.allow(alter, *(Allowed("kordon", AclOperation[each], topic) for each in others))
    admin = create_managed(secured.kordon.bootstrap, topic, login("admin"))
    secured.revoke(alter)
    with pytest.raises(KafkaException) as refused:
        resize(admin, topic, 6).result(60)
    assert refused.value.args[0].code() == TOPIC_AUTHORIZATION_FAILED
    assert "growing fixed to 6 partitions" in str(refused.value)
    secured.allow(alter)
    resize(admin, topic, 6).result(60)


@pytest.mark.parametrize("by_id", [False, True], ids=["by name", "by id"])
def test_who_may_not_delete_a_topic_does_not_have_it_let_go_either(secured: Secured, *, by_id: bool) -> None:
    """The broker refuses, so the topic stays managed: its layout must not go before the topic has."""
    port = secured.kordon.bootstrap
    with logged_in(port, "alice") as alice, logged_in(port, "bob") as bob:
        row = {"name": None, "topic_id": topic_id(alice, TOPIC)} if by_id else {"name": TOPIC}
        (result,) = bob.ask(apis.DELETE_TOPICS, 6, {"topics": [row], "timeout_ms": 5000}).responses
        assert result.error_code == TOPIC_AUTHORIZATION_FAILED
        (seen,) = alice.ask(apis.METADATA, 12, {"topics": [{"name": TOPIC}]}).topics
        assert len(seen.partitions) == VIRTUAL_PARTITIONS


def test_who_may_not_create_a_topic_cannot_have_it_managed_by_creating_it(secured: Secured) -> None:
    """What the broker refuses to create is not taken over in its stead."""
    with logged_in(secured.kordon.bootstrap, "bob") as bob:
        row = {
            "name": ORDINARY,
            "num_partitions": 3,
            "replication_factor": 1,
            "assignments": [],
            "configs": [{"name": "kordon.virtual.partitions", "value": "12"}],
        }
        answer = bob.ask(apis.CREATE_TOPICS, 7, {"topics": [row], "timeout_ms": 5000, "validate_only": False})
        assert [each.error_code for each in answer.topics] == [TOPIC_AUTHORIZATION_FAILED]


def test_quotas_of_users_hold_and_a_right_that_kordon_lacks_for_them_is_told(secured: Secured) -> None:
    """Users are those as whom clients have logged in; without the right nobody is held to anything (CLIENT-QUOTA)."""
    kordon, bootstrap = secured.kordon, secured.cluster.bootstrap("PLAINTEXT")
    wait_until("it is told that quotas are refused", lambda: kordon.metric("kordon_client_quotas_refused") == 1)
    assert "--operation DescribeConfigs" in kordon.events("client_quotas_refused")[-1]["cure"]
    set_quotas(bootstrap, {"user": "alice"}, {"producer_byte_rate": 10_000.0})
    described = Allowed("kordon", AclOperation.DESCRIBE_CONFIGS, "kafka-cluster", ResourceType.BROKER)
    told: dict[str, int] = {}
    with secured.allowed(described):
        wait_until("quotas are known", lambda: kordon.metric("kordon_client_quotas", kind="producer_byte_rate") == 1)
        for user in ("alice", "admin"):
            with logged_in(kordon.bootstrap, user) as connection:
                told[user] = write_as("any", connection, TOPIC, 200_000)
    assert 8_000 < told["alice"] <= 11_000
    assert told["admin"] == 0
    assert kordon.metric("kordon_client_quota_unknown_users_total") == 0
    set_quotas(bootstrap, {"user": "alice"}, {"producer_byte_rate": None})
