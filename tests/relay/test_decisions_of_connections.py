"""What is noted of connections: limits that were hit, and why they ended."""

import json
import socket
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Producer

from kordon.codecs.decision import Decision, Entry, Kind
from kordon.proxy.config.config import Limits
from kordon.proxy.core.causes import LIMIT_OF_CAUSE, ORDINARY, CloseCause
from kordon.proxy.core.events import PauseDownstream
from kordon.proxy.core.tally import Tally
from kordon.proxy.decisions.events import OwnError
from kordon.proxy.relay.connection_record import ConnectionRecord
from kordon.proxy.relay.relay import Relay
from kordon.testing.cluster import Cluster
from kordon.testing.noted import Noted
from kordon.testing.plays import request_frame
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import wait_until


class Worker:
    """A worker's connections, without sockets."""

    def __init__(self) -> None:
        self.noted = Noted()

    def connects(self) -> ConnectionRecord:
        return ConnectionRecord(self.noted.journal, Tally(), "127.0.0.1", "bootstrap")


class Piped(Relay):
    """A connection without sockets, of which commands can be asked."""

    def __init__(self, worker: Worker) -> None:
        self.held: list[str] = []
        self.record = worker.connects()
        self.shared = cast("Any", SimpleNamespace(config=SimpleNamespace(limits=Limits())))
        self.downstream = cast("Any", SimpleNamespace(hold=self.held.append))


@pytest.mark.parametrize("cause", CloseCause)
async def test_an_end_is_noted_that_a_healthy_day_does_not_bring(cause: CloseCause) -> None:
    """With its cause, behind the limit that was hit; of others nobody has to know."""
    worker = Worker()
    worker.connects().closed(cause, "why")
    limit = LIMIT_OF_CAUSE.get(cause)
    hits = [(Kind.LIMIT, limit, None)] if limit is not None else []
    ends = [(Kind.CLOSE, None, cause.value)] if limit is not None or cause not in ORDINARY else []
    assert [(each.kind, each.rule, each.reason) for each in worker.noted.of()] == hits + ends
    assert {each.connection for each in worker.noted.of()} <= {1}
    assert all(each.evidence == {"detail": "why"} for each in worker.noted.of(Kind.LIMIT))


async def test_the_end_of_a_connection_is_noted_where_another_decision_names_it() -> None:
    """What it was given then has an end on record, ordinary as that is."""
    worker = Worker()
    record = worker.connects()
    worker.noted.journal.refused(record.peer, OwnError(0, "NOT_LEADER_OR_FOLLOWER", "orders", 3))
    record.closed(CloseCause.CLIENT_CLOSED, "the client closed the connection")
    refused, closed = worker.noted.of()
    assert (refused.kind, closed.kind, closed.reason) == (Kind.REFUSE, Kind.CLOSE, "client_closed")


async def test_a_client_that_has_too_much_in_flight_is_noted_once() -> None:
    """One that does not care waits thousands of times a second."""
    worker = Worker()
    relay = Piped(worker)
    for _ in range(3):
        relay.perform([PauseDownstream()])
    assert len(relay.held) == 3
    relay.record.closed(CloseCause.CLIENT_CLOSED, "the client closed the connection")
    assert [(each.kind, each.rule, each.reason) for each in worker.noted.of()] == [
        (Kind.LIMIT, "requests_in_flight", None),
        (Kind.CLOSE, None, "client_closed"),
    ]


def decisions(folder: Path) -> list[Decision]:
    """Reads what is in files, but for a line that is not whole yet."""
    found: list[Decision] = []
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_bytes().splitlines():
            with suppress(ValueError):
                found.append(Entry.load(line).decision)
    return found


def ends_in(folder: Path) -> int:
    """Returns how many ends of connections are on record."""
    return sum(each.kind is Kind.CLOSE for each in decisions(folder))


@pytest.mark.broker
@pytest.mark.parametrize("enabled", [True, False])
def test_a_running_proxy_notes_who_was_refused_and_why(cluster: Cluster, tmp_path: Path, *, enabled: bool) -> None:
    """An unknown api, garbage, and silence: each ends its connection, and the record says so."""
    config = {
        "ordering": {"enabled": enabled},
        "decisions": {"to": "files", "folder": str(tmp_path), "run_ms": 100},
        "limits": {"handshake_ms": 5000, "frame_bytes": 65_536, "header_bytes": 1024},
    }
    with ProxyProcess.start(bootstrap=cluster.bootstrap(), config=config) as proxy:
        unknown = b"\0\0\0\x20\x7f\x7f\0\x05\0\0\0\1\xff\xff" + b"\0" * 22
        greeting = request_frame(18, 2, 7, client_id="shop")
        for sent in (greeting + unknown, b"\x7f\xff\xff\xff" + b"\0" * 60, b""):
            host, port = proxy.bootstrap.rsplit(":", 1)
            with socket.create_connection((host, int(port)), timeout=60) as sock:
                sock.sendall(sent)
                with suppress(ConnectionResetError):
                    while sock.recv(65_536):
                        pass
        wait_until("three ends on record", lambda: ends_in(tmp_path) == 3, 60)
        found = decisions(tmp_path)
    refuse, *others = [each for each in found if each.kind in (Kind.REFUSE, Kind.CLOSE, Kind.LIMIT)]
    assert (refuse.kind, refuse.api_key, refuse.reason) == (Kind.REFUSE, 0x7F7F, "UNSUPPORTED_VERSION")
    assert refuse.evidence == {"api_version": 5, "ends_connection": True}
    assert [(each.kind, each.rule or each.reason) for each in others] == [
        (Kind.CLOSE, "unsupported_request"),
        (Kind.LIMIT, "frame_bytes"),
        (Kind.CLOSE, "frame_too_large"),
        (Kind.LIMIT, "handshake_ms"),
        (Kind.CLOSE, "handshake_timeout"),
    ]
    assert [each.connection for each in (refuse, *others)] == [1, 1, 2, 2, 3, 3]
    assert refuse.client_id == "shop"
    assert json.dumps([each.evidence for each in found])


@pytest.mark.broker
@pytest.mark.parametrize("enabled", [True, False])
def test_a_running_proxy_notes_which_identities_transactional_producers_get(
    cluster: Cluster, tmp_path: Path, *, enabled: bool
) -> None:
    """Also where nothing is, or can be, managed; the second producer of an id gets a higher epoch."""
    config = {
        "decisions": {"to": "files", "folder": str(tmp_path), "run_ms": 100},
        "ordering": {"enabled": enabled},
    }
    with ProxyProcess.start(bootstrap=cluster.bootstrap(), config=config) as proxy:
        for name in ("one", "two"):
            settings = {"bootstrap.servers": proxy.bootstrap, "transactional.id": "on-record", "client.id": name}
            Producer(settings).init_transactions(60)
        idempotent = Producer({"bootstrap.servers": proxy.bootstrap, "enable.idempotence": True})
        idempotent.produce("on-record-of-nobody", b"value")
        assert idempotent.flush(60) == 0
    found = [each for each in decisions(tmp_path) if each.kind is Kind.ADMIT]
    assert {(each.api_key, each.evidence["transactional_id"]) for each in found} == {(22, "on-record")}
    assert {tuple(each.evidence["given"]) for each in found} == {(-1, -1)}
    one, two = (
        [tuple(each.evidence["answered"]) for each in found if each.client_id == name and not each.evidence["error"]]
        for name in ("one", "two")
    )
    assert max(one) < min(two)
    assert len({producer_id for producer_id, _ in one + two}) == 1
