"""Readers on logs made at random, by a broker in memory: whatever happens, each record is read once and in order."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import event, given, settings
from hypothesis import strategies as st

from kordon.proxy.ordering.identity import tag
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.reads.read_control import ReadControl
from kordon.proxy.reads.worker_reads import WorkerReads
from kordon.proxy.topics.managed_topics import Fence, ManagedTopic
from kordon.testing.random_logs import (
    LEADER_EPOCH,
    NAME,
    OUT_OF_RANGE,
    Log,
    World,
    fetch,
    read_all,
    read_from,
    readers_of,
    worlds,
)

FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 74, 75


@settings(max_examples=80)
@given(worlds(), st.integers(1, 2_000), st.sampled_from([0, 500, 1 << 20]), st.integers(1, 3_000), st.integers(1, 3))
def test_every_record_is_read_once_and_in_order(
    world: World, most_bytes: int, cache_bytes: int, partition_max_bytes: int, consumers: int
) -> None:
    """Through moves, strays, markers, bypass and foreign batches, with any sizes of reads, answers and cache."""

    async def play() -> list[dict[int, list[str]]]:
        readers, _ = readers_of(world, most_bytes, cache_bytes)
        born = [v for v, chain in enumerate(world.layout.chains) if chain.stays]
        groups = [born[number::consumers] for number in range(consumers) if born[number::consumers]]
        try:
            return await asyncio.gather(
                *(read_all(readers, vs, partition_max_bytes=partition_max_bytes) for vs in [*groups, *groups])
            )
        finally:
            await readers.close()

    parts = asyncio.run(play())
    event(f"moves: {max(len(chain.stays) for chain in world.layout.chains)}")
    for half in (parts[: len(parts) // 2], parts[len(parts) // 2 :]):
        found = {v: values for part in half for v, values in part.items()}
        for v, values in found.items():
            assert [value for value in values if value not in world.bypass] == world.expected[v]
        shared = [value for values in found.values() for value in values if value in world.bypass]
        assert sorted(shared) == sorted(world.bypass)


@settings(max_examples=30)
@given(worlds(), st.data())
def test_holes_are_passed_and_the_rest_is_read(world: World, data: st.DataObject) -> None:
    """Whatever retention takes, from any partitions, readers from offset 0 come to the end, and get what is left."""
    for log in world.logs.values():
        starts = [0, *(base for base, _, _ in log.batches), log.end]
        log.start = data.draw(st.sampled_from(starts))
        log.batches = [each for each in log.batches if each[1] > log.start]
    batches: list[Any] = [MemoryRecords(raw).next_batch() for log in world.logs.values() for _, _, raw in log.batches]
    left = {record.value.decode() for batch in batches for record in batch if record.value is not None}

    async def play() -> dict[int, list[str]]:
        readers, _ = readers_of(world, 300, 1 << 20)
        try:
            return await read_all(readers, [v for v, chain in enumerate(world.layout.chains) if chain.stays])
        finally:
            await readers.close()

    for v, values in asyncio.run(play()).items():
        own = [value for value in values if value not in world.bypass]
        assert own == [value for value in world.expected[v] if value in left]


def grown() -> World:
    """One physical partition with records of all four virtual ones."""
    layout = Layout.created(NAME, UUID(int=1), 1, 4)
    world = World(layout, {q: Log() for q in range(4)}, {v: [] for v in range(4)})
    for v in range(4):
        world.logs[0].append(tag(v, 0, 3), [f"{v}"])
        world.expected[v] = [f"{v}"]
    return world


Opened = Callable[..., tuple[WorkerReads, ManagedTopic]]


@pytest.fixture
async def opened() -> AsyncIterator[Opened]:
    """Makes readers of a world, and closes them at the end."""
    made: list[WorkerReads] = []

    def make(world: World, most_bytes: int = 1 << 20, cache_bytes: int = 1 << 20) -> tuple[WorkerReads, ManagedTopic]:
        readers, topic = readers_of(world, most_bytes, cache_bytes)
        made.append(readers)
        return readers, topic

    yield make
    for each in made:
        await each.close()


async def test_reader_goes_on_in_a_layout_that_is_adopted_while_it_waits(opened: Opened) -> None:
    """It waits at the old home's end, and gets the first record of the new one."""
    world = grown()
    readers, topic = opened(world)
    mover = 3
    await fetch(readers, {mover: 4})
    waiting = asyncio.ensure_future(fetch(readers, {mover: 4}, max_wait_ms=20_000))
    await asyncio.sleep(0.01)
    layout = world.layout.changed(world.layout.next_epoch(4), {q: log.end for q, log in world.logs.items()})
    home = layout.chains[mover].home
    assert home is not None
    world.logs[home.partition].append(tag(mover, home.move, 3), ["new"])
    topic.adopt(layout, {})
    readers.logs.invalidate(NAME)
    row = (await waiting)[mover]
    assert read_from(row, 4) == (["new"], 5)


