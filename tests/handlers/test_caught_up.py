"""What groups are told of their commits where nothing is left to read, and where something is (OWN-END)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from kordon.codecs import apis
from kordon.codecs.messages import response
from kordon.proxy.handlers.caught_up import CaughtUp
from kordon.proxy.kafka.leaders import Leaders
from kordon.proxy.ordering.identity import tag
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.reads.worker_reads import WorkerReads
from kordon.proxy.topics.managed_topics import Fence, ManagedTopic, ManagedTopics
from kordon.testing.messages.as_read import as_read
from kordon.testing.random_logs import FACE_ID, NAME, Log, LogBroker


class Stage:
    """A topic of two virtual partitions on one physical one: 0 has a record at 0, 1 has those at 1 and 2."""

    def __init__(self, broker: LogBroker) -> None:
        self.log = broker.logs[0]
        for v in (0, 1, 1):
            self.log.append(tag(v, 0, 3), ["x"])
        self.topic = ManagedTopic(Layout.created(NAME, UUID(int=1), 1, 2), FACE_ID)
        topics = ManagedTopics()
        topics.add(self.topic)
        self.readers = WorkerReads(topics, broker, Leaders(broker))
        self._caught_up = CaughtUp(topics, self.readers)

    async def told(self, offsets: dict[int, int]) -> dict[int, tuple[int, int]]:
        """Returns the offset and the leader epoch that a group is told, by virtual partition, of what it committed."""
        rows = [
            {"partition_index": v, "committed_offset": at, "committed_leader_epoch": 4, "error_code": 0}
            for v, at in offsets.items()
        ]
        fields = {"groups": [{"group_id": "g", "topics": [{"name": NAME, "partitions": rows}]}]}
        answer = as_read(response(apis.OFFSET_FETCH), 9, fields)
        await self._caught_up.complete(answer)
        found: Any = answer.groups[0].topics[0].partitions
        return {row.partition_index: (row.committed_offset, row.committed_leader_epoch) for row in found}


@asynccontextmanager
async def a_stage() -> AsyncIterator[Stage]:
    """A stage, and the end of what is under way."""
    broker = LogBroker({0: Log()}, 1 << 20)
    stage = Stage(broker)
    yield stage
    await stage.readers.close()
    await broker.close()


async def test_a_group_that_has_read_all_is_told_the_end_without_an_epoch() -> None:
    """The epoch of what it read says nothing of the end; whoever has something left is told what it committed."""
    async with a_stage() as stage:
        assert await stage.told({0: 1, 1: 2}) == {0: (3, -1), 1: (2, 4)}
        assert await stage.told({0: 0, 1: 3}) == {0: (0, 4), 1: (3, 4)}


async def test_no_end_is_told_behind_what_a_fence_shows() -> None:
    """What comes behind it may be of no segment at all (FROZEN-READS)."""
    async with a_stage() as stage:
        assert await stage.told({0: 1}) == {0: (3, -1)}
        stage.topic.raise_fence(Fence("f1", frozenset({0}), {0: 3}))
        stage.log.append(tag(1, 0, 3), ["behind"])
        assert await stage.told({0: 1}) == {0: (3, -1)}
        stage.topic.cancel_fence()
        assert await stage.told({0: 1}) == {0: (4, -1)}
