"""The core of a connection, as plays: what comes in, what must go out."""

from uuid import UUID

import pytest

from kordon.codecs import apis
from kordon.proxy.core.causes import CloseCause
from kordon.proxy.core.events import (
    DownstreamEnded,
    Drain,
    EndUpstream,
    PauseDownstream,
    ResumeDownstream,
    Tick,
    UpstreamEnded,
)
from kordon.testing.plays import (
    Broker,
    BrokerGets,
    Client,
    ClientGets,
    Closes,
    Does,
    Happens,
    Learns,
    Outcome,
    Step,
    connection,
    feed,
    perform,
    request_frame,
    response_frame,
)

HEARTBEAT, LIST_OFFSETS = 12, 2
BROKER: dict[str, object] = {"node_id": 7, "host": "broker-7.internal", "port": 9092, "rack": "r1"}
PROXIED: dict[str, object] = {"node_id": 7, "host": "proxy", "port": 9100, "rack": "r1"}


def heartbeat(correlation_id: int) -> bytes:
    return request_frame(
        HEARTBEAT, 4, correlation_id, group_id="g", generation_id=1, member_id="m", group_instance_id=None
    )


def heartbeat_answer(correlation_id: int) -> bytes:
    return response_frame(HEARTBEAT, 4, correlation_id, throttle_time_ms=0, error_code=0)


def produce(version: int, correlation_id: int, acks: int, transactional_id: str | None = None) -> bytes:
    data = {"name": "t", "topic_id": UUID(int=1), "partition_data": [{"index": 0, "records": b"r" * 300}]}
    return request_frame(
        apis.PRODUCE,
        version,
        correlation_id,
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=1,
        topic_data=[data],
    )


def metadata_answer(version: int, correlation_id: int, broker: dict[str, object]) -> bytes:
    topic = {"error_code": 0, "name": "t", "topic_id": UUID(int=2), "is_internal": False, "partitions": []}
    return response_frame(
        apis.METADATA,
        version,
        correlation_id,
        throttle_time_ms=0,
        brokers=[broker],
        cluster_id="c",
        controller_id=7,
        topics=[topic] * 50,
        cluster_authorized_operations=0,
        error_code=0,
    )


def metadata(version: int, correlation_id: int) -> bytes:
    return request_frame(apis.METADATA, version, correlation_id, topics=[])


def test_what_passes_arrives_as_it_was_sent() -> None:
    """A request and its response, neither of which names a broker, go through byte for byte."""
    perform(
        Client(heartbeat(1)), BrokerGets(heartbeat(1)), Broker(heartbeat_answer(1)), ClientGets(heartbeat_answer(1))
    )


def test_pipelined_requests_and_their_responses_keep_their_order() -> None:
    """Several frames in one chunk, and a frame over several chunks, are the same thing."""
    requests = heartbeat(1) + heartbeat(2) + produce(9, 3, -1)
    answers = heartbeat_answer(1) + heartbeat_answer(2)
    perform(Client(requests), BrokerGets(requests), Broker(answers), ClientGets(answers))


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("transactional_id", [None, "a-transaction"])
def test_nothing_waits_for_the_answer_to_acks_0(version: int, transactional_id: str | None) -> None:
    """A Produce with acks=0 has no response, so the next response belongs to the next request."""
    sent = produce(version, 1, 0, transactional_id if version >= 3 else None) + heartbeat(2)
    perform(Client(sent), BrokerGets(sent), Broker(heartbeat_answer(2)), ClientGets(heartbeat_answer(2)))


@pytest.mark.parametrize("version", range(14))
def test_metadata_names_the_proxy(version: int) -> None:
    """Every version of Metadata carries the proxy's address, the broker's node id and the topics as they were."""
    perform(
        Client(metadata(version, 1)),
        BrokerGets(metadata(version, 1)),
        Broker(metadata_answer(version, 1, BROKER)),
        Learns({7: ("broker-7.internal", 9092)}),
        ClientGets(metadata_answer(version, 1, PROXIED)),
    )


