"""Kordon asks a client's broker for an answer of its own, often if need be; nothing of the client comes between."""

from dataclasses import replace
from typing import Any

import pytest

from kordon.codecs import apis
from kordon.codecs.messages import response
from kordon.proxy.config.config import Limits
from kordon.proxy.core.addresses import Advertised
from kordon.proxy.core.connection import Connection
from kordon.proxy.core.events import (
    CONFERRING,
    Asked,
    Close,
    Command,
    DownstreamEnded,
    Drain,
    EndUpstream,
    ReadOn,
    SendDownstream,
    SendUpstream,
    Served,
    StartConferring,
)
from kordon.proxy.core.interception import PROOF, Confer, Decision, NothingManaged
from kordon.proxy.core.rewrite import Offer
from kordon.proxy.core.tally import Tally
from kordon.proxy.core.verdicts import Route
from kordon.proxy.core.waiting import Answer, PendingRequest
from kordon.testing.plays import Broker, Client, feed, request_frame, response_frame

INIT, VERSION = apis.INIT_PRODUCER_ID, 1
HEARTBEAT = 12
ADVERTISED = Advertised(host="proxy", base_port=1)


async def _nobody_answers(_: object) -> Answer:
    raise NotImplementedError


CONFER = Confer(_nobody_answers)


class Confers(NothingManaged):
    """Answers InitProducerId by itself."""

    def wants(self, route: Route) -> bool:
        return route.api.key == INIT

    def decide(self, route: Route, body: memoryview) -> Decision:
        return CONFER


