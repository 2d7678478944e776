"""What a client may do is asked on its own connection, believed for a second at most, and never guessed."""

import asyncio
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kordon.codecs import apis
from kordon.codecs.decision import Kind
from kordon.codecs.messages import request, response
from kordon.proxy.access.acl_mirror import Acl, wanted_of_face
from kordon.proxy.access.own_rights import Missing
from kordon.proxy.core import verdicts
from kordon.proxy.core.interception import Question, Serve
from kordon.proxy.decisions import journal
from kordon.proxy.handlers.alter_configs import AlterConfigs
from kordon.proxy.handlers.api_handler import ApiHandler, HeldRequest, ServedRequest, TranslatedApi
from kordon.proxy.handlers.consumer_group_position import ConsumerGroupPosition
from kordon.proxy.handlers.create_partitions import CreatePartitions
from kordon.proxy.handlers.create_topics import CreateTopics
from kordon.proxy.handlers.delete_acls import DeleteAcls
from kordon.proxy.handlers.delete_records import DeleteRecords
from kordon.proxy.handlers.delete_topics import DeleteTopics
from kordon.proxy.handlers.describe_acls import DescribeAcls
from kordon.proxy.handlers.fetch import Fetch
from kordon.proxy.handlers.guard import Guard
from kordon.proxy.handlers.incremental_alter_configs import IncrementalAlterConfigs
from kordon.proxy.handlers.list_offsets import ListOffsets
from kordon.proxy.handlers.offset_for_leader_epoch import OffsetForLeaderEpoch
from kordon.proxy.handlers.partition_leader_epochs import PartitionLeaderEpochs
from kordon.proxy.handlers.produce import Produce, WalkedProduce
from kordon.proxy.handlers.rights import Rights
from kordon.proxy.handlers.topic_rows import ServedApi, ServedTopics
from kordon.proxy.handlers.topic_wishes import WishedApi
from kordon.proxy.kafka.operations import Operation
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.testing.handled import guard_of
from kordon.testing.known import known
from kordon.testing.managed_writes import a_batch
from kordon.testing.messages.as_read import as_read
from kordon.testing.noted import Noted
from kordon.testing.waiting import turns

NONE, UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED = 0, 3, 29
READ, WRITE, ALL, DENY, ALLOW = Operation.READ, Operation.WRITE, 2, 2, 3
DESCRIBE, DESCRIBE_CONFIGS = Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS
LITERAL, PREFIXED = 3, 4
FACE_ID = UUID(int=2)
NOTHING: Any = None
ACLS: dict[int, TranslatedApi[Any, Any]] = {apis.DESCRIBE_ACLS: DescribeAcls(), apis.DELETE_ACLS: DeleteAcls()}


class Client:
    """A client whose rights are asked about; `now` is the time."""

    def __init__(self, max_age_seconds: float = 1.0) -> None:
        self.now = 0.0
        self.rights = Rights(max_age_seconds, lambda: self.now)

    def asks(self, *names: str) -> tuple[Question | None, asyncio.Future[None] | None]:
        """Comes with a request about topics."""
        return self.rights.ask(names)

    def is_told(self, question: Question | None, *operations: Operation, code: int = NONE) -> None:
        """Hears the broker's answer to a question: the same for all topics that it names."""
        assert question is not None
        asked = request(apis.METADATA).parse(question.route.version, question.body)
        assert asked.include_topic_authorized_operations
        assert not asked.allow_auto_topic_creation
        bits = sum(1 << each for each in operations)
        rows = [{"name": row.name, "error_code": code, "topic_authorized_operations": bits} for row in asked.topics]
        question.told(as_read(response(apis.METADATA), question.route.version, {"topics": rows}))


async def test_the_first_request_waits_until_rights_are_known() -> None:
    """Nothing is served on trust."""
    client = Client()
    question, known = client.asks("orders")
    assert known is not None
    assert not known.done()
    client.is_told(question, WRITE)
    assert known.done()
    assert client.rights.of("orders", WRITE) == NONE
    assert client.rights.of("orders", READ) == TOPIC_AUTHORIZATION_FAILED


