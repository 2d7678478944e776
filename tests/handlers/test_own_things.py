"""Nothing that names something of Kordon's own reaches a broker, and no answer shows it: for every field of every api.

A new version of Kafka cannot open this again: its fields have to be in the tables (`tests/codecs`), and what names
something is found by walking the tables.
"""

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.codecs.errors import WireError
from kordon.codecs.headers import build_request_header
from kordon.codecs.messages import REQUESTS, RESPONSES
from kordon.codecs.naming import NamingField, places
from kordon.codecs.primitives import Entity
from kordon.codecs.row import Row
from kordon.codecs.schema import Message
from kordon.proxy.config.config import Limits
from kordon.proxy.core import verdicts
from kordon.proxy.core.addresses import Advertised
from kordon.proxy.core.connection import Connection
from kordon.proxy.core.events import SendUpstream
from kordon.proxy.core.interception import Decision, NothingManaged, Serve, Translate
from kordon.proxy.core.tally import Tally
from kordon.proxy.core.verdicts import API_BY_KEY, Route
from kordon.proxy.handlers.closed import TELL_UNASKED, Closed
from kordon.proxy.own_topics.own_things import ABOUT_RULES, OwnThings
from kordon.testing.known import known
from kordon.testing.messages.values import Values

TOPIC, TOPIC_ID, GROUP, WRITER = (
    "__kordon.layouts",
    uuid.UUID(int=0x6B6F72646F6E << 80),
    "proxies-of-a",
    "kordon.layouts",
)
OWN: dict[Entity, Any] = {
    Entity.TOPIC_NAME: TOPIC,
    Entity.TOPIC_ID: TOPIC_ID,
    Entity.GROUP_ID: GROUP,
    Entity.TRANSACTIONAL_ID: WRITER,
    Entity.RESOURCE_NAME: TOPIC,
    Entity.COORDINATOR_KEY: GROUP,
}
OWN_BYTES = (b"__kordon.", TOPIC_ID.bytes)
ROWS = 1000
ANSWER_FOR_WHAT_IS_ASKED = {
    "Produce",
    "Fetch",
    "ListOffsets",
    "OffsetCommit",
    "FindCoordinator",
    "DescribeGroups",
    "CreateTopics",
    "DeleteTopics",
    "DeleteRecords",
    "OffsetForLeaderEpoch",
    "AddPartitionsToTxn",
    "TxnOffsetCommit",
    "DescribeConfigs",
    "AlterConfigs",
    "AlterReplicaLogDirs",
    "CreatePartitions",
    "DeleteGroups",
    "IncrementalAlterConfigs",
    "AlterPartitionReassignments",
    "OffsetDelete",
    "DescribeQuorum",
    "DescribeProducers",
    "ShareFetch",
    "ShareAcknowledge",
    "AlterShareGroupOffsets",
    "DeleteShareGroupOffsets",
    "ConsumerGroupPosition",
    "PartitionLeaderEpochsForPartitions",
}
"""Their answers name nothing that their request does not; all others are looked through."""


class Recording(NothingManaged):
    """Wants all, and lets all pass; keeps what it would have passed."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def wants(self, route: Route) -> bool:
        return True

    def decide(self, route: Route, body: memoryview) -> Decision:
        self.bodies.append(bytes(body))
        return None


@pytest.fixture
def own() -> OwnThings:
    found = OwnThings(GROUP)
    found.learn({TOPIC: TOPIC_ID})
    return found


def naming(
    message: Message[Row], found: tuple[NamingField, ...], path: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Yields the paths of all fields that name something."""
    for place in found:
        if place.entity is not None:
            yield (*path, place.field)
        yield from naming(message, place.inner, (*path, place.field))


def put(value: Any, found: tuple[NamingField, ...], path: tuple[str, ...]) -> bool:
    """Names something of Kordon's own at a path of a drawn message; False: this version has no such field."""
    place = next(each for each in found if each.field == path[0])
    if place.field not in value or value[place.field] in (None, []):
        return False
    if place.entity is None:
        return put(value[place.field][0] if place.is_list else value[place.field], place.inner, path[1:])
    if place.entity is Entity.RESOURCE_NAME and "resource_type" not in value:
        return False  # ListConfigResources 0 tells of clients' metrics only
    value.update({name: kind for name, kind in (("resource_type", 2), ("key_type", 0)) if name in value})
    value[place.field] = [OWN[place.entity]] if place.is_list else OWN[place.entity]
    return True


def drawn(message: Message[Row], version: int, path: tuple[str, ...]) -> dict[str, Any] | None:
    """Draws a message that names something of Kordon's own at a path; None: this version has no such field."""
    for seed in range(200):
        value = Values(Random(seed), longest=2).message(message, version)
        if put(value, places(message), path):
            return value
    return None


