"""How long brokers hold Kordon's own reads: long where nothing comes, but nobody waits for that in vain."""

import asyncio
from typing import Any, Self

from kordon.codecs import apis
from kordon.codecs.fetched import Fetched
from kordon.proxy.kafka.batched_fetcher import QUIET_MS, WAIT_MS, BatchedFetcher, Want
from kordon.proxy.kafka.leaders import Leaders
from kordon.proxy.kafka.opening import Opener
from kordon.proxy.ordering.reading import Tenancy
from kordon.proxy.reads.indexing import Indexer
from kordon.proxy.reads.logs import PartitionLog
from kordon.proxy.reads.read_tally import ReadTally
from kordon.proxy.reads.view_cache import ViewCache
from kordon.proxy.runtime.tasks import Tasks
from kordon.testing.fake_broker import Answer, Asked, FakeBroker
from kordon.testing.waiting import turns

CONNECTIONS = 8


class Idle:
    """Reads from a broker that has nothing, and answers Fetch when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, set[int], asyncio.Event]] = []
        """Of each request: for how long it may be held, which partitions it names, and what lets the answer go."""
        self.ends: dict[int, int] = {}
        self.starts: dict[int, int] = {}
        broker = FakeBroker({"t": 100}, {apis.FETCH: self._fetch})
        self.leaders = Leaders(broker)
        self.fetcher = BatchedFetcher(broker, self.leaders)

    @classmethod
    async def led(cls) -> Self:
        """Returns it when its leaders are known."""
        idle = cls()
        await idle.leaders.of("t")
        return idle

    async def _fetch(self, asked: Asked) -> Answer:
        partitions = [row.partition for topic in asked.body.topics for row in topic.partitions]
        answered = asyncio.Event()
        self.asked.append((asked.body.max_wait_ms, set(partitions), answered))
        assert asked.seconds > asked.body.max_wait_ms / 1000
        await answered.wait()
        return {"responses": [{"topic": "t", "partitions": [self._row(q) for q in partitions]}]}

    def _row(self, q: int) -> dict[str, Any]:
        ends = {"high_watermark": self.ends.get(q, 0), "log_start_offset": self.starts.get(q, 0)}
        return {"partition_index": q, "error_code": 0, "records": b""} | ends


def want(q: int, max_wait_ms: int = WAIT_MS) -> Want:
    """Wants what comes behind the end of a log that is known to be empty."""
    return Want("t", q, 0, max_wait_ms, log_start=0)


async def test_what_is_idle_is_asked_for_seldom_and_some_connections_come_back_soon() -> None:
    """Half of the connections may wait for long; what is wanted when all wait is asked for with the next one."""
    broker = await Idle.led()
    wanted = []
    for q in range(CONNECTIONS + 3):
        wanted.append(asyncio.ensure_future(broker.fetcher.fetch(want(q))))
        await turns()
    waits = [wait_ms for wait_ms, _, _ in broker.asked]
    assert waits[0] == WAIT_MS
    assert len(waits) == CONNECTIONS
    assert max(waits[CONNECTIONS // 2 :]) <= 500
    broker.asked[-1][2].set()
    await turns()
    assert broker.asked[-1][0] <= 500
    assert {CONNECTIONS, CONNECTIONS + 1, CONNECTIONS + 2} < broker.asked[-1][1]
    for each in wanted:
        each.cancel()
    await broker.fetcher.close()


async def test_what_a_small_request_waits_for_is_adopted_by_a_larger_one() -> None:
    """Whoever has heard of news wants what is next a moment later; or else each would take a connection in the end."""
    broker = await Idle.led()
    first, _, third = (asyncio.ensure_future(broker.fetcher.fetch(want(q))) for q in range(3))
    await turns()
    broker.ends[1] = 5
    broker.asked[0][2].set()
    await turns()
    broker.ends[1] = 0
    again = asyncio.ensure_future(broker.fetcher.fetch(want(1)))
    await turns()
    assert [partitions for _, partitions, _ in broker.asked] == [{0, 1, 2}, {0, 2}, {1}]
    assert broker.asked[2][0] < broker.asked[1][0]
    broker.ends[2] = 5
    broker.asked[1][2].set()
    await turns()
    assert third.done()
    assert broker.asked[3][1] == {0, 1}
    broker.asked[2][2].set()
    await turns()
    assert len(broker.asked) == 4  # the larger one names it still
    broker.ends[1] = 5
    broker.asked[3][2].set()
    await turns()
    assert (await again).high_watermark == 5
    assert broker.asked[4][1] == {0}
    first.cancel()
    await broker.fetcher.close()


async def test_what_is_idle_goes_with_what_is_wanted_upon_news() -> None:
    """Or else news of one partition would cost two requests, and what each of them then has."""
    broker = await Idle.led()
    first, second, third = (asyncio.ensure_future(broker.fetcher.fetch(want(q))) for q in range(3))
    await turns()
    broker.ends[1] = 5
    broker.asked[0][2].set()
    await second
    await turns(3)  # what has come is looked at
    again = asyncio.ensure_future(broker.fetcher.fetch(want(1)))
    await turns()
    assert [partitions for _, partitions, _ in broker.asked] == [{0, 1, 2}, {0, 1, 2}]
    for each in (first, third, again):
        each.cancel()
    await broker.fetcher.close()


async def test_of_two_requests_that_name_the_same_the_first_answer_counts() -> None:
    """The other one's is dropped, and the rest of it asked for again."""
    broker = await Idle.led()
    first = asyncio.ensure_future(broker.fetcher.fetch(want(0)))
    await turns()
    second = asyncio.ensure_future(broker.fetcher.fetch(want(1)))
    await turns()
    assert [partitions for _, partitions, _ in broker.asked] == [{0}, {0, 1}]
    broker.ends[0] = 5
    for _, _, answered in broker.asked[:2]:
        answered.set()
        await turns()
    assert (await first).high_watermark == 5
    assert [partitions for _, partitions, _ in broker.asked[2:]] == [{1}]
    second.cancel()
    await broker.fetcher.close()