async def test_rights_are_believed_no_longer_than_configured() -> None:
    """Counted from the time of asking, so that an answer which took long does not make them hold longer."""
    client = Client()
    question, _ = client.asks("orders")
    client.now = 0.9
    client.is_told(question, WRITE)
    assert client.asks("orders")[1] is None
    client.now = 1.01
    _, known = client.asks("orders")
    assert known is not None


async def test_a_busy_client_is_asked_about_ahead_and_does_not_wait() -> None:
    """One question a second, while requests go on."""
    client, questions = Client(), 0
    for turn in range(100):
        client.now = turn / 10
        question, known = client.asks("orders")
        questions += question is not None
        assert turn == 0 or known is None
        if question is not None:
            client.is_told(question, WRITE)
    assert 10 <= questions <= 14


async def test_requests_do_not_overtake_one_that_waits() -> None:
    """Else a later write to the same topic would be in its partition before an earlier one."""
    client = Client()
    client.is_told(client.asks("orders")[0], WRITE)
    question, first = client.asks("orders", "others")
    assert first is not None
    assert client.asks("orders") == (None, first)
    client.is_told(question, WRITE)
    assert client.asks("orders") == (None, None)


async def test_what_was_revoked_is_refused_after_the_next_answer() -> None:
    """A later answer replaces an earlier one."""
    client = Client()
    client.is_told(client.asks("orders")[0], WRITE)
    client.now = 2.0
    client.is_told(client.asks("orders")[0])
    assert client.rights.of("orders", WRITE) == TOPIC_AUTHORIZATION_FAILED


async def test_a_topic_of_which_the_broker_says_nothing_is_not_served() -> None:
    """What the broker gives as a reason is the answer; without a word it is unknown."""
    client = Client()
    client.is_told(client.asks("orders")[0], WRITE, code=TOPIC_AUTHORIZATION_FAILED)
    assert client.rights.of("orders", WRITE) == TOPIC_AUTHORIZATION_FAILED
    assert client.rights.of("never asked", WRITE) == UNKNOWN_TOPIC_OR_PARTITION


async def test_with_no_time_at_all_each_request_is_asked_about() -> None:
    """ordering.rights_ms: 0 is as strict as a broker."""
    client = Client(0.0)
    for turn in range(3):
        client.now = float(turn)
        question, known = client.asks("orders")
        assert known is not None
        client.is_told(question, WRITE)


class Kept(ServedRequest):
    """What a handler would answer; keeps what it is asked for in the end."""

    def __init__(self, asked: ServedRequest, kept: list[ServedRequest]) -> None:
        self.asked = asked
        self.kept = kept
        self.right, self.rest, self.questions = asked.right, asked.rest, asked.questions

    def names(self) -> Iterable[str]:
        """Those of the request."""
        return self.asked.names()

    def refuse(self, codes: Mapping[str, int]) -> ServedRequest:
        """Keeps the refusal, too."""
        return Kept(self.asked.refuse(codes), self.kept)

    async def answer(self, part: Any) -> bytes:
        """Keeps the request."""
        self.kept.append(self.asked)
        return b""


class Serving(ApiHandler):
    """Decides as a handler does, or serves what it is given; keeps what it is to answer."""

    def __init__(self, api_key: int, asked: ServedRequest | None = None) -> None:
        self.key = api_key
        self.kept: list[ServedRequest] = []
        self._asked = asked

    def decide(self, held: HeldRequest) -> ServedRequest:
        """Serves the request."""
        asked = self._asked or SERVED[self.key].decide(held)
        assert isinstance(asked, ServedRequest)
        return Kept(asked, self.kept)


class Nameless(ServedRequest):
    """A request of no topic, which Kordon answers without the broker."""

    def __init__(self, rest: bytes | None = None) -> None:
        self.rest = rest

    async def answer(self, part: Any) -> bytes:
        """Is kept."""
        raise NotImplementedError


def managed(*names: str) -> ManagedTopics:
    """Manages topics; the face of the first one has FACE_ID."""
    topics = ManagedTopics()
    for number, name in enumerate(names):
        topics.add(ManagedTopic(Layout.created(name, UUID(int=100 + number), 2, 8), UUID(int=FACE_ID.int + number)))
    return topics


