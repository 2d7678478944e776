"""Who may not know of a managed topic learns nothing of it: Kordon's reaction is the broker's, api key by api key.

The same request is sent to the broker and through Kordon, and error codes are compared, or that the connection ends.
The broker itself has `orders`, which is managed; what else the requests name does not exist.
"""

# pyright: reportPrivateImportUsage=false
from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from itertools import count
from typing import Final, NamedTuple
from uuid import UUID

import pytest
from confluent_kafka.admin import AclOperation, ResourcePatternType, ResourceType

from kordon.codecs import apis
from kordon.codecs.dialect import is_private
from kordon.codecs.headers import build_request_header, parse_response_header
from kordon.codecs.messages import REQUESTS, response
from kordon.proxy.core import verdicts
from kordon.testing.dialect.connection import DialectConnection
from kordon.testing.jars import kafka_version
from kordon.testing.managed_clients import create_managed
from kordon.testing.messages.every_request import NO_ID, About, errors_in
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.rights import LISTENER, Allowed, Secured, log_in, login

pytestmark = pytest.mark.broker
ORDERS, MISSING = "hostile-orders", "hostile-missing"
MISSING_ID = UUID(int=77)
NOWHERE: Final = 999
"""A partition that no topic has."""
CLOSED: Final = "the connection ends"
_ENDS = (OSError, EOFError)
_BEFORE_A_LOG_IN = {apis.API_VERSIONS, apis.SASL_HANDSHAKE, apis.SASL_AUTHENTICATE}
_READ = [
    each.key
    for each in verdicts.APIS
    if each.key in REQUESTS and each.key not in _BEFORE_A_LOG_IN and not is_private(each.key)
]
"""What Kordon has tables of: it cannot answer anything else."""
INVALID_REQUEST, INVALID_TXN_STATE, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_ID = 42, 48, 29, 100
_GROUP, _PREFIXED = ResourceType.GROUP, ResourcePatternType.PREFIXED
_numbers = count()


@pytest.fixture(scope="module")
def secured(strict_cluster: Secured) -> Secured:
    """A managed topic of which alice may know and read, and mallory, who may be in groups and nothing else."""
    found = strict_cluster
    found.allow(Allowed("kordon", AclOperation.ALL, ORDERS))
    found.allow(*(Allowed("alice", AclOperation.READ, name) for name in (ORDERS, MISSING)))
    found.allow(*(Allowed(user, AclOperation.READ, "hostile-", _GROUP, _PREFIXED) for user in ("alice", "mallory")))
    create_managed(found.kordon.bootstrap, ORDERS, login("admin"))
    return found


class Known(NamedTuple):
    """What is known of the broker and of the managed topic."""

    real_id: UUID
    """Of the topic, as the broker knows it."""
    face_id: UUID
    """As clients do."""
    spoken: Mapping[int, range]
    """The versions that the broker speaks, by api key."""


@pytest.fixture(scope="module")
def known(secured: Secured) -> Known:
    direct, through = secured.cluster.bootstrap(LISTENER), secured.kordon.bootstrap
    with PlainConnection(direct) as nobody:
        offered = nobody.ask(apis.API_VERSIONS, 0, {}).api_keys
    spoken = {row.api_key: range(row.min_version, row.max_version + 1) for row in offered}
    return Known(topic_id(direct), topic_id(through), spoken)


def topic_id(bootstrap: str) -> UUID:
    """Returns the id of the managed topic as it is known there."""
    with log_in(PlainConnection(bootstrap), "alice") as alice:
        (row,) = alice.ask(apis.METADATA, 12, {"topics": [{"name": ORDERS}]}).topics
    return UUID(int=row.topic_id.int)


class Clients:
    """Connections of one user, which are opened again when they were closed.

    Args:
        bootstrap: "host:port" of the broker or of Kordon.
        user: None: nobody logs in.
        dialect: Whether they speak it.
    """

    def __init__(self, bootstrap: str, user: str | None, *, dialect: bool = False) -> None:
        self._bootstrap = bootstrap
        self._user = user
        self._kind = DialectConnection if dialect else PlainConnection
        self._open: PlainConnection | None = None

    def __enter__(self) -> Clients:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def reaction(self, key: int, version: int, body: bytes) -> object:
        """Sends a request; returns the errors in its answer, or that there is none."""
        if self._open is None:
            self._open = self._kind(self._bootstrap)
            if self._user is not None:
                log_in(self._open, self._user)
        try:
            answer = self._open.ask_frame(build_request_header(key, version, 5, "hostile") + body)
        except _ENDS:
            self._close()
            return CLOSED
        _, consumed = parse_response_header(key, version, answer)
        return sorted(errors_in(response(key).parse(version, answer[consumed:])))

    def _close(self) -> None:
        if self._open is not None:
            self._open.close()
        self._open = None


def body_of(key: int, version: int, topic: str, topic_id: UUID, partition: int) -> bytes:
    """Returns the body of a request about a topic, by a group of its own, so that requests do not meet there."""
    about = About(topic, topic_id, f"hostile-{next(_numbers)}", partition)
    return REQUESTS[key].build(version, about.fields(key, version))


