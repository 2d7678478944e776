"""Readers of physical partitions on logs in memory: nothing before its time, nothing lost, nothing of nobody's."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from kordon.codecs import apis
from kordon.codecs.decision import Kind
from kordon.codecs.dialect import INVALID_PARTITION_METADATA
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import request, response
from kordon.proxy.decisions.journal import NO_JOURNAL, Journal
from kordon.proxy.decisions.runs import Client
from kordon.proxy.ordering.identity import tag
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.placements import Placement
from kordon.proxy.ordering.streams import physical_stream
from kordon.proxy.own_topics.group_positions import GroupPositions
from kordon.proxy.reads.fetch_handler import FetchHandler
from kordon.proxy.reads.gating import Gates
from kordon.proxy.reads.read_control import ReadControl
from kordon.proxy.reads.worker_reads import WorkerReads
from kordon.proxy.topics.managed_topics import Fence, ManagedTopic
from kordon.testing.messages.as_read import as_read
from kordon.testing.noted import Noted
from kordon.testing.random_logs import (
    NAME,
    Log,
    World,
    consume,
    fetch,
    grown_world,
    is_asked_again,
    read_from,
    readers_of,
    worlds,
)
from kordon.testing.waiting import until

FETCH_VERSION = 12
GROUP: dict[str, Any] = {"group_id": "g", "generation_id": 7, "member_id": "m"}
PATIENTLY: dict[str, Any] = {"max_wait_ms": 20_000}
"""Who waits for records that are there gets them at once, and later from a machine that is busy."""


@dataclass
class Reported:
    """Where a group stands."""

    positions: dict[int, int] = field(default_factory=dict[int, int])
    generation: int = 7
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def of(self, group_id: str, generation_id: int, topic: str, member_id: str) -> Mapping[int, int]:
        is_known = (group_id, generation_id, topic, member_id) == ("g", self.generation, NAME, "m")
        return self.positions if is_known else {}

    async def changed(self, group_id: str) -> None:
        assert group_id, "who has no group is not waited for"
        await self.news.wait()

    def report(self, positions: dict[int, int]) -> None:
        self.positions = self.positions | positions
        self.news.set()
        self.news = asyncio.Event()


class Dialect:
    """A client of the dialect in front of a worker's readers."""

    def __init__(
        self,
        world: World,
        most_bytes: int = 1 << 20,
        cache_bytes: int = 1 << 20,
        journal: Journal = NO_JOURNAL,
    ) -> None:
        self.client = Client(1)
        self.readers, self.topic = readers_of(world, most_bytes, cache_bytes, journal)
        self.reported = Reported()
        self.gates = Gates(cast(GroupPositions, self.reported), self.readers.ends.of)
        self._server = FetchHandler(self.readers, self.gates)

    async def fetch(self, offsets: Mapping[int, int], *, count: int = -1, **fields: Any) -> dict[int, Any]:
        """Fetches through the bytes of a version."""
        told: dict[str, Any] = {"max_wait_ms": 3, "min_bytes": 1, "rack_id": ""} | fields
        positions = [{"partition": q, "position": at} for q, at in told.pop("positions", {}).items()]
        most = told.pop("partition_max_bytes", 1 << 20)
        rows = [{"partition": q, "fetch_offset": at, "partition_max_bytes": most} for q, at in offsets.items()]
        count = count if count >= 0 else self.topic.layout.count_in_force
        topic = {"topic": NAME, "partitions": rows, "undeleted_partition_count": count, "positions": positions}
        body = request(apis.FETCH).build(FETCH_VERSION, told | {"topics": [topic]})
        asked = request(apis.FETCH).parse(FETCH_VERSION, body)
        answer = await self._server.serve(FETCH_VERSION, asked, self.client)
        parsed = as_read(response(apis.FETCH), FETCH_VERSION, answer)
        return {row.partition_index: row for row in parsed.responses[0].partitions}

    def adopt(self, layout: Layout) -> None:
        self.topic.adopt(layout, {})
        self.readers.logs.invalidate(NAME)

    async def read_all(self, **fields: Any) -> dict[int, list[str]]:
        """Reads all partitions as a consumer without group, until none has any lag; returns values, in `order` too."""
        qs = sorted({segment.id.partition for segment in self.topic.layout.segments})
        found: dict[int, list[str]] = {q: [] for q in qs}
        at, lagging = dict.fromkeys(qs, 0), set(qs)
        self.order: list[str] = []
        while lagging:
            rows = await self.fetch(at, positions=at, **fields)
            for q, row in rows.items():
                if await is_asked_again(row):
                    lagging.add(q)
                    continue
                before, known = at[q], len(found[q])
                at[q] = consume(row.records, at[q], found[q])
                self.order += found[q][known:]
                assert row.high_watermark >= at[q]
                if row.high_watermark > at[q]:
                    lagging.add(q)
                elif before == at[q]:
                    lagging.discard(q)
        return found


