"""Kordon's own connections: order, failures and bounds against a scripted peer, and the same with a real broker."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kordon.codecs import apis
from kordon.codecs.messages import api, metadata, response
from kordon.codecs.schema import Api
from kordon.proxy.config.config import Upstream, UpstreamSasl
from kordon.proxy.config.host_port import HostPort
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka import request_pipeline
from kordon.proxy.kafka.answer_frames import AnswerFrames
from kordon.proxy.kafka.upstream import UpstreamClient
from kordon.testing.cluster import Cluster

LOG_IN = (apis.SASL_HANDSHAKE, apis.SASL_AUTHENTICATE)
METADATA: tuple[Api[Any, Any], int, dict[str, Any]] = (metadata.API, 1, {"topics": []})
TIMEOUT_MS = 2000


class Peer:
    """A broker that answers ApiVersions at once, and Metadata when it is told to, in its order.

    Args:
        session_ms: Lifetime of its SASL sessions; only the first log-in is answered before `let_in` is set.
    """

    def __init__(self, session_ms: int = 0) -> None:
        self.session_ms = session_ms
        self.let_in = asyncio.Event()
        self.log_ins: list[int] = []
        """The api keys of log-ins as they came."""
        self.asked: list[int] = []
        """The correlation ids of Metadata requests."""
        self.arrived = asyncio.Event()
        self.gone = asyncio.Event()
        self.writer: asyncio.StreamWriter | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                frame = await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
                api_key, _, correlation_id = struct.unpack_from(">hhi", frame)
                if api_key == apis.API_VERSIONS:
                    rows = [{"api_key": key, "min_version": 0, "max_version": 1} for key in (apis.METADATA, *LOG_IN)]
                    self.answer(correlation_id, response(apis.API_VERSIONS).build(0, {"api_keys": rows}))
                    continue
                if api_key in LOG_IN:
                    await self.take_log_in(api_key, correlation_id)
                    continue
                self.asked.append(correlation_id)
                self.arrived.set()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        self.gone.set()

    async def take_log_in(self, api_key: int, correlation_id: int) -> None:
        """Answers a part of a log-in."""
        self.log_ins.append(api_key)
        if len(self.log_ins) > len(LOG_IN):
            self.arrived.set()
            await self.let_in.wait()
        fields = {"mechanisms": ["PLAIN"], "auth_bytes": b"", "session_lifetime_ms": self.session_ms}
        self.answer(correlation_id, response(api_key).build(1, fields))

    def answer(self, correlation_id: int, body: bytes) -> None:
        assert self.writer is not None
        self.writer.write(struct.pack(">ii", len(body) + 4, correlation_id) + body)

    def answer_next(self, controller_id: int, host: str = "h") -> None:
        """Answers the oldest Metadata request, recognisably."""
        fields = {"brokers": [{"node_id": 1, "host": host, "port": 1}], "controller_id": controller_id}
        self.answer(self.asked.pop(0), response(apis.METADATA).build(1, fields))

    async def have(self, count: int) -> None:
        """Returns when so many Metadata requests wait."""
        while len(self.asked) < count:
            self.arrived.clear()
            await self.arrived.wait()


@asynccontextmanager
async def peer_and_client(**options: int) -> AsyncIterator[tuple[Peer, UpstreamClient]]:
    peer = Peer(options.get("session_ms", 0))
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    address = HostPort("127.0.0.1", server.sockets[0].getsockname()[1])
    sasl = UpstreamSasl.model_validate({"mechanism": "PLAIN", "username": "u", "password": "p"})
    timeout_ms = options.get("timeout_ms", TIMEOUT_MS)
    config = Upstream(bootstrap=(address,), connect_timeout_ms=timeout_ms, sasl=sasl if peer.session_ms else None)
    async with server, UpstreamClient(address, config, None) as client:
        yield peer, client
    peer.let_in.set()
    await peer.gone.wait()


def at(cluster: Cluster, broker: int = 0) -> tuple[HostPort, Upstream]:
    address = HostPort(cluster.brokers[broker].host, cluster.brokers[broker].port())
    return address, Upstream(bootstrap=(address,))


async def test_answers_go_to_their_requests_in_order() -> None:
    """Requests that were sent one behind the other, before any answer, each get their own."""
    async with peer_and_client() as (peer, client):
        outcomes = [client.send(*METADATA) for _ in range(3)]
        await peer.have(3)
        for number in range(3):
            peer.answer_next(number)
        assert [(await outcome).controller_id for outcome in outcomes] == [0, 1, 2]
        assert client.unanswered == 0


@pytest.mark.parametrize("length", [10, 30_000, 32_700])
async def test_answers_are_whole_however_they_arrive(length: int) -> None:
    """Answers cut anywhere by the network, or longer than what is read at once, are put together."""
    async with peer_and_client() as (peer, client):
        outcomes = [client.send(*METADATA) for _ in range(8)]
        await peer.have(8)
        for number in range(8):
            peer.answer_next(number, "x" * (length + number))
        hosts = [(await outcome).brokers[0].host for outcome in outcomes]
        assert [len(host) for host in hosts] == [length + number for number in range(8)]


@given(
    st.lists(st.sampled_from([0, 1, 1000, 70_000, 200_000]), max_size=6),
    st.sampled_from([1, 2, 3, 5, 10, 11, 13, 1 << 17]),
)
@example([0, 1000], 11)
def test_frames_are_cut_wherever_the_network_cuts(lengths: list[int], step: int) -> None:
    """However the bytes are dealt out, a size field in two pieces included, the same answers come out."""
    bodies = [bytes([number + 1]) * min(length + 4, 5000 * step) for number, length in enumerate(lengths)]
    stream = memoryview(b"".join(struct.pack(">i", len(body)) + body for body in bodies))
    got: list[bytes] = []
    lost: list[object] = []
    frames = AnswerFrames(lambda frame: got.append(bytes(frame)), lost.append, lost.append)
    while stream:
        room = frames.get_buffer(-1)
        count = min(len(room), len(stream), step)
        room[:count], stream = stream[:count], stream[count:]
        frames.buffer_updated(count)
    assert (got, lost) == (bodies, [])


async def test_a_cancelled_question_does_not_take_anothers_answer() -> None:
    """What a caller has given up is answered all the same, to nobody."""
    async with peer_and_client() as (peer, client):
        first, second = client.send(*METADATA), client.send(*METADATA)
        first.cancel()
        await peer.have(2)
        peer.answer_next(1)
        peer.answer_next(2)
        assert (await second).controller_id == 2


async def test_a_lost_connection_fails_all_that_wait() -> None:
    """Nobody waits for a broker that has gone, and nobody can send to it any more."""
    async with peer_and_client() as (peer, client):
        outcomes = [client.send(*METADATA) for _ in range(3)]
        await peer.have(3)
        assert peer.writer is not None
        peer.writer.close()
        for outcome in outcomes:
            with pytest.raises(UpstreamUnavailable, match="Metadata: the broker closed the connection"):
                await outcome
        assert client.closed
        with pytest.raises(UpstreamUnavailable):
            await client.send(*METADATA)


async def test_a_late_answer_ends_the_connection() -> None:
    """Answers come in order: when the oldest is overdue, all behind it would be."""
    async with peer_and_client(timeout_ms=200) as (peer, client):
        first, second = client.send(*METADATA), client.send(*METADATA, timeout=60)
        with pytest.raises(UpstreamUnavailable, match="no answer in time"):
            await first
        with pytest.raises(UpstreamUnavailable, match="no answer in time"):
            await second
        assert client.closed
        assert len(peer.asked) == 2


async def test_a_late_answer_behind_a_patient_request_is_late_all_the_same() -> None:
    """The time of each request counts as soon as it is the oldest, however long the one before it had."""
    async with peer_and_client() as (peer, client):
        patient, hasty = client.send(*METADATA, timeout=60), client.send(*METADATA, timeout=0.3)
        await peer.have(2)
        peer.answer_next(1)
        assert (await patient).controller_id == 1
        with pytest.raises(UpstreamUnavailable, match="no answer in time"):
            await hasty


async def test_impatience_behind_a_slow_answer_ends_only_itself() -> None:
    """A caller with little time behind a request that has more gives up alone."""
    async with peer_and_client() as (peer, client):
        slow = client.send(*METADATA)
        with pytest.raises(UpstreamUnavailable, match="no answer in time"):
            await client.ask(*METADATA, timeout=0.1)
        peer.answer_next(7)
        assert (await slow).controller_id == 7
        assert not client.closed


async def test_unanswered_requests_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """One request more than may wait is refused at once; `ask` waits for room instead."""
    monkeypatch.setattr(request_pipeline, "MOST_UNANSWERED", 2)
    async with peer_and_client() as (peer, client):
        outcomes = [client.send(*METADATA) for _ in range(2)]
        with pytest.raises(UpstreamUnavailable, match="2 requests are unanswered"):
            await client.send(*METADATA)
        asking = asyncio.ensure_future(client.ask(*METADATA))
        await peer.have(2)
        assert len(peer.asked) == 2
        for number in range(2):
            peer.answer_next(number)
        await asyncio.gather(*outcomes)
        await peer.have(1)
        peer.answer_next(2)
        assert (await asking).controller_id == 2


@pytest.mark.parametrize(
    ("break_it", "reason"),
    [
        (lambda peer: peer.answer(4711, b"\0" * 8), "nobody asked for"),
        (lambda peer: peer.writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "no Kafka broker"),
    ],
    ids=["another correlation id", "another protocol"],
)
async def test_a_peer_that_is_no_broker_is_left(break_it: Callable[[Peer], None], reason: str) -> None:
    """What cannot be an answer ends the connection, and says so."""
    async with peer_and_client() as (peer, client):
        outcome = client.send(*METADATA)
        await peer.have(1)
        break_it(peer)
        with pytest.raises(UpstreamUnavailable, match=reason):
            await outcome
        assert client.closed


async def test_an_unreadable_answer_fails_only_its_own_request() -> None:
    """A body that cannot be read is one request's trouble: the frames around it are sound."""
    async with peer_and_client() as (peer, client):
        first, second = client.send(*METADATA), client.send(*METADATA)
        await peer.have(2)
        peer.answer(peer.asked.pop(0), b"\xff")
        peer.answer_next(5)
        with pytest.raises(UpstreamUnavailable, match="Metadata"):
            await first
        assert (await second).controller_id == 5