@pytest.mark.parametrize("version", range(7))
def test_a_coordinator_is_found_at_the_proxy(version: int) -> None:
    """FindCoordinator, one or many in an answer, carries the proxy's address."""

    def answer(broker: dict[str, object]) -> bytes:
        row = {key: broker[key] for key in ("node_id", "host", "port")} | {"error_code": 0, "error_message": None}
        return response_frame(
            apis.FIND_COORDINATOR, version, 1, throttle_time_ms=0, coordinators=[row | {"key": "g"}], **row
        )

    asked = request_frame(apis.FIND_COORDINATOR, version, 1, key="g", key_type=0, coordinator_keys=["g"])
    perform(
        Client(asked),
        BrokerGets(asked),
        Broker(answer(BROKER)),
        Learns({7: ("broker-7.internal", 9092)}),
        ClientGets(answer(PROXIED)),
    )


def test_an_unknown_coordinator_stays_unknown() -> None:
    """Node id -1 with port -1 is an error's filler, not an address."""
    asked = request_frame(apis.FIND_COORDINATOR, 3, 1, key="g", key_type=0)
    answer = response_frame(
        apis.FIND_COORDINATOR, 3, 1, throttle_time_ms=0, error_code=15, error_message="no", node_id=-1, host="", port=-1
    )
    perform(Client(asked), BrokerGets(asked), Broker(answer), ClientGets(answer))


@pytest.mark.parametrize("version", range(3))
def test_the_described_cluster_is_the_proxys(version: int) -> None:
    """DescribeCluster carries the proxy's addresses."""

    def answer(broker: dict[str, object]) -> bytes:
        row = {"broker_id": broker["node_id"], "is_fenced": False} | broker
        return response_frame(
            apis.DESCRIBE_CLUSTER,
            version,
            1,
            throttle_time_ms=0,
            error_code=0,
            error_message=None,
            endpoint_type=1,
            cluster_id="c",
            controller_id=7,
            brokers=[row],
            cluster_authorized_operations=0,
        )

    asked = request_frame(
        apis.DESCRIBE_CLUSTER,
        version,
        1,
        include_cluster_authorized_operations=False,
        endpoint_type=1,
        include_fenced_brokers=False,
    )
    perform(
        Client(asked),
        BrokerGets(asked),
        Broker(answer(BROKER)),
        Learns({7: ("broker-7.internal", 9092)}),
        ClientGets(answer(PROXIED)),
    )


def produce_answer(version: int, correlation_id: int, endpoints: list[dict[str, object]]) -> bytes:
    partition: dict[str, object] = {
        "index": 0,
        "error_code": 6 if endpoints else 0,
        "base_offset": 1,
        "log_append_time_ms": -1,
        "log_start_offset": 0,
        "record_errors": [],
        "error_message": None,
    }
    if endpoints:
        partition["current_leader"] = {"leader_id": 7, "leader_epoch": 3}
    topic = {"name": "t", "topic_id": UUID(int=1), "partition_responses": [partition]}
    fields = {"node_endpoints": endpoints} if endpoints else {}
    return response_frame(apis.PRODUCE, version, correlation_id, responses=[topic], throttle_time_ms=0, **fields)


@pytest.mark.parametrize("version", range(14))
def test_an_ordinary_produce_answer_is_untouched(version: int) -> None:
    """Without new leaders the answer goes through byte for byte."""
    sent, answer = produce(version, 1, -1), produce_answer(version, 1, [])
    perform(Client(sent), BrokerGets(sent), Broker(answer), ClientGets(answer))


def test_a_refused_or_foreign_answer_ends_the_connection() -> None:
    """A correlation id that nobody waits for cannot be matched: passing it on would mislead the client."""
    perform(
        Client(heartbeat(1)),
        BrokerGets(heartbeat(1)),
        Broker(heartbeat_answer(9)),
        Closes(CloseCause.MALFORMED_RESPONSE),
    )


