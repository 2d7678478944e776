"""InitProducerId in front of brokers of each age: what they are asked, and what their clients are told."""

from typing import Any

import pytest

from kordon.codecs import apis
from kordon.codecs.decision import Kind
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import request, response
from kordon.proxy.core.interception import Confer
from kordon.proxy.core.verdicts import Route
from kordon.proxy.core.waiting import Answer
from kordon.proxy.handlers.epoch_lending import EpochLending, LendingAnswer, LendingOutcome
from kordon.proxy.handlers.init_producer_id import InitProducerId
from kordon.proxy.ordering.lent_epochs import ProducerIdentity
from kordon.proxy.topics.managed_topics import ManagedTopics
from kordon.testing.handled import guard_of, route_of
from kordon.testing.noted import Noted

ID = "orders-writer"
OLD, NEW = 2, 5
MAPPED = {"error_code": Code.INVALID_PRODUCER_ID_MAPPING}
IDENTITY = {"producer_id": 7, "producer_epoch": 3}


class Lending(EpochLending):
    """Tells what it is to tell, and notes what it is asked; the broker is called once."""

    def __init__(self, told: LendingAnswer | None = None) -> None:
        self.told = told
        self.asked: list[tuple[str, ProducerIdentity | None]] = []

    @property
    def is_possible(self) -> bool:
        return True

    async def serve(self, transactional_id: str, given: ProducerIdentity | None, call: Any) -> LendingAnswer:
        self.asked.append((transactional_id, given))
        answer = await call()
        return self.told or LendingAnswer(
            LendingOutcome.GIVEN, ProducerIdentity(answer.producer_id, answer.producer_epoch)
        )


class Connection:
    """A client's connection to a broker that speaks InitProducerId up to some version."""

    def __init__(
        self, newest: int, told: LendingAnswer | None = None, *, may_write: int = Code.INVALID_PRODUCER_ID_MAPPING
    ):
        self.lending = Lending(told)
        self.noted = Noted()
        self.guard = guard_of(ManagedTopics(), [InitProducerId(self.lending)], journal=self.noted.journal)
        self.asked: list[tuple[int, int, Any]] = []
        self._newest = newest
        self._may_write = may_write
        self.init_error = Code.NONE

    async def ask(self, route: Route, body: bytes) -> Any:
        value = request(route.api.key).at(route.version).parse(body)[0]
        self.asked.append((route.api.key, route.version, value))
        answers: dict[int, dict[str, Any]] = {
            apis.API_VERSIONS: {"api_keys": [{"api_key": apis.INIT_PRODUCER_ID, "max_version": self._newest}]},
            apis.END_TXN: {"error_code": self._may_write},
            apis.INIT_PRODUCER_ID: {"error_code": self.init_error, "producer_id": 7, "producer_epoch": 4},
        }
        fields = answers[route.api.key]
        return response(route.api.key).parse(route.version, response(route.api.key).build(route.version, fields))

    async def sends(self, version: int, **fields: Any) -> Any:
        """Returns the answer; None: the request passes."""
        route = route_of(apis.INIT_PRODUCER_ID, version)
        body = memoryview(bytearray(request(apis.INIT_PRODUCER_ID).build(version, fields)))
        assert self.guard.wants(route)
        decision = self.guard.decide(route, body)
        if not isinstance(decision, Confer):
            return None
        answer: Answer = await decision.answer(self.ask)
        assert isinstance(answer, bytes)
        return response(apis.INIT_PRODUCER_ID).parse(version, answer)

    @property
    def keys(self) -> list[int]:
        return [key for key, _, _ in self.asked]


def words(answer: Any) -> tuple[int, int, int]:
    return answer.error_code, answer.producer_id, answer.producer_epoch


@pytest.mark.parametrize("version", [3, 4])
async def test_an_old_broker_is_called_by_what_it_has(version: int) -> None:
    """As a new instance, and with the client's transaction timeout."""
    one = Connection(OLD)
    answer = await one.sends(version, transactional_id=ID, transaction_timeout_ms=9, **IDENTITY)
    assert words(answer) == (0, 7, 4)
    assert one.lending.asked == [(ID, ProducerIdentity(7, 3))]
    assert one.keys == [apis.API_VERSIONS, apis.END_TXN, apis.INIT_PRODUCER_ID]
    assert one.asked[-1][1:] == (1, {"transactional_id": ID, "transaction_timeout_ms": 9})


async def test_whether_a_client_may_write_is_asked_by_a_producer_that_nobody_is() -> None:
    """The end of its transaction changes nothing, whatever else the client may do."""
    one = Connection(OLD)
    await one.sends(4, transactional_id=ID)
    (ended,) = (value for key, _, value in one.asked if key == apis.END_TXN)
    assert (ended.transactional_id, ended.producer_id, ended.producer_epoch, ended.committed) == (ID, -1, -1, False)