CASES = [
    pytest.param(message, path, id=f"{API_BY_KEY[key].name}-{'.'.join(path)}")
    for key, message in REQUESTS.items()
    for path in naming(message, places(message))
    if key not in ABOUT_RULES
]


@pytest.mark.parametrize(("message", "path"), CASES)
async def test_no_field_of_any_request_names_it_to_a_broker(
    message: Message[Row], path: tuple[str, ...], own: OwnThings
) -> None:
    """Through each version that has the field: the request is refused, or says a stand-in."""
    tried = 0
    for version in message.versions:
        value = drawn(message, version, path)
        if value is None:
            continue
        route = Route(API_BY_KEY[message.api_key], version, API_BY_KEY[message.api_key].verdict, 0)
        passed = Recording()
        closed = Closed(passed, own, ROWS)
        body = message.build(version, value)
        assert any(each in body for each in closed.asked_for(route)), "it would stream through unread"
        decision = closed.decide(route, memoryview(bytearray(body)))
        tried += 1
        if isinstance(decision, Serve):
            assert decision.rest is None
            assert passed.bodies == []
            assert message.api_key in RESPONSES
            continue
        assert isinstance(decision, Translate)
        for sent in (decision.body or b"", *passed.bodies):
            assert not own.hide(message.api_key, message.parse(version, sent))
    assert tried or message.api_key not in API_BY_KEY, "no version has it"


@pytest.mark.parametrize("api_key", sorted(set(RESPONSES) - ABOUT_RULES), ids=lambda key: API_BY_KEY[key].name)
def test_every_api_whose_answers_may_name_it_is_looked_through(api_key: int, own: OwnThings) -> None:
    """An api is in one list or in the other; what is looked through shows nothing, in whatever field."""
    message = RESPONSES[api_key]
    paths = list(naming(message, places(message)))
    name = API_BY_KEY[api_key].name
    assert (api_key in TELL_UNASKED) + (name in ANSWER_FOR_WHAT_IS_ASKED) == (1 if paths else 0)
    for path in paths if api_key in TELL_UNASKED else ():
        for version in message.versions:
            if (value := drawn(message, version, path)) is None:
                continue
            own.show(api_key, value)
            with suppress(WireError):
                built = message.build(version, value)
                assert not any(each in built for each in OWN_BYTES), (version, path)
                assert GROUP.encode() not in built, (version, path)


DESCRIBING = {
    apis.DESCRIBE_GROUPS: "groups",
    apis.CONSUMER_GROUP_DESCRIBE: "groups",
    apis.SHARE_GROUP_DESCRIBE: "groups",
    apis.STREAMS_GROUP_DESCRIBE: "groups",
    apis.DELETE_GROUPS: "results",
}
"""Whose answers have a message of the broker's for each group, with the name of its row."""


@pytest.mark.parametrize(("api_key", "rows"), DESCRIBING.items(), ids=[verdicts.api_name(key) for key in DESCRIBING])
def test_no_message_tells_of_a_stand_in(api_key: int, rows: str, own: OwnThings) -> None:
    """Brokers say of what name they have not found a group; of one that they refuse they say nothing."""
    asked = REQUESTS[api_key]
    named = next(path[-1] for path in naming(asked, places(asked)))
    value: dict[str, Any] = {named: [GROUP]}
    assert own.hide(api_key, value)
    (stand_in,) = value[named]
    answer: dict[str, Any] = {
        rows: [{"group_id": stand_in, "error_code": 69, "error_message": f"Group {stand_in} not found."}]
    }
    own.show(api_key, answer)
    denied = {"group_id": GROUP, "error_code": Code.GROUP_AUTHORIZATION_FAILED, "error_message": None}
    assert answer == {rows: [denied]}


def test_a_node_of_streams_keeps_its_place_without_the_topic_that_it_writes_to(own: OwnThings) -> None:
    """Other nodes name it as the next one; that a topic is found while they run is what null says (KIP-1331)."""
    node: dict[str, Any] = {"name": "sink", "source_topics": [], "sink_topic": TOPIC}
    source: dict[str, Any] = {"name": "source", "source_topics": [TOPIC, "orders"], "sink_topic": None}
    described = {"subtopologies": [{"nodes": [node, source]}], "global_stores": [{"source": source, "processor": node}]}
    own.show(apis.STREAMS_GROUP_DESCRIBE, {"groups": [{"group_id": "g", "topology_description": described}]})
    assert (node["sink_topic"], source["source_topics"]) == (None, ["orders"])
    assert described == {
        "subtopologies": [{"nodes": [node, source]}],
        "global_stores": [{"source": source, "processor": node}],
    }