SERVED: dict[int, ServedApi[Any, Any]] = {
    each.key: each
    for each in (
        Produce(managed("denied", "allowed"), NOTHING),
        Fetch(NOTHING),
        ListOffsets(NOTHING, NOTHING),
        OffsetForLeaderEpoch(NOTHING, NOTHING),
        DeleteRecords(NOTHING, NOTHING, NOTHING, NOTHING),
        PartitionLeaderEpochs(NOTHING, NOTHING),
    )
}
WISHED: list[type[WishedApi[Any, Any]]] = [
    CreateTopics,
    DeleteTopics,
    CreatePartitions,
    AlterConfigs,
    IncrementalAlterConfigs,
]
RIGHTS: dict[int, Any] = {
    **{each.key: each.right for each in SERVED.values()},
    **{each.key: each.right for each in WISHED},
    ConsumerGroupPosition.key: ConsumerGroupPosition.right,
}
REQUESTS: dict[int, dict[str, Any]] = {
    apis.FETCH: {"partition": 1},
    apis.LIST_OFFSETS: {"partition_index": 1, "timestamp": -1},
    apis.OFFSET_FOR_LEADER_EPOCH: {"partition": 1, "leader_epoch": 0},
    apis.DELETE_RECORDS: {"partition_index": 1, "offset": 1},
}


@pytest.mark.parametrize(
    ("api_key", "version"), [(key, version) for key in REQUESTS for version in verdicts.API_BY_KEY[key].versions]
)
async def test_one_topic_is_refused_and_the_other_served(api_key: int, version: int) -> None:
    """As brokers do: an error for each partition of the topic that the client may not use so, in every version."""
    rows = SERVED[api_key].rows
    by_id = api_key == apis.FETCH and version >= 13
    asked = [
        {rows.name: name, "topic_id": topic_id, "partitions": [REQUESTS[api_key]]}
        for name, topic_id in (("denied", FACE_ID), ("allowed", UUID(int=FACE_ID.int + 1)))
    ]
    guard, kept, client = guarded(api_key)
    decision = guard.decide(route(api_key, version), body_of(api_key, version, {rows.asked: asked}))
    assert isinstance(decision, Serve)
    (question,) = decision.questions
    tell(client, question, {"allowed": sum(1 << each for each in Operation), "denied": 1 << DESCRIBE_CONFIGS})
    await decision.answer(None)
    (served,) = kept
    assert isinstance(served, ServedTopics)
    (left,) = served.rows
    assert left["topic_id" if by_id else rows.name] == (UUID(int=FACE_ID.int + 1) if by_id else "allowed")
    answer = as_read(response(api_key), version, {rows.answered: served.refused})
    (row,) = answer[rows.answered]
    assert row["topic_id" if by_id else rows.name] == (FACE_ID if by_id else "denied")
    (partition,) = row.partitions
    assert partition.get("partition_index", partition.get("partition")) == 1
    assert partition.error_code == TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("api_key", "right"),
    [
        (apis.PRODUCE, Operation.WRITE),
        (apis.FETCH, Operation.READ),
        (apis.LIST_OFFSETS, Operation.DESCRIBE),
        (apis.OFFSET_FOR_LEADER_EPOCH, Operation.DESCRIBE),
        (apis.DELETE_RECORDS, Operation.DELETE),
        (apis.CREATE_PARTITIONS, Operation.ALTER),
        (apis.INCREMENTAL_ALTER, Operation.ALTER_CONFIGS),
    ],
)
async def test_the_right_that_brokers_ask_for_is_enough_and_no_other_is(api_key: int, right: Operation) -> None:
    """As Kafka documents it (Authorizer; KafkaApis)."""
    client = Client()
    client.is_told(client.asks("orders")[0], *(each for each in Operation if each is not right))
    assert client.rights.of("orders", RIGHTS[api_key]) == TOPIC_AUTHORIZATION_FAILED
    client.now = 2.0
    client.is_told(client.asks("orders")[0], right)
    assert client.rights.of("orders", RIGHTS[api_key]) == NONE
    client.now = 4.0
    client.is_told(client.asks("orders")[0], *Operation, code=TOPIC_AUTHORIZATION_FAILED)
    assert client.rights.of("orders", RIGHTS[api_key]) == TOPIC_AUTHORIZATION_FAILED