def test_a_too_new_api_versions_is_answered_in_its_turn() -> None:
    """Brokers answer an ApiVersions version they do not know in version 0, with error 35 and the range to use."""
    sent = heartbeat(1) + b"\0\0\0\x0b" + b"\0\x12\0\x63\0\0\0\2\xff\xff\0" + heartbeat(3)
    own = response_frame(
        apis.API_VERSIONS, 0, 2, error_code=35, api_keys=[{"api_key": 18, "min_version": 0, "max_version": 5}]
    )
    perform(
        Client(sent),
        BrokerGets(heartbeat(1) + heartbeat(3)),
        Broker(heartbeat_answer(1) + heartbeat_answer(3)),
        ClientGets(heartbeat_answer(1) + own + heartbeat_answer(3)),
    )


def test_api_versions_offers_what_broker_and_table_share() -> None:
    """Keys unknown to Kordon disappear, newer versions are cut off, Produce keeps its minimum of 0."""

    def answer(rows: list[tuple[int, int, int]]) -> bytes:
        keys = [{"api_key": key, "min_version": low, "max_version": high} for key, low, high in rows]
        return response_frame(apis.API_VERSIONS, 0, 1, error_code=0, api_keys=keys)

    asked = request_frame(apis.API_VERSIONS, 0, 1)
    perform(
        Client(asked),
        BrokerGets(asked),
        Broker(answer([(0, 0, 99), (3, 0, 12), (4, 0, 7), (16384, 0, 1), (17, 0, 1)])),
        ClientGets(answer([(0, 0, 13), (3, 0, 12), (17, 1, 1)])),
    )


@pytest.mark.parametrize(
    ("opening", "cause"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", CloseCause.NOT_KAFKA),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03aaaa", CloseCause.NOT_KAFKA),
        (b"\x7f\xff\xff\xff" + b"x" * 20, CloseCause.FRAME_TOO_LARGE),
        (b"\xff\xff\xff\xff" + b"x" * 20, CloseCause.MALFORMED_REQUEST),
        (b"\0\0\0\0" + b"x" * 20, CloseCause.MALFORMED_REQUEST),
        (b"\0\0\0\x20\x40\0\0\0\0\0\0\1\xff\xff" + b"x" * 22, CloseCause.UNSUPPORTED_REQUEST),
        (b"\0\0\0\x20\0\4\0\0\0\0\0\1\xff\xff" + b"x" * 22, CloseCause.UNSUPPORTED_REQUEST),
        (b"\0\0\0\x20\0\3\0\x63\0\0\0\1\xff\xff" + b"x" * 22, CloseCause.UNSUPPORTED_REQUEST),
        (b"\0\0\0\x20\0\3\0\0\0\0\0\1\x7f\xff" + b"x" * 22, CloseCause.MALFORMED_REQUEST),
        (b"\0\0\0\x0c\0\0\0\3\0\0\0\1\xff\xff\xff\xff", CloseCause.MALFORMED_REQUEST),
    ],
)
def test_what_is_no_request_ends_its_connection(opening: bytes, cause: CloseCause) -> None:
    """Other protocols, impossible sizes, unknown keys and versions: closed with the cause, nothing forwarded."""
    perform(Client(opening), Closes(cause))


def test_a_long_client_id_is_held_against_the_limit() -> None:
    """limits.header_bytes bounds the client id before it is waited for."""
    sent = request_frame(HEARTBEAT, 4, 1, "c" * 2000, group_id="g", generation_id=1, member_id="m")
    perform(Client(sent), Closes(CloseCause.HEADER_TOO_LARGE), on=lambda: connection(header_bytes=1000))


def test_a_client_with_too_much_in_flight_is_read_no_further() -> None:
    """Back-pressure, not an error: the client is read again once a response has come."""
    perform(
        Client(heartbeat(1)),
        BrokerGets(heartbeat(1)),
        Does(PauseDownstream()),
        Broker(heartbeat_answer(1)),
        ClientGets(heartbeat_answer(1)),
        Does(ResumeDownstream()),
        on=lambda: connection(requests_in_flight=1),
    )


