"""Bad days: what is wrong is said once, in a line that names the cure, and ends no more than it must."""

import os
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing

import pytest

from kordon.testing.cluster import Cluster
from kordon.testing.plays import request_frame
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = pytest.mark.broker

API_VERSIONS = request_frame(18, 3, 7, client_software_name="test", client_software_version="1")


def connect(address: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=60)


def frame(sock: socket.socket) -> bytes:
    """Reads one whole frame; empty when the connection ended."""
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        try:
            piece = sock.recv(65536)
        except ConnectionResetError:
            return b""
        if not piece:
            return b""
        data += piece
    return data


def readiness(proxy: ProxyProcess) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{proxy.admin}/readyz", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_wrong_bootstrap_address_is_waited_for() -> None:
    """The proxy stays up, unready, and says once what it cannot reach."""
    with ProxyProcess.start(bootstrap="127.0.0.1:1", wait_ready=False) as proxy:
        wait_until("the proxy answers", lambda: proxy_answers(proxy))
        wait_until("it says what it cannot reach", lambda: "127.0.0.1:1" in readiness(proxy)[1])
        assert readiness(proxy)[0] == 503
        with connect(proxy.bootstrap) as sock:
            sock.sendall(API_VERSIONS)
            assert frame(sock) == b""
        time.sleep(2)  # retries go on meanwhile; what is asserted is that they are not logged
        assert proxy.log().count("cluster_unreachable") == 1


def proxy_answers(proxy: ProxyProcess) -> bool:
    try:
        return readiness(proxy)[0] in (200, 503)
    except OSError:
        return False


def test_a_broker_that_answers_nonsense_is_not_passed_on() -> None:
    """What cannot be matched with a request ends the connection; the client never sees it."""

    def talk_nonsense(server: socket.socket) -> None:
        while True:
            try:
                peer, _ = server.accept()
            except OSError:
                return
            with peer:
                peer.recv(1000)
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with closing(socket.socket()) as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        threading.Thread(target=talk_nonsense, args=(server,), daemon=True).start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        # with managed topics on, nobody is let in before the layouts are known, so nothing would be passed on anyway
        config = {"ordering": {"enabled": False}}
        with ProxyProcess.start(bootstrap=address, config=config, wait_ready=False) as proxy:
            wait_until("the proxy answers", lambda: proxy_answers(proxy))
            with connect(proxy.bootstrap) as sock:
                sock.sendall(API_VERSIONS)
                assert frame(sock) == b""
            causes = ("frame_too_large", "malformed_response")
            wait_until("the log says why", lambda: any(cause in proxy.log() for cause in causes))
            assert "Traceback" not in proxy.log()
        server.shutdown(socket.SHUT_RDWR)


def long_fetch(topic: str, correlation_id: int) -> bytes:
    """A Fetch of an empty partition, which the broker answers after four seconds."""
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "log_start_offset": -1,
        "partition_max_bytes": 1000,
    }
    return request_frame(
        1,
        11,
        correlation_id,
        replica_id=-1,
        max_wait_ms=4000,
        min_bytes=1,
        max_bytes=1000,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[{"topic": topic, "partitions": [partition]}],
        forgotten_topics_data=[],
        rack_id="",
    )


def test_no_accepted_request_loses_its_answer_when_the_proxy_stops(cluster: Cluster) -> None:
    """SIGTERM: the ports close first, a request under way is answered, then the connection ends; exit code 0."""
    cluster.tool("kafka-topics", "--bootstrap-server", cluster.bootstrap(), "--create", "--topic", "drained")
    with ProxyProcess.start(bootstrap=cluster.bootstrap()) as proxy, connect(proxy.bootstrap) as sock:
        sock.sendall(API_VERSIONS)
        frame(sock)
        sock.sendall(long_fetch("drained", 11))
        wait_until("the request is in flight", lambda: in_flight(proxy) == 1)
        os.kill(proxy.pid, signal.SIGTERM)
        wait_until("the port is closed", lambda: refuses(proxy.bootstrap))
        answer = frame(sock)
        assert answer[4:8] == (11).to_bytes(4, "big")
        assert sock.recv(1) == b""
        assert proxy.wait() == 0


def in_flight(proxy: ProxyProcess) -> int:
    return int(proxy.status()["requests"]["in_flight"])


def refuses(address: str) -> bool:
    try:
        connect(address).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_broker_that_dies_and_comes_back_needs_no_restart(own_cluster: Cluster) -> None:
    """Its connections end as they would without a proxy; once it is back, clients are served again."""
    often = {"upstream": {"bootstrap": own_cluster.bootstrap(), "refresh_ms": 1000}}
    with ProxyProcess.start(bootstrap=own_cluster.bootstrap(), config=often) as proxy:
        with connect(proxy.bootstrap) as sock:
            sock.sendall(API_VERSIONS)
            assert frame(sock)
            own_cluster.brokers[0].kill()
            assert frame(sock) == b""
        wait_until("the proxy is not ready", lambda: readiness(proxy)[0] == 503, 60)
        own_cluster.brokers[0].start()
        wait_until("the proxy is ready again", lambda: readiness(proxy)[0] == 200, 90)
        with connect(proxy.bootstrap) as sock:
            sock.sendall(API_VERSIONS)
            assert frame(sock)


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    with Cluster.start(brokers=1) as cluster:
        yield cluster
