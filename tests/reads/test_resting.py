"""Partitions that rest are told what they would be told if they did not, and nobody wakes for the news of others."""

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kordon.codecs.error_codes import Code
from kordon.proxy.kafka.leaders import Leaders
from kordon.proxy.ordering.identity import tag
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.reads import fetching
from kordon.proxy.reads.fetch_rows import AskedTopic
from kordon.proxy.reads.partition_fetch import PartitionFetch
from kordon.proxy.reads.resting import Rests
from kordon.proxy.reads.worker_reads import WorkerReads
from kordon.proxy.topics.managed_topics import Fence, ManagedTopic, ManagedTopics
from kordon.testing.fake_broker import led
from kordon.testing.random_logs import (
    FACE_ID,
    LEADER_EPOCH,
    NAME,
    Log,
    LogBroker,
    World,
    fetch,
    grown_world,
    read_all,
    read_from,
    readers_of,
    worlds,
)
from kordon.testing.waiting import turns

_LONG_MS = 60_000
_NOT_LATE = {"min_bytes": 0, "max_wait_ms": _LONG_MS}
"""Of a request that is answered at once with what there is."""
_LATE = {"max_wait_ms": 0}
_VERSION = 13


def _asked(*partitions: int) -> AskedTopic:
    """Names partitions whose readers stand at offset 4."""
    return AskedTopic("", FACE_ID, {each: (each, -1, 4, 1 << 20) for each in partitions})


async def _older_end() -> int:
    return 4


class Stage:
    """Readers of four virtual partitions that live together."""

    def __init__(self) -> None:
        self.log = Log()
        self.broker = LogBroker({0: self.log}, 1 << 20)
        self.topic = ManagedTopic(Layout.created(NAME, UUID(int=1), 1, 4), FACE_ID)
        topics = ManagedTopics()
        topics.add(self.topic)
        self.leaders = Leaders(self.broker)
        self.readers = WorkerReads(topics, self.broker, self.leaders)

    def write(self, v: int, value: str) -> None:
        self.log.append(tag(v, 0, 3), [value])

    async def ask(self, offsets: dict[int, int], **fields: Any) -> dict[int, tuple[list[str], int, int]]:
        """Fetches; returns by partition the values, where its reader stands then, and the end that it is told."""
        rows = await fetch(self.readers, offsets, **fields)
        return {v: (*read_from(row, offsets[v]), row.high_watermark) for v, row in rows.items()}

    async def all_read(self) -> dict[int, int]:
        """Has each partition read a record of its own; returns where the readers stand, who are at the end."""
        for v in range(4):
            self.write(v, f"first of {v}")
        await read_all(self.readers, list(range(4)))
        return dict.fromkeys(range(4), 4)

    async def close(self) -> None:
        """Ends what is under way."""
        await self.readers.close()
        await self.broker.close()


@contextmanager
def carried_on() -> Iterator[list[int]]:
    """Yields the streams that are carried on one by one while the block runs."""
    streams: list[int] = []

    class Counted(PartitionFetch):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **more)
            streams.append(self.stream)

    with patch.object(fetching, "PartitionFetch", Counted):
        yield streams


async def test_a_record_wakes_its_own_partition_alone() -> None:
    """One of four that live together gets a record while all wait; the others are not looked at one by one."""
    stage = Stage()
    at = await stage.all_read()
    with carried_on() as awake:
        waiting = asyncio.ensure_future(stage.ask(at, max_wait_ms=_LONG_MS))
        await turns()
        stage.write(1, "news")
        assert (await waiting)[1][0] == ["news"]
    assert awake == [1]
    await stage.close()


async def test_who_is_woken_reads_nothing_again_that_was_not_for_it() -> None:
    """Others' records before its own are no longer kept when its own come: brokers need not give them again."""
    stage = Stage()
    at = await stage.all_read()
    stage.write(1, "for another")
    await stage.ask({1: 4})
    waiting = asyncio.ensure_future(stage.ask({0: 4}, max_wait_ms=_LONG_MS))
    await turns()
    stage.readers.logs.of(stage.topic, 0).views.drop()
    stage.write(0, "its own")
    with patch.object(stage.log, "read", wraps=stage.log.read) as read:
        assert await waiting == {0: (["its own"], 6, 6)}
    assert all(call.args[0] >= 5 for call in read.call_args_list)
    assert at[0] == 4
    await stage.close()


async def test_an_older_answer_that_comes_last_takes_no_record_back() -> None:
    """Two answers of a broker can cross. Who stands at the older end is not moved to the newer one (NO-SKIP)."""
    stage = Stage()
    await stage.all_read()
    stage.write(0, "its own")
    stage.write(1, "for another")
    await stage.ask({1: 4})
    rests = Rests(stage.readers, _VERSION)
    (former,) = rests.name([_asked(2)])
    assert not rests.lay(former)
    assert await stage.readers.logs.of(stage.topic, 0).learn(_older_end) == Code.NONE
    (named,) = rests.name([_asked(0, 2)])
    assert [row[0] for row in rests.lay(named)] == [0]
    assert await stage.ask({0: 4}, **_NOT_LATE) == {0: (["its own"], 6, 6)}
    await stage.close()


async def test_who_stands_before_batches_of_others_rests_from_the_start() -> None:
    """The next request of that reader names them where they were, behind which only others have records."""
    stage = Stage()
    at = await stage.all_read()
    stage.write(1, "news")
    await stage.ask(at)
    stage.write(1, "more news")
    with carried_on() as awake:
        answers = await stage.ask(at | {1: 5}, max_wait_ms=_LONG_MS)
    assert answers[1] == (["more news"], 6, 6)
    assert awake == [1]
    assert [answers[v] for v in (0, 2, 3)] == [([], 4, 4)] * 3  # their own ends: they have no lag (OWN-END)
    await stage.close()


