"""A client that Kordon serves is counted, told for how long it has to wait, and not read meanwhile (CLIENT-QUOTA)."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from kordon.codecs import apis
from kordon.codecs.messages import describe_client_quotas, request, response
from kordon.codecs.row import Row
from kordon.proxy.access.client_quotas import CONSUMER, NOT_HELD, PRODUCER, ClientQuotas
from kordon.proxy.core.interception import Serve
from kordon.proxy.core.waiting import Answer, Body, Throttled
from kordon.proxy.decisions.runs import Client
from kordon.proxy.handlers.throttling import Throttling
from kordon.proxy.kafka.brokers import Brokers
from kordon.testing.fake_broker import Asked, FakeBroker
from kordon.testing.handled import route_of

LIMIT = 1_000.0
FREE_BYTES = 10_000
DENIED, NOT_CONTROLLER = 31, 41


class Worker:
    """A worker in front of a broker that has quotas."""

    def __init__(self, principal: str | None = "User:kordon", *, own_user: bool = False) -> None:
        self.answer: Mapping[str, Any] = {"entries": []}
        brokers = Brokers(FakeBroker(handlers={apis.DESCRIBE_CLIENT_QUOTAS: self._told}))
        self.quotas = ClientQuotas(brokers, ["orders"], principal, own_user=own_user, clock=lambda: 0.0)

    def _told(self, asked: Asked) -> Mapping[str, Any]:
        assert not asked.body.components
        assert not asked.body.strict
        return self.answer

    async def learns(self, *entries: tuple[Mapping[str, str | None], Mapping[str, float]]) -> None:
        """Reads quotas, each an entity and its values."""
        self.answer = {"error_code": 0, "error_message": None, "entries": [_entry(*each) for each in entries]}
        await self.quotas.look()


def _entry(entity: Mapping[str, str | None], values: Mapping[str, float]) -> Mapping[str, Any]:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "values": [{"key": key, "value": value} for key, value in values.items()],
    }


@pytest.fixture
async def worker() -> Worker:
    """Both byte rates are set for client id app."""
    worker = Worker()
    await worker.learns(({"client-id": "app"}, {PRODUCER: LIMIT, CONSUMER: LIMIT}))
    return worker


def named(client_id: str, *, user: str | None = "", broker: int = 1) -> Client:
    """A connection of a client."""
    client = Client(1, client_id)
    client.user, client.broker = user, broker
    return client


async def served(worker: Worker, client: Client, api_key: int, version: int, body: Body, **asked: Any) -> Answer:
    """Has a request answered; `asked` may have the body's length, what is left to the broker, and its answer."""
    part: asyncio.Future[Row] | None = None
    if "part" in asked:
        part = asyncio.get_running_loop().create_future()
        part.set_result(asked["part"])

    async def answer(of_broker: Any) -> Answer:
        if of_broker is not None:
            (await of_broker)["responses"] = []  # it is merged
        return body if asked.get("at_once", True) else (lambda: body)

    serve = Serve(answer, asked.get("rest"))
    bound = Throttling(worker.quotas, client).bind(
        route_of(api_key, version), memoryview(bytes(asked.get("count", 0))), serve
    )
    return await bound.answer(part)


def fetched(*sizes: int) -> list[Any]:
    """A Fetch answer of version 11, in pieces."""
    rows = [{"partition_index": at, "records": bytes(size)} for at, size in enumerate(sizes)]
    return [response(apis.FETCH).build(11, {"responses": [{"topic": "orders", "partitions": rows}]})]


PRODUCED = {"responses": [{"name": "orders", "partition_responses": [{"index": 0, "base_offset": 7}]}]}