async def test_a_write_that_is_refused_never_reaches_the_lanes() -> None:
    """Only the other topic's entry is left."""
    rows = [
        {"name": name, "partition_data": [{"index": 1, "records": a_batch("one")}]} for name in ("denied", "allowed")
    ]
    body = request(apis.PRODUCE).build(9, {"acks": -1, "timeout_ms": 1000, "topic_data": rows})
    guard, kept, client = guarded(apis.PRODUCE)
    decision = guard.decide(route(apis.PRODUCE, 9), memoryview(bytearray(body)))
    assert isinstance(decision, Serve)
    (question,) = decision.questions
    tell(client, question, {"allowed": 1 << WRITE, "denied": 1 << READ})
    await decision.answer(None)
    (served,) = kept
    assert isinstance(served, WalkedProduce)
    assert [topic.name for topic in served.request.topic_data] == ["allowed"]
    ((name, _, outcomes),) = served.refused
    assert (name, [outcome.error_code for outcome in outcomes]) == ("denied", [TOPIC_AUTHORIZATION_FAILED])


async def test_a_request_is_served_when_rights_are_known_and_a_denial_is_on_record() -> None:
    """Not a moment before; a denial says which topic, and why."""
    noted = Noted()
    rows = [{"topic": "denied", "partitions": [REQUESTS[apis.FETCH]]}]
    guard, kept, client = guarded(apis.FETCH, noted=noted.journal)
    decision = guard.decide(route(apis.FETCH, 12), body_of(apis.FETCH, 12, {"topics": rows}))
    assert isinstance(decision, Serve)
    (question,) = decision.questions
    serving = asyncio.ensure_future(decision.answer(None))
    await turns()
    assert kept == []
    tell(client, question, {"denied": 1 << DESCRIBE})
    await serving
    assert [list(each.names()) for each in kept] == [[]]
    noted.journal.end_runs()
    (refused,) = noted.of(Kind.REFUSE)
    assert (refused.topic, refused.reason, refused.rule) == ("denied", "TOPIC_AUTHORIZATION_FAILED", "RIGHTS-FIRST")


async def test_where_all_clients_are_equal_nothing_is_asked() -> None:
    """Without an authorizer a request goes its way as it came."""
    fields = {"topics": [{"topic": "allowed", "partitions": [{"partition": 0}]}]}
    guard, kept, _ = guarded(apis.FETCH, needed=False)
    decision = guard.decide(route(apis.FETCH, 12), body_of(apis.FETCH, 12, fields))
    assert isinstance(decision, Serve)
    assert decision.questions == ()
    await decision.answer(None)
    assert [list(each.names()) for each in kept] == [["allowed"]]


@pytest.mark.parametrize("key", [each.key for each in verdicts.APIS if each.versions], ids=verdicts.api_name)
async def test_nothing_is_answered_before_the_broker_has_answered_the_client(key: int) -> None:
    """Whatever Kordon means to say by itself, of no topic: a broker ends the connection of who has not logged in."""
    if key == apis.API_VERSIONS:
        return  # brokers answer it to all
    nameless = Nameless()
    guard, kept, client = guarded(key, nameless)
    way = known(verdicts.route(key, verdicts.API_BY_KEY[key].versions[-1]) or verdicts.private_route(key, 0))
    decision = guard.decide(way, memoryview(b""))
    assert isinstance(decision, Serve)
    (question,) = decision.questions
    serving = asyncio.ensure_future(decision.answer(None))
    await asyncio.sleep(0)
    assert not serving.done()
    client.is_told(question)
    await serving
    assert kept == [nameless]
    again = guard.decide(way, memoryview(b""))
    assert isinstance(again, Serve)
    assert not again.questions  # for a while


def test_what_the_broker_is_asked_anyway_proves_as_much() -> None:
    """Kordon's part of an answer waits for the broker's."""
    guard, _, _ = guarded(apis.CREATE_TOPICS, Nameless(b"rest"))
    decision = guard.decide(route(apis.CREATE_TOPICS, 7), memoryview(b""))
    assert isinstance(decision, Serve)
    assert (decision.rest, decision.questions) == (b"rest", ())


def guarded(
    api_key: int,
    asked: ServedRequest | None = None,
    *,
    needed: bool = True,
    noted: journal.Journal = journal.NO_JOURNAL,
) -> tuple[Guard, list[ServedRequest], Client]:
    """A guard in front of a handler, what that is to answer in the end, and the client."""
    client, handler = Client(), Serving(api_key, asked)
    rights = client.rights if needed else None
    return guard_of(managed("denied", "allowed"), [handler], rights=rights, journal=noted), handler.kept, client