async def test_who_rests_before_the_end_is_moved_there_when_the_answer_is_late() -> None:
    """Or else its group would show the records of its neighbours as its lag for ever (STEP-OVER)."""
    stage = Stage()
    at = await stage.all_read()
    stage.write(1, "news")
    await stage.ask(at)
    assert await stage.ask({0: 4, 2: 5}, max_wait_ms=5) == {0: ([], 5, 5), 2: ([], 5, 5)}
    await stage.close()


async def test_who_waits_at_rest_for_the_news_of_others_is_moved_when_its_own_time_is_over() -> None:
    """The record of another comes while it waits, and is nothing to it."""
    stage = Stage()
    at = await stage.all_read()
    waiting = asyncio.ensure_future(stage.ask({0: 4}, max_wait_ms=200))
    await turns()
    stage.write(1, "news")
    assert await waiting == {0: ([], 5, 5)}
    assert await stage.ask(at, **_NOT_LATE) == {0: ([], 4, 4), 1: (["news"], 5, 5), 2: ([], 4, 4), 3: ([], 4, 4)}
    await stage.close()


async def test_nobody_is_moved_over_the_end_of_a_log_that_a_fence_seals() -> None:
    """Neither who rested when it was raised, nor who comes then: what follows may belong behind the cut (STEP-OVER)."""
    stage = Stage()
    await stage.all_read()
    stage.write(1, "news")
    await stage.ask({1: 4})
    waiting = asyncio.ensure_future(stage.ask({0: 4}, max_wait_ms=1_000))
    await turns()
    stage.topic.raise_fence(Fence("first", frozenset({0})).frozen({0: 5}, {}, has_served=True))
    assert await waiting == {0: ([], 4, 4)}
    assert await stage.ask({0: 4}, **_LATE) == {0: ([], 4, 4)}
    stage.topic.cancel_fence()
    assert await stage.ask({0: 4}, **_LATE) == {0: ([], 5, 5)}
    await stage.close()


async def test_what_was_not_read_yet_is_told_as_there() -> None:
    """The high watermark is known to have risen before what stands there is: it may be the reader's own (OWN-END)."""
    stage = Stage()
    at = await stage.all_read()
    log = stage.readers.logs.of(stage.topic, 0)
    log.high_watermark = 9
    with carried_on() as awake:
        answers = await stage.ask(at, **_LATE)
    assert {end for _, _, end in answers.values()} == {9}
    assert awake == [0, 1, 2, 3]
    await stage.close()


async def test_an_offset_beyond_the_end_of_a_log_does_not_rest() -> None:
    """Its reader would wait for ever, and is to be told that the offset is out of range."""
    stage = Stage()
    await stage.all_read()
    row = (await fetch(stage.readers, {0: 7}, max_wait_ms=_LONG_MS))[0]
    assert row.error_code == Code.OFFSET_OUT_OF_RANGE
    await stage.close()


async def test_a_new_leader_is_read_anew_by_who_rested() -> None:
    """What was known of the log counts no more: here it has lost its end, and has got another record there."""
    stage = Stage()
    at = await stage.all_read()
    stage.log.batches, stage.log.end = stage.log.batches[:3], 3
    stage.write(3, "another")
    stage.broker.topics[NAME] = led({0: stage.log}, epoch=LEADER_EPOCH + 1)
    await stage.leaders.renew(NAME)
    assert await stage.ask(at, max_wait_ms=20) == {v: ([], 4, 4) for v in range(4)}
    assert (await stage.ask({3: 3}, **_LATE))[3] == (["another"], 4, 4)
    with carried_on() as awake:
        await stage.ask(at, **_LATE)
    assert not awake
    await stage.close()


async def test_who_rests_in_a_second_home_is_told_where_its_partition_begins() -> None:
    """That is in the first one, as far as its log still begins there."""
    world = grown_world()
    readers, _ = readers_of(world, 1 << 20, 1 << 20)
    await read_all(readers, [0, 1])
    rows = await fetch(readers, {0: 3, 1: 3}, **_LATE)
    assert {v: (row.log_start_offset, row.high_watermark) for v, row in rows.items()} == {0: (0, 3), 1: (0, 3)}
    await readers.close()


@pytest.mark.parametrize("fields", [_NOT_LATE, _LATE], ids=["in time", "late"])
@given(world=worlds(), places=st.lists(st.integers(0, 1_000), min_size=1, max_size=24))
def test_rest_changes_no_answer(fields: dict[str, int], world: World, places: list[int]) -> None:
    """Whatever stands in the logs, wherever readers stand: rows are the same as if no partition ever rested."""

    async def both() -> None:
        readers, _ = readers_of(world, 1 << 20, 1 << 24)
        try:
            born = [v for v, chain in enumerate(world.layout.chains) if chain.stays]
            await read_all(readers, born)
            told = await fetch(readers, dict.fromkeys(born, 0), **_LATE)
            drawn = zip(born, itertools.cycle(places))
            at = {v: place % (told[v].high_watermark + 2) for v, place in drawn}
            rested = await fetch(readers, at, **fields)
            with patch.object(Rests, "_may_rest", return_value=False):
                assert await fetch(readers, at, **fields) == rested
        finally:
            await readers.close()

    asyncio.run(both())