@pytest.mark.parametrize("version", [3, 8, 9, 12])
async def test_a_write_that_is_too_much_is_told_so(worker: Worker, version: int) -> None:
    """In the field of its version, wherever that is; what else the answer says stays."""
    body = response(apis.PRODUCE).build(version, PRODUCED)
    client = named("app")
    assert await served(worker, client, apis.PRODUCE, version, body, count=FREE_BYTES - 20) == body
    answer = await served(worker, client, apis.PRODUCE, version, body, count=1_000)
    assert isinstance(answer, Throttled)
    assert isinstance(answer.body, bytes)
    told = response(apis.PRODUCE).parse(version, answer.body)
    assert told.throttle_time_ms == answer.mute_ms == 1_006
    assert told | {"throttle_time_ms": 0} == response(apis.PRODUCE).parse(version, body)
    assert worker.quotas.throttled[PRODUCER] == 1


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_read_that_is_too_much_is_told_so_and_gives_its_records(worker: Worker, at_once: bool) -> None:
    """They are on record as given; they are not copied, be the answer built at once or in turns."""
    pieces = fetched(FREE_BYTES + 1_000)
    answer = await served(worker, named("app"), apis.FETCH, 11, pieces, at_once=at_once)
    if callable(answer):
        answer = answer()
    assert isinstance(answer, Throttled)
    assert isinstance(answer.body, list)
    told = response(apis.FETCH).parse(11, b"".join(answer.body))
    size = len(b"".join(pieces))
    assert told.throttle_time_ms == answer.mute_ms == size - FREE_BYTES
    assert len(told.responses[0].partitions[0].records) == FREE_BYTES + 1_000
    assert isinstance(answer.body[1], memoryview)
    assert answer.body[1].obj is pieces[0]


async def test_a_read_has_no_more_than_a_second_allows(worker: Worker) -> None:
    """So that the wait behind one answer is short."""
    client = named("app")
    await served(worker, client, apis.FETCH, 11, fetched(1))
    assert client.most_fetch_bytes == LIMIT
    await worker.learns(({"client-id": "another"}, {CONSUMER: LIMIT}))
    await served(worker, client, apis.FETCH, 11, fetched(1))
    assert client.most_fetch_bytes is None


async def test_a_client_has_all_it_asks_for_again_once_the_last_quota_is_gone(worker: Worker) -> None:
    """Its connection may live for days after that."""
    client = named("app")
    await served(worker, client, apis.FETCH, 11, fetched(1))
    await worker.learns()
    await served(worker, client, apis.FETCH, 11, fetched(1))
    assert client.most_fetch_bytes is None


async def test_what_the_broker_counts_is_not_counted_twice(worker: Worker) -> None:
    """Neither the rest of a Produce that goes to it, nor what it has given of a Fetch or ShareFetch."""
    client = named("app")
    body = response(apis.PRODUCE).build(8, PRODUCED)
    assert await served(worker, client, apis.PRODUCE, 8, body, count=50_000, rest=bytes(45_000)) == body
    partition = Row({"records": bytes(50_000)})
    for api_key, version in ((apis.FETCH, 11), (apis.SHARE_FETCH, 2)):
        part = Row({"responses": [Row({"partitions": [partition]})]})
        assert not isinstance(
            await served(worker, client, api_key, version, fetched(50_000), part=part, rest=b"asked"), Throttled
        )


async def test_a_write_that_nobody_answers_mutes_its_client(worker: Worker) -> None:
    """With acks=0 there is no answer to say so."""
    answer = await served(worker, named("app"), apis.PRODUCE, 8, b"", count=FREE_BYTES + 1_000)
    assert isinstance(answer, Throttled)
    assert answer.body == b""


async def test_each_broker_counts_for_itself(worker: Worker) -> None:
    """As a client speaks with each of them."""
    body = response(apis.PRODUCE).build(8, PRODUCED)
    for broker in (1, 2):
        assert await served(worker, named("app", broker=broker), apis.PRODUCE, 8, body, count=9_000) == body
    both = [await served(worker, named("app", broker=each), apis.PRODUCE, 8, body, count=9_000) for each in (1, 2)]
    assert all(isinstance(each, Throttled) for each in both)