@settings(max_examples=80)
@given(worlds(), st.integers(1, 2_000), st.sampled_from([0, 500, 1 << 20]), st.integers(1, 3_000))
def test_all_but_strays_is_read_once_and_each_key_in_order(
    world: World, most_bytes: int, cache_bytes: int, partition_max_bytes: int
) -> None:
    """Tagged, dialect, bypass and foreign batches as they stand in the log, through moves, markers and losses."""
    theirs = {value for values in world.expected.values() for value in values} | world.bypass

    async def play() -> tuple[dict[int, list[str]], list[str]]:
        dialect = Dialect(world, most_bytes, cache_bytes)
        try:
            return await dialect.read_all(partition_max_bytes=partition_max_bytes), dialect.order
        finally:
            await dialect.readers.close()

    found, order = asyncio.run(play())
    event(f"segments: {len(world.layout.segments)}")
    for q, values in found.items():
        assert values == [value for value in world.logs[q].values if value in theirs]
    for expected in world.expected.values():
        own = set(expected)
        assert [value for value in order if value in own] == expected


Opened = Callable[..., Dialect]


@pytest.fixture
async def opened() -> AsyncIterator[Opened]:
    """Makes clients of the dialect in front of worlds, and closes their readers at the end."""
    made: list[Dialect] = []

    def make(world: World, **options: Any) -> Dialect:
        made.append(Dialect(world, **options))
        return made[-1]

    yield make
    for each in made:
        await each.readers.close()


async def test_a_child_is_held_with_its_true_end_until_the_group_has_passed_the_cut(opened: Opened) -> None:
    """What is reported wakes a request that waits; another generation's positions, or fewer, do not open the gate."""
    dialect = opened(grown_world())
    dialect.reported.report({0: 1})
    held = (await dialect.fetch({1: 0}, **GROUP))[1]
    assert (held.error_code, held.high_watermark, bytes(held.records)) == (0, 1, b"")
    waiting = asyncio.ensure_future(dialect.fetch({1: 0}, **GROUP, max_wait_ms=20_000))
    await until("it is held", lambda: dialect.gates.tally.held == 1)
    dialect.reported.report({0: 2})
    assert read_from((await waiting)[1])[0] == ["1 after"]
    for other in ({"generation_id": 8}, {"member_id": "n"}, {"group_id": "h"}, {"group_id": ""}):
        assert read_from((await dialect.fetch({1: 0}, **(GROUP | other)))[1])[0] == []
    tally = dialect.gates.tally
    assert (tally.held, tally.holds[NAME]) == (0, 6)
    assert tally.held_seconds[NAME] > 0


