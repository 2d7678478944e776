"""What clients have under way when a topic is taken over: known per connection, and Fetch sessions begin anew."""

import asyncio
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from kordon.codecs import apis
from kordon.proxy.config.config import Limits
from kordon.proxy.core.addresses import Advertised
from kordon.proxy.core.connection import Connection
from kordon.proxy.core.events import Drain, SendDownstream, SendUpstream
from kordon.proxy.core.interception import Decision, NothingManaged
from kordon.proxy.core.tally import Tally
from kordon.proxy.core.verdicts import Route
from kordon.proxy.relay.relays import Relays
from kordon.testing.plays import Broker, Client, feed, request_frame, response_frame

NAMES_ALL, GOES_ON = 0, 3
"""Session epochs of Fetch (KIP-227)."""
BOTH = frozenset({apis.PRODUCE, apis.FETCH})


class OtherTopicsOnly(NothingManaged):
    """Looks at every Fetch, and finds nothing managed in it."""

    def wants(self, route: Route) -> bool:
        return route.api.key == apis.FETCH

    def decide(self, route: Route, body: memoryview) -> Decision:
        return None


def connection() -> Connection:
    return Connection(Limits(), Tally(), Advertised(host="proxy", base_port=1), 0.0, OtherTopicsOnly())


def fetch(number: int, version: int, session_epoch: int, session_id: int = 77) -> bytes:
    """A Fetch that says nothing of partitions."""
    session: dict[str, Any] = {"session_id": session_id, "session_epoch": session_epoch} if version >= 7 else {}
    fields: dict[str, Any] = {
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 1000,
        "topics": [],
        "forgotten_topics_data": [],
        **session,
    }
    return request_frame(apis.FETCH, version, number, **fields)


def sends(core: Connection, frame: bytes) -> tuple[bytes, bytes]:
    """What goes to the broker and to the client when the client sends this."""
    commands, _ = feed(core, Client, frame)
    upstream = b"".join(bytes(p) for each in commands if isinstance(each, SendUpstream) for p in each.pieces)
    downstream = b"".join(bytes(p) for each in commands if isinstance(each, SendDownstream) for p in each.pieces)
    return upstream, downstream


@pytest.mark.parametrize("version", [7, 12, 13, 15, 17])
def test_a_session_of_before_is_begun_anew(version: int) -> None:
    """It may hold what has come to be managed, which its Fetch does not name; the broker knows no such session."""
    core = connection()
    assert sends(core, fetch(1, version, GOES_ON)) == (fetch(1, version, GOES_ON, session_id=0), b"")
    feed(core, Broker, response_frame(apis.FETCH, version, 1, error_code=70))
    assert sends(core, whole := fetch(2, version, NAMES_ALL)) == (whole, b"")
    feed(core, Broker, response_frame(apis.FETCH, version, 2, session_id=77))
    assert sends(core, more := fetch(3, version, GOES_ON)) == (more, b"")
    feed(core, Broker, response_frame(apis.FETCH, version, 3))
    core.requests.whole.end_sessions()
    assert sends(core, fetch(4, version, GOES_ON)) == (fetch(4, version, GOES_ON, session_id=0), b"")


def test_a_fetch_without_sessions_passes() -> None:
    """Before version 7 each names all it wants."""
    core = connection()
    assert sends(core, old := fetch(1, 6, NAMES_ALL)) == (old, b"")


def test_what_brokers_have_not_answered_is_known() -> None:
    """A Produce of which only a part has come yet counts, and one that is answered does not."""
    core = connection()
    body: dict[str, Any] = {"acks": -1, "timeout_ms": 1000, "topic_data": [], "transactional_id": None}
    first, second = (request_frame(apis.PRODUCE, 9, number, **body) for number in (1, 2))
    sends(core, first)
    sends(core, second[:-1])
    assert len(core.unanswered(BOTH)) == 2
    assert core.unanswered(frozenset({apis.FETCH})) == set()
    feed(core, Broker, response_frame(apis.PRODUCE, 9, 1))
    assert len(core.unanswered(BOTH)) == 1


def test_a_silent_produce_is_known_while_it_comes() -> None:
    """With acks=0 nothing says that it has landed; what can be known is that it has not gone out entirely."""
    core = connection()
    body: dict[str, Any] = {"acks": 0, "timeout_ms": 1000, "topic_data": [], "transactional_id": None}
    frame = request_frame(apis.PRODUCE, 9, 1, **body)
    sends(core, frame[:-1])
    assert len(core.unanswered(BOTH)) == 1
    sends(core, frame[-1:])
    assert core.unanswered(BOTH) == set()


@dataclass(eq=False)
class Ends:
    """A client connection that notes when it is to end."""

    name: str
    node_id: int | None
    ended: list[str]
    frames: int = 1

    @property
    def core(self) -> Any:
        return SimpleNamespace(requests=SimpleNamespace(frames=self.frames))

    def drain(self, why: Drain) -> None:
        self.ended.append(f"{self.name} {why.cause.value}")


async def test_clients_see_a_topic_anew_by_a_connection_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broker by broker, and the bootstrap port's last: librdkafka asks by another connection when it has lost one."""
    monkeypatch.setattr("kordon.proxy.relay.relays._RECONNECT_SECONDS", 0.05)
    nothing: Any = None
    relays = Relays(nothing, Tally(), nothing, nothing)
    ended: list[str] = []
    live: Any = {
        Ends("bootstrap", None, ended),
        Ends("second", 2, ended),
        Ends("first", 1, ended),
        Ends("silent", 1, ended, frames=0),
    }
    monkeypatch.setattr(relays, "_live", live)
    renewal = asyncio.ensure_future(relays.renew_views("orders"))
    await asyncio.sleep(0)
    assert ended == ["first taken_over"]
    await renewal
    assert ended == ["first taken_over", "second taken_over", "bootstrap taken_over"]