@pytest.mark.parametrize("same_topic", [True, False])
async def test_what_a_layout_does_not_change_is_not_read_again(opened: Opened, *, same_topic: bool) -> None:
    """2 grows to 3: partition 0 splits and is read anew, partition 1 is still in the cache; not so of another topic."""
    layout = Layout.created(NAME, UUID(int=1), 2, 4)
    world = World(layout, {q: Log() for q in range(3)}, {})
    for v, q in enumerate(layout.homes):
        assert q is not None
        world.logs[q].append(tag(v, 0, 3), [f"{v}"])
    readers, topic = opened(world)
    everything = {v: [f"{v}"] for v in range(4)}
    assert await read_all(readers, [0, 1, 2, 3]) == everything
    before = readers.tally.pulled_bytes

    grown = layout.changed(layout.next_epoch(3), {q: log.end for q, log in world.logs.items()})
    topic.adopt(grown if same_topic else replace(grown, topic_id=UUID(int=2)), {})
    readers.logs.invalidate(NAME)
    assert await read_all(readers, [0, 1, 2, 3]) == everything
    assert (readers.tally.pulled_bytes - before) * 2 == before * (1 if same_topic else 2)


async def test_withheld_partition_is_there_and_empty(opened: Opened) -> None:
    """What is written to v >= N while a topic is taken over is not shown yet (TAKEOVER-WAITS)."""
    world = grown()
    layout = Layout(NAME, UUID(int=1), 1, 4, world.layout.epochs, world.layout.segments, withheld=True)
    readers, _ = opened(World(layout, world.logs, world.expected))
    rows = await fetch(readers, {0: 0, 1: 0})
    assert read_from(rows[0], 0) == (["0"], 4)
    assert (rows[1].error_code, rows[1].high_watermark, rows[1].records) == (0, 0, b"")


async def test_withheld_partition_is_given_where_delivery_need_not_be_ordered(opened: Opened) -> None:
    """enable.ordered.delivery=false: nobody waits for what a key was in before (KIP-253)."""
    world = grown()
    layout = replace(world.layout, withheld=True, ordered_delivery=False)
    readers, _ = opened(World(layout, world.logs, world.expected))
    rows = await fetch(readers, {1: 0})
    assert read_from(rows[1], 0) == (["1"], 4)


async def test_unknown_virtual_partition_is_answered_with_others(opened: Opened) -> None:
    """Each requested partition is in the answer, those that are not there with their error."""
    readers, _ = opened(grown())
    rows = await fetch(readers, {0: 0, 4: 0, -1: 0})
    assert {v: row.error_code for v, row in rows.items()} == {0: 0, 4: 3, -1: 3}


async def test_sealed_partition_gives_no_filler_and_nothing_behind_its_mark(opened: Opened) -> None:
    """From the fence to the next layout nobody is moved on (STEP-OVER, FROZEN-READS)."""
    world = grown()
    readers, topic = opened(world)
    topic.raise_fence(Fence("f", frozenset({0})))
    assert await ReadControl(readers).freeze(NAME, frozenset({0})) == {0: 4}
    world.logs[0].append(tag(0, 0, 3), ["behind"])
    rows = await fetch(readers, {0: 1, 1: 2, 3: 0})
    assert (rows[0].records, rows[1].records) == (b"", b"")
    assert read_from(rows[3], 0) == (["3"], 4)
    rows = await fetch(readers, {0: 1})
    assert (rows[0].records, rows[0].high_watermark) == (b"", 1)  # all that it may see it has: no lag


async def test_one_batch_goes_out_however_little_was_asked_for(opened: Opened) -> None:
    """A client with a limit below one batch still gets on."""
    readers, _ = opened(grown(), 1, 0)
    rows = await fetch(readers, {1: 0}, max_bytes=1, partition_max_bytes=1)
    assert read_from(rows[1], 0) == (["1"], 2)


async def test_answer_has_no_bound_where_versions_cannot_say_one(opened: Opened) -> None:
    """Before version 3 a Fetch request has no max_bytes; each partition has its own."""
    readers, _ = opened(grown())
    rows = await fetch(readers, {1: 0}, version=2)
    assert read_from(rows[1], 0) == (["1"], 4)