def test_a_draining_connection_answers_what_it_accepted() -> None:
    """A request that has begun is completed and answered; then, and not before, the connection closes."""
    request = heartbeat(2)
    perform(
        Client(heartbeat(1) + request[:20]),
        BrokerGets(heartbeat(1) + request[:20]),
        Happens(Drain()),
        Client(request[20:] + heartbeat(3)),
        BrokerGets(request[20:]),
        Broker(heartbeat_answer(1)),
        ClientGets(heartbeat_answer(1)),
        Broker(heartbeat_answer(2)),
        ClientGets(heartbeat_answer(2)),
        Closes(CloseCause.DRAINED),
    )


def test_a_connection_drains_for_other_reasons_too() -> None:
    """Its client is to reconnect, and loses no answer by that."""
    perform(
        Client(heartbeat(1)),
        BrokerGets(heartbeat(1)),
        Happens(Drain(CloseCause.TAKEN_OVER, "a topic is to be seen anew")),
        Broker(heartbeat_answer(1)),
        ClientGets(heartbeat_answer(1)),
        Closes(CloseCause.TAKEN_OVER),
    )


def test_a_request_whose_head_is_not_here_is_not_accepted() -> None:
    """Draining waits for what was let through, not for what could not be judged yet."""
    perform(Client(heartbeat(1)[:9]), Happens(Drain()), Closes(CloseCause.DRAINED))


def test_an_idle_connection_drains_at_once() -> None:
    """Nothing in flight: nothing to wait for."""
    perform(Happens(Drain()), Closes(CloseCause.DRAINED))


@pytest.mark.parametrize(
    ("before", "limits", "cause"),
    [
        (b"", {"handshake_ms": 5000}, CloseCause.HANDSHAKE_TIMEOUT),
        (heartbeat(1)[:20], {"request_ms": 5000}, CloseCause.REQUEST_TIMEOUT),
    ],
)
def test_silence_ends_a_connection(before: bytes, limits: dict[str, int], cause: CloseCause) -> None:
    """A connection that says nothing, or half of something, does not stay for ever."""
    sent: list[Step | Outcome] = [Client(before), BrokerGets(before)] if before else []
    perform(
        *sent, Happens(Tick(4.9, True)), Happens(Tick(5.1, True)), Closes(cause), on=lambda: connection(None, **limits)
    )


def test_idle_is_what_neither_side_uses() -> None:
    """limits.idle_ms counts from the last byte, and not while a request waits for its response."""
    perform(
        Client(heartbeat(1)),
        BrokerGets(heartbeat(1)),
        Happens(Tick(9.0, True)),
        Broker(heartbeat_answer(1)),
        ClientGets(heartbeat_answer(1)),
        Happens(Tick(9.1, True)),
        Closes(CloseCause.IDLE),
        on=lambda: connection(idle_ms=9000),
    )


def test_time_in_which_kordon_does_not_read_is_not_held_against_the_client() -> None:
    """A request that waits because the broker takes nothing more does not time out."""
    half = produce(9, 1, -1)[:60]
    perform(
        Client(half),
        BrokerGets(half),
        Happens(Tick(99.0, False)),
        Happens(Tick(100.0, True)),
        on=lambda: connection(request_ms=5000),
    )


def test_a_client_that_has_ended_still_gets_its_answers() -> None:
    """A half-closed connection is passed on as such: what the broker still answers arrives."""
    perform(
        Client(heartbeat(1)),
        BrokerGets(heartbeat(1)),
        Happens(DownstreamEnded()),
        Does(EndUpstream()),
        Broker(heartbeat_answer(1)),
        ClientGets(heartbeat_answer(1)),
        Happens(UpstreamEnded()),
        Closes(CloseCause.CLIENT_CLOSED),
    )


def test_nothing_is_in_flight_on_a_connection_that_has_ended() -> None:
    """Requests without an answer are counted while their connection lives."""
    core = connection()
    feed(core, Client, heartbeat(1) + heartbeat(2))
    assert core.in_flight == 2
    core.handle(UpstreamEnded())
    assert core.in_flight == 0
