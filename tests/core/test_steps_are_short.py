"""No request holds up a worker for long: all kinds of them, with as many rows as are read, cost little time each."""

import asyncio
from uuid import uuid4

import pytest

from kordon.codecs import apis
from kordon.proxy.config.config import Config, Limits
from kordon.proxy.core.addresses import Advertised
from kordon.proxy.core.connection import Connection
from kordon.proxy.core.events import Decided, DecideInTurns
from kordon.proxy.core.tally import Tally
from kordon.proxy.core.verdicts import Route
from kordon.proxy.decisions.journal import NoJournal
from kordon.proxy.kafka.topology import Topology
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.process.managed_worker import ManagedWorker
from kordon.proxy.runtime.turns import Turns
from kordon.proxy.topics.managed_topics import ManagedTopic
from kordon.testing.messages.smallest_rows import request_of_rows, routes_with_rows
from kordon.testing.step_times import in_short_steps

pytestmark = pytest.mark.usefixtures("collector_at_rest")

CHUNK_BYTES = 256 * 1024
NEWEST = list(
    {route.api.key: route for route in routes_with_rows() if route.api.key < apis.CONSUMER_GROUP_POSITION}.values()
)


@pytest.fixture
async def worker() -> ManagedWorker:
    """A worker that knows of one managed topic, and no broker."""
    config = Config.model_validate({"upstream": {"bootstrap": "127.0.0.1:1"}, "listen": {"address": "127.0.0.1:2"}})
    made = ManagedWorker(config, Topology(config.upstream, lambda _: None, lambda _: None))
    made.topics.add(ManagedTopic(Layout.created("orders", uuid4(), 2, 8), uuid4()))
    return made


@pytest.mark.parametrize("name", ["", "orders"], ids=["unnamed", "managed"])
@pytest.mark.parametrize("route", NEWEST, ids=lambda each: each.api.name)
async def test_step_is_short(worker: ManagedWorker, route: Route, name: str) -> None:
    """From the chunk that makes the request whole to what goes to the broker: reading, deciding, writing it anew."""
    frame = request_of_rows(route, Limits().request_rows - 1, Limits().unproven_bytes - 1, name)
    await in_short_steps(lambda: handle(connection(worker), frame))


def connection(worker: ManagedWorker) -> Connection:
    service = worker.service.connected(NoJournal().connected())
    return Connection(Limits(), Tally(), Advertised(host="p", base_port=1), 0.0, service)


async def handle(core: Connection, frame: bytes) -> None:
    """Has a connection take in a request, chunk by chunk, and decide on it in turns where it says so."""
    turns = Turns(Tally())
    for at in range(0, len(frame), CHUNK_BYTES):
        await asyncio.sleep(0)
        commands = core.receive_requests(memoryview(bytearray(frame[at : at + CHUNK_BYTES])), 0.0)
        for each in commands or ():
            if isinstance(each, DecideInTurns):
                core.handle(Decided(await turns.do(each.decide)))


@pytest.mark.parametrize("route", NEWEST, ids=lambda each: each.api.name)
async def test_more_rows_are_not_made(worker: ManagedWorker, route: Route) -> None:
    """A request of 1 MB that lists more than that ends its connection, and costs nearly nothing."""
    frame = request_of_rows(route, 10**9, Limits().unproven_bytes - 1)

    async def receive() -> None:
        core = connection(worker)
        for at in range(0, len(frame), CHUNK_BYTES):
            core.receive_requests(memoryview(bytearray(frame[at : at + CHUNK_BYTES])), 0.0)

    await in_short_steps(receive)
