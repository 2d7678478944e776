"""What a client can have Kordon hold and read: little before its broker accepts it, and never more than real ones."""

from typing import Any

import pytest

from kordon.codecs import apis
from kordon.codecs.errors import TooManyRows
from kordon.codecs.messages import request
from kordon.codecs.primitives import RowBudget
from kordon.proxy.config.config import Limits
from kordon.proxy.core.addresses import Advertised
from kordon.proxy.core.causes import CloseCause
from kordon.proxy.core.connection import Connection
from kordon.proxy.core.events import (
    AwaitProof,
    Close,
    Command,
    ReadOn,
    SendUpstream,
    Served,
    StartServing,
    UpstreamEnded,
)
from kordon.proxy.core.interception import Decision, NothingManaged, Serve
from kordon.proxy.core.tally import Tally
from kordon.proxy.core.verdicts import Route
from kordon.testing.plays import Broker, Client, feed, request_frame, response_frame

UNPROVEN, LARGEST = 20_000, 60_000
SMALL, LARGE = "g" * 10_000, "g" * 30_000
API_VERSIONS = request_frame(18, 3, 1)
OFFERED = response_frame(18, 3, 1, api_keys=[{"api_key": 3, "min_version": 0, "max_version": 9}])
PROOF = response_frame(3, 9, 0, brokers=[], topics=[])


class HoldsHeartbeats(NothingManaged):
    """Holds heartbeats, serves those of members named so, and reads ListOffsets with a budget of ten rows."""

    def wants(self, route: Route) -> bool:
        """Wants two kinds of requests, and Produce."""
        return route.api.key in (apis.HEARTBEAT, apis.LIST_OFFSETS, apis.PRODUCE)

    def decide(self, route: Route, body: memoryview) -> Decision:
        """Lets pass what is not to be served."""
        if route.api.key == apis.PRODUCE:
            return None
        value, _ = request(route.api.key).at(route.version).parse(body, RowBudget(10))
        return Serve(never) if value.get("member_id") == "served" else None


async def never(part: object) -> bytes:
    """Stands for what answers a request: there is no shell in a play."""
    raise NotImplementedError


class Stage:
    """A connection, what it has left unread, and where a command says so, what it is given again."""

    def __init__(self) -> None:
        limits = Limits(unproven_bytes=UNPROVEN, request_bytes=LARGEST)
        self.core = Connection(limits, Tally(), Advertised(host="p", base_port=1), 0.0, HoldsHeartbeats())
        self._unread = b""

    def client(self, sent: bytes) -> list[Command]:
        commands, self._unread = feed(self.core, Client, self._unread + sent)
        return commands

    def broker(self, sent: bytes) -> list[Command]:
        commands, left = feed(self.core, Broker, sent)
        assert not left
        return commands

    def greet(self) -> None:
        """Does what every client does first, which proves nothing."""
        self.client(API_VERSIONS)
        self.broker(OFFERED)


@pytest.fixture
def stage() -> Stage:
    """A connection that has been answered nothing but ApiVersions."""
    made = Stage()
    made.greet()
    return made


def heartbeat(group_id: str, number: int = 5, member_id: str = "") -> bytes:
    return request_frame(apis.HEARTBEAT, 4, number, group_id=group_id, member_id=member_id)


def sent(commands: list[Command]) -> bytes:
    return b"".join(bytes(piece) for each in commands if isinstance(each, SendUpstream) for piece in each.pieces)


def kinds(commands: list[Command]) -> list[type[Any]]:
    return [type(each) for each in commands]


def closes(commands: list[Command], cause: CloseCause) -> bool:
    """Whether the connection ends, and for this."""
    return any(isinstance(each, Close) and each.cause is cause for each in commands)


def test_large_request_waits_until_the_broker_has_accepted_the_client(stage: Stage) -> None:
    """The broker is asked in the client's name; the request is neither read nor lost meanwhile."""
    commands = stage.client(heartbeat(LARGE))
    assert kinds(commands) == [SendUpstream, AwaitProof]
    assert sent(commands) == request_frame(3, 9, 0, None, topics=[], allow_auto_topic_creation=False)
    assert stage.core.held_bytes == 0
    assert kinds(stage.broker(PROOF)) == [ReadOn]
    assert sent(stage.client(b"")) == heartbeat(LARGE)


def test_what_came_before_it_goes_on_in_its_order(stage: Stage) -> None:
    """Frames in front of the one that waits are sent, and the question behind them."""
    commands = stage.client(API_VERSIONS + heartbeat(LARGE))
    assert sent(commands).startswith(API_VERSIONS)
    assert kinds(stage.broker(OFFERED + PROOF))[-1] is ReadOn