@pytest.mark.parametrize("version", range(3))
async def test_clients_of_before_take_epochs_too(version: int) -> None:
    """As new instances. What is not transactional passes."""
    one = Connection(OLD)
    assert words(await one.sends(version, transactional_id=ID)) == (0, 7, 4)
    assert one.lending.asked == [(ID, None)]
    assert await one.sends(version, transactional_id=None) is None


@pytest.mark.parametrize(
    "code", [Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Code.NOT_COORDINATOR, Code.COORDINATOR_LOAD_IN_PROGRESS]
)
async def test_nothing_is_written_for_whom_the_broker_refuses(code: Code) -> None:
    """Nor for whom another broker is the coordinator."""
    one = Connection(OLD, may_write=code)
    for fields in ({}, IDENTITY, {"producer_id": 7}):
        assert words(await one.sends(4, transactional_id=ID, **fields)) == (code, -1, -1)
    assert one.lending.asked == []
    assert apis.INIT_PRODUCER_ID not in one.keys


@pytest.mark.parametrize("fields", [{"producer_id": 7}, {"producer_epoch": 0}], ids=["no epoch", "no id"])
async def test_what_is_half_said_is_refused(fields: dict[str, int]) -> None:
    """Once it is known that the client may ask."""
    one = Connection(OLD)
    assert (await one.sends(4, transactional_id=ID, **fields)).error_code == Code.INVALID_REQUEST
    assert one.lending.asked == []
    assert (await one.sends(4, transactional_id=None, **fields)).error_code == Code.INVALID_REQUEST


async def test_without_a_transactional_id_the_broker_gives_another_id() -> None:
    """Such producers take their next epochs by themselves; the broker says who may."""
    one = Connection(OLD)
    assert words(await one.sends(4, transactional_id=None, **IDENTITY)) == (0, 7, 4)
    one.init_error = Code.CLUSTER_AUTHORIZATION_FAILED
    answer = await one.sends(4, transactional_id=None, producer_id=7)
    assert answer.error_code == Code.CLUSTER_AUTHORIZATION_FAILED
    assert one.lending.asked == []


@pytest.mark.parametrize(
    ("told", "codes"),
    [
        (LendingAnswer(LendingOutcome.FENCED), [Code.INVALID_PRODUCER_EPOCH, Code.PRODUCER_FENCED]),
        (LendingAnswer(LendingOutcome.BUSY), [Code.CONCURRENT_TRANSACTIONS] * 2),
        (LendingAnswer(LendingOutcome.UNAVAILABLE), [Code.COORDINATOR_NOT_AVAILABLE] * 2),
        (
            LendingAnswer(LendingOutcome.REFUSED, code=Code.INVALID_TRANSACTION_TIMEOUT),
            [Code.INVALID_TRANSACTION_TIMEOUT] * 2,
        ),
    ],
    ids=lambda each: each.outcome.value if isinstance(each, LendingAnswer) else "",
)
async def test_refusals_are_those_that_clients_know(told: LendingAnswer, codes: list[Code]) -> None:
    """In each version."""
    one = Connection(OLD, told)
    found = [await one.sends(version, transactional_id=ID, **IDENTITY) for version in (3, 4)]
    assert [words(each) for each in found] == [(code, -1, -1) for code in codes]


@pytest.mark.parametrize("version", range(7))
async def test_newer_brokers_answer_by_themselves(version: int) -> None:
    """Once it is known what they speak, nothing is asked; before that only that, where nobody has said it."""
    one = Connection(NEW)
    fields = {"transactional_id": ID} | (IDENTITY if version >= 3 else {})
    first = await one.sends(version, **fields)
    if version <= 4:
        assert words(first) == (0, 7, 4)
        assert one.keys == [apis.API_VERSIONS, apis.INIT_PRODUCER_ID]
        assert one.asked[-1][1] == version
        assert await one.sends(version, **fields) is None
    else:
        assert first is None
    assert one.lending.asked == []


async def test_it_is_asked_once_what_a_broker_speaks() -> None:
    """For each connection."""
    one = Connection(OLD)
    for _ in range(2):
        await one.sends(4, transactional_id=ID)
    assert one.keys.count(apis.API_VERSIONS) == 1


async def test_what_cannot_be_read_is_the_brokers_business() -> None:
    """It says what is wrong."""
    one = Connection(OLD)
    decision = one.guard.decide(route_of(apis.INIT_PRODUCER_ID, 4), memoryview(bytearray(b"\xff\xff")))
    assert decision is None


async def test_what_producers_are_told_is_on_record() -> None:
    """As it is of what brokers answer."""
    one = Connection(OLD, LendingAnswer(LendingOutcome.FENCED))
    await one.sends(4, transactional_id=ID, **IDENTITY)
    (decision,) = one.noted.of(Kind.ADMIT)
    assert decision.evidence == {
        "transactional_id": ID, "given": [7, 3], "answered": [-1, -1], "error": Code.PRODUCER_FENCED
    }  # fmt: skip
