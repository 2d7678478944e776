"""Who clients are is on record also where nothing can be managed, and what is refused before it is read."""

from typing import Any

import pytest

from kordon.codecs import apis
from kordon.codecs.decision import Kind
from kordon.codecs.messages import request, response
from kordon.proxy.config.config import Limits
from kordon.proxy.core import verdicts
from kordon.proxy.core.addresses import Advertised
from kordon.proxy.core.connection import Connection
from kordon.proxy.core.events import SendUpstream
from kordon.proxy.core.interception import Service, Translate
from kordon.proxy.core.tally import Tally
from kordon.proxy.decisions.runs import Client
from kordon.proxy.handlers.introductions import OnlyRecorded
from kordon.testing.known import known
from kordon.testing.messages.as_read import as_read
from kordon.testing.noted import Noted
from kordon.testing.plays import request_frame


class Worker:
    """One that manages nothing, with one client."""

    def __init__(self) -> None:
        self.noted = Noted()
        self.client: Client = self.noted.journal.connected()
        self.service: Service = OnlyRecorded(self.noted.journal).connected(self.client)


def connection(worker: Worker) -> Connection:
    """The core of a connection that this worker looks at."""
    return Connection(Limits(), Tally(), Advertised(host="proxy", base_port=1), 0.0, worker.service)


def test_identities_of_transactional_producers_are_on_record() -> None:
    """As where topics are managed: the request passes as it came, and its answer is looked at."""
    worker = Worker()
    route = known(verdicts.route(apis.INIT_PRODUCER_ID, 4))
    assert worker.service.wants(route)
    asked = {"transactional_id": "t", "transaction_timeout_ms": 1, "producer_id": -1, "producer_epoch": -1}
    worker.service.hear("shop")
    decision = worker.service.decide(route, memoryview(request(apis.INIT_PRODUCER_ID).build(4, asked)))
    assert isinstance(decision, Translate)
    assert decision.body is None
    answer = {"throttle_time_ms": 0, "error_code": 0, "producer_id": 9, "producer_epoch": 0}
    decision.back(as_read(response(apis.INIT_PRODUCER_ID), 4, answer))
    (noted,) = worker.noted.of(Kind.ADMIT)
    assert (noted.client_id, noted.evidence["answered"]) == ("shop", [9, 0])


@pytest.mark.parametrize("key", [apis.PRODUCE, apis.FETCH, apis.METADATA])
def test_traffic_is_not_looked_at(key: int) -> None:
    """It streams through, as without a decision log."""
    route = known(verdicts.route(key, 4))
    assert not Worker().service.wants(route)


def test_a_refused_request_is_on_record_by_the_client_id_that_it_brings() -> None:
    """Though it is refused by its first bytes, as nobody knows how to read it."""
    worker = Worker()
    frame = request_frame(apis.METADATA, 0, 1, client_id="shop", topics=[])
    frame = frame[:4] + (9999).to_bytes(2) + (3).to_bytes(2) + frame[8:]
    connection(worker).receive_requests(memoryview(bytearray(frame)), 1.0)
    worker.noted.journal.end_runs()
    (refused,) = worker.noted.of(Kind.REFUSE)
    assert (refused.api_key, refused.reason, refused.client_id) == (9999, "UNSUPPORTED_VERSION", "shop")
    assert refused.evidence == {"api_version": 3, "ends_connection": True}


def test_a_greeting_passes_and_is_heard() -> None:
    """Clients say their name with each request; the first one is enough."""
    worker = Worker()
    frame = request_frame(apis.API_VERSIONS, 2, 1, client_id="shop")
    commands = connection(worker).receive_requests(memoryview(bytearray(frame)), 1.0) or []
    assert [bytes(b"".join(each.pieces)) for each in commands if isinstance(each, SendUpstream)] == [frame]
    assert worker.client.client_id == "shop"


def test_a_fetch_session_that_is_ended_is_on_record() -> None:
    """Kordon answers it, as its session may hold what has come to be managed since (TAKEOVER-WAITS)."""
    worker = Worker()
    service: Any = worker.service
    service.wants = lambda _: True
    fields: dict[str, Any] = {"max_wait_ms": 1, "min_bytes": 1, "session_id": 7, "session_epoch": 3, "topics": []}
    frame = request_frame(apis.FETCH, 7, 1, **fields)
    connection(worker).receive_requests(memoryview(bytearray(frame)), 1.0)
    worker.noted.journal.end_runs()
    (refused,) = worker.noted.of(Kind.REFUSE)
    assert (refused.api_key, refused.reason) == (apis.FETCH, "FETCH_SESSION_ID_NOT_FOUND")
    assert not refused.evidence["ends_connection"]


def test_the_end_of_a_connection_is_heard_where_nothing_is_managed() -> None:
    """Whoever serves connections is told of it, whatever it does."""
    Worker().service.closed()