def reactions(
    secured: Secured, user: str | None, key: int, known: Known, *, dialect: bool
) -> Iterator[tuple[tuple[int, str], object, object]]:
    """Yields for a version and what is named how the broker reacts, and how Kordon does."""
    spoken = [version for version in verdicts.API_BY_KEY[key].versions if version in known.spoken.get(key, ())]
    with ExitStack() as stack:
        direct = stack.enter_context(Clients(secured.cluster.bootstrap(LISTENER), user))
        through = stack.enter_context(Clients(secured.kordon.bootstrap, user, dialect=dialect))
        for version in sorted({*spoken[:1], *spoken[-1:]}):
            for what, topic, at_broker, at_kordon, partition in (
                ("managed", ORDERS, NO_ID, NO_ID, 0),
                ("managed, no such partition", ORDERS, NO_ID, NO_ID, NOWHERE),
                ("managed, by its id", ORDERS, known.real_id, known.face_id, 0),
                ("managed, by the broker's id", ORDERS, known.real_id, known.real_id, 0),
                ("missing", MISSING, NO_ID, NO_ID, 0),
                ("missing, by an id", MISSING, MISSING_ID, MISSING_ID, 0),
            ):
                expected = direct.reaction(key, version, body_of(key, version, topic, at_broker, partition))
                found = through.reaction(key, version, body_of(key, version, topic, at_kordon, partition))
                yield (version, what), expected, found


@pytest.mark.parametrize("dialect", [False, True], ids=["stock", "dialect"])
@pytest.mark.parametrize("key", _READ, ids=verdicts.api_name)
def test_who_has_not_logged_in_has_his_connection_ended(
    secured: Secured, known: Known, key: int, *, dialect: bool
) -> None:
    """As by a broker: nothing says which topics there are."""
    found = list(reactions(secured, None, key, known, dialect=dialect))
    assert [(each, CLOSED, CLOSED) for each, _, _ in found] == found
    version = verdicts.API_BY_KEY[key].versions[-1]
    with Clients(secured.kordon.bootstrap, None, dialect=dialect) as nobody:
        for topic_id in (NO_ID, MISSING_ID):
            own = About("__kordon.layouts", topic_id, "kordon").fields(key, version)
            assert nobody.reaction(key, version, REQUESTS[key].build(version, own)) == CLOSED


def is_meant(user: str, key: int, what: str, direct: object, found: object) -> bool:
    """Whether a difference is meant, and why."""
    if key == apis.METADATA and what == "managed, by the broker's id":
        return errors(found) == {UNKNOWN_TOPIC_ID}  # clients know the topic by its face's id, whoever they are
    if key == apis.SHARE_GROUP_HEARTBEAT and user == "alice" and what.startswith("managed"):
        return errors(direct) == set() and errors(found) == {INVALID_REQUEST}  # who may know is told why he may not
    if key == apis.PRODUCE and direct == CLOSED:
        return errors(found) == {
            TOPIC_AUTHORIZATION_FAILED
        }  # brokers announce versions that they do not speak (KIP-896)
    return False


def errors(reaction: object) -> set[int]:
    return {code for _, code in reaction} if isinstance(reaction, list) else {-1}


@pytest.mark.parametrize("key", [key for key in REQUESTS if is_private(key)], ids=verdicts.api_name)
def test_requests_of_kordons_own_are_answered_to_nobody_before_a_log_in(secured: Secured, key: int) -> None:
    """A broker that knew them would do the same."""
    for topic in (ORDERS, MISSING, "__kordon.layouts"):
        with Clients(secured.kordon.bootstrap, None, dialect=True) as nobody:
            assert nobody.reaction(key, 0, body_of(key, 0, topic, NO_ID, 0)) == CLOSED


@pytest.mark.parametrize(
    ("user", "dialect"),
    [("carol", False), ("mallory", False), ("alice", False), ("carol", True), ("mallory", True)],
    ids=["carol", "mallory", "alice", "carol by dialect", "mallory by dialect"],
)
@pytest.mark.parametrize("key", _READ, ids=verdicts.api_name)
def test_who_has_logged_in_gets_what_the_broker_says(
    secured: Secured, known: Known, key: int, user: str, *, dialect: bool
) -> None:
    """Carol may do nothing, mallory be in groups, alice read the topic: each gets the broker's own errors."""
    if (key, user) == (apis.DESCRIBE_SHARE_GROUP_OFFSETS, "alice"):
        pytest.skip("the broker itself does not always answer what it would have to read for this")
    found = list(reactions(secured, user, key, known, dialect=dialect))
    different = [
        (each, direct, through)
        for each, direct, through in found
        if direct != through and not is_meant(user, key, each[1], direct, through)
    ]
    assert different == []
    assert any(direct != CLOSED for _, direct, _ in found) or key not in known.spoken