class Stage:
    """A connection, and what its client and its broker get."""

    def __init__(self) -> None:
        self.core = Connection(Limits(), Tally(), Advertised(host="proxy", base_port=1), 0.0, Confers())
        self.to_broker = b""
        self.to_client = b""
        self.others: list[Command] = []
        self.told: list[Any] = []
        self._unread = {Client: b"", Broker: b""}

    def sends(self, side: type[Client] | type[Broker], data: bytes = b"") -> None:
        commands, self._unread[side] = feed(self.core, side, self._unread[side] + data)
        self._perform(commands)

    def happens(self, event: Any) -> None:
        self._perform(self.core.handle(event))

    def asks(self, pending: PendingRequest) -> None:
        """Has the broker asked for Metadata of no topic."""
        self.happens(Asked(pending, replace(PROOF, told=self.told.append)))

    def serves(self, pending: PendingRequest) -> None:
        self.happens(Served(pending, response(INIT).build(VERSION, {"producer_id": 7, "producer_epoch": 1})))

    def _perform(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case SendUpstream(pieces):
                    self.to_broker += b"".join(map(bytes, pieces))
                case SendDownstream(pieces):
                    self.to_client += b"".join(map(bytes, pieces))
                case _:
                    self.others.append(command)

    @property
    def begun(self) -> PendingRequest:
        """The request that is to be answered."""
        (found,) = (each.pending for each in self.others if isinstance(each, StartConferring))
        return found


ASKED = request_frame(INIT, VERSION, 5, transactional_id="t", transaction_timeout_ms=1)
ANSWERED = response_frame(INIT, VERSION, 5, producer_id=7, producer_epoch=1)
NEXT = request_frame(HEARTBEAT, 4, 6, group_id="g", generation_id=1, member_id="m")
QUESTION = request_frame(apis.METADATA, 9, 5, topics=[], allow_auto_topic_creation=False)
TOLD = response_frame(apis.METADATA, 9, 5)


def test_nothing_of_the_client_stands_between_a_question_and_its_answer() -> None:
    """Its next request waits unread, and is passed when the answer has left."""
    stage = Stage()
    stage.sends(Client, ASKED + NEXT)
    pending = stage.begun
    assert stage.to_broker == b""
    for _ in range(2):
        stage.asks(pending)
        stage.sends(Broker, TOLD)
    assert stage.to_broker == QUESTION * 2
    assert len(stage.told) == 2
    assert stage.to_client == b""
    stage.sends(Client)
    assert stage.to_broker == QUESTION * 2
    stage.serves(pending)
    assert stage.to_client == ANSWERED
    assert stage.others[1:] == [ReadOn(CONFERRING)]
    stage.sends(Client)
    assert stage.to_broker == QUESTION * 2 + NEXT


@pytest.mark.parametrize(
    ("newest", "offered"), [(0, 4), (1, 4), (2, 4), (3, 3), (4, 4), (5, 5), (6, 6)], ids=lambda each: f"{each}"
)
def test_versions_with_id_and_epoch_are_offered_where_the_broker_has_none(newest: int, offered: int) -> None:
    """Whatever version of ApiVersions asks; and what the broker has is told."""
    for version in range(6):
        told: list[int] = []
        rows = [{"api_key": INIT, "max_version": newest}, {"api_key": HEARTBEAT, "max_version": 2}]
        body = response(apis.API_VERSIONS).build(version, {"api_keys": rows})
        changed, _ = Offer(lends_epochs=True, told=told.append).apply(version, body, ADVERTISED)
        unchanged, _ = Offer(told=told.append).apply(version, body, ADVERTISED)
        assert told == [newest] * 2
        assert _offered(version, changed) == {INIT: offered, HEARTBEAT: 2}
        assert _offered(version, unchanged) == {INIT: newest, HEARTBEAT: 2}


def test_a_broker_that_does_not_know_the_version_says_nothing_of_others() -> None:
    """It offers ApiVersions alone (KIP-511), and is asked again."""
    told: list[int] = []
    body = response(apis.API_VERSIONS).build(0, {"error_code": 35, "api_keys": [{"api_key": 18, "max_version": 3}]})
    assert Offer(lends_epochs=True, told=told.append).apply(5, body, ADVERTISED) == (body, {})
    assert told == []


def _offered(version: int, body: bytes) -> dict[int, int]:
    return {row.api_key: row.max_version for row in response(apis.API_VERSIONS).parse(version, body).api_keys}


def test_an_answer_of_an_earlier_request_comes_first() -> None:
    """The broker is still at work on that when Kordon asks."""
    stage = Stage()
    stage.sends(Client, NEXT + ASKED)
    stage.asks(stage.begun)
    assert stage.to_broker == NEXT + QUESTION
    stage.serves(stage.begun)
    earlier = response_frame(HEARTBEAT, 4, 6)
    stage.sends(Broker, earlier + TOLD)
    assert stage.to_client == earlier + ANSWERED


def test_an_answer_that_nobody_waits_for_any_more_does_no_harm() -> None:
    """Kordon has given the client an answer before that."""
    stage = Stage()
    stage.sends(Client, ASKED)
    stage.asks(stage.begun)
    stage.serves(stage.begun)
    stage.sends(Client, NEXT)
    following = response_frame(HEARTBEAT, 4, 6)
    stage.sends(Broker, TOLD + following)
    assert stage.to_client == ANSWERED + following


def test_who_asks_too_late_asks_nobody() -> None:
    """The request is answered."""
    stage = Stage()
    stage.sends(Client, ASKED)
    pending = stage.begun
    stage.serves(pending)
    stage.asks(pending)
    assert stage.to_broker == b""


def test_a_client_that_ends_behind_its_request_is_answered() -> None:
    """The broker hears of the end when it has been asked all there was to ask."""
    stage = Stage()
    stage.sends(Client, ASKED)
    pending = stage.begun
    stage.happens(DownstreamEnded())
    stage.asks(pending)
    stage.sends(Broker, TOLD)
    assert stage.others[1:] == []
    stage.serves(pending)
    assert stage.to_client == ANSWERED
    assert stage.others[1:] == [EndUpstream(), ReadOn(CONFERRING)]


def test_a_proxy_that_stops_gives_the_answer_first() -> None:
    """And reads nothing that came behind it."""
    stage = Stage()
    stage.sends(Client, ASKED + NEXT)
    pending = stage.begun
    stage.happens(Drain())
    assert stage.others[1:] == []
    stage.serves(pending)
    assert stage.to_client == ANSWERED
    assert isinstance(stage.others[-1], Close)


def test_a_request_that_is_conferred_on_is_counted_until_it_is_answered() -> None:
    """It is kept that long."""
    stage = Stage()
    stage.sends(Client, ASKED)
    assert stage.core.held_bytes > 0
    stage.serves(stage.begun)
    assert stage.core.held_bytes == 0