async def test_request_waits_for_its_min_bytes(opened: Opened) -> None:
    """Less than that is answered when max_wait_ms has passed, and not before."""
    readers, _ = opened(grown())
    loop = asyncio.get_running_loop()
    before = loop.time()
    rows = await fetch(readers, {1: 0}, min_bytes=100_000, max_wait_ms=100)
    assert loop.time() - before >= 0.1
    assert read_from(rows[1], 0) == (["1"], 4)


@pytest.mark.parametrize("version", [4, 5, 7, 11, 12, 13, 16, 18])
async def test_reader_that_has_all_is_told_so_in_every_version(opened: Opened, version: int) -> None:
    """It is at the end, nothing is looked up for it again, and its lag is 0 whatever the version has of fields."""
    readers, _ = opened(grown())
    ends = dict.fromkeys(range(4), 4)
    await fetch(readers, ends, version=version)
    looks = (readers.tally.hits, readers.tally.misses)
    for _ in range(2):
        rows = await fetch(readers, ends, version=version)
        assert set(rows) == set(ends)
        for row in rows.values():
            assert (row.error_code, row.high_watermark, row.last_stable_offset) == (0, 4, 4)
            assert (row.records, row.aborted_transactions) == (b"", None)
            assert row.get("log_start_offset", 0) == 0
    assert (readers.tally.hits, readers.tally.misses) == looks


async def test_readers_at_the_end_get_what_comes_at_once(opened: Opened) -> None:
    """All wait at the end of one log; who is written to has the record, the others have no lag."""
    world = grown()
    readers, _ = opened(world)
    ends = dict.fromkeys(range(4), 4)
    await fetch(readers, ends)
    waiting = asyncio.ensure_future(fetch(readers, ends, max_wait_ms=20_000))
    await asyncio.sleep(0.01)
    world.logs[0].append(tag(2, 0, 3), ["new"])
    rows = await waiting
    assert read_from(rows[2], 4) == (["new"], 5)
    assert {v: (rows[v].records, rows[v].high_watermark) for v in (0, 1, 3)} == dict.fromkeys((0, 1, 3), (b"", 4))


async def test_readers_at_the_end_are_told_where_the_log_begins_now(opened: Opened) -> None:
    """Retention goes on while they wait."""
    world = grown()
    readers, _ = opened(world)
    assert (await fetch(readers, {0: 4}))[0].log_start_offset == 0
    world.logs[0].start = 2
    while (await fetch(readers, {0: 4}, max_wait_ms=20))[0].log_start_offset != 2:
        pass


async def test_readers_at_the_end_hear_of_another_leader_epoch(opened: Opened) -> None:
    """Who believes in an epoch that is over, or not known, is told so though there is nothing to read (KIP-320)."""
    readers, _ = opened(grown())
    await fetch(readers, {0: 4})
    codes = {
        epoch: (await fetch(readers, {0: 4}, current_leader_epoch=epoch))[0].error_code
        for epoch in (LEADER_EPOCH - 1, LEADER_EPOCH, LEADER_EPOCH + 1)
    }
    assert list(codes.values()) == [FENCED_LEADER_EPOCH, 0, UNKNOWN_LEADER_EPOCH]


async def test_a_fence_reaches_who_waits_at_the_end(opened: Opened) -> None:
    """A record that comes behind it is not shown."""
    world = grown()
    readers, topic = opened(world)
    await fetch(readers, {0: 4})
    waiting = asyncio.ensure_future(fetch(readers, {0: 4}, max_wait_ms=200))
    await asyncio.sleep(0.01)
    topic.raise_fence(Fence("f", frozenset({0})))
    assert await ReadControl(readers).freeze(NAME, frozenset({0})) == {0: 4}
    world.logs[0].append(tag(0, 0, 3), ["behind"])
    row = (await waiting)[0]
    assert (row.records, row.high_watermark) == (b"", 4)


async def test_who_waits_at_the_end_of_a_log_that_gets_shorter_is_out_of_range(opened: Opened) -> None:
    """The end is looked at again and again, also where nothing comes."""
    world = grown()
    readers, _ = opened(world)
    await fetch(readers, {0: 4})
    world.logs[0].batches, world.logs[0].end = world.logs[0].batches[:2], 2
    while (row := (await fetch(readers, {0: 4}, max_wait_ms=50))[0]).error_code == 0:
        assert row.records == b""
    assert row.error_code == OUT_OF_RANGE
