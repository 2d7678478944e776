"""Clients that never log in, against a proxy with 512 MiB: others are served, and nothing is left of it.

The clock of a shared machine proves little, so what counts is the memory, what is held, and how the wait of a good
client compares with that for the broker itself, which the same attackers keep busy.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil
import pytest
from confluent_kafka.admin import AclOperation

from kordon.codecs import apis
from kordon.testing.broker_config import USERS
from kordon.testing.managed_clients import create_managed
from kordon.testing.plain_connection import PlainConnection
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.rights import LISTENER, Allowed, Secured, log_in, login
from kordon.testing.waiting import wait_until

pytestmark = pytest.mark.broker
TOPIC = "rows-orders"
ADDRESS_SPACE_BYTES = 512 * 2**20
GROWTH_BYTES = 200 * 2**20
CONNECTIONS = 50
SESSION_SECONDS = 30
"""Half of what the broker allows before a client must log in anew."""
ANSWERS = {0, 75}
"""NONE, and UNKNOWN_LEADER_EPOCH, which clients retry: on a busy machine a broker does not say all in time."""


@pytest.fixture(scope="module")
def kordon(strict_cluster: Secured) -> Iterator[ProxyProcess]:
    """A proxy in front of a broker that wants a log-in, with a managed topic and the memory of the example's."""
    strict_cluster.allow(*(Allowed(user, AclOperation.ALL, TOPIC) for user in ("kordon", "alice")))
    sasl = {"mechanism": "PLAIN", "username": "kordon", "password": USERS["kordon"]}
    address = strict_cluster.cluster.bootstrap(LISTENER)
    with ProxyProcess.start(address, config={"upstream": {"bootstrap": address, "sasl": sasl}}) as proxy:
        create_managed(proxy.bootstrap, TOPIC, login("admin"))
        psutil.Process(proxy.pid).rlimit(psutil.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
        yield proxy


@dataclass
class Seen:
    """What happened to a good client and to the proxy while others attacked."""

    waits: list[float] = field(default_factory=list[float])
    direct: list[float] = field(default_factory=list[float])
    rss: list[int] = field(default_factory=list[int])
    held: list[float] = field(default_factory=list[float])


@contextmanager
def attackers(bootstrap: str, seconds: float) -> Iterator[subprocess.Popen[bytes]]:
    """Runs them; they are gone afterwards."""
    command = [
        sys.executable,
        "-m",
        "kordon.testing.messages.hostile_rows",
        bootstrap,
        str(seconds),
        str(CONNECTIONS),
        TOPIC,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def watch(secured: Secured, kordon: ProxyProcess, seconds: float) -> tuple[Seen, int]:
    """Has a good client ask for offsets, of the proxy and of the broker by turns, while others attack."""
    seen, process = Seen(), psutil.Process(kordon.pid)
    seen.rss.append(process.memory_info().rss)
    with attackers(kordon.bootstrap, seconds) as attack:
        while attack.poll() is None:
            session_ends = time.monotonic() + SESSION_SECONDS
            direct = log_in(PlainConnection(secured.cluster.bootstrap(LISTENER)), "admin")
            with direct, log_in(PlainConnection(kordon.bootstrap), "alice") as good:
                while attack.poll() is None and time.monotonic() < session_ends:
                    seen.waits.append(wait_of(good))
                    seen.direct.append(wait_of(direct))
                    seen.rss.append(process.memory_info().rss)
                    seen.held.append(kordon.metric("kordon_held_bytes"))
                    time.sleep(0.02)
        assert attack.stdout is not None
        return seen, int(attack.stdout.read())


def wait_of(connection: PlainConnection) -> float:
    """Seconds that a client waits for its answer."""
    asked = {"replica_id": -1, "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "timestamp": -1}]}]}
    started = time.monotonic()
    (topic,) = connection.ask(apis.LIST_OFFSETS, 7, asked).topics
    assert topic.partitions[0].error_code in ANSWERS
    return time.monotonic() - started


def judge(secured: Secured, kordon: ProxyProcess, seconds: float) -> Seen:
    """Holds what was seen against what must be true."""
    seen, sent = watch(secured, kordon, seconds)
    assert sent > CONNECTIONS
    assert max(seen.rss) - seen.rss[0] < GROWTH_BYTES
    assert max(seen.held) <= CONNECTIONS * 2**20 * 10
    wait_until("nothing is left of the connections", lambda: kordon.status()["connections"]["open"] == 0)
    wait_until("nothing is held for them", lambda: kordon.metric("kordon_held_bytes") == 0)
    failures = [line for line in kordon.log().splitlines() if "task_failed" in line or "Traceback" in line]
    assert not failures, failures[:3]
    assert hits(kordon)
    return seen


def hits(kordon: ProxyProcess) -> float:
    """How often somebody who has not logged in was to have no more bytes held."""
    return kordon.metric("kordon_limit_hits_total", limit="unproven_bytes")


def test_large_requests_without_a_log_in_disturb_nobody(strict_cluster: Secured, kordon: ProxyProcess) -> None:
    """Every kind of them, with as many rows as are read and more, from 50 connections."""
    judge(strict_cluster, kordon, 0)


@pytest.mark.deep
def test_a_minute_of_large_requests_disturbs_nobody(strict_cluster: Secured, kordon: ProxyProcess) -> None:
    """The same for a minute; on a machine of its own a good client waits 250 ms at the most."""
    judge(strict_cluster, kordon, 60)


def test_large_first_request_needs_a_log_in(strict_cluster: Secured, kordon: ProxyProcess) -> None:
    """It is not held before the broker has accepted the client, which it asks; then it passes."""
    with PlainConnection(kordon.bootstrap) as stranger, pytest.raises((EOFError, OSError)):
        stranger.ask_frame(b"\0\0\0\x09\0\0\0\7\0\1c\0\0" + bytes(3 * 2**20))
    wait_until(
        "the cause is named",
        lambda: kordon.metric("kordon_connections_closed_total", cause="unproven") >= 1,
    )
    with log_in(PlainConnection(kordon.bootstrap), "alice") as known:
        records = {"partition_data": [{"index": 0, "records": bytes(3 * 2**20)}]}
        fields = {"acks": -1, "timeout_ms": 1000, "topic_data": [{"name": TOPIC, **records}]}
        (topic,) = known.ask(apis.PRODUCE, 9, fields).responses
        assert topic.partition_responses[0].error_code != 0  # they are no records, and were read to see that
