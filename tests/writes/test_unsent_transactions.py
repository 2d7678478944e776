"""Data of transactions that wait in line: what refuses them before they are sent (TXN-WITNESS)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

from kordon.codecs.error_codes import Code
from kordon.proxy.ordering.identity import writer_id
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.transactions.beliefs import Ground
from kordon.proxy.ordering.transactions.events import Protocol
from kordon.proxy.ordering.write_sequencer import WriteSequencer
from kordon.proxy.writes.broker_writer import REQUESTS_UNDER_WAY
from kordon.proxy.writes.client_writes import ClientWrite, PendingProduce
from kordon.testing.fake_broker import Answer, Asked
from kordon.testing.managed_writes import a_batch
from kordon.testing.random_logs import NAME
from kordon.testing.writes_in_memory import WritesInMemory

P, V = 7, 0


class Stage(WritesInMemory):
    """A worker's lanes in front of a broker that answers when it may."""

    def __init__(self) -> None:
        super().__init__(Layout.created(NAME, UUID(int=1), 1, 8))
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def produce(self, asked: Asked) -> Answer:
        await self.may_answer.wait()
        return await super().produce(asked)

    def put(self, sequence: int, ground: Ground | None = None, producer_id: int = P) -> asyncio.Task[int]:
        """Puts data of a transaction into line, as what was known when they came."""
        batch = a_batch("x", producer_id=producer_id, epoch=0, sequence=sequence)
        pending = PendingProduce(self.client)
        write = ClientWrite(
            producer_id=writer_id(producer_id, Protocol.V1),
            producer_epoch=0,
            base_sequence=sequence,
            records=1,
            size=len(batch),
            acks=-1,
            since=asyncio.get_running_loop().time(),
            pending=pending,
            place=pending.place(),
            batch=memoryview(bytearray(batch)),
            timeout_ms=10_000,
            ground=ground or self.dispatcher.ground(self.topic, 0),
        )
        self.dispatcher.add(self.topic, V, write)
        return asyncio.ensure_future(_code_of(pending))

    def send(self, sequence: int, producer_id: int) -> asyncio.Task[int]:
        """Has a client without a transaction write."""
        return self.write(V, a_batch("x", producer_id=producer_id, epoch=0, sequence=sequence))

    async def fill(self) -> list[asyncio.Task[int]]:
        """Has so much under way that what comes next waits in line."""
        self.may_answer.clear()
        tasks: list[asyncio.Task[int]] = []
        for number in range(REQUESTS_UNDER_WAY):
            tasks.append(self.send(0, 200 + number))
            await self.rest()
        return tasks


async def _code_of(pending: PendingProduce) -> int:
    (outcome,) = await pending.wait()
    return int(outcome.error_code)


@asynccontextmanager
async def a_stage() -> AsyncIterator[Stage]:
    async with Stage() as stage:
        assert await stage.send(0, 99) == Code.NONE
        yield stage


async def test_they_are_written_where_nothing_has_changed() -> None:
    """In their order."""
    async with a_stage() as stage:
        under_way = await stage.fill()
        tasks = [stage.put(sequence) for sequence in range(2)]
        await stage.rest()
        stage.may_answer.set()
        assert await asyncio.gather(*under_way, *tasks) == [Code.NONE] * 4


async def test_what_rests_on_another_layout_is_refused_with_all_behind_it() -> None:
    """Other producers go on."""
    async with a_stage() as stage:
        assert await stage.put(0) == Code.NONE
        under_way = await stage.fill()
        old = stage.put(1)
        stage.topic.layout = stage.topic.layout.changed(stage.topic.layout.next_epoch(2), {0: 50, 1: 0})
        behind, plain = stage.put(2), stage.send(0, 300)
        await stage.rest()
        stage.may_answer.set()
        await asyncio.gather(*under_way)
        assert {await old, await behind} == {Code.NOT_LEADER_OR_FOLLOWER}
        assert await plain == Code.NONE


async def test_what_waits_while_the_layout_changes_is_refused() -> None:
    """Though nothing comes behind it."""
    async with a_stage() as stage:
        assert await stage.put(0) == Code.NONE
        under_way = await stage.fill()
        old = stage.put(1)
        await stage.rest()
        stage.topic.layout = stage.topic.layout.changed(stage.topic.layout.next_epoch(2), {0: 50, 1: 0})
        stage.may_answer.set()
        await asyncio.gather(*under_way)
        assert await old == Code.NOT_LEADER_OR_FOLLOWER


async def test_what_rests_on_another_leader_is_refused() -> None:
    """The next leader may lack the witness."""
    async with a_stage() as stage:
        ground = stage.dispatcher.ground(stage.topic, 0)
        assert ground is not None
        former = ground._replace(leader_epoch=ground.leader_epoch - 1)
        assert await stage.put(0, former) == Code.NOT_LEADER_OR_FOLLOWER
        assert await stage.put(0, ground) == Code.NONE
        assert await stage.put(1, former) == Code.NOT_LEADER_OR_FOLLOWER
        assert await stage.put(1, ground) == Code.NONE


async def test_a_fence_refuses_them_and_holds_all_others() -> None:
    """It may outlast their own transaction, and the next one of the same epoch would commit them."""
    async with a_stage() as stage:
        under_way = await stage.fill()
        waiting = stage.put(0)
        await stage.rest()
        stage.fence()
        plain = stage.send(0, 300)
        await stage.rest()
        stage.may_answer.set()
        await asyncio.gather(*under_way)
        assert await waiting == Code.NOT_LEADER_OR_FOLLOWER
        assert await stage.put(1) == Code.NOT_LEADER_OR_FOLLOWER
        await stage.rest()
        assert not plain.done()
        stage.topic.cancel_fence()
        assert await plain == Code.NONE


async def test_the_end_of_a_transaction_refuses_what_it_has_not_sent() -> None:
    """Its client has had no answer for it; other producers' data stay."""
    async with a_stage() as stage:
        under_way = await stage.fill()
        waiting, others, plain = stage.put(0), stage.put(0, producer_id=8), stage.send(0, P)
        await stage.rest()
        stage.dispatcher.drop_transaction(P)
        assert await waiting == Code.NOT_LEADER_OR_FOLLOWER
        stage.may_answer.set()
        assert await asyncio.gather(*under_way, others, plain) == [Code.NONE] * 4


def test_what_is_behind_a_withdrawn_write_of_its_producer_goes_with_it() -> None:
    """Parked or not; others keep their order."""
    loop = asyncio.new_event_loop()
    sequencer = WriteSequencer[ClientWrite](V)

    async def made() -> list[ClientWrite]:
        stage = Stage()
        pending = PendingProduce(stage.client)
        await stage.broker.close()
        return [
            ClientWrite(
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                records=1,
                size=1,
                acks=-1,
                since=0,
                pending=pending,
                place=0,
                batch=memoryview(b""),
                timeout_ms=1,
            )
            for producer_id, sequence in ((1, 0), (2, 0), (1, 1), (2, 1), (1, 2))
        ]

    writes = loop.run_until_complete(made())
    loop.close()
    for write in writes:
        sequencer.add(write)
    out = sequencer.withdraw(lambda write: (write.producer_id, write.base_sequence) == (1, 1))
    assert [each.base_sequence for each in out] == [1, 2]
    assert [each.producer_id for each in sequencer.give_up()] == [1, 2, 2]
