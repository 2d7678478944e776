"""Whose response comes next on a connection: the order of requests decides, whoever answers them."""

import pytest

from kordon.codecs import apis
from kordon.proxy.config.config import Limits
from kordon.proxy.core import verdicts
from kordon.proxy.core.causes import CloseCause
from kordon.proxy.core.errors import BrokerProtocolError
from kordon.proxy.core.timeouts import Timeouts
from kordon.proxy.core.waiting import Awaits, PendingRequest, Waiting

ROUTE = next(each for each in verdicts.ROUTES if each.api.key == apis.METADATA)


def waiting(*states: Awaits) -> Waiting:
    """Requests that wait for these, in this order, with correlation ids from 0."""
    made = Waiting()
    for number, awaits in enumerate(states):
        made.append(PendingRequest(ROUTE, number, 0.0))
        made[-1].awaits = awaits
    return made


@pytest.mark.parametrize(
    ("states", "asked"),
    [
        pytest.param([], None, id="nothing was asked"),
        pytest.param([Awaits.BROKER, Awaits.BROKER], 0, id="the broker answers in order"),
        pytest.param([Awaits.PART, Awaits.BROKER], 0, id="a part is the broker's"),
        pytest.param([Awaits.SERVICE, Awaits.BROKER], None, id="Kordon's answer comes first"),
        pytest.param([Awaits.TURN, Awaits.BROKER], None, id="Kordon's answer has to leave first"),
        pytest.param([Awaits.SERVICE, Awaits.QUESTION, Awaits.BROKER], 1, id="nobody sees the answer to a question"),
        pytest.param([Awaits.SERVICE, Awaits.BROKER, Awaits.QUESTION], None, id="a question has its turn, too"),
    ],
)
def test_the_broker_answers_whom_it_was_asked_for(states: list[Awaits], asked: int | None) -> None:
    """Its answers come in the order of requests, and none overtakes one that Kordon has promised to a client."""
    found = waiting(*states).asked()
    assert (found.correlation_id if found is not None else None) == asked


def test_an_answer_that_nobody_asked_for_is_refused() -> None:
    """It could only be given to a client that has asked something else."""
    assert waiting(Awaits.BROKER).expected(0).correlation_id == 0
    with pytest.raises(BrokerProtocolError, match="5 in place of 0"):
        waiting(Awaits.BROKER).expected(5)
    with pytest.raises(BrokerProtocolError, match="nothing was asked"):
        waiting(Awaits.SERVICE).expected(0)


def test_what_the_broker_has_not_answered_is_known() -> None:
    """Whether it goes to the client, into an answer of Kordon's own, or only to Kordon."""
    every = waiting(*Awaits)
    assert {each.awaits for each in every.with_broker(frozenset({apis.METADATA}))} == {
        Awaits.BROKER,
        Awaits.QUESTION,
        Awaits.PART,
    }
    assert every.with_broker(frozenset({apis.PRODUCE})) == set()
    assert every.is_asking
    assert not waiting(Awaits.BROKER, Awaits.PART).is_asking


def test_a_connection_ends_for_the_first_time_it_has_taken_too_long() -> None:
    """To say something, to send a request whole, or to use the connection while no response is due."""
    timeouts = Timeouts(Limits(handshake_ms=1_000, request_ms=2_000, idle_ms=3_000), 10.0)

    def cause(now: float, frames: int, started: float | None, *, is_answered: bool = True) -> CloseCause | None:
        overdue = timeouts.overdue(now, frames=frames, frame_started=started, is_answered=is_answered)
        return overdue[0] if overdue is not None else None

    assert cause(11.0, 0, None) is None
    assert cause(11.1, 0, 10.5) is CloseCause.HANDSHAKE_TIMEOUT
    assert cause(13.0, 1, 11.0) is None
    assert cause(13.1, 1, 11.0) is CloseCause.REQUEST_TIMEOUT
    assert cause(13.1, 1, None, is_answered=False) is None
    assert cause(13.1, 1, None) is CloseCause.IDLE
    timeouts.active = 13.0
    assert cause(13.1, 1, None) is None
