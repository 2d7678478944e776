"""Requests that are translated or served: whatever comes late, responses leave in the order of their requests."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kordon.codecs.headers import build_response_header
from kordon.codecs.messages import request, response
from kordon.proxy import apis
from kordon.proxy.addresses import Advertised
from kordon.proxy.answers import answer_frame
from kordon.proxy.apis import APIS, Route
from kordon.proxy.config import Limits
from kordon.proxy.connection import Connection
from kordon.proxy.events import (
    Command,
    DownstreamEnded,
    EndUpstream,
    PassToServing,
    PauseUpstream,
    ResumeUpstream,
    SendDownstream,
    SendUpstream,
    Served,
    StartServing,
)
from kordon.proxy.interception import Decision, NothingManaged, Question, Serve, Translate
from kordon.proxy.tally import Tally
from kordon.proxy.waiting import Waiting
from kordon.testing.plays import Broker, Client, feed, request_frame, response_frame

HEARTBEAT, VERSION = 12, 4
KINDS = ("pass", "translate", "serve", "merge", "slow", "question", "both", "two")
QUESTIONS = {"question": 1, "both": 1, "two": 2}
"""By kind, how much the broker is asked first."""


class ByGroup(NothingManaged):
    """Decides by the group id of heartbeats: its beginning says what to do."""

    def __init__(self) -> None:
        self.told: list[int] = []
        """Throttle times of the answers to Kordon's own questions."""

    def wants(self, route: Route) -> bool:
        """Wants them all."""
        return route.api.key == HEARTBEAT

    def decide(self, route: Route, body: memoryview) -> Decision:
        """Does as the group id says."""
        value = request(HEARTBEAT).parse(VERSION, body)
        kind = value.group_id.split("-")[0]
        rest = request(HEARTBEAT).build(VERSION, value | {"group_id": f"asked-{value.group_id}"})
        if kind == "translate":
            return Translate(rest, _mark)
        if kind in QUESTIONS:
            own = request(HEARTBEAT).build(VERSION, value | {"group_id": f"own-{value.group_id}"})
            question = Question(route, own, lambda answer: self.told.append(answer.throttle_time_ms))
            return Serve(value.group_id, rest if kind == "both" else None, (question,) * QUESTIONS[kind])
        if kind in ("serve", "slow"):
            return Serve(value.group_id)
        return Serve(value.group_id, rest) if kind == "merge" else None

    async def serve(self, route: Route, request: Any, part: Any) -> bytes:
        """Is not asked: there is no shell in a play."""
        raise NotImplementedError


def _mark(value: Any) -> None:
    value.throttle_time_ms += 1000


