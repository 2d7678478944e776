"""A client that is muted is not read until the time has passed (CLIENT-QUOTA, KIP-219)."""

import asyncio

from kordon.codecs.messages import response
from kordon.proxy.config.config import Limits
from kordon.proxy.core.addresses import Advertised
from kordon.proxy.core.connection import Connection
from kordon.proxy.core.events import Drain, MuteDownstream, SendDownstream, Served, StartServing
from kordon.proxy.core.interception import Decision, NothingManaged, Serve
from kordon.proxy.core.tally import Flow, Tally
from kordon.proxy.core.verdicts import Route
from kordon.proxy.core.waiting import Answer, PendingRequest, Throttled
from kordon.proxy.relay.muting import Muting
from kordon.proxy.relay.socket_end import ReadBuffer, SocketEnd
from kordon.testing.known import known
from kordon.testing.plays import Client, feed, request_frame
from kordon.testing.waiting import until

PRODUCE_VERSION = 8
HEARTBEAT, HEARTBEAT_VERSION = 12, 4


class Transport(asyncio.Transport):
    """A transport that is read or not."""

    def __init__(self) -> None:
        super().__init__()
        self.is_read = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


class End(SocketEnd):
    """A client's end with such a transport."""

    def __init__(self) -> None:
        super().__init__(ReadBuffer(), Flow())
        self.socket = Transport()
        self.connection_made(self.socket)
        self.muting = Muting(self)

    def mutes(self, seconds: float) -> asyncio.TimerHandle | None:
        self.muting.mute(seconds)
        return self.muting.timer


async def _unused(_: object) -> Answer:
    raise NotImplementedError


class Serves(NothingManaged):
    """Serves heartbeats."""

    def wants(self, route: Route) -> bool:
        return route.api.key == HEARTBEAT

    def decide(self, route: Route, body: memoryview) -> Decision:
        return Serve(_unused)


def serving() -> tuple[Connection, PendingRequest]:
    """Returns a connection whose client waits for an answer of Kordon's own."""
    core = Connection(Limits(), Tally(), Advertised(host="proxy", base_port=1), 0.0, Serves())
    commands, _ = feed(core, Client, request_frame(HEARTBEAT, HEARTBEAT_VERSION, 1))
    (pending,) = [each.pending for each in commands if isinstance(each, StartServing)]
    return core, pending


def throttled() -> Throttled:
    return Throttled(response(HEARTBEAT).build(HEARTBEAT_VERSION, {"throttle_time_ms": 70}), 70)


def test_the_answer_leaves_and_then_the_client_is_muted() -> None:
    """It is told before it waits."""
    core, pending = serving()
    sent, muted = core.handle(Served(pending, throttled()))
    assert isinstance(sent, SendDownstream)
    assert muted == MuteDownstream(70)


def test_a_client_whose_connection_ends_is_not_muted() -> None:
    """Nothing follows the end."""
    core, pending = serving()
    core.handle(Drain())
    commands = core.handle(Served(pending, throttled()))
    assert [type(each).__name__ for each in commands[:1]] == ["SendDownstream"]
    assert core.closed is not None
    assert core.handle(Served(pending, throttled())) == []


async def test_the_later_of_two_ends_counts() -> None:
    """Whichever was told first."""
    end = End()
    first = known(end.mutes(1_000))
    assert end.mutes(500) is first
    end.mutes(2_000)
    assert first.cancelled()
    assert not end.socket.is_read
    end.muting.cancel()


async def test_a_muted_client_is_read_when_its_time_has_passed() -> None:
    """Unless something else holds it."""
    end = End()
    end.mutes(0)
    end.hold("another")
    await until("the client is read again", lambda: end.muting.timer is None)
    assert not end.socket.is_read
    end.release("another")
    assert end.socket.is_read


async def test_no_timer_outlives_its_connection() -> None:
    """It might be set for weeks, and keeps the connection in memory."""
    end = End()
    timer = known(end.mutes(1_000_000))
    end.muting.cancel()
    assert timer.cancelled()
    end.muting.cancel()
