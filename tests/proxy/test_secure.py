"""TLS on both sides, SASL passed through, one port with server names: real clients against a real secured broker."""

import socket
import ssl
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from kordon.codecs import apis
from kordon.codecs.decision import Kind
from kordon.testing.certificates import Certificates
from kordon.testing.cluster import Cluster
from kordon.testing.decision_log import read_files
from kordon.testing.known import known
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until

pytestmark = pytest.mark.broker


@contextmanager
def proxied(
    cluster: Cluster, listener: str, listen: dict[str, Any] | None = None, recorded: Path | None = None
) -> Iterator[ProxyProcess]:
    """A proxy that meets the cluster at a listener, with TLS where that has it; decisions are recorded in a folder."""
    certificates = cluster.certificates
    upstream: dict[str, Any] = {"bootstrap": cluster.bootstrap(listener)}
    if "SSL" in listener:
        upstream["tls"] = {"ca": str(certificates.ca)}
    if listener == "SSL":
        upstream["tls"] |= {"certificate": str(certificates.client), "key": str(certificates.client_key)}
    sections: dict[str, Any] = {"upstream": upstream}
    if listen:
        sections["listen"] = {"address": "127.0.0.1:1", **listen}
    if recorded is not None:
        sections["decisions"] = {"to": "files", "folder": str(recorded)}
    with ProxyProcess.start(bootstrap=cluster.bootstrap(listener), config=sections) as proxy:
        yield proxy


def downstream_tls(certificates: Certificates, **more: str) -> dict[str, Any]:
    return {"tls": {"certificate": str(certificates.server), "key": str(certificates.server_key), **more}}


def principals(proxy: ProxyProcess, settings: dict[str, Any], recorded: Path) -> set[str | None]:
    """Has a transactional producer ask for its identity; returns, when the proxy has ended, as whom it is on record."""
    named = {"bootstrap.servers": proxy.bootstrap, "transactional.id": f"known-{uuid.uuid4().hex[:8]}", **settings}
    Producer(named).init_transactions(60)
    assert proxy.stop() == 0
    told = [entry.decision for entry in read_files(recorded)]
    return {each.principal for each in told if each.kind is Kind.ADMIT and each.api_key == apis.INIT_PRODUCER_ID}


def round_trip(bootstrap: str, settings: dict[str, Any], seconds: float = 0) -> None:
    """Produces and consumes ten records (for at least `seconds`, a record a second), and compares."""
    topic = f"secure-{uuid.uuid4().hex[:8]}"
    errors: list[Any] = []
    common = {"bootstrap.servers": bootstrap, "error_cb": errors.append, **settings}
    producer = Producer(common)
    sent = [str(number).encode() for number in range(10)]
    for value in sent:
        producer.produce(topic, value)
        producer.flush(90 if not seconds else seconds / len(sent))
        if seconds:
            time.sleep(seconds / len(sent))  # the session must live longer than the broker lets it without a new log-in
    assert producer.flush(90) == 0, errors
    consumer = Consumer({**common, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    got: list[bytes | None] = []
    deadline = time.monotonic() + 90
    while len(got) < len(sent):
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            got.append(message.value())
        assert time.monotonic() < deadline, errors
    consumer.close()
    assert got == sent


@pytest.mark.parametrize("listener", ["SSL", "PLAINTEXT"])
@pytest.mark.parametrize("client_auth", ["none", "required"])
def test_clients_speak_tls_whatever_the_brokers_speak(
    secure_cluster: Cluster, listener: str, client_auth: str, tmp_path: Path
) -> None:
    """TLS or mTLS downstream, mTLS or plain TCP upstream: records go through; certificates are who clients are."""
    files = secure_cluster.certificates
    more = {"client_ca": str(files.ca), "client_auth": client_auth} if client_auth == "required" else {}
    settings = {"security.protocol": "SSL", "ssl.ca.location": str(files.ca)}
    if client_auth == "required":
        settings |= {"ssl.certificate.location": str(files.client), "ssl.key.location": str(files.client_key)}
    with proxied(secure_cluster, listener, downstream_tls(files, **more), tmp_path) as proxy:
        round_trip(proxy.bootstrap, settings)
        (principal,) = principals(proxy, settings, tmp_path)
    if client_auth == "none":
        assert principal is None
    else:
        assert known(principal).startswith("User:CN=client,")


def test_a_client_without_a_certificate_is_turned_away(secure_cluster: Cluster) -> None:
    """client_auth: required means it; the cause is counted."""
    files = secure_cluster.certificates
    tls = downstream_tls(files, client_ca=str(files.ca), client_auth="required")
    with proxied(secure_cluster, "PLAINTEXT", tls) as proxy:
        context = ssl.create_default_context(cafile=str(files.ca))
        with suppress(ssl.SSLError, ConnectionError), handshake(proxy.bootstrap, context) as sock:
            # With TLS 1.3 the client's handshake is over before its certificate is judged.
            assert sock.recv(1) == b""
        told = 'connections_closed_total{cause="downstream_tls_failed"} 1.0'
        wait_until("the cause is counted", lambda: told in proxy.metrics())


def test_plain_bytes_on_a_tls_port_are_named(secure_cluster: Cluster) -> None:
    """A client that forgot TLS is closed; the log says that it does not speak it."""
    files = secure_cluster.certificates
    with proxied(secure_cluster, "PLAINTEXT", downstream_tls(files)) as proxy:
        host, port = proxy.bootstrap.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=60) as sock:
            sock.sendall(b"\0\0\0\x10\0\x12\0\0\0\0\0\1\xff\xff" + b"\0" * 30)
            with suppress(ConnectionError):
                while sock.recv(1000):
                    pass
        wait_until("the log names the cause", lambda: "does not speak TLS" in proxy.log())


def test_a_broker_certificate_of_a_foreign_authority_is_not_accepted(secure_cluster: Cluster) -> None:
    """The connection ends with its cause, the proxy is unready and names the reason."""
    files = secure_cluster.certificates
    config = {"upstream": {"bootstrap": secure_cluster.bootstrap("SSL"), "tls": {"ca": str(files.other_ca)}}}
    with ProxyProcess.start(secure_cluster.bootstrap("SSL"), config=config, wait_ready=False) as proxy:
        wait_until("the status says why", lambda: "certificate is not accepted" in str(proxy.status()["unready"]))


SASL = {
    "PLAIN": {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "alice-secret"},
    "SCRAM-SHA-256": {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "alice", "sasl.password": "alice-secret"},
    "SCRAM-SHA-512": {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "alice", "sasl.password": "alice-secret"},
    "OAUTHBEARER": {
        "sasl.mechanism": "OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "sasl.oauthbearer.config": "principal=alice",
    },
}


@pytest.mark.parametrize("mechanism", SASL)
def test_sasl_goes_through(secure_cluster: Cluster, mechanism: str, tmp_path: Path) -> None:
    """Clients log in at the broker, through the proxy, with every mechanism, and are on record by their names."""
    settings = {"security.protocol": "SASL_PLAINTEXT", **SASL[mechanism]}
    with proxied(secure_cluster, "SASL_PLAINTEXT", recorded=tmp_path) as proxy:
        round_trip(proxy.bootstrap, settings)
        assert principals(proxy, settings, tmp_path) == {"User:alice"}


def test_sasl_over_tls_goes_through_and_logs_in_again(secure_cluster: Cluster) -> None:
    """SASL_SSL on both sides; the session outlives connections.max.reauth.ms (8 s) by logging in anew (KIP-368)."""
    files = secure_cluster.certificates
    with proxied(secure_cluster, "SASL_SSL", downstream_tls(files)) as proxy:
        settings = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(files.ca), **SASL["SCRAM-SHA-256"]}
        round_trip(proxy.bootstrap, settings, seconds=14)