async def test_a_group_of_kordons_own_is_refused_once_the_broker_has_let_the_client_in(own: OwnThings) -> None:
    """Kordon speaks to nobody whose log-in the broker has not accepted."""
    closed = Closed(NothingManaged(), own, ROWS)
    route = known(verdicts.route(apis.HEARTBEAT, 4))
    value = {"group_id": GROUP, "generation_id": 3, "member_id": "alien"}
    decision = closed.decide(route, memoryview(bytearray(REQUESTS[apis.HEARTBEAT].build(4, value))))
    assert isinstance(decision, Serve)
    answer = asyncio.ensure_future(decision.answer(None))
    await asyncio.sleep(0)
    assert not answer.done()
    decision.questions[0].told(None)
    body = await answer
    assert isinstance(body, bytes)
    assert RESPONSES[apis.HEARTBEAT].parse(4, body).error_code == Code.GROUP_AUTHORIZATION_FAILED


def test_what_only_looks_like_it_streams_through(own: OwnThings) -> None:
    """Names that hold a part of it are nobody's business but the broker's."""
    closed = Closed(NothingManaged(), own, ROWS)
    route = known(verdicts.route(apis.DELETE_TOPICS, 5))
    names = ["my__kordon.layouts", "kordon.layouts", "__kordon"]
    body = REQUESTS[apis.DELETE_TOPICS].build(5, {"topic_names": names, "timeout_ms": 1})
    assert closed.decide(route, memoryview(bytearray(body))) is None


def frame_of(route: Route, fields: dict[str, Any]) -> bytes:
    """A request as it stands on the wire."""
    body = build_request_header(route.api.key, route.version, 7, "client") + REQUESTS[route.api.key].build(
        route.version, fields
    )
    return len(body).to_bytes(4, "big") + body


def passes(own: OwnThings, frames: bytes, step: int) -> bytes:
    """What goes to the broker of what a client sends, in chunks of so many bytes, while nothing is managed."""
    core = Connection(Limits(), Tally(), Advertised("kordon", 1, {}), 0.0, Closed(NothingManaged(), own, ROWS))
    core.requests.proven = True
    unread, sent = b"", b""
    for at in range(0, len(frames), step):
        chunk = memoryview(bytearray(unread + frames[at : at + step]))
        commands = core.receive_requests(chunk, 0.0)
        sent += (
            bytes(chunk)
            if commands is None
            else b"".join(bytes(piece) for each in commands if isinstance(each, SendUpstream) for piece in each.pieces)
        )
        unread = bytes(chunk[len(chunk) - core.requests.unread :]) if core.requests.unread else b""
        assert core.closed is None
    return sent


class Unasked(OwnThings):
    """Fails where a request is read."""

    def denial(self, api_key: int, value: Any) -> Code | None:
        raise AssertionError("it was read")


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("count", [1, 3])
def test_records_are_not_looked_through_where_all_is_wanted_either(version: int, count: int) -> None:
    """Names and ids are found in front of them, so that a write of a managed topic costs no search through its data."""
    own = Unasked(GROUP)
    own.learn({TOPIC: TOPIC_ID})
    route = Route(API_BY_KEY[apis.PRODUCE], version, API_BY_KEY[apis.PRODUCE].verdict, 0)
    records = [{"index": 0, "records": b"__kordon.layouts kordon.layouts" + TOPIC_ID.bytes}]
    topics = [{"name": f"o-{n}", "topic_id": uuid.UUID(int=n), "partition_data": records} for n in range(count)]
    body = REQUESTS[apis.PRODUCE].build(version, {"acks": -1, "timeout_ms": 1, "topic_data": topics})
    passed = Recording()
    assert Closed(passed, own, ROWS).decide(route, memoryview(bytearray(body))) is None
    assert passed.bodies == [body]


def produced(version: int, topic_id: uuid.UUID, name: str = "orders-of-all-of", acks: int = -1) -> bytes:
    """A Produce request to one topic, as it stands on the wire."""
    topic = {"name": name, "topic_id": topic_id, "partition_data": [{"index": 0, "records": b"r" * 100}]}
    route = Route(API_BY_KEY[apis.PRODUCE], version, API_BY_KEY[apis.PRODUCE].verdict, 0)
    return frame_of(route, {"acks": acks, "timeout_ms": 1, "topic_data": [topic]})


@pytest.mark.parametrize("version", [3, 9, 13])
@pytest.mark.parametrize("step", [60, 100_000])
def test_what_follows_on_many_like_it_is_found(own: OwnThings, version: int, step: int) -> None:
    """Requests that begin as the one before go their way at once; the next one is another, of the same length."""
    assert len("orders-of-all-of") == len(TOPIC)
    other = produced(version, uuid.UUID(int=5))
    theirs = produced(version, TOPIC_ID, TOPIC)
    sent = passes(own, other * 3 + theirs + other, step)
    assert sent[: 3 * len(other)] == other * 3
    assert sent[-len(other) :] == other
    assert not any(each in sent for each in OWN_BYTES)