class Stage:
    """A connection between a client and a broker that answers each heartbeat with its number as throttle time."""

    def __init__(self, chunk_bytes: int) -> None:
        self.service = ByGroup()
        self.core = Connection(Limits(), Tally(), Advertised(host="proxy", base_port=1), 0.0, self.service)
        self.to_broker = bytearray()
        self.to_client = bytearray()
        self.serving: deque[tuple[Waiting, str]] = deque()
        self.parts: dict[Waiting, int] = {}
        self.paused = False
        self.ended = False
        self._chunk_bytes = chunk_bytes
        self._unread = {Client: b"", Broker: b""}
        self._kept_back = bytearray()
        self._answered = 0

    def client_sends(self, data: bytes) -> None:
        """Sends requests in chunks."""
        for at in range(0, len(data), self._chunk_bytes):
            self._feed(Client, data[at : at + self._chunk_bytes])

    def broker_answers(self) -> None:
        """Answers the next request that has reached the broker, if there is one."""
        if len(self.to_broker) >= 4 and len(self.to_broker) >= (size := int.from_bytes(self.to_broker[:4])) + 4:
            number = int.from_bytes(self.to_broker[8:12])
            del self.to_broker[: size + 4]
            self._kept_back += response_frame(HEARTBEAT, VERSION, number, throttle_time_ms=number)
        self._read_broker()

    def serve_one(self) -> None:
        """Gives the answer that was promised first, if what it waits for is there."""
        if self.serving and (not self.serving[0][0].asks) and self._is_told(*self.serving[0]):
            waiting, group = self.serving.popleft()
            merged = self.parts.pop(waiting, 0)
            assert bool(merged) == group.startswith(("merge", "both"))
            fields = {"throttle_time_ms": 2000 + waiting.correlation_id, "error_code": 0}
            self._perform(self.core.handle(Served(waiting, response(HEARTBEAT).build(VERSION, fields))))

    def _is_told(self, waiting: Waiting, group: str) -> bool:
        return self.service.told.count(waiting.correlation_id) == QUESTIONS.get(group.partition("-")[0], 0)

    def _read_broker(self) -> None:
        while self._kept_back and not self.paused:
            chunk = bytes(self._kept_back[: self._chunk_bytes])
            del self._kept_back[: self._chunk_bytes]
            self._feed(Broker, chunk)

    def _feed(self, side: type[Client] | type[Broker], piece: bytes) -> None:
        commands, self._unread[side] = feed(self.core, side, self._unread[side] + piece)
        self._perform(commands)

    def _perform(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case SendUpstream(pieces):
                    self.to_broker += b"".join(map(bytes, pieces))
                case SendDownstream(pieces):
                    self.to_client += b"".join(map(bytes, pieces))
                case StartServing(waiting, group):
                    self.serving.append((waiting, group))
                case PassToServing(waiting, value):
                    self.parts[waiting] = value.throttle_time_ms
                case EndUpstream():
                    self.ended = True
                case PauseUpstream():
                    self.paused = True
                case ResumeUpstream():
                    self.paused = False
                    if self._unread[Broker]:
                        self._feed(Broker, b"")
                    self._read_broker()
                case _:
                    raise AssertionError(command)


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
    st.lists(st.sampled_from(["broker", "serve"]), max_size=40),
)
def test_responses_leave_in_the_order_of_their_requests(kinds: list[str], chunk: int, turns: list[str]) -> None:
    """Whoever is late, broker or Kordon: nobody overtakes, nothing is lost, nothing comes twice."""
    stage = Stage(chunk)
    stage.client_sends(heartbeats(kinds))
    for turn in [*turns, *(["broker", "serve"] * (3 * len(kinds) + 2))]:
        stage.broker_answers() if turn == "broker" else stage.serve_one()
        expected = answers(kinds)
        assert expected.startswith(bytes(stage.to_client))
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


class ServesWrites(ByGroup):
    """Serves a part of each Produce request; the broker is asked the rest."""

    def wants(self, route: Route) -> bool:
        """Wants what is written."""
        return route.api.key == apis.PRODUCE

    def decide(self, route: Route, body: memoryview) -> Decision:
        """Takes all of it for the rest."""
        return Serve("a part", bytes(body))


@pytest.mark.parametrize("acks", [0, 1])
def test_no_answer_is_waited_for_that_a_broker_does_not_give(acks: int) -> None:
    """With acks=0 the broker is asked the rest of a request, and nothing is merged with what it says to that."""
    core = Connection(Limits(), Tally(), Advertised(host="proxy", base_port=1), 0.0, ServesWrites())
    sent = request_frame(apis.PRODUCE, 9, 1, transactional_id=None, acks=acks, timeout_ms=1000, topic_data=[])
    commands, _ = feed(core, Client, sent)
    assert [b"".join(each.pieces) for each in commands if isinstance(each, SendUpstream)] == [sent]
    assert [each.waiting.asks for each in commands if isinstance(each, StartServing)] == [bool(acks)]
    assert core.in_flight == acks


def test_answers_have_the_header_of_their_version() -> None:
    """Every api's in every version, as the tables build it."""
    for api in APIS:
        for version in api.versions:
            route = apis.route(api.key, version)
            if route is not None:
                frame = b"".join(answer_frame(route, 77, [b"bo", b"dy"]))
                header = build_response_header(api.key, version, 77)
                assert frame == (len(header) + 4).to_bytes(4, "big") + header + b"body"