@pytest.mark.parametrize(("user", "expected"), [(None, CLOSED), ("mallory", [(".error_code", 70)])])
def test_a_session_that_nobody_has_begun_is_the_brokers_to_refuse(
    secured: Secured, user: str | None, expected: object
) -> None:
    """Kordon ends sessions that may hold what is managed (TAKEOVER-WAITS), and does so in the broker's words."""
    fields = About(ORDERS, NO_ID, "").fields(apis.FETCH, 12) | {"session_id": 7, "session_epoch": 5}
    for bootstrap in (secured.cluster.bootstrap(LISTENER), secured.kordon.bootstrap):
        with Clients(bootstrap, user) as client:
            assert client.reaction(apis.FETCH, 12, REQUESTS[apis.FETCH].build(12, fields)) == expected


@pytest.mark.parametrize(("user", "expected"), [("mallory", {TOPIC_AUTHORIZATION_FAILED}), ("alice", {70})])
def test_a_session_tells_only_those_who_may_read_that_it_cannot_hold_a_topic(
    secured: Secured, user: str, expected: set[int]
) -> None:
    """All others get the broker's error for it, as for a topic that does not exist, and their session goes on."""
    first = About(MISSING, NO_ID, "").fields(apis.FETCH, 12) | {"session_epoch": 0}
    with log_in(PlainConnection(secured.kordon.bootstrap), user) as client:
        session_id = client.ask(apis.FETCH, 12, first).session_id
        for epoch, topic in enumerate((MISSING, ORDERS, MISSING), start=1):
            more = About(topic, NO_ID, "").fields(apis.FETCH, 12) | {"session_id": session_id, "session_epoch": epoch}
            answer = client.ask(apis.FETCH, 12, more)
            if topic == ORDERS:
                assert {code for _, code in errors_in(answer)} == expected
            elif user == "mallory":
                assert (answer.error_code, answer.session_id) == (0, session_id)


def test_an_operator_is_told_that_partitions_of_managed_topics_are_not_moved(secured: Secured) -> None:
    """The broker lets him, and does nothing of what it was asked in Kordon's way."""
    row = {"name": ORDERS, "partitions": [0]}
    with log_in(PlainConnection(secured.kordon.bootstrap), "admin") as admin:
        moved = admin.ask(apis.ALTER_REPLICA_LOG_DIRS, 2, {"dirs": [{"path": "/tmp", "topics": [row]}]})
    assert list(errors_in(moved)) == [(".results.partitions.error_code", INVALID_REQUEST)]


@pytest.mark.parametrize("key", [apis.SHARE_GROUP_HEARTBEAT, apis.STREAMS_GROUP_HEARTBEAT, apis.ADD_PARTITIONS_TO_TXN])
def test_who_may_know_is_told_why_he_is_refused(secured: Secured, known: Known, key: int) -> None:
    """By an answer that takes the place of the broker's, which has found nothing else against the request."""
    if key not in known.spoken:
        pytest.skip(f"Kafka {kafka_version()} has no {verdicts.api_name(key)}")
    version = min(3, known.spoken[key][-1])
    body = body_of(key, version, ORDERS, NO_ID, 0)
    with Clients(secured.kordon.bootstrap, "admin") as admin:
        assert errors(admin.reaction(key, version, body)) == {
            INVALID_TXN_STATE if key == apis.ADD_PARTITIONS_TO_TXN else INVALID_REQUEST
        }


def test_refused_requests_leave_no_line_of_those_who_may_not_know(secured: Secured, known: Known) -> None:
    """Only a refusal that stands is in the log."""
    before = secured.kordon.log().count('"group_refused"')
    with ExitStack() as stack:
        nobody, mallory = (stack.enter_context(Clients(secured.kordon.bootstrap, user)) for user in (None, "mallory"))
        for client in (nobody, mallory) * 10:
            client.reaction(apis.SHARE_GROUP_HEARTBEAT, 1, body_of(apis.SHARE_GROUP_HEARTBEAT, 1, ORDERS, NO_ID, 0))
    assert secured.kordon.log().count('"group_refused"') == before


def test_nothing_is_remembered_of_those_who_may_not_join(secured: Secured) -> None:
    """Sixty requests of two megabytes took 107 MB for ever, and nobody had logged in."""
    names = [f"{number:05}{'x' * 150}" for number in range(5_000)]
    fields = {"member_id": "m", "member_epoch": 0, "rebalance_timeout_ms": 1000, "subscribed_topic_names": names}
    with ExitStack() as stack:
        nobody, carol = (stack.enter_context(Clients(secured.kordon.bootstrap, user)) for user in (None, "carol"))
        for client in (nobody, carol) * 10:
            body = REQUESTS[apis.CONSUMER_GROUP_HEARTBEAT].build(0, {"group_id": f"hostile-{next(_numbers)}", **fields})
            assert client.reaction(apis.CONSUMER_GROUP_HEARTBEAT, 0, body) != []
    assert secured.kordon.metric("kordon_subscriptions_bytes") == 0
