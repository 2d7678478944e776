"""A reader that keeps its connection gets every record once and in order, whatever its worker forgets meanwhile."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from kordon.codecs.fetch_requests import look_fetch
from kordon.codecs.messages.fetch import REQUEST, RESPONSE
from kordon.proxy.decisions.runs import Client
from kordon.proxy.kafka.leaders import Leaders
from kordon.proxy.ordering.identity import tag
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.reads.fetch_handler import FetchHandler
from kordon.proxy.reads.fetch_rows import asked_by_look
from kordon.proxy.reads.fetch_sessions import KeptFetches, built_answer
from kordon.proxy.reads.worker_reads import WorkerReads
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.testing.random_logs import FACE_ID, NAME, Log, LogBroker, consume

_VERSION = 13
_MOST_BYTES = 1 << 20
_MOST_FETCHES = 1_000


class Play:
    """One reader of some virtual partitions, and those who write to them."""

    def __init__(self, seed: int) -> None:
        self.drawn = random.Random(seed)
        self.v_count, q_count = self.drawn.choice([4, 8]), self.drawn.choice([1, 2])
        self.logs = {q: Log() for q in range(q_count)}
        self.broker = LogBroker(self.logs, self.drawn.choice([300, _MOST_BYTES]))
        self.topic = ManagedTopic(Layout.created(NAME, UUID(int=1), q_count, self.v_count), FACE_ID)
        topics = ManagedTopics()
        topics.add(self.topic)
        self.readers = WorkerReads(topics, self.broker, Leaders(self.broker))
        self.written: dict[int, list[str]] = {v: [] for v in range(self.v_count)}
        self.found: dict[int, list[str]] = {v: [] for v in range(self.v_count)}
        self._kept = KeptFetches()
        self._at = dict.fromkeys(range(self.v_count), 0)
        self._order = [*range(self.v_count)]

    def write(self) -> None:
        """Has a partition get a record."""
        v = self.drawn.randrange(self.v_count)
        self.written[v].append(f"{v}-{len(self.written[v])}")
        self.logs[self.topic.layout.chain(v).stays[-1].partition].append(tag(v, 0, 3), self.written[v][-1:])

    def forget(self) -> None:
        """Lets go of what was read of a log."""
        self.readers.logs.of(self.topic, self.drawn.choice([*self.logs])).views.drop()

    async def cross(self) -> None:
        """Has an answer come last that was made when the log ended where the reader stands somewhere."""
        log = self.readers.logs.of(self.topic, self.drawn.choice([*self.logs]))
        older = min(log.high_watermark or 0, self.drawn.choice([*self._at.values()]))
        await log.learn(_told(older))

    async def fetch(self, max_wait_ms: int, max_bytes: int) -> None:
        """Asks for all partitions or some, one further on than before or not."""
        if self.drawn.random() < 0.5:
            self._order.append(self._order.pop(0))
        few = self.drawn.sample(self._order, self.drawn.randint(1, self.v_count))
        rows = [
            {"partition": v, "fetch_offset": self._at[v], "partition_max_bytes": _MOST_BYTES}
            for v in (self._order if self.drawn.random() < 0.8 else few)
        ]
        fields = {"max_wait_ms": max_wait_ms, "min_bytes": 1, "max_bytes": max_bytes, "session_epoch": -1}
        topics = {"topics": [{"topic": NAME, "topic_id": FACE_ID, "partitions": rows}]}
        look = look_fetch(_VERSION, REQUEST.build(_VERSION, fields | topics | {"forgotten_topics_data": []}))
        assert look is not None
        asked = asked_by_look(_VERSION, look, self._kept.take_named())
        answer = await FetchHandler(self.readers).read(asked, Client(1), self._kept)
        body = built_answer(_VERSION, answer) or RESPONSE.build(_VERSION, answer)
        for row in (row for topic in RESPONSE.parse(_VERSION, body).responses for row in topic.partitions):
            if not row.error_code:
                v = row.partition_index
                self._at[v] = consume(row.records or b"", self._at[v], self.found[v])

    async def step(self) -> None:
        """Has records come before a request and while it waits."""
        drawn = self.drawn
        for _ in range(drawn.choice([0, 0, 1, 2, 5])):
            self.write()
        if drawn.random() < 0.3:
            self.forget()
        if drawn.random() < 0.5:
            await self.cross()
        fetching = asyncio.ensure_future(self.fetch(drawn.choice([0, 1, 5, 20]), drawn.choice([1, 200, _MOST_BYTES])))
        for _ in range(drawn.randint(0, 30)):
            await asyncio.sleep(0)
            if drawn.random() < 0.1:
                self.write()
        await fetching

    async def close(self) -> None:
        """Ends what is under way."""
        await self.readers.close()
        await self.broker.close()


def _told(end: int) -> Callable[[], Awaitable[int]]:
    async def told() -> int:
        return end

    return told


@pytest.mark.parametrize("seed", [7, 15, 16, 21, 26, 30, 35, 37])
async def test_a_reader_passes_over_no_record_whatever_is_forgotten_or_told_late(seed: int) -> None:
    """Nothing is read again where nothing was left for it, and no record of its own stands there (NO-SKIP)."""
    play = Play(seed)
    for _ in range(play.drawn.randint(10, 60)):
        await play.step()
    for _ in range(_MOST_FETCHES):
        if play.found == play.written:
            break
        await play.fetch(3, _MOST_BYTES)
    assert play.found == play.written
    await play.close()