def test_broker_that_ends_it_instead_is_the_proof_of_the_contrary(stage: Stage) -> None:
    """Without a log-in the broker closes; the cause names the limit, not the broker."""
    stage.client(heartbeat(LARGE))
    assert closes(stage.core.handle(UpstreamEnded()), CloseCause.UNPROVEN)


def test_small_requests_need_no_proof(stage: Stage) -> None:
    """What is below the limit is held and decided as ever."""
    assert sent(stage.client(heartbeat(SMALL))) == heartbeat(SMALL)


def test_an_answer_of_the_broker_proves_for_good(stage: Stage) -> None:
    """Whatever it answers beside ApiVersions and the log-in's own requests: those it answers to everybody."""
    stage.client(heartbeat(SMALL))
    stage.broker(response_frame(apis.HEARTBEAT, 4, 5))
    assert sent(stage.client(heartbeat(LARGE, 6))) == heartbeat(LARGE, 6)


def test_what_is_kept_to_be_served_counts(stage: Stage) -> None:
    """Many small requests that nobody has answered are held like a large one, and let go when they are served."""
    commands = stage.client(heartbeat(SMALL, 5, "served"))
    served = next(each for each in commands if isinstance(each, StartServing))
    assert stage.core.held_bytes > 10 * len(SMALL)  # parsed it takes more than its bytes
    assert AwaitProof in kinds(stage.client(heartbeat(SMALL, 6, "served")))
    stage.core.handle(Served(served.pending, b"\0\0\0\0\0\0\0"))
    assert stage.core.held_bytes == 0


def test_an_answer_that_waits_for_its_turn_counts(stage: Stage) -> None:
    """A client may well have it wait, behind a Fetch that its broker keeps for as long as it was asked to."""
    commands = stage.client(heartbeat(SMALL, 5) + heartbeat("g", 6, "served"))
    served = next(each for each in commands if isinstance(each, StartServing))
    stage.core.handle(Served(served.pending, [bytes(400_000), bytes(600_000)]))
    assert stage.core.held_bytes > 1_000_000
    stage.broker(response_frame(apis.HEARTBEAT, 4, 5))
    assert stage.core.held_bytes == 0


def test_what_streams_through_is_not_bounded(stage: Stage) -> None:
    """It holds nothing here, and the broker judges it."""
    frame = request_frame(apis.SASL_AUTHENTICATE, 1, 5, auth_bytes=bytes(100_000))
    assert sent(stage.client(frame)) == frame


def test_larger_than_any_real_request_ends_the_connection(stage: Stage) -> None:
    """By its head alone: nothing of it is held."""
    head = (LARGEST + 1).to_bytes(4, "big") + b"\0\x0c\0\4\0\0\0\7\0\1c"
    assert closes(stage.client(head), CloseCause.REQUEST_TOO_LARGE)


def test_produce_requests_may_be_larger(stage: Stage) -> None:
    """They carry records: `frame_bytes` is their bound."""
    stage.client(heartbeat(SMALL))
    stage.broker(response_frame(apis.HEARTBEAT, 4, 5))
    topics = [{"name": "t", "partition_data": [{"index": 0, "records": bytes(LARGEST)}]}]
    frame = request_frame(apis.PRODUCE, 9, 6, acks=1, timeout_ms=1, topic_data=topics)
    assert sent(stage.client(frame)) == frame


def test_more_rows_than_any_real_request_end_the_connection(stage: Stage) -> None:
    """Nothing is made of them: rows cost a hundred times what their bytes do."""
    topics = [{"name": "", "partitions": []}] * 11
    frame = request_frame(apis.LIST_OFFSETS, 1, 5, replica_id=-1, topics=topics)
    assert closes(stage.client(frame), CloseCause.TOO_MANY_ROWS)


def test_rows_of_all_levels_count() -> None:
    """Partitions inside of topics, and tagged fields, are rows; sixteen numbers of an array are one."""
    table = request(apis.LIST_OFFSETS).at(7)
    topics = [{"name": "t", "partitions": [{"partition_index": each} for each in range(4)]}] * 2
    data = table.build({"topics": topics})
    table.parse(data, RowBudget(10))
    with pytest.raises(TooManyRows, match="more than 9 rows"):
        table.parse(data, RowBudget(9))
    numbers = request(apis.OFFSET_FETCH).at(7)
    data = numbers.build({"group_id": "g", "topics": [{"name": "t", "partition_indexes": list(range(160))}]})
    numbers.parse(data, RowBudget(11))
    with pytest.raises(TooManyRows):
        numbers.parse(data, RowBudget(10))
