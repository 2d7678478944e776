"""Requests that are translated or served: whatever comes late, responses leave in the order of their requests."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kordon.codecs import apis
from kordon.codecs.headers import build_response_header
from kordon.codecs.messages import request, response
from kordon.codecs.turns import MOST_BYTES_AT_ONCE
from kordon.proxy.config.config import Limits
from kordon.proxy.core import request_leg, response_leg, verdicts
from kordon.proxy.core.addresses import Advertised
from kordon.proxy.core.answers import answer_frame
from kordon.proxy.core.causes import CloseCause
from kordon.proxy.core.connection import Connection
from kordon.proxy.core.events import (
    Close,
    Command,
    DecideInTurns,
    DownstreamEnded,
    Drain,
    EndUpstream,
    PassToServing,
    PauseUpstream,
    ReadOn,
    ResumeUpstream,
    SendDownstream,
    SendUpstream,
    Served,
    StartServing,
)
from kordon.proxy.core.interception import Decision, NothingManaged, Question, Serve, Translate
from kordon.proxy.core.tally import Tally
from kordon.proxy.core.verdicts import APIS, Route
from kordon.proxy.core.waiting import Awaits, PendingRequest
from kordon.testing.plays import Broker, Client, do_now, feed, request_frame, response_frame

HEARTBEAT, VERSION = 12, 4
KINDS = ("pass", "translate", "serve", "merge", "slow", "question", "both", "two")
QUESTIONS = {"question": 1, "both": 1, "two": 2}
"""By kind, how much the broker is asked first."""


@dataclass(frozen=True)
class Named:
    """What would answer a request, if there were a shell in a play."""

    group: str

    async def __call__(self, part: Any) -> bytes:
        raise NotImplementedError


class ByGroup(NothingManaged):
    """Decides by the group id of heartbeats: its beginning says what to do."""

    def __init__(self) -> None:
        self.told: list[int] = []
        """Throttle times of the answers to Kordon's own questions."""

    def wants(self, route: Route) -> bool:
        return route.api.key == HEARTBEAT

    def decide(self, route: Route, body: memoryview) -> Decision:
        value = request(HEARTBEAT).parse(VERSION, body)
        kind = value.group_id.split("-")[0]
        rest = request(HEARTBEAT).build(VERSION, value | {"group_id": f"asked-{value.group_id}"})
        if kind == "translate":
            return Translate(rest, _mark)
        if kind in QUESTIONS:
            own = request(HEARTBEAT).build(VERSION, value | {"group_id": f"own-{value.group_id}"})
            question = Question(route, own, lambda answer: self.told.append(answer.throttle_time_ms))
            return Serve(Named(value.group_id), rest if kind == "both" else None, (question,) * QUESTIONS[kind])
        if kind in ("serve", "slow"):
            return Serve(Named(value.group_id))
        return Serve(Named(value.group_id), rest) if kind == "merge" else None


def _mark(value: Any) -> None:
    value.throttle_time_ms += 1000


