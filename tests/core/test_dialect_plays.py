"""How a connection's core treats those who speak the dialect, and those who do not."""

from typing import Any

import pytest

from kordon.codecs import apis
from kordon.codecs.dialect import CONSUMER_GROUP_POSITION, ORDERED, PARTITION_LEADER_EPOCHS_FOR_PARTITIONS
from kordon.proxy.config.config import Limits
from kordon.proxy.core.addresses import Advertised
from kordon.proxy.core.causes import CloseCause
from kordon.proxy.core.connection import Connection
from kordon.proxy.core.interception import Announce, Decision, NothingManaged
from kordon.proxy.core.tally import Tally
from kordon.proxy.core.verdicts import Route
from kordon.testing.plays import (
    Broker,
    BrokerGets,
    Client,
    ClientGets,
    Closes,
    Outcome,
    Step,
    perform,
    request_frame,
    response_frame,
)

VERSION = 3
OF_BROKER = {"name": "group.version", "min_version": 0, "max_version": 1}
OF_KORDON = {"name": ORDERED, "min_version": 1, "max_version": 1}
FETCH, NEWER_FETCH = {"api_key": 1, "max_version": 12}, {"api_key": 1, "max_version": 99}
PRIVATE = [{"api_key": key} for key in (CONSUMER_GROUP_POSITION, PARTITION_LEADER_EPOCHS_FOR_PARTITIONS)]


class Announces(NothingManaged):
    """Announces the dialect to all who ask by version 3."""

    def __init__(self, *, private: bool) -> None:
        self._private = private

    def wants(self, route: Route) -> bool:
        return route.api.key == apis.API_VERSIONS

    def decide(self, route: Route, body: memoryview) -> Decision:
        return Announce(self._private)


def play(script: list[Step | Outcome], *, private: bool) -> None:
    """Runs a play with a core that announces the dialect."""
    perform(
        *script,
        on=lambda: Connection(Limits(), Tally(), Advertised(host="p", base_port=1), 0.0, Announces(private=private)),
    )


def offer(keys: list[dict[str, int]], features: list[dict[str, Any]]) -> bytes:
    return response_frame(apis.API_VERSIONS, VERSION, 1, api_keys=keys, supported_features=features)


ASKED = request_frame(apis.API_VERSIONS, VERSION, 1, client_software_name="a", kordon_client=1)


def test_all_are_told_that_the_dialect_is_spoken() -> None:
    """The request passes as it came, whose tag brokers skip; the answer has one feature more, and no private keys."""
    script: list[Step | Outcome] = [
        Client(ASKED),
        BrokerGets(ASKED),
        Broker(offer([FETCH], [OF_BROKER])),
        ClientGets(offer([FETCH], [OF_BROKER, OF_KORDON])),
    ]
    play(script, private=False)


def test_those_who_speak_it_are_told_the_private_keys() -> None:
    """Behind what broker and Kordon have in common."""
    script: list[Step | Outcome] = [
        Client(ASKED),
        BrokerGets(ASKED),
        Broker(offer([NEWER_FETCH], [])),
        ClientGets(offer([{"api_key": 1, "max_version": 18}, *PRIVATE], [OF_KORDON])),
    ]
    play(script, private=True)


def test_what_lies_behind_kordon_cannot_announce_it() -> None:
    """Another Kordon, say: its keys and its feature are its own business with its clients, and this is one of them."""
    script: list[Step | Outcome] = [
        Client(ASKED),
        BrokerGets(ASKED),
        Broker(offer([FETCH, *PRIVATE], [OF_KORDON, OF_BROKER])),
        ClientGets(offer([FETCH], [OF_BROKER, OF_KORDON])),
    ]
    play(script, private=False)
    asked = request_frame(apis.API_VERSIONS, VERSION, 1, client_software_name="a")
    answer = Broker(offer([FETCH, *PRIVATE], [OF_KORDON, OF_BROKER]))
    perform(Client(asked), BrokerGets(asked), answer, ClientGets(offer([FETCH], [OF_BROKER])))


@pytest.mark.parametrize("api_key", [each["api_key"] for each in PRIVATE])
@pytest.mark.parametrize("version", [0, 1])
def test_a_private_request_never_reaches_a_broker(api_key: int, version: int) -> None:
    """It ends the connection of those who do not speak the dialect, as any unknown key does."""
    frame = bytearray(request_frame(api_key, 0, 1))
    frame[7] = version
    perform(Client(bytes(frame)), Closes(CloseCause.UNSUPPORTED_REQUEST))
    play([Client(bytes(frame)), Closes(CloseCause.UNSUPPORTED_REQUEST)], private=True)
