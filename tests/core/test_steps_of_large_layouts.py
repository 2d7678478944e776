"""No client holds up a worker by asking about a topic whose layout is as large as can be."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import pytest

from kordon.codecs import apis
from kordon.codecs.messages import request, response
from kordon.proxy.config.config import Config
from kordon.proxy.core import verdicts
from kordon.proxy.core.interception import Serve, Translate
from kordon.proxy.core.tally import Tally
from kordon.proxy.decisions.journal import NoJournal
from kordon.proxy.kafka.topology import Topology
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.records import TopicRecord, load
from kordon.proxy.process.managed_worker import ManagedWorker
from kordon.proxy.runtime.turns import Turns
from kordon.proxy.topics.managed_topics import ManagedTopic
from kordon.testing.large_layouts import LARGEST
from kordon.testing.messages.as_read import as_read
from kordon.testing.step_times import in_short_steps

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("collector_at_rest")]

TOPICS: Final = 3
"""Of each layout; a client may ask for all of them at once."""


@pytest.fixture(params=LARGEST)
async def worker(request: pytest.FixtureRequest) -> ManagedWorker:
    """A worker that knows topics with as much behind them as is believed, and no broker."""
    config = Config.model_validate({"upstream": {"bootstrap": "127.0.0.1:1"}, "listen": {"address": "127.0.0.1:2"}})
    made = ManagedWorker(config, Topology(config.upstream, lambda _: None, lambda _: None))
    for number in range(TOPICS):
        renamed = f'"topic":"orders{number}"'.encode()
        record = load(f"topic/orders{number}", LARGEST[request.param].replace(b'"topic":"orders"', renamed))
        assert isinstance(record, TopicRecord)
        made.topics.add(ManagedTopic(record.layout, record.face_id))
        derive(record.layout)
    return made


def derive(layout: Layout) -> None:
    """Derives what the worker has derived before any client asks (its steps: `test_steps_of_own_logs`)."""
    _ = layout.chains


class Asks:
    """A client and its broker.

    Args:
        worker: Whom it asks.
        speaks_dialect: Whether it says so.
    """

    def __init__(self, worker: ManagedWorker, *, speaks_dialect: bool) -> None:
        self.worker = worker
        self.service = worker.service.connected(NoJournal().connected())
        self.turns = Turns(Tally())
        if speaks_dialect:
            self.decide(apis.API_VERSIONS, 3, {"client_software_name": "a", "kordon_client": 1})

    def decide(self, key: int, version: int, fields: dict[str, Any]) -> Any:
        route = verdicts.route(key, version) or verdicts.private_route(key, version)
        assert route is not None
        decision: Any = self.service.decide(route, memoryview(request(key).build(version, fields)))
        if isinstance(decision, Serve):
            for question in decision.questions:  # what the client may do: everything
                allowed, at = response(question.route.api.key), question.route.version
                rows = [{"name": name, "topic_authorized_operations": 0xFFFF} for name in names()]
                question.told(as_read(allowed, at, {"topics": rows}))
        return decision

    async def metadata(self) -> bytes:
        """Asks for all topics; the broker tells of two partitions of each."""
        decision = self.decide(apis.METADATA, 9, {"topics": [{"name": name} for name in names()]})
        rows = [{"partition_index": q, "leader_id": 1, "leader_epoch": 5} for q in range(2)]
        table = response(apis.METADATA)
        told = as_read(table, 9, {"topics": [{"name": name, "partitions": rows} for name in names()]})
        await asyncio.sleep(0.01)
        if isinstance(decision, Translate):
            decision.back(told)
            return table.build(9, told)
        assert isinstance(decision, Serve)
        part: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        part.set_result(told)
        answer = await decision.answer(part)
        return whole(await self.turns.do(answer) if callable(answer) else answer)

    async def epochs(self, asked: Sequence[str]) -> bytes:
        topics = [{"topic": name, "partitions": []} for name in asked]
        ask = partial(self.decide, apis.PARTITION_LEADER_EPOCHS, 0, {"topics": topics})
        decision = await self.turns.do(ask)  # as a connection does with a large request
        assert isinstance(decision, Serve)
        await asyncio.sleep(0.01)
        answer = await decision.answer(None)
        return whole(await self.turns.do(answer) if callable(answer) else answer)


def names() -> list[str]:
    return [f"orders{number}" for number in range(TOPICS)]


def whole(body: Any) -> bytes:
    return bytes(body) if isinstance(body, bytes | bytearray | memoryview) else b"".join(body)


async def test_no_step_of_metadata_is_long(worker: ManagedWorker) -> None:
    """To clients that see virtual partitions; a short answer of the broker becomes a long one."""
    client = Asks(worker, speaks_dialect=False)
    answer = await in_short_steps(client.metadata)
    told = response(apis.METADATA).parse(9, answer).topics
    assert {row.name: len(row.partitions) for row in told} == dict.fromkeys(names(), 16_384)


async def test_no_step_of_metadata_to_clients_of_the_dialect_is_long(worker: ManagedWorker) -> None:
    """They see physical partitions, retired ones included."""
    client = Asks(worker, speaks_dialect=True)
    answer = await in_short_steps(client.metadata)
    told = response(apis.METADATA).parse(9, answer).topics
    topics = {topic.name: topic.layout for topic in worker.topics}
    for row in told:
        layout = topics[row.name]
        assert row.layout_epoch == layout.epoch
        assert {each.partition_index for each in row.partitions} == {*layout.segments_of, *range(layout.u)}


async def test_no_step_of_leader_epochs_is_long(worker: ManagedWorker) -> None:
    """Each has all its segments and is told once, however often it is named."""
    client = Asks(worker, speaks_dialect=True)
    answer = await in_short_steps(lambda: client.epochs(names() * 3_000))
    told = response(apis.PARTITION_LEADER_EPOCHS).parse(0, answer).topics
    assert [row.topic for row in told] == names()
    for row, topic in zip(told, worker.topics, strict=True):
        assert sum(len(each.segments) for each in row.partitions) == len(topic.layout.segments)


async def test_partitions_that_are_named_are_told_once_each(worker: ManagedWorker) -> None:
    """In the order in which they are named, in however many rows."""
    client = Asks(worker, speaks_dialect=True)
    rows = [{"topic": "orders0", "partitions": [7, 0, 7]}, {"topic": "orders0", "partitions": [1, 0]}]
    decision = client.decide(apis.PARTITION_LEADER_EPOCHS, 0, {"topics": rows})
    answer = await decision.answer(None)
    assert callable(answer)
    (row,) = response(apis.PARTITION_LEADER_EPOCHS).parse(0, whole(answer())).topics
    assert [each.partition for each in row.partitions] == [7, 0, 1]