async def test_where_there_is_nothing_new_nothing_is_done_until_there_is(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever stands at the end rests, held or not; what comes then is judged as ever, and so is a wrong count."""
    world = grown_world()
    dialect = opened(world)
    ends = {0: 3, 1: 1}
    await dialect.fetch(ends, **GROUP)  # the proxy has not read these logs yet
    with monkeypatch.context() as patched:
        patched.setattr("kordon.proxy.reads.fetching.PartitionFetch", None)  # looks closer at one
        rows = await dialect.fetch(ends, **GROUP)
        assert {q: (row.error_code, row.high_watermark) for q, row in rows.items()} == {0: (0, 3), 1: (0, 1)}
    assert {row.error_code for row in (await dialect.fetch(ends, count=1, **GROUP)).values()} == {
        INVALID_PARTITION_METADATA
    }
    world.logs[1].append(tag(1, 1, 3), ["1 later"])
    assert read_from((await dialect.fetch({1: 1}, **GROUP, max_wait_ms=100))[1], 1)[0] == []
    dialect.reported.report({0: 2})
    while read_from((await dialect.fetch({1: 1}, **GROUP))[1], 1)[0] != ["1 later"]:
        pass


async def test_who_is_held_before_what_nobody_gets_is_told_the_true_end(opened: Opened) -> None:
    """Nothing is left for it there, but as long as its gate is shut it is not told that it has everything."""
    world = grown_world()
    world.logs[1].append(tag(1, 0, 3), ["a stray"])
    dialect = opened(world)
    await dialect.read_all()
    held = (await dialect.fetch({1: 1}, **GROUP, max_wait_ms=60_000, min_bytes=0))[1]
    assert (held.high_watermark, bytes(held.records)) == (2, b"")


async def test_a_report_of_a_lower_position_closes_the_gate(opened: Opened) -> None:
    """The group has gone back: what it had read up to then does not count any more."""
    dialect = opened(grown_world())
    dialect.reported.report({0: 2})
    assert read_from((await dialect.fetch({1: 0}, **GROUP))[1])[0] == ["1 after"]
    dialect.reported.report({0: 0})
    assert read_from((await dialect.fetch({1: 0}, **GROUP))[1])[0] == []


async def test_an_answer_ends_where_the_segment_ends(opened: Opened) -> None:
    """What follows in 0 is judged by the next request, although it is there and nothing holds it."""
    dialect = opened(grown_world())
    assert read_from((await dialect.fetch({0: 0}))[0])[0] == ["0 before", "1 before"]
    assert read_from((await dialect.fetch({0: 2}))[0], 2)[0] == ["0 after"]


async def test_what_retention_has_taken_is_not_waited_for(opened: Opened) -> None:
    """Nobody reads 0's first segment any more, and no group has said anything."""
    world = grown_world()
    world.logs[0].start, world.logs[0].batches = 2, world.logs[0].batches[2:]
    dialect = opened(world)
    assert read_from((await dialect.fetch({1: 0}, **GROUP, max_wait_ms=2_000))[1])[0] == ["1 after"]


async def test_a_wrong_count_is_refused_at_once_and_when_the_layout_changes(opened: Opened) -> None:
    """Whoever waits at an end hears of a change before its time is over."""
    world = grown_world()
    dialect = opened(world)
    assert (await dialect.fetch({0: 0, 1: 0}, count=1))[1].error_code == INVALID_PARTITION_METADATA
    waiting = asyncio.ensure_future(dialect.fetch({0: 3}, max_wait_ms=20_000))
    held = asyncio.ensure_future(dialect.fetch({1: 0}, **GROUP, max_wait_ms=20_000))
    await asyncio.sleep(0.01)
    dialect.adopt(world.layout.changed(world.layout.next_epoch(1), {0: 3, 1: 1}))
    assert (await waiting)[0].error_code == INVALID_PARTITION_METADATA
    assert (await held)[1].error_code == INVALID_PARTITION_METADATA
    assert dialect.gates.tally.refused[NAME] == 4


async def test_a_retired_partition_is_told_its_end_and_strays_behind_it_are_not_shown(opened: Opened) -> None:
    """Whoever has all of it waits, and is not answered again and again."""
    world = grown_world()
    world.layout = world.layout.changed(world.layout.next_epoch(1), {0: 3, 1: 1})
    world.logs[1].append(tag(1, 1, 3), ["stray"])
    world.logs[1].append(tag(physical_stream(1), 1, 3), ["stray"])
    dialect = opened(world)
    row = (await dialect.fetch({1: 0}, positions={0: 2}))[1]
    assert (read_from(row)[0], row.high_watermark) == (["1 after"], 1)
    began = asyncio.get_running_loop().time()
    row = (await dialect.fetch({1: 1}, positions={0: 2}, max_wait_ms=150))[1]
    assert asyncio.get_running_loop().time() - began >= 0.14
    assert (row.error_code, row.high_watermark, bytes(row.records)) == (0, 1, b"")
    assert dialect.gates.tally.holds[NAME] == 0


async def test_an_offset_below_all_there_is_is_out_of_range(opened: Opened) -> None:
    """Nothing is read from anywhere meanwhile, and the other partitions of the request are answered beside it."""
    dialect = opened(grown_world())
    rows = await dialect.fetch({0: -1, 1: 1}, max_wait_ms=2_000)
    assert {q: row.error_code for q, row in rows.items()} == {0: Code.OFFSET_OUT_OF_RANGE, 1: Code.NONE}


async def test_a_retired_partition_that_is_used_again_is_read_on_behind_its_strays(opened: Opened) -> None:
    """1 -> 2 -> 1 -> 2, with a stray between 1's two segments."""
    world = grown_world()
    world.layout = world.layout.changed(world.layout.next_epoch(1), {0: 3, 1: 1})
    world.logs[1].append(tag(1, 1, 3), ["stray"])
    world.layout = world.layout.changed(world.layout.next_epoch(2), {0: 3, 1: 2})
    world.logs[1].append(tag(1, 3, 3), ["1 again"])
    dialect = opened(world)
    assert await dialect.read_all() == {0: ["0 before", "1 before", "0 after"], 1: ["1 after", "1 again"]}


async def test_a_fence_freezes_physical_readers_too(opened: Opened) -> None:
    """FROZEN-READS: what lands while a fence stands is not shown; what physical readers were shown is told by it."""
    world = grown_world()
    dialect = opened(world)
    assert read_from((await dialect.fetch({0: 2}, **PATIENTLY))[0], 2)[0] == ["0 after"]
    dialect.topic.raise_fence(Fence("f", frozenset({0})))
    marks = await ReadControl(dialect.readers).freeze(NAME, [0])
    assert marks == {0: 3}
    dialect.topic.raise_fence(Fence("f", frozenset({0}), marks))
    world.logs[0].append(tag(0, 0, 3), ["under the fence"])
    row = (await dialect.fetch({0: 2}, **PATIENTLY))[0]
    assert (read_from(row, 2)[0], row.high_watermark) == (["0 after"], 3)
    dialect.topic.cancel_fence()
    assert read_from((await dialect.fetch({0: 3}, **PATIENTLY))[0], 3)[0] == ["under the fence"]


async def test_without_ordered_delivery_nothing_is_held(opened: Opened) -> None:
    """enable.ordered.delivery=false of KIP-253; counts are checked all the same."""
    world = grown_world()
    layout = world.layout
    world.layout = Layout(
        NAME, layout.topic_id, layout.n, layout.v_count, layout.epochs, layout.segments, ordered_delivery=False
    )
    dialect = opened(world)
    assert read_from((await dialect.fetch({1: 0}))[1])[0] == ["1 after"]
    assert (await dialect.fetch({1: 0}, count=1))[1].error_code == INVALID_PARTITION_METADATA


async def test_while_a_topic_is_taken_over_it_is_read_without_a_count(opened: Opened) -> None:
    """Clients of the dialect see it as the ordinary topic that it was, and go on reading through the takeover."""
    layout = Layout.unmanaged(NAME, UUID(int=1), 1, 2)
    world = World(layout.changed(layout.next_epoch(1, Placement.OWN), {0: 1}), {0: Log()}, {})
    world.logs[0].append(3, ["before"])
    world.logs[0].append(tag(0, 0, 3), ["meanwhile"])
    dialect = opened(world)
    assert read_from((await dialect.fetch({0: 0}))[0])[0] == ["before"]
    assert read_from((await dialect.fetch({0: 1}))[0], 1)[0] == ["meanwhile"]
    assert (await dialect.fetch({0: 0}, count=1))[0].error_code == INVALID_PARTITION_METADATA


async def test_a_partition_that_there_is_not_is_unknown_to_both_kinds_of_clients(opened: Opened) -> None:
    """Nobody gets a physical partition by the number of a virtual one, or the other way round."""
    dialect = opened(grown_world())
    readers: WorkerReads = dialect.readers
    assert (await dialect.fetch({2: 0}))[2].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    for number in (-1, 2):
        row = (await fetch(readers, {number: 0}))[number]
        assert (row.partition_index, row.error_code) == (number, Code.UNKNOWN_TOPIC_OR_PARTITION)
        row = (await dialect.fetch({-1: 0}))[-1]
        assert (row.partition_index, row.error_code) == (-1, Code.UNKNOWN_TOPIC_OR_PARTITION)
    topic: ManagedTopic = dialect.topic
    assert topic.layout.knows(physical_stream(1))


def told_by(noted: Noted) -> list[Any]:
    """What is on record, in order: kind, partition, range, evidence."""
    noted.journal.end_runs()
    return [
        (each.kind, each.partition, each.first_offset, each.last_offset, dict(each.evidence)) for each in noted.of()
    ]


async def test_the_gate_is_on_record_when_it_holds_and_by_what_it_opened(opened: Opened) -> None:
    """However many requests find it closed, it is held once; the delivery says where the group stood."""
    noted = Noted()
    dialect = opened(grown_world(), journal=noted.journal)
    for position in (0, 1, 2):
        dialect.reported.report({0: position})
        await dialect.fetch({1: 0}, **GROUP)
    held, released, delivered = told_by(noted)
    assert held == (Kind.HOLD, 1, None, None, {"asks": {"0": 2}})
    assert released[:4] == (Kind.RELEASE, 1, None, None)
    assert released[4]["positions"] == {"0": 2}
    assert delivered == (Kind.DELIVER, 1, 0, 0, {"positions": {"0": 2}})
    assert {(each.group_id, each.generation_id, each.member_id) for each in noted.of(Kind.HOLD)} == {("g", 7, "m")}


async def test_a_segment_begins_with_its_evidence_and_goes_on_without(opened: Opened) -> None:
    """Also behind a rewind: who goes back is judged again."""
    noted, world = Noted(), grown_world()
    dialect = opened(world, journal=noted.journal)
    world.logs[1].append(tag(1, 1, 3), ["1 more"])
    dialect.reported.report({0: 3})
    for offset in (0, 2, 0):
        await dialect.fetch({1: offset}, **GROUP, partition_max_bytes=1)
        if not offset:
            await dialect.fetch({1: 1}, **GROUP)
    told = told_by(noted)
    by = {"positions": {"0": 3}}
    assert [each for each in told if each[0] is Kind.DELIVER] == [
        (Kind.DELIVER, 1, 0, 1, by),
        (Kind.DELIVER, 1, 0, 1, by),
    ]
    assert [each[0] for each in told] == [Kind.DELIVER, Kind.REWIND, Kind.DELIVER]


async def test_a_stale_count_is_on_record_as_refused(opened: Opened) -> None:
    """With the rule that says so."""
    noted = Noted()
    dialect = opened(grown_world(), journal=noted.journal)
    await dialect.fetch({0: 0, 1: 0}, count=1)
    noted.journal.end_runs()
    assert [(each.stream, each.reason, each.rule) for each in noted.of(Kind.REFUSE)] == [
        (physical_stream(0), "INVALID_PARTITION_METADATA", "COUNT-FENCE"),
        (physical_stream(1), "INVALID_PARTITION_METADATA", "COUNT-FENCE"),
    ]


@settings(max_examples=40)
@given(worlds(), st.integers(1, 2_000), st.integers(1, 3_000))
def test_deliveries_of_physical_partitions_cover_all_that_was_read_once(
    world: World, most_bytes: int, partition_max_bytes: int
) -> None:
    """From segment to segment, each with its evidence, and with as many records as the reader has counted."""
    noted = Noted()

    async def play() -> dict[int, list[str]]:
        dialect = Dialect(world, most_bytes, journal=noted.journal)
        try:
            return await dialect.read_all(partition_max_bytes=partition_max_bytes)
        finally:
            await dialect.readers.close()

    found = asyncio.run(play())
    noted.journal.end_runs()
    for q, values in found.items():
        given_to = [each for each in noted.of(Kind.DELIVER) if each.partition == q]
        assert sum(each.records or 0 for each in given_to) == len(values)
        moves = [each.move for each in given_to]
        assert all(
            "positions" in each.evidence
            for each, before in zip(given_to, [None, *moves], strict=False)
            if each.move != before
        )
        stands = 0
        for each in given_to:
            assert each.first_offset == stands
            stands = (each.last_offset or 0) + 1
