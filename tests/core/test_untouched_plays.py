"""Produce and Fetch while some topic is managed: those that name none stream on, all others are decided on."""

from itertools import product
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kordon.codecs import apis
from kordon.codecs.fetch_requests import OWN_SESSIONS
from kordon.codecs.headers import build_request_header
from kordon.codecs.messages import request
from kordon.proxy.config.config import Limits
from kordon.proxy.core.addresses import Advertised
from kordon.proxy.core.connection import Connection
from kordon.proxy.core.events import SendDownstream, SendUpstream
from kordon.proxy.core.interception import PROOF, Decision, NothingManaged, Serve, Translate
from kordon.proxy.core.tally import Tally
from kordon.proxy.core.verdicts import Route
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.testing.plays import Broker, Client, feed, request_frame, response_frame

MANAGED, OTHER = "orders", "clicks"
IDS = {MANAGED: UUID(int=1), OTHER: UUID(int=2)}
STEPS = (1 << 30, 1, 7, 60)
PRODUCE_VERSIONS, FETCH_VERSIONS = (3, 8, 9, 12, 13), (4, 7, 11, 12, 13, 17)
CASES = [*product([apis.PRODUCE], PRODUCE_VERSIONS), *product([apis.FETCH], FETCH_VERSIONS)]


class Some(NothingManaged):
    """Answers for some topics, and remembers which topics it has decided on."""

    def __init__(self, *managed: str) -> None:
        self.managed: set[str | UUID] = {*managed, *(IDS[name] for name in managed)}
        self.decided: list[list[str | UUID]] = []

    def wants(self, route: Route) -> bool:
        return route.api.key in (apis.PRODUCE, apis.FETCH) and bool(self.managed)

    def concerns(self, topic: str | UUID) -> bool:
        return topic in self.managed

    def decide(self, route: Route, body: memoryview) -> Decision:
        value = request(route.api.key).parse(route.version, body)
        rows = value["topic_data" if route.api.key == apis.PRODUCE else "topics"]
        self.decided.append([row.get("name", "") or row.get("topic", "") or row["topic_id"] for row in rows])
        return None


def connection(service: Some) -> Connection:
    core = Connection(Limits(), Tally(), Advertised(host="proxy", base_port=1), 0.0, service)
    core.requests.proven = True
    return core