async def test_requests_wait_for_the_end_of_a_new_log_in() -> None:
    """KIP-368: brokers close a connection on which anything comes between the parts of a log-in; the order is kept."""
    async with peer_and_client(session_ms=100, timeout_ms=10_000) as (peer, client):
        await peer.arrived.wait()
        assert peer.log_ins == [*LOG_IN, apis.SASL_HANDSHAKE]
        outcomes = [client.send(*METADATA) for _ in range(3)]
        assert client.unanswered == 4
        peer.let_in.set()
        await peer.have(3)
        assert peer.log_ins[:4] == [*LOG_IN, *LOG_IN]
        assert peer.asked == sorted(peer.asked)
        for number in range(3):
            peer.answer_next(number)
        assert [(await outcome).controller_id for outcome in outcomes] == [0, 1, 2]


async def test_a_log_in_that_is_not_renewed_ends_the_connection() -> None:
    """What was held meanwhile fails with it."""
    async with peer_and_client(session_ms=100, timeout_ms=300) as (peer, client):
        await peer.arrived.wait()
        with pytest.raises(UpstreamUnavailable, match="no answer in time"):
            await client.send(*METADATA, timeout=60)
        assert client.closed
        assert peer.asked == []


@pytest.mark.broker
async def test_a_real_broker_answers_in_order(cluster: Cluster) -> None:
    """Fifty requests of flexible and old versions at once; raw bodies are what the table reads."""
    address, config = at(cluster)
    async with UpstreamClient(address, config, None) as client:
        newest = client.version(apis.METADATA, range(14))
        names = [f"no-such-{number}" for number in range(50)]
        wishes = [{"topics": [{"name": name}], "allow_auto_topic_creation": False} for name in names]
        outcomes = [client.send(api(apis.METADATA), newest if n % 2 else 5, wish) for n, wish in enumerate(wishes)]
        raw = client.send_body(apis.METADATA, 5, [b"\0\0\0\1\0\3", b"raw", b"\0"])
        assert [(await outcome).topics[0].name for outcome in outcomes] == names
        assert response(apis.METADATA).parse(5, await raw).topics[0].name == "raw"