class Stage:
    """A connection between a client and a broker that answers each heartbeat with its number as throttle time.

    Args:
        chunk_bytes: Of which bytes come.
        in_turns: Take every message for a large one: what is done in turns waits for `work`.
    """

    def __init__(self, chunk_bytes: int, *, in_turns: bool = False) -> None:
        self.late: list[Command] | None = [] if in_turns else None
        self.service = ByGroup()
        self.core = Connection(Limits(), Tally(), Advertised(host="proxy", base_port=1), 0.0, self.service)
        self.to_broker = bytearray()
        self.to_client = bytearray()
        self.serving: deque[tuple[PendingRequest, str]] = deque()
        self.parts: dict[PendingRequest, int] = {}
        self.paused = False
        self.ended = False
        self._chunk_bytes = chunk_bytes
        self._unread = {Client: b"", Broker: b""}
        self._kept_back = bytearray()
        self._unsent = bytearray()
        self._answered = 0

    def client_sends(self, data: bytes) -> None:
        """Sends requests in chunks; none is read while a large one is decided on."""
        self._unsent += data
        while self._unsent and not any(isinstance(each, DecideInTurns) for each in self.late or ()):
            chunk = bytes(self._unsent[: self._chunk_bytes])
            del self._unsent[: self._chunk_bytes]
            self._feed(Client, chunk)

    def work(self) -> None:
        """Ends the work that was begun first."""
        if self.late:
            self._perform(do_now(self.core, self.late.pop(0)))

    def broker_answers(self) -> None:
        """Answers the next request that has reached the broker, if there is one."""
        if len(self.to_broker) >= 4 and len(self.to_broker) >= (size := int.from_bytes(self.to_broker[:4])) + 4:
            number = int.from_bytes(self.to_broker[8:12])
            del self.to_broker[: size + 4]
            self._kept_back += response_frame(HEARTBEAT, VERSION, number, throttle_time_ms=number)
        self._read_broker()

    def serve_one(self) -> None:
        """Gives the answer that was promised first, if what it waits for is there."""
        if self.serving and self._has_part(*self.serving[0]) and self._is_told(*self.serving[0]):
            pending, _ = self.serving.popleft()
            assert pending.awaits is Awaits.SERVICE
            self.parts.pop(pending, None)
            fields = {"throttle_time_ms": 2000 + pending.correlation_id, "error_code": 0}
            self._perform(self.core.handle(Served(pending, response(HEARTBEAT).build(VERSION, fields))))

    def _has_part(self, pending: PendingRequest, group: str) -> bool:
        return (pending in self.parts) == group.startswith(("merge", "both"))

    def _is_told(self, pending: PendingRequest, group: str) -> bool:
        return self.service.told.count(pending.correlation_id) == QUESTIONS.get(group.partition("-")[0], 0)

    def _read_broker(self) -> None:
        while self._kept_back and not self.paused:
            chunk = bytes(self._kept_back[: self._chunk_bytes])
            del self._kept_back[: self._chunk_bytes]
            self._feed(Broker, chunk)

    def _feed(self, side: type[Client] | type[Broker], piece: bytes) -> None:
        commands, self._unread[side] = feed(self.core, side, self._unread[side] + piece, self.late)
        self._perform(commands)

    def _perform(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case SendUpstream(pieces):
                    self.to_broker += b"".join(map(bytes, pieces))
                case SendDownstream(pieces):
                    self.to_client += b"".join(map(bytes, pieces))
                case StartServing(pending, Named(group)):
                    self.serving.append((pending, group))
                case PassToServing(pending, value):
                    self.parts[pending] = value.get("throttle_time_ms", -1)
                case EndUpstream():
                    self.ended = True
                case PauseUpstream():
                    self.paused = True
                case _:
                    self._read_on(command)

    def _read_on(self, command: Command) -> None:
        match command:
            case ResumeUpstream():
                self.paused = False
                if self._unread[Broker]:
                    self._feed(Broker, b"")
                self._read_broker()
            case ReadOn():
                self._feed(Client, b"")
                self.client_sends(b"")
            case _:
                raise AssertionError(command)


@contextmanager
def all_is_large(large: bool) -> Iterator[None]:
    """Has every message count as large that is read, or only those that are."""
    most = 0 if large else MOST_BYTES_AT_ONCE
    with patch.object(request_leg, "MOST_BYTES_AT_ONCE", most), patch.object(response_leg, "MOST_BYTES_AT_ONCE", most):
        yield


def heartbeats(kinds: list[str]) -> bytes:
    """Requests numbered from 1 on; the kind of each is in its group id."""
    frames = (
        request_frame(HEARTBEAT, VERSION, n, group_id=f"{kind}-{n}", generation_id=1, member_id="m")
        for n, kind in enumerate(kinds, 1)
    )
    return b"".join(frames)


def answers(kinds: list[str]) -> bytes:
    """What the client must get, in this order."""
    extra = {"pass": 0, "translate": 1000}
    return b"".join(
        response_frame(HEARTBEAT, VERSION, n, throttle_time_ms=n + extra.get(kind, 2000))
        for n, kind in enumerate(kinds, 1)
    )


@given(
    st.lists(st.sampled_from(KINDS), min_size=1, max_size=12),
    st.sampled_from([1 << 30, 1, 7, 40]),
    st.lists(st.sampled_from(["broker_answers", "serve_one", "work"]), max_size=40),
    st.booleans(),
)
def test_responses_leave_in_the_order_of_their_requests(
    kinds: list[str], chunk: int, turns: list[str], large: bool
) -> None:
    """Whoever is late, broker or Kordon, and large or not: nobody overtakes, nothing is lost, nothing comes twice."""
    with all_is_large(large):
        stage = Stage(chunk, in_turns=large)
        stage.client_sends(heartbeats(kinds))
        for turn in [*turns, *(["broker_answers", "serve_one", "work"] * (6 * len(kinds) + 2))]:
            getattr(stage, turn)()
            assert answers(kinds).startswith(bytes(stage.to_client))
    assert bytes(stage.to_client) == answers(kinds)
    assert stage.service.told == [n for n, kind in enumerate(kinds, 1) for _ in range(QUESTIONS.get(kind, 0))]
    assert stage.core.in_flight == 0


def test_an_answer_that_is_missing_holds_back_only_what_comes_behind_it() -> None:
    """The broker is read no further while its answer would overtake one of Kordon's own, and then read again."""
    stage = Stage(1 << 30)
    stage.client_sends(heartbeats(["pass", "serve", "pass"]))
    stage.broker_answers()
    stage.broker_answers()
    assert stage.paused
    assert bytes(stage.to_client) == answers(["pass"])
    stage.serve_one()
    assert not stage.paused
    assert bytes(stage.to_client) == answers(["pass", "serve", "pass"])


def test_what_is_served_costs_the_broker_nothing() -> None:
    """Only the rest of a merged request, and what is translated, reaches the broker."""
    stage = Stage(1 << 30)
    stage.client_sends(heartbeats(["serve", "merge", "translate"]))
    groups = []
    while stage.to_broker:
        size = int.from_bytes(stage.to_broker[:4])
        groups.append(bytes(stage.to_broker[: size + 4]))
        del stage.to_broker[: size + 4]
    assert [b"asked-merge-2" in groups[0], b"asked-translate-3" in groups[1], len(groups)] == [True, True, 2]


def test_an_own_question_is_answered_before_what_stands_in_front_of_it() -> None:
    """A write must not wait for a Fetch on the same connection that waits for data, only its answer must."""
    stage = Stage(1 << 30)
    stage.client_sends(heartbeats(["slow", "question"]))
    stage.broker_answers()
    assert stage.service.told == [2]
    assert not stage.paused
    assert not stage.to_client


def test_a_client_that_ends_behind_its_last_request_has_it_served() -> None:
    """With acks=0 a client may close at once; the broker hears of the end only when it has said what Kordon asked."""
    stage = Stage(1 << 30)
    stage.client_sends(heartbeats(["question"]))
    assert stage.core.handle(DownstreamEnded()) == []
    stage.broker_answers()
    assert stage.service.told == [1]
    assert stage.ended


def test_client_that_ends_while_its_last_request_is_decided_on_has_it_served() -> None:
    """The broker hears of the end behind the request."""
    with all_is_large(large=True):
        stage = Stage(1 << 30, in_turns=True)
        stage.client_sends(heartbeats(["translate"]))
        assert stage.core.handle(DownstreamEnded()) == []
        stage.work()
        assert stage.to_broker
        assert stage.ended


def test_request_that_is_decided_on_counts_as_one_that_awaits_its_answer() -> None:
    """Nothing ends behind its back: neither the connection nor what a takeover waits for (TAKEOVER-WAITS)."""
    with all_is_large(large=True):
        stage = Stage(1 << 30, in_turns=True)
        stage.client_sends(heartbeats(["translate"]))
        assert len(stage.core.unanswered(frozenset({HEARTBEAT}))) == 1
        assert stage.core.handle(Drain()) == []
        assert stage.core.held_bytes == len(heartbeats(["translate"]))
        stage.work()
        assert len(stage.core.unanswered(frozenset({HEARTBEAT}))) == 1


def test_large_answer_that_cannot_be_read_ends_the_connection() -> None:
    """As a small one does."""
    with all_is_large(large=True):
        stage = Stage(1 << 30)
        stage.client_sends(heartbeats(["translate"]))
        commands, _ = feed(stage.core, Broker, bytes.fromhex("00000009 00000001 00 ffffffff"))
        assert [each.cause for each in commands if isinstance(each, Close)] == [CloseCause.MALFORMED_RESPONSE]


class ServesWrites(ByGroup):
    """Serves a part of each Produce request; the broker is asked the rest."""

    def wants(self, route: Route) -> bool:
        return route.api.key == apis.PRODUCE

    def decide(self, route: Route, body: memoryview) -> Decision:
        """Takes all of it for the rest."""
        return Serve(Named("a part"), bytes(body))


@pytest.mark.parametrize("acks", [0, 1])
def test_no_answer_is_waited_for_that_a_broker_does_not_give(acks: int) -> None:
    """With acks=0 the broker is asked the rest of a request, and nothing is merged with what it says to that."""
    core = Connection(Limits(), Tally(), Advertised(host="proxy", base_port=1), 0.0, ServesWrites())
    sent = request_frame(apis.PRODUCE, 9, 1, transactional_id=None, acks=acks, timeout_ms=1000, topic_data=[])
    commands, _ = feed(core, Client, sent)
    assert [b"".join(each.pieces) for each in commands if isinstance(each, SendUpstream)] == [sent]
    assert [each.pending.awaits is Awaits.PART for each in commands if isinstance(each, StartServing)] == [bool(acks)]
    assert core.in_flight == acks


def test_answers_have_the_header_of_their_version() -> None:
    """Every api's in every version, as the tables build it."""
    for api in APIS:
        for version in api.versions:
            route = verdicts.route(api.key, version)
            if route is not None:
                frame = b"".join(answer_frame(route, 77, [b"bo", b"dy"]))
                header = build_response_header(api.key, version, 77)
                assert frame == (len(header) + 4).to_bytes(4, "big") + header + b"body"