async def test_others_are_not_counted(worker: Worker) -> None:
    """Nor is anything without a quota; then nothing is looked at for a request."""
    body = response(apis.PRODUCE).build(8, PRODUCED)
    assert await served(worker, named("other"), apis.PRODUCE, 8, body, count=10**6) == body
    await worker.learns()
    serve = Serve(lambda _: asyncio.sleep(0, body))
    client = named("app")
    assert Throttling(worker.quotas, client).bind(route_of(apis.PRODUCE, 8), memoryview(b""), serve) is serve
    assert Throttling(None, client).bind(route_of(apis.PRODUCE, 8), memoryview(b""), serve) is serve


async def test_users_are_those_who_have_logged_in(worker: Worker) -> None:
    """A client without a log-in is ANONYMOUS; whom brokers alone know no quota of users binds, which is counted."""
    await worker.learns(
        ({"user": "alice"}, {PRODUCER: 1.0}),
        ({"user": "ANONYMOUS"}, {PRODUCER: 2.0}),
        ({"user": None}, {PRODUCER: 3.0}),
    )
    rates = {
        user: quota and quota.bytes_per_second
        for user in ("alice", "", "bob", None)
        for quota in [worker.quotas.quota(PRODUCER, named("app", user=user))]
    }
    assert rates == {"alice": 1.0, "": 2.0, "bob": 3.0, None: None}
    assert worker.quotas.unbound == 1


async def test_who_does_not_log_in_behind_a_certificate_of_kordons_is_unknown() -> None:
    """Brokers see Kordon's certificate, and make a name of it by rules of their own."""
    worker = Worker(None, own_user=True)
    await worker.learns(({"user": "ANONYMOUS"}, {PRODUCER: 2.0}))
    assert worker.quotas.quota(PRODUCER, named("app")) is None
    await worker.learns(({"client-id": None}, {PRODUCER: 2.0}))
    assert worker.quotas.quota(PRODUCER, named("app")) is not None
    assert worker.quotas.unbound == 1


async def test_a_quota_on_kordon_itself_is_told() -> None:
    """It slows down all clients; what cannot be held is counted as well."""
    worker = Worker()
    await worker.learns(({"user": None}, {PRODUCER: 5.0}), ({"client-id": "x"}, {NOT_HELD: 50.0}))
    assert worker.quotas.on_kordon() == {PRODUCER: 5.0}
    assert worker.quotas.counts() == {PRODUCER: 1, CONSUMER: 0, NOT_HELD: 1}
    await worker.learns(({"user": None}, {PRODUCER: 5.0}), ({"user": "kordon"}, {CONSUMER: 9.0}))
    assert worker.quotas.on_kordon() == {PRODUCER: 5.0, CONSUMER: 9.0}


async def test_who_may_not_read_quotas_holds_nobody(worker: Worker) -> None:
    """And says so. Other troubles leave what was known."""
    worker.answer = {"error_code": NOT_CONTROLLER, "error_message": None, "entries": None}
    await worker.quotas.look()
    assert worker.quotas.are_set
    assert worker.quotas.refusal
    worker.answer = {"error_code": DENIED, "error_message": "no", "entries": None}
    await worker.quotas.look()
    assert not worker.quotas.are_set
    assert worker.quotas.refusal == "CLUSTER_AUTHORIZATION_FAILED"
    await worker.learns()
    assert not worker.quotas.refusal


async def test_strange_quotas_are_passed_over(worker: Worker) -> None:
    """Of addresses, of later kinds, and rates that are none."""
    await worker.learns(
        ({"ip": "1.2.3.4"}, {PRODUCER: 1.0}),
        ({"client-id": "app", "later": "x"}, {PRODUCER: 1.0}),
        ({"client-id": "a"}, {PRODUCER: float("nan")}),
        ({"client-id": "b"}, {PRODUCER: 0.0}),
        ({"client-id": "c"}, {PRODUCER: float("inf")}),
        ({}, {PRODUCER: 1.0}),
    )
    assert not worker.quotas.are_set


def test_the_request_names_no_entity() -> None:
    """That asks for all of them, whatever they speak of."""
    body = request(apis.DESCRIBE_CLIENT_QUOTAS).build(1, {"components": [], "strict": False})
    assert describe_client_quotas.REQUEST.parse(1, body).components == []