@pytest.mark.broker
async def test_a_broker_killed_in_the_middle_fails_what_waits() -> None:
    """Requests on the wire when the broker dies fail, and later ones do."""
    with Cluster.start(brokers=1) as own:
        address, config = at(own)
        async with UpstreamClient(address, config, None) as client:
            own.brokers[0].pause()
            waiting = [client.send(*METADATA, 60) for _ in range(3)]
            own.brokers[0].kill()
            outcomes = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 60)
            assert client.closed
        assert [type(outcome) for outcome in outcomes] == [UpstreamUnavailable] * 3
        with pytest.raises(UpstreamUnavailable):
            await UpstreamClient(address, config, None).open()


@pytest.mark.broker
async def test_a_session_outlives_its_log_in(secure_cluster: Cluster) -> None:
    """Brokers that want a new log-in every 8 seconds get it in time, with requests going on all the while."""
    broker = secure_cluster.brokers[0]
    address = HostPort(broker.host, broker.port("SASL_PLAINTEXT"))

    async def keep_asking(mechanism: str) -> None:
        sasl = UpstreamSasl.model_validate({"mechanism": mechanism, "username": "alice", "password": "alice-secret"})
        async with UpstreamClient(address, Upstream(bootstrap=(address,), sasl=sasl), None) as client:
            end = asyncio.get_running_loop().time() + 18
            while asyncio.get_running_loop().time() < end:
                outcomes = [client.send(api(apis.METADATA), 5, {"topics": [{"name": f"t{n}"}]}) for n in range(5)]
                assert [(await outcome).topics[0].name for outcome in outcomes] == [f"t{n}" for n in range(5)]
                await asyncio.sleep(0.1)  # the two share a small machine with their broker

    await asyncio.gather(keep_asking("PLAIN"), keep_asking("SCRAM-SHA-256"))