def naming(api_key: int, version: int, *topics: str, number: int = 1) -> bytes:
    """A request that names topics."""
    if api_key == apis.PRODUCE:
        rows: list[dict[str, Any]] = [
            {"name": name, "topic_id": IDS[name], "partition_data": [{"index": 0, "records": b"x" * 90}]}
            for name in topics
        ]
        return request_frame(api_key, version, number, acks=-1, timeout_ms=1, topic_data=rows)
    partition = {"partition": 0, "fetch_offset": 5, "partition_max_bytes": 9}
    rows = [{"topic": name, "topic_id": IDS[name], "partitions": [partition] * 3} for name in topics]
    fields: dict[str, Any] = {
        "max_wait_ms": 1,
        "min_bytes": 1,
        "topics": rows,
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    fields |= {"session_id": 0, "session_epoch": -1} if version >= 7 else {}
    return request_frame(api_key, version, number, **fields)


def sent(core: Connection, frames: bytes, step: int = 1 << 30) -> bytes:
    """What the broker gets when the client sends this in pieces."""
    return passed(core, Client, SendUpstream, frames, step)


def passed(
    core: Connection,
    side: type[Client] | type[Broker],
    sends: type[SendUpstream] | type[SendDownstream],
    frames: bytes,
    step: int,
) -> bytes:
    """What the other side gets when one sends this in pieces."""
    got, left = b"", b""
    for at in range(0, len(frames), step):
        commands, left = feed(core, side, left + frames[at : at + step])
        got += b"".join(bytes(piece) for each in commands if isinstance(each, sends) for piece in each.pieces)
    assert not left
    return got


def test_what_is_answered_for_here_does_not_stream_on() -> None:
    """What is managed, what is coming, and what is not served, though no layout of it be known; by each of its ids."""
    topics = ManagedTopics()
    managed = ManagedTopic(Layout.created("managed", UUID(int=1), 1, 4), UUID(int=2))
    coming = ManagedTopic(Layout.unmanaged("coming", UUID(int=3), 1, 4), UUID(int=4))
    topics.add(managed)
    topics.begin(coming)
    topics.serve("unread", "a record of it cannot be read")
    held: list[str | UUID] = ["managed", "coming", "unread", *(UUID(int=each) for each in range(1, 5))]
    assert [each for each in (*held, "other", UUID(int=5), "") if topics.answers_for(each)] == held
    topics.remove("coming")
    gone: list[str | UUID] = ["coming", UUID(int=3), UUID(int=4)]
    assert not any(map(topics.answers_for, gone))


@pytest.mark.parametrize(("api_key", "version"), CASES)
def test_who_names_nothing_managed_streams_on(api_key: int, version: int) -> None:
    """As if nothing were managed: the chunk itself goes to the broker, and nothing is kept or decided on."""
    service = Some(MANAGED)
    core = connection(service)
    for _ in range(3):
        frame = naming(api_key, version, OTHER)
        assert core.receive_requests(memoryview(bytearray(frame)), 0.0) is None
    assert (service.decided, core.held_bytes, core.in_flight) == ([], 0, 3)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_records_stream_on_in_pieces(version: int) -> None:
    """A Produce is judged as soon as the name of its topic is there."""
    core = connection(Some(MANAGED))
    frame = naming(apis.PRODUCE, version, OTHER)
    assert core.receive_requests(memoryview(bytearray(frame[:-40])), 0.0) is None
    assert core.receive_requests(memoryview(bytearray(frame[-40:])), 0.0) is None
    assert core.held_bytes == 0


@pytest.mark.parametrize(("api_key", "version"), CASES)
@pytest.mark.parametrize("topics", [(MANAGED,), (OTHER, MANAGED), (MANAGED, OTHER)])
@pytest.mark.parametrize("step", STEPS)
def test_who_names_something_managed_is_decided_on(
    api_key: int, version: int, topics: tuple[str, ...], step: int
) -> None:
    """In whatever pieces it comes, alone or beside another topic."""
    service = Some(MANAGED)
    core = connection(service)
    frame = naming(api_key, version, *topics)
    assert sent(core, frame, step) == frame
    by_id = version >= 13
    assert service.decided == [[IDS[name] if by_id else name for name in topics]]


@pytest.mark.parametrize(("api_key", "version"), CASES)
def test_a_topic_that_comes_to_be_managed_is_decided_on_from_the_next_request_on(api_key: int, version: int) -> None:
    """Though that request is like the one before, which passed (TAKEOVER-WAITS); and no longer once it is let go."""
    service = Some(MANAGED)
    core = connection(service)
    frame = naming(api_key, version, OTHER)
    sent(core, frame)
    service.managed |= {OTHER, IDS[OTHER]}
    sent(core, frame)
    assert len(service.decided) == 1
    service.managed -= {OTHER, IDS[OTHER]}
    sent(core, frame)
    assert len(service.decided) == 1


@given(
    st.lists(st.tuples(st.sampled_from(CASES), st.lists(st.sampled_from([MANAGED, OTHER]), max_size=3)), max_size=6),
    st.integers(1, 200),
)
def test_requests_reach_the_broker_in_their_order(requests: list[tuple[tuple[int, int], list[str]]], step: int) -> None:
    """Held ones and those that stream on, in any pieces; each that names something managed is decided on once."""
    service = Some(MANAGED)
    core = connection(service)
    frames = [naming(*case, *topics, number=number) for number, (case, topics) in enumerate(requests)]
    assert sent(core, b"".join(frames), step) == b"".join(frames)
    expected = [topics for _, topics in requests if MANAGED in topics]
    names: dict[str | UUID, str | UUID] = {topic_id: name for name, topic_id in IDS.items()}
    decided = [[names.get(each, each) for each in topics] for topics in service.decided]
    assert [topics for topics in decided if MANAGED in topics] == expected


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_a_write_without_an_answer_streams_on_too(version: int) -> None:
    """With acks=0 nobody waits for an answer, and no next one takes its place."""
    core = connection(Some(MANAGED))
    rows = [{"name": OTHER, "topic_id": IDS[OTHER], "partition_data": [{"index": 0, "records": b"x"}]}]
    frame = request_frame(apis.PRODUCE, version, 1, acks=0, timeout_ms=1, topic_data=rows)
    for _ in range(2):
        assert core.receive_requests(memoryview(bytearray(frame)), 0.0) is None
    assert core.in_flight == 0


@pytest.mark.parametrize("version", [7, 11, 12, 13, 17])
def test_what_goes_on_with_a_session_of_kordons_is_decided_on(version: int) -> None:
    """It may name nothing at all; what goes on with a session of the broker streams on."""
    service = Some(MANAGED)
    core = connection(service)
    sent(core, naming(apis.FETCH, version, OTHER))
    for session_id, held in ((OWN_SESSIONS.start - 1, 0), (OWN_SESSIONS.start, 1), (OWN_SESSIONS.stop - 1, 2)):
        fields: dict[str, Any] = {"max_wait_ms": 1, "min_bytes": 1, "session_id": session_id, "session_epoch": 5}
        sent(core, request_frame(apis.FETCH, version, 1, **fields, topics=[], forgotten_topics_data=[], rack_id=""))
        assert len(service.decided) == held


class Heard(Some):
    """Remembers whole requests and client ids, too, and asks the broker something before each Produce."""

    def __init__(self, *managed: str) -> None:
        super().__init__(*managed)
        self.heard: list[str | None] = []
        self.bodies: list[bytes] = []

    def hear(self, client_id: str | None) -> None:
        self.heard.append(client_id)

    def decide(self, route: Route, body: memoryview) -> Decision:
        super().decide(route, body)
        self.bodies.append(bytes(body))
        return Serve(_never, questions=(PROOF,)) if route.api.key == apis.PRODUCE else None


async def _never(_: object) -> bytes:
    raise NotImplementedError


@pytest.mark.parametrize(("version", "step"), list(product(PRODUCE_VERSIONS, STEPS)))
def test_requests_that_begin_like_one_that_was_held_are_decided_on_by_themselves(version: int, step: int) -> None:
    """Each by its own body and client id, and in its own name the broker is asked; one without an answer has none."""
    service = Heard(MANAGED)
    core = connection(service)
    rows = [
        {"name": MANAGED, "topic_id": IDS[MANAGED], "partition_data": [{"index": 0, "records": bytes([each]) * 90}]}
        for each in range(5)
    ]
    acks, clients = (-1, -1, -1, 0, -1), ("one", "one", "two", "two", "two")
    asked = [
        request_frame(apis.PRODUCE, version, number, clients[number], acks=acks[number], timeout_ms=1, topic_data=[row])
        for number, row in enumerate(rows)
    ]
    fetch = naming(apis.FETCH, 11, MANAGED, number=9)
    got = sent(core, b"".join([*asked[:3], fetch, *asked[3:]]), step)
    assert service.heard == [*clients[:3], "c", *clients[3:]]
    assert [frame.endswith(body) for frame, body in zip(asked, service.bodies[:3], strict=False)] == [True] * 3
    assert [frame.endswith(body) for frame, body in zip(asked[3:], service.bodies[4:], strict=True)] == [True] * 2
    head = [build_request_header(apis.METADATA, PROOF.route.version, each, clients[each]) for each in range(5)]
    frames = [(len(each) + len(PROOF.body)).to_bytes(4, "big") + each + PROOF.body for each in head]
    assert got == b"".join([*frames[:3], fetch, *frames[3:]])
    assert core.in_flight == len(asked) + len([fetch]) + len([each for each in acks if each])
    service.managed.clear()
    assert sent(core, asked[0], step) == asked[0]


METADATA_VERSIONS = (1, 8, 12)


class Unless(NothingManaged):
    """Translates answers to Metadata, unless they are to stream on."""

    def __init__(self) -> None:
        self.is_managed = False
        self.back: list[int] = []

    def wants(self, route: Route) -> bool:
        return route.api.key == apis.METADATA

    def decide(self, route: Route, body: memoryview) -> Decision:
        return Translate(None, lambda answer: self.back.append(len(answer.topics)), streams=lambda: not self.is_managed)


@pytest.mark.parametrize(("version", "step"), list(product(METADATA_VERSIONS, STEPS)))
def test_an_answer_is_read_only_if_its_topics_are_managed_by_then(version: int, step: int) -> None:
    """Which are known when it begins; brokers have the proxy's addresses whether or not it streams on."""
    brokers = [{"node_id": 1, "host": "broker", "port": 9092}]
    answer = {"brokers": brokers, "topics": [{"name": OTHER, "partitions": [{"partition_index": 0}]}] * 40}
    got: list[bytes] = []
    for is_managed in (False, True):
        service = Unless()
        core = Connection(Limits(), Tally(), Advertised(host="proxy", base_port=1), 0.0, service)
        core.requests.proven = True
        sent(core, request_frame(apis.METADATA, version, 1, topics=[{"name": OTHER}]))
        service.is_managed = is_managed
        got.append(passed(core, Broker, SendDownstream, response_frame(apis.METADATA, version, 1, **answer), step))
        assert service.back == [40] * is_managed
    assert got[0] == got[1]
    assert b"proxy" in got[0]
    assert b"broker" not in got[0]
