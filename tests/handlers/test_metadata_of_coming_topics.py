"""While a topic with data is taken over nobody is told its partitions: N here is V elsewhere (TAKEOVER-WAITS)."""

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from kordon.codecs.apis import DESCRIBE_TOPIC_PARTITIONS, METADATA
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import request, response
from kordon.proxy.core.answers import body_of
from kordon.proxy.core.interception import Serve, Translate
from kordon.proxy.core.verdicts import Route, route
from kordon.proxy.handlers.describe_topic_partitions import DescribeTopicPartitions
from kordon.proxy.handlers.metadata import Metadata
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.placements import Placement
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.testing.handled import guard_of
from kordon.testing.messages.as_read import as_read
from kordon.testing.waiting import turns

REAL_ID, FACE_ID = UUID(int=1), UUID(int=2)
BEFORE = Layout.unmanaged("orders", REAL_ID, 2, 8)
TAKEN = BEFORE.changed(BEFORE.next_epoch(2, Placement.OWN), {0: 5, 1: 5}, withheld=True)
WAYS = [
    *((METADATA, version, {"topics": [{"name": "orders"}]}) for version in range(14)),
    *((METADATA, version, {"topics": None if version else []}) for version in range(14)),
    *((METADATA, version, {"topics": [{"topic_id": REAL_ID, "name": None}]}) for version in (12, 13)),
    (DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": [{"name": "orders"}], "response_partition_limit": 2000, "cursor": None}),
    (DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": [], "response_partition_limit": 2000, "cursor": None}),
]
"""All by which a client learns how many partitions a topic has."""


class Proxy:
    """One worker's answers, while `orders` comes to be managed there."""

    def __init__(self) -> None:
        self.topics = ManagedTopics()
        self.coming = ManagedTopic(BEFORE, FACE_ID)
        self.topics.begin(self.coming)
        self._guard = guard_of(self.topics, [Metadata(), DescribeTopicPartitions()])

    def ask(self, key: int, version: int, fields: dict[str, Any]) -> asyncio.Task[dict[str, tuple[int, int]]]:
        """Asks; by topic an error code and how many partitions the client is shown."""
        return asyncio.ensure_future(self._ask(key, version, fields))

    async def _ask(self, key: int, version: int, fields: dict[str, Any]) -> dict[str, tuple[int, int]]:
        way = route(key, version)
        assert isinstance(way, Route)
        decision = self._guard.decide(way, memoryview(request(key).build(version, fields)))
        assert isinstance(decision, Serve)
        answer = await decision.answer(answer_of_broker(key, version))
        rows = response(key).parse(version, body_of(answer)).topics
        return {row.name: (row.error_code, len(row.partitions)) for row in rows if row.name}

    def adopt(self) -> None:
        """Goes on under the layout that shows 8 partitions, as the layout member does."""
        self.coming.adopt(TAKEN, {})
        self.topics.add(self.coming)

    def release(self) -> None:
        """The takeover is called off."""
        self.coming.cancel_fence()
        self.topics.remove("orders")


def answer_of_broker(key: int, version: int) -> asyncio.Future[Any]:
    """What a broker says of `orders`, and of a topic that is nobody's business."""
    partition = {"replica_nodes": [1], "isr_nodes": [1], "offline_replicas": [], "leader_id": 1, "leader_epoch": 7}
    rows = [
        {
            "name": name,
            "topic_id": topic_id,
            "partitions": [{**partition, "partition_index": q} for q in range(2)],
        }
        for name, topic_id in (("orders", REAL_ID), ("other", UUID(int=9)))
    ]
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    answer.set_result(as_read(response(key), version, {"topics": rows}))
    return answer


@pytest.mark.parametrize(("end", "partitions"), [(Proxy.adopt, 8), (Proxy.release, 2)], ids=["adopted", "called off"])
@pytest.mark.parametrize(("key", "version", "fields"), WAYS)
async def test_an_answer_waits_for_the_layout(
    key: int, version: int, fields: dict[str, Any], end: Callable[[Proxy], None], partitions: int
) -> None:
    """By name, by id, of all topics, in pages: a client that has seen 8 partitions elsewhere does not see 2 again.

    When a takeover is called off no proxy has shown anything but 2.
    """
    proxy = Proxy()
    asked = proxy.ask(key, version, fields)
    await turns()
    assert not asked.done()
    end(proxy)
    assert await asked == {"orders": (Code.NONE, partitions), "other": (Code.NONE, 2)}


@pytest.mark.parametrize(("key", "version", "fields"), WAYS)
async def test_an_answer_waits_for_a_moment_only(
    monkeypatch: pytest.MonkeyPatch, key: int, version: int, fields: dict[str, Any]
) -> None:
    """A proxy that does not come to read the layout tells clients of the others, and to ask again for this one."""
    monkeypatch.setattr("kordon.proxy.handlers.shown_topics.HOLD_SECONDS", 0.01)

    told = await Proxy().ask(key, version, fields)
    assert told == {"orders": (Code.LEADER_NOT_AVAILABLE, 0), "other": (Code.NONE, 2)}


async def test_an_answer_that_was_asked_for_before_says_nothing_of_it_either() -> None:
    """It was under way when the takeover began; the client asks again."""
    asked = as_read(request(METADATA), 12, {"topics": [{"name": "orders"}]})

    answer = await answer_of_broker(METADATA, 12)
    Metadata().response(12, answer, Proxy().topics, asked)
    told = {row["name"]: row["error_code"] for row in answer.topics}
    assert told == {"orders": Code.LEADER_NOT_AVAILABLE, "other": Code.NONE}


async def test_where_nothing_is_coming_nothing_waits() -> None:
    """Metadata goes on the way on which it is translated as it passes."""
    proxy = Proxy()
    proxy.adopt()
    way = route(METADATA, 12)
    assert isinstance(way, Route)
    body = request(METADATA).build(12, {"topics": [{"name": "orders"}]})
    assert isinstance(proxy._guard.decide(way, memoryview(body)), Translate)