async def test_what_is_there_is_not_asked_for_with_what_is_idle() -> None:
    """Its answer comes at once, and would have all that is idle asked for again."""
    broker = await Idle.led()
    wanted = [asyncio.ensure_future(broker.fetcher.fetch(want(q, WAIT_MS * (q % 2)))) for q in range(4)]
    await turns()
    assert [(wait_ms, partitions) for wait_ms, partitions, _ in broker.asked] == [(0, {0, 2}), (WAIT_MS, {1, 3})]
    for each in wanted:
        each.cancel()
    await broker.fetcher.close()


async def test_many_partitions_are_shared_out_among_requests() -> None:
    """News of one of them end one request, so the fewer it names, the fewer are named again."""
    broker = await Idle.led()
    wanted = [asyncio.ensure_future(broker.fetcher.fetch(want(q))) for q in range(100)]
    await turns()
    assert [len(partitions) for _, partitions, _ in broker.asked] == [25] * 4
    assert all(wait_ms == WAIT_MS for wait_ms, _, _ in broker.asked)
    for each in wanted:
        each.cancel()
    await broker.fetcher.close()


async def test_only_those_hear_of_an_answer_for_whom_it_has_news() -> None:
    """Records come to one of three partitions, the log of another loses its head; the third is just asked for again."""
    broker = await Idle.led()
    first, second, third = (asyncio.ensure_future(broker.fetcher.fetch(want(q))) for q in range(3))
    await turns()
    broker.ends[1] = 5
    broker.asked[0][2].set()
    await turns()
    assert (await second).high_watermark == 5
    assert [partitions for _, partitions, _ in broker.asked] == [{0, 1, 2}, {0, 2}]
    broker.starts[2] = 3
    broker.asked[1][2].set()
    await turns()
    assert (await third).log_start_offset == 3
    assert broker.asked[2][1] == {0}
    assert not first.done()
    first.cancel()
    broker.asked[2][2].set()
    await turns()
    assert len(broker.asked) == 3  # nobody waits for it any more
    await broker.fetcher.close()


async def test_a_wait_without_news_comes_to_its_end() -> None:
    """Who does not want any more is not asked for, so whoever wants something says so again from time to time."""
    broker = await Idle.led()
    waiting = asyncio.ensure_future(broker.fetcher.fetch(want(0, max_wait_ms=1)))
    await turns()
    await asyncio.sleep(0.002)
    broker.asked[0][2].set()
    assert (await waiting).high_watermark == 0
    await broker.fetcher.close()


async def test_whoever_waits_at_an_end_hears_seldom_that_nothing_has_come() -> None:
    """The broker's own waits end more often; then it is asked again, and nobody does anything for that."""
    broker = await Idle.led()
    wanted = want(0, max_wait_ms=1)._replace(quiet_ms=60_000)
    waiting = asyncio.ensure_future(broker.fetcher.fetch(wanted))
    await turns()
    await asyncio.sleep(0.002)
    broker.asked[0][2].set()
    await turns()
    assert len(broker.asked) == 2
    assert not waiting.done()
    broker.ends[0] = 1
    broker.asked[1][2].set()
    assert (await waiting).high_watermark == 1
    await broker.fetcher.close()


async def test_a_log_that_is_read_to_its_end_is_wanted_quietly() -> None:
    """What stands before the end is not: its readers wait for that."""
    wanted: list[Want] = []

    async def fetch(want: Want) -> Fetched:
        wanted.append(want)
        return Fetched(0, 100, 0, memoryview(b""))

    tally, tasks = ReadTally(), Tasks()
    indexer = Indexer("t", Tenancy(0), 1, tally, Opener())
    log = PartitionLog("t", indexer, ViewCache(1 << 20, tally), tally, fetch=fetch, tasks=tasks)
    log.high_watermark = 100
    for offset in (100, 7):
        await log.coming(offset)
    assert [(each.max_wait_ms, each.quiet_ms) for each in wanted] == [(WAIT_MS, QUIET_MS), (0, 0)]
    await tasks.stop()


async def test_a_wait_at_the_end_holds_up_no_reader_of_what_is_there() -> None:
    """Readers at more places than are read at once get the next of these, never what waits for records to come."""
    released = asyncio.Event()

    async def fetch(wanted: Want) -> Fetched:
        if wanted.max_wait_ms:
            await asyncio.Event().wait()  # nothing comes
        await released.wait()
        return Fetched(0, 100, 0, memoryview(b""))

    tally, tasks = ReadTally(), Tasks()
    indexer = Indexer("t", Tenancy(0), 1, tally, Opener())
    log = PartitionLog("t", indexer, ViewCache(1 << 20, tally), tally, fetch=fetch, tasks=tasks)
    log.high_watermark = 100
    at_end = log.coming(100)
    places = [log.coming(offset) for offset in (0, 10, 20, 30)]
    assert at_end not in places
    one_more = log.coming(40)
    assert one_more in places
    released.set()
    assert await one_more == 0
    assert not at_end.done()
    await tasks.stop()