def body_of(api_key: int, version: int, fields: dict[str, Any]) -> memoryview:
    return memoryview(bytearray(request(api_key).build(version, fields)))


def route(api_key: int, version: int) -> verdicts.Route:
    return known(verdicts.route(api_key, version))


def tell(client: Client, question: Question, operations: dict[str, int]) -> None:
    """Answers for each topic by itself."""
    rows = [
        SimpleNamespace(name=name, error_code=0, topic_authorized_operations=bits) for name, bits in operations.items()
    ]
    question.told(SimpleNamespace(topics=rows))


ALICE = Acl("User:alice", "*", READ, ALLOW)


@pytest.mark.parametrize(
    ("pattern", "name", "acl", "wanted"),
    [
        (LITERAL, "orders", ALICE, {ALICE}),
        (PREFIXED, "ord", ALICE, {ALICE}),
        (LITERAL, "ord", ALICE, set[Acl]()),
        (PREFIXED, "orders-", ALICE, set[Acl]()),
        (LITERAL, "*", ALICE, set[Acl]()),
        (LITERAL, "orders", ALICE._replace(operation=ALL), {ALICE, ALICE._replace(operation=DESCRIBE)}),
        (LITERAL, "orders", ALICE._replace(operation=WRITE), {ALICE._replace(operation=DESCRIBE)}),
        (LITERAL, "orders", ALICE._replace(operation=5), {ALICE._replace(operation=DESCRIBE_CONFIGS)}),
        (LITERAL, "orders", ALICE._replace(permission=DENY), {ALICE._replace(permission=DENY)}),
        (LITERAL, "orders", ALICE._replace(operation=ALL, permission=DENY), {Acl("User:alice", "*", ALL, DENY)}),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_face_gets_what_its_topic_allows_of_reading_and_no_more(
    pattern: int, name: str, acl: Acl, wanted: set[Acl]
) -> None:
    """Literal and prefixed patterns as literal ones; writing, changing and deleting faces is allowed to nobody."""
    assert wanted_of_face("orders", {(pattern, name): frozenset({acl})}) == wanted


def test_what_is_missing_is_said_with_the_command_that_gives_it() -> None:
    """An operator can copy it."""
    text = str(Missing([Operation.READ, Operation.DESCRIBE_CONFIGS], "--topic orders", "User:kordon"))
    assert "--add --allow-principal User:kordon --operation Read --operation DescribeConfigs --topic orders" in text


def test_each_request_that_kordon_answers_by_itself_has_a_right_that_it_needs() -> None:
    """Only what the broker does with the client's own rights, before Kordon goes on, has none."""
    assert {key for key, right in RIGHTS.items() if right is None} == {apis.CREATE_TOPICS, apis.DELETE_TOPICS}


@pytest.mark.parametrize("version", verdicts.API_BY_KEY[apis.DESCRIBE_ACLS].versions)
def test_clients_see_the_acls_of_topics_and_not_those_of_faces(version: int) -> None:
    """A tool that deletes what is not in its file would have them deleted again and again."""
    names = ("orders", "__kordon.orders", "__kordon.not-managed")
    acl = {"principal": "User:alice", "host": "*", "operation": READ, "permission_type": ALLOW}
    found = [{"resource_type": 2, "resource_name": name, "pattern_type": LITERAL, **acl} for name in names]
    found.append({**found[1], "resource_type": 3})
    listed = {"resources": [{**row, "acls": [acl]} for row in found]}
    deleted = {"filter_results": [{"matching_acls": found}]}
    for key, fields in ((apis.DESCRIBE_ACLS, listed), (apis.DELETE_ACLS, deleted)):
        table = response(key)
        answer = as_read(table, version, fields)
        ACLS[key].response(version, answer, managed("orders"), None)
        answer = as_read(table, version, answer)
        rows = answer.get("resources") or answer.filter_results[0].matching_acls
        assert [(row.resource_type, row.resource_name) for row in rows] == [
            (2, "orders"),
            (2, "__kordon.not-managed"),
            (3, "__kordon.orders"),
        ]