def test_a_wrong_password_is_the_brokers_to_refuse(secure_cluster: Cluster) -> None:
    """The client gets the broker's own answer."""
    with proxied(secure_cluster, "SASL_PLAINTEXT") as proxy:
        wrong = {**SASL["PLAIN"], "sasl.password": "wrong", "security.protocol": "SASL_PLAINTEXT"}
        errors: list[Any] = []
        producer = Producer({"bootstrap.servers": proxy.bootstrap, "error_cb": errors.append, **wrong})

        def is_refused() -> bool:
            producer.poll(0.1)
            return any("Invalid username or password" in error.str() for error in errors)

        wait_until("it is refused", is_refused)
        with pytest.raises(KafkaException):
            producer.list_topics(timeout=1)
        assert "wrong" not in proxy.log()


def test_kordons_own_log_in_finds_the_brokers(secure_cluster: Cluster) -> None:
    """With upstream.sasl the brokers are known, and their ports open, before any client comes."""
    sasl = {"mechanism": "SCRAM-SHA-512", "username": "admin", "password": "admin-secret"}
    bootstrap = secure_cluster.bootstrap("SASL_PLAINTEXT")
    with ProxyProcess.start(bootstrap, config={"upstream": {"bootstrap": bootstrap, "sasl": sasl}}) as proxy:
        wait_until(
            "the broker is known", lambda: [each["node_id"] for each in proxy.status()["upstream"]["nodes"]] == [1]
        )
        assert "admin-secret" not in proxy.log()


def handshake(bootstrap: str, context: ssl.SSLContext, name: str = "localhost") -> ssl.SSLSocket:
    host, port = bootstrap.rsplit(":", 1)
    sock = socket.create_connection((host, int(port)), timeout=60)
    return context.wrap_socket(sock, server_hostname=name)


def test_server_names_tell_brokers_apart_on_one_port(secure_cluster: Cluster) -> None:
    """With listen.sni one port serves bootstrap and brokers; a name that leads nowhere is refused."""
    files = secure_cluster.certificates
    sni = {"bootstrap": "bootstrap.kordon.test", "broker": "broker-$(node_id).kordon.test"}
    with proxied(secure_cluster, "PLAINTEXT", {**downstream_tls(files), "sni": sni}) as proxy:
        context = ssl.create_default_context(cafile=str(files.ca))
        for name, role in (("bootstrap.kordon.test", None), ("broker-1.kordon.test", 1)):
            with handshake(proxy.bootstrap, context, name) as sock:
                sock.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff")
                assert sock.recv(1000)[4:8] == b"\0\0\0\1", role
        with pytest.raises((ssl.SSLError, ConnectionError)):
            handshake(proxy.bootstrap, context, "elsewhere.kordon.test")
        port = int(proxy.bootstrap.rsplit(":", 1)[1])
        assert proxy.status()["upstream"]["nodes"][0]["advertised"] == f"broker-1.kordon.test:{port}"