def test_ids_that_become_known_are_found_behind_requests_like_it(own: OwnThings) -> None:
    """What was found of earlier requests holds for what was known then."""
    core = Connection(Limits(), Tally(), Advertised("kordon", 1, {}), 0.0, Closed(NothingManaged(), own, ROWS))
    core.requests.proven = True
    topic_id = uuid.UUID(int=0x6E6577 << 40)
    frame = produced(13, topic_id)
    for _ in range(2):
        assert core.receive_requests(memoryview(bytearray(frame)), 0.0) is None
    own.learn({TOPIC: topic_id})
    commands = known(core.receive_requests(memoryview(bytearray(frame)), 0.0))
    sent = b"".join(bytes(piece) for each in commands if isinstance(each, SendUpstream) for piece in each.pieces)
    assert sent
    assert topic_id.bytes not in sent


def test_a_request_like_the_last_that_wants_no_answer_waits_for_none(own: OwnThings) -> None:
    """Acks stand in front of the name, so such a request is not like it."""
    core = Connection(Limits(), Tally(), Advertised("kordon", 1, {}), 0.0, Closed(NothingManaged(), own, ROWS))
    for acks in (-1, -1, 0, 1):
        assert core.receive_requests(memoryview(bytearray(produced(12, TOPIC_ID, acks=acks))), 0.0) is None
    assert core.in_flight == 3


def test_a_request_that_ends_within_a_head_like_the_last_is_no_such_request(own: OwnThings) -> None:
    """Its size counts, whatever stands behind it."""
    core = Connection(Limits(), Tally(), Advertised("kordon", 1, {}), 0.0, Closed(NothingManaged(), own, ROWS))
    frame = produced(12, TOPIC_ID)
    assert core.receive_requests(memoryview(bytearray(frame)), 0.0) is None
    cut = (14).to_bytes(4, "big") + frame[4:]
    core.receive_requests(memoryview(bytearray(cut)), 0.0)
    assert core.closed is not None


@pytest.mark.parametrize("version", [3, 9, 13])
@pytest.mark.parametrize("step", [1, 7, 64, 100_000])
def test_records_may_hold_whatever_there_is(own: OwnThings, version: int, step: int) -> None:
    """Nobody looks into them: such requests pass as they came, in whatever pieces, with one topic or several."""
    records = b"__kordon.layouts kordon.layouts" + TOPIC_ID.bytes
    route = Route(API_BY_KEY[apis.PRODUCE], version, API_BY_KEY[apis.PRODUCE].verdict, 0)
    topics = [
        {
            "name": f"orders-{number}",
            "topic_id": uuid.UUID(int=number + 1),
            "partition_data": [{"index": index, "records": records * 40} for index in range(3)],
        }
        for number in range(3)
    ]
    frames = b"".join(
        frame_of(route, {"acks": acks, "timeout_ms": 1, "topic_data": topics[:count]})
        for count in (1, 3, 0)
        for acks in (-1, 0)
    )
    assert passes(own, frames, step) == frames


@pytest.mark.parametrize("version", [3, 9, 13])
@pytest.mark.parametrize("step", [1, 7, 64, 100_000])
@pytest.mark.parametrize("place", [0, 2])
def test_no_write_to_it_passes_in_whatever_pieces(own: OwnThings, version: int, step: int, place: int) -> None:
    """The broker is asked to write to something that does not exist, and to the others."""
    route = Route(API_BY_KEY[apis.PRODUCE], version, API_BY_KEY[apis.PRODUCE].verdict, 0)
    row = {"partition_data": [{"index": 0, "records": b"forged" * 40}]}
    topics = [{"name": f"orders-{number}", "topic_id": uuid.UUID(int=number + 1), **row} for number in range(place)]
    topics.append({"name": TOPIC, "topic_id": TOPIC_ID, **row})
    sent = passes(own, frame_of(route, {"acks": -1, "timeout_ms": 1, "topic_data": topics}), step)
    assert b"forged" in sent
    assert not any(each in sent for each in OWN_BYTES)


@pytest.mark.parametrize("step", [1, 7, 64, 100_000])
def test_a_session_of_fetches_goes_on_in_whatever_pieces(own: OwnThings, step: int) -> None:
    """What is held because it has not come as a whole passes as it came."""
    route = known(verdicts.route(apis.FETCH, 12))
    asked = {"session_id": 5, "session_epoch": 3, "topics": [{"topic": "orders", "partitions": [{"partition": 1}]}]}
    frames = frame_of(route, asked) * 3
    assert passes(own, frames, step) == frames
