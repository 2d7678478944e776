"""A physical partition that does not answer holds up nobody else for long (SHARED-LANES): with a broker in memory."""

import asyncio
from collections import Counter
from contextlib import suppress
from uuid import UUID

from kordon.codecs.error_codes import Code
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.writes.stall_avoidance import WRITERS_PER_BROKER
from kordon.testing.fake_broker import Answer, Asked
from kordon.testing.managed_writes import a_batch
from kordon.testing.random_logs import NAME
from kordon.testing.waiting import until
from kordon.testing.writes_in_memory import WritesInMemory

PARTITIONS, V_COUNT = 4, 16


class Stage(WritesInMemory):
    """A worker's lanes to a broker, and clients that write one record each.

    The broker waits with a request for a partition that is stuck as long as it may, and with all behind it.
    """

    def __init__(self) -> None:
        super().__init__(Layout.created(NAME, UUID(int=1), PARTITIONS, V_COUNT), PARTITIONS)
        self.stuck: set[int] = set()
        self.healed = asyncio.Event()
        self.sent: Counter[int] = Counter()
        """Records by virtual partition."""

    async def produce(self, asked: Asked) -> Answer:
        """Answers as the broker does."""
        answer = await super().produce(asked)
        (topic,) = asked.body.topic_data
        with suppress(TimeoutError):
            async with asyncio.timeout(asked.body.timeout_ms / 1000):
                while self.stuck & {row.index for row in topic.partition_data}:
                    await self.healed.wait()
        assert isinstance(answer, dict)
        for row in answer["responses"][0]["partition_responses"]:
            if row["index"] in self.stuck:
                row.update(error_code=Code.REQUEST_TIMED_OUT, base_offset=-1)
        return answer

    def heal(self) -> None:
        """Has the broker answer for all partitions again."""
        self.stuck.clear()
        self.healed.set()

    def send(self, v: int, timeout_ms: int = 10_000) -> asyncio.Task[int]:
        """Has an idempotent client of its own write its next record to a virtual partition."""
        sequence = self.sent[v]
        self.sent[v] += 1
        batch = a_batch(f"{v}-{sequence}", producer_id=v, epoch=0, sequence=sequence)
        return self.write(v, batch, timeout_ms=timeout_ms)

    async def until_apart(self, partitions: int) -> None:
        """Waits until so many partitions go apart."""
        await until(f"{partitions} partitions go apart", lambda: self.dispatcher.stall_avoidance.apart >= partitions)

    def living_on(self, partition: int) -> list[int]:
        """The virtual partitions of a physical one."""
        return list(self.topic.layout.residence.residents(partition))

    def assert_all_written_once(self) -> None:
        """Holds the logs against what was sent."""
        for q, log in self.logs.items():
            sent = [f"{v}-{n}" for v in self.living_on(q) for n in range(self.sent[v])]
            assert sorted(log.values) == sorted(sent)


async def test_writes_go_round_a_partition_that_does_not_answer() -> None:
    """Those that would share a lane with it are written meanwhile; when it answers, nothing is lost or doubled."""
    async with Stage() as stage:
        await asyncio.gather(*(stage.send(v) for v in range(V_COUNT)))
        stage.stuck = {0}
        waiting = [stage.send(v) for v in stage.living_on(0)]
        others = [v for q in range(1, PARTITIONS) for v in stage.living_on(q)]
        assert {v % WRITERS_PER_BROKER for v in others} == {v % WRITERS_PER_BROKER for v in stage.living_on(0)}
        await stage.until_apart(1)  # what is sent on the same connections before that waits, too
        for _ in range(3):
            await asyncio.gather(*(stage.send(v) for v in others))
        waiting += [stage.send(v) for v in stage.living_on(0)]
        await asyncio.gather(*(stage.send(v) for v in others))
        assert stage.dispatcher.stall_avoidance.stalls > 0
        assert not any(each.done() for each in waiting)
        stage.heal()
        await asyncio.gather(*waiting)
        stage.assert_all_written_once()


async def test_what_shares_a_connection_with_a_partition_that_does_not_answer_is_answered_too() -> None:
    """The broker may not keep it back for as long as its client would wait: it is asked again about what is late."""
    async with Stage() as stage:
        await asyncio.gather(*(stage.send(v) for v in range(V_COUNT)))
        stage.stuck = {0}
        writes = {v: stage.send(v) for v in range(V_COUNT)}  # sent together, merged by lane
        await asyncio.gather(*(writes[v] for v in range(V_COUNT) if v not in stage.living_on(0)))
        waiting = [writes[v] for v in stage.living_on(0)]
        assert not any(each.done() for each in waiting)
        stage.heal()
        assert set(await asyncio.gather(*waiting)) == {Code.NONE}
        stage.assert_all_written_once()


async def test_a_partition_that_does_not_answer_is_told_when_its_client_has_waited_for_long() -> None:
    """The client's own time limit counts, and the error is one that it retries."""
    async with Stage() as stage:
        stage.stuck = {0}
        assert await stage.send(stage.living_on(0)[0], timeout_ms=2_500) == Code.REQUEST_TIMED_OUT


async def test_connections_apart_are_few_however_many_partitions_wait() -> None:
    """All partitions of a broker may wait at once, as when it has no other copy in sync."""
    async with Stage() as stage:
        stage.stuck = set(range(PARTITIONS))
        waiting = [stage.send(v) for _ in range(4) for v in range(V_COUNT)]
        await stage.until_apart(PARTITIONS)
        waiting += [stage.send(v) for v in range(V_COUNT)]
        await asyncio.sleep(0.1)
        assert len(stage.broker.connections) <= 5 * WRITERS_PER_BROKER
        stage.heal()
        await asyncio.gather(*waiting)
