"""Bad input against a running proxy: the offender is closed with a counted cause, others notice nothing."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psutil
import pytest

from kordon.testing.cluster import Cluster
from kordon.testing.failing_reads import BAD_ANSWER, BAD_REQUEST
from kordon.testing.plays import request_frame
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = pytest.mark.broker

API_VERSIONS = request_frame(18, 2, 7)
"""Of a version whose answer stays the same; later ones tell the epoch of the cluster's metadata."""


@contextmanager
def connected(address: str) -> Iterator[socket.socket]:
    """A plain TCP connection that does not wait for ever."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=60) as sock:
        yield sock


def ask_api_versions(sock: socket.socket) -> bytes:
    """Sends a request and reads its response whole."""
    sock.sendall(API_VERSIONS)
    size = int.from_bytes(_exactly(sock, 4), "big")
    return _exactly(sock, size)


def ends(sock: socket.socket) -> bool:
    """Whether the other side closes the connection (before the socket's timeout)."""
    try:
        while sock.recv(65536):
            pass
    except ConnectionResetError:
        return True
    return True


def closed_by_cause(proxy: ProxyProcess, cause: str) -> float:
    """How many connections ended for a cause so far."""
    return proxy.metric("kordon_connections_closed_total", cause=cause)


def cpu_seconds(proxy: ProxyProcess) -> float:
    """What a proxy has worked so far, which a busy machine does not stretch."""
    times = psutil.Process(proxy.pid).cpu_times()
    return float(times.user + times.system)


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = sock.recv(count - len(data))
        assert piece, f"the connection ended after {len(data)} of {count} bytes"
        data += piece
    return data


@pytest.mark.parametrize(
    ("sent", "cause"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "not_kafka"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 60, "not_kafka"),
        (b"\xff\xff\xff\xfe" + b"\0" * 60, "malformed_request"),
        (b"\x7f\xff\xff\xff" + b"\0" * 60, "frame_too_large"),
        (b"\0\0\0\x20\x7f\x7f\0\0\0\0\0\1\xff\xff" + b"\0" * 22, "unsupported_request"),
        (b"\0\0\0\x20\0\x1b\0\1\0\0\0\1\xff\xff" + b"\0" * 22, "unsupported_request"),
    ],
    ids=["http", "tls", "negative-size", "huge-size", "unknown-key", "broker-only-key"],
)
def test_the_offender_is_closed_and_others_notice_nothing(kordon: ProxyProcess, sent: bytes, cause: str) -> None:
    """Garbage ends its own connection, for the cause that the metric names; a neighbour is served on."""
    before = closed_by_cause(kordon, cause)
    with connected(kordon.bootstrap) as neighbour, connected(kordon.bootstrap) as offender:
        first = ask_api_versions(neighbour)
        offender.sendall(sent)
        assert ends(offender)
        assert ask_api_versions(neighbour) == first
    assert closed_by_cause(kordon, cause) == before + 1
    wait_until("nothing is left of either", lambda: kordon.status()["connections"]["open"] == 0)


def test_a_broken_body_is_the_brokers_to_judge(kordon: ProxyProcess) -> None:
    """A well-formed head with a broken body reaches the broker, which closes, as it does without a proxy."""
    with connected(kordon.bootstrap) as sock:
        sock.sendall(request_frame(3, 12, 1, topics=[])[:-3] + b"\xff\xff\xff")
        assert ends(sock)


@pytest.mark.parametrize("correlation_id", [BAD_REQUEST, BAD_ANSWER], ids=["request", "answer"])
def test_a_mistake_of_its_own_costs_one_connection(cluster: Cluster, correlation_id: int) -> None:
    """What Kordon fails over, through no fault of the client, ends that connection by this cause; it is counted."""
    with ProxyProcess.start(cluster.bootstrap("PLAINTEXT"), program="kordon.testing.failing_reads") as kordon:
        with connected(kordon.bootstrap) as neighbour, connected(kordon.bootstrap) as offender:
            first = ask_api_versions(neighbour)
            offender.sendall(request_frame(18, 2, correlation_id))
            assert ends(offender)
            assert ask_api_versions(neighbour) == first
        assert closed_by_cause(kordon, "internal_error") == 1
        assert kordon.metric("kordon_task_failures_total", task="passing") == 1


@pytest.fixture(scope="module")
def strict(cluster_bootstrap: str) -> Iterator[ProxyProcess]:
    """A proxy with tight limits."""
    limits = {
        "handshake_ms": 1500,
        "request_ms": 1500,
        "idle_ms": 3000,
        "connections": 6000,
        "connections_per_address": 5500,
    }
    with ProxyProcess.start(bootstrap=cluster_bootstrap, config={"limits": limits}) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def cluster_bootstrap(cluster: Cluster) -> str:
    """The plain listener of the shared cluster."""
    return cluster.bootstrap()


def test_half_a_request_does_not_stay(strict: ProxyProcess) -> None:
    """A frame that begins and never ends is closed after limits.request_ms."""
    with connected(strict.bootstrap) as sock:
        ask_api_versions(sock)
        sock.sendall(API_VERSIONS[:-4])
        assert ends(sock)
    assert closed_by_cause(strict, "request_timeout") >= 1


def test_an_idle_connection_does_not_stay(strict: ProxyProcess) -> None:
    """After limits.idle_ms without a byte the connection ends."""
    with connected(strict.bootstrap) as sock:
        ask_api_versions(sock)
        assert ends(sock)
    assert closed_by_cause(strict, "idle") >= 1


def test_five_thousand_silent_connections_disturb_nobody(strict: ProxyProcess) -> None:
    """Those who say nothing cost the broker no connection and end after limits.handshake_ms; others are served."""
    before = closed_by_cause(strict, "handshake_timeout")
    with ExitStack() as silent:
        for _ in range(5000):
            silent.enter_context(connected(strict.bootstrap))
        started = cpu_seconds(strict)
        with connected(strict.bootstrap) as sock:
            ask_api_versions(sock)
        assert cpu_seconds(strict) - started < 2
        deadline = time.monotonic() + 120
        while closed_by_cause(strict, "handshake_timeout") < before + 5000:
            assert time.monotonic() < deadline, "silent connections stay"
            time.sleep(0.2)  # polling, with a deadline


def test_an_address_can_be_bounded(cluster_bootstrap: str) -> None:
    """limits.connections_per_address closes what is over, at once, and counts it."""
    with ProxyProcess.start(bootstrap=cluster_bootstrap, config={"limits": {"connections_per_address": 2}}) as proxy:
        with connected(proxy.bootstrap) as one, connected(proxy.bootstrap) as two:
            ask_api_versions(one)
            ask_api_versions(two)
            with connected(proxy.bootstrap) as three:
                assert ends(three)
            ask_api_versions(one)
        assert closed_by_cause(proxy, "address_limit") == 1
