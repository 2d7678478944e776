"""What groups commit, and what clients are told of it, is on record: as coordinators answer, and by stream."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast
from uuid import UUID

import pytest

from kordon.codecs import apis
from kordon.codecs.decision import Decision, Kind
from kordon.codecs.messages import request, response
from kordon.proxy.core.interception import Serve, Translate
from kordon.proxy.decisions import room
from kordon.proxy.decisions.journal import NoJournal
from kordon.proxy.handlers.api_handler import ApiHandler
from kordon.proxy.handlers.caught_up import CaughtUp
from kordon.proxy.handlers.offset_commit import DialectOffsetCommit, OffsetCommit
from kordon.proxy.handlers.offset_fetch import DialectOffsetFetch, OffsetFetch
from kordon.proxy.handlers.told_commits import ToldCommits
from kordon.proxy.handlers.txn_offset_commit import DialectTxnOffsetCommit, TxnOffsetCommit
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.proxy.topics.views import PHYSICAL
from kordon.testing.handled import guard_of, route_of
from kordon.testing.messages.as_read import as_read
from kordon.testing.noted import Noted

REAL_ID, FACE_ID, OTHER_ID = (UUID(int=number) for number in (1, 2, 9))
FIRST = Layout.created("orders", REAL_ID, 1, 4)
GROWN = FIRST.changed(FIRST.next_epoch(2), {0: 100, 1: 0})
BY_NAME, BY_ID = 8, 10
"""Versions of OffsetCommit and OffsetFetch."""
REFUSED = 22


class Raising:
    """Tells of a virtual partition that a group has read it to some offset."""

    def __init__(self, ends: Mapping[int, int]) -> None:
        self._ends = ends

    async def complete(self, answer: Any) -> None:
        """Raises commits, as `CaughtUp` does."""
        for row in answer.groups[0].topics:
            for each in row.partitions:
                each.committed_offset = self._ends.get(each.partition_index, each.committed_offset)


class Worker:
    """A worker that manages `orders`, which has grown from 1 partition to 2, and `taken`; with one client.

    Args:
        ends: Where groups that have read all are told to stand, by virtual partition.
    """

    def __init__(self, *, records: bool = True, dialect: bool = False, ends: Mapping[int, int] | None = None) -> None:
        self.noted = Noted()
        self.seconds = 0.0
        journal = self.journal = self.noted.journal if records else NoJournal()
        topics = ManagedTopics()
        topics.add(ManagedTopic(GROWN, FACE_ID, layouts_offset=7))
        topics.add(ManagedTopic(Layout.unmanaged("taken", UUID(int=3), 2, 4), UUID(int=4), layouts_offset=8))
        self.told = ToldCommits(journal, seconds=lambda: self.seconds)
        told = ToldCommits(journal, PHYSICAL)
        raising = cast("CaughtUp", Raising(ends)) if ends is not None else None
        stock: list[ApiHandler] = [OffsetCommit(journal), TxnOffsetCommit(journal), OffsetFetch(raising, self.told)]
        others: list[ApiHandler] = [DialectOffsetCommit(journal), DialectTxnOffsetCommit(journal)]
        handlers = [*others, DialectOffsetFetch(told)] if dialect else stock
        self.guard = guard_of(topics, handlers, journal=journal)
        self.guard.hear("app")

    async def exchange(self, api_key: int, version: int, asked: Any, answer: Any) -> Any:
        """Asks, and has the broker answer; returns what the client is told, None if nobody looked at it."""
        route, table = route_of(api_key, version), response(api_key)
        decision = self.guard.decide(route, memoryview(bytearray(request(api_key).build(version, asked))))
        told = as_read(table, version, answer)
        if isinstance(decision, Translate):
            decision.back(told)
            return as_read(table, version, told)
        if isinstance(decision, Serve):
            part: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            part.set_result(told)
            made: Any = await decision.answer(part)
            return table.parse(version, bytes(made()))
        return None

    async def commit(
        self,
        offsets: Mapping[int, int],
        *,
        api_key: int = apis.OFFSET_COMMIT,
        version: int = BY_NAME,
        topic: tuple[str, UUID] = ("orders", FACE_ID),
        refused: Sequence[int] = (),
        own: bool = True,
        **fields: Any,
    ) -> Any:
        """Commits; `refused` are the partitions that the coordinator does not take."""
        name, topic_id = topic
        rows = [{"partition_index": v, "committed_offset": at, "committed_metadata": ""} for v, at in offsets.items()]
        asked = {"group_id": "g", "generation_id_or_member_epoch": 3, "member_id": "m", "producer_id": 1}
        asked |= {"producer_epoch": 0, "transactional_id": "t", "group_instance_id": None} | fields
        asked["topics"] = [{"name": name, "topic_id": topic_id, "partitions": rows}]
        codes = [{"partition_index": v, "error_code": REFUSED * (v in refused)} for v in offsets]
        told = [{"name": "__kordon." * own + name, "topic_id": topic_id, "partitions": codes}]
        return await self.exchange(api_key, version, asked, {"throttle_time_ms": 0, "topics": told})

    async def fetch(
        self, offsets: Mapping[str, Mapping[int, int]], *, code: int = 0, topic: str = "orders", **fields: Any
    ) -> dict[int, int]:
        """Asks for commits; returns what it is told of the topic.

        Args:
            offsets: What the coordinator has, by topic and partition.
        """
        asked = {"topics": [{"name": topic, "partition_indexes": list(range(4))}], "group_id": "g", **fields}
        rows = [{"name": name, "partitions": _committed(each, code)} for name, each in offsets.items()]
        answer = {"groups": [{"group_id": "g", "topics": rows, "error_code": 0}], "throttle_time_ms": 0}
        version = 9 if "member_id" in fields else BY_NAME
        told = await self.exchange(apis.OFFSET_FETCH, version, {"groups": [asked], "require_stable": True}, answer)
        (row,) = [each for each in told.groups[0].topics if each.name == topic]
        return {each.partition_index: each.committed_offset for each in row.partitions}

    def decisions(self, *kinds: Kind) -> list[Decision]:
        """All that is on record, once open runs have ended."""
        self.journal.end_runs()
        return self.noted.of(*kinds)


def _committed(offsets: Mapping[int, int], code: int) -> list[dict[str, Any]]:
    fields = {"committed_leader_epoch": -1, "metadata": "", "error_code": code}
    return [{"partition_index": number, "committed_offset": offset, **fields} for number, offset in offsets.items()]


def rows_of(decision: Decision, name: str = "offsets") -> list[tuple[int, ...]]:
    """What the evidence has by stream."""
    return [tuple(each) for each in decision.evidence.get(name, ())]


@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
async def test_what_a_coordinator_accepts_is_on_record_with_its_committer(version: int) -> None:
    """By virtual partition, whether the topic is named or known by its id; what it refuses is not."""
    worker = Worker()
    told = await worker.commit({0: 10, 1: 20, 3: 5}, version=version, refused=[1])
    assert [each.error_code for each in told.topics[0].partitions] == [0, REFUSED, 0]
    (found,) = worker.decisions(Kind.OFFSET_COMMIT)
    assert (found.topic, found.group_id, found.member_id, found.generation_id) == ("orders", "g", "m", 3)
    assert (found.connection, found.client_id, found.api_key) == (1, "app", apis.OFFSET_COMMIT)
    assert (found.layout_epoch, found.layouts_offset, found.batches) == (1, 7, 1)
    assert rows_of(found) == [(0, 10, 10), (3, 5, 5)]


async def test_a_commit_by_the_id_of_old_is_on_record() -> None:
    """A client may remember the id that its topic had before it was managed."""
    worker = Worker()
    await worker.commit({0: 10}, version=BY_ID, topic=("orders", REAL_ID))
    assert [rows_of(each) for each in worker.decisions()] == [[(0, 10, 10)]]


async def test_commits_of_the_dialect_pass_and_are_on_record_by_physical_partition() -> None:
    """Plain ones, and those of a transaction."""
    worker = Worker(dialect=True)
    for api_key, version in ((apis.OFFSET_COMMIT, BY_NAME), (apis.TXN_OFFSET_COMMIT, 3)):
        told = await worker.commit({0: 10, 1: 20}, api_key=api_key, version=version, refused=[1], own=False)
        assert told.topics[0].name == "orders"
    assert [(each.api_key, rows_of(each)) for each in worker.decisions()] == [
        (apis.OFFSET_COMMIT, [(~0, 10, 10)]),
        (apis.TXN_OFFSET_COMMIT, [(~0, 10, 10)]),
    ]


async def test_a_transaction_that_commits_offsets_is_on_record() -> None:
    """The api key tells that it may abort yet."""
    worker = Worker()
    await worker.commit({2: 30}, api_key=apis.TXN_OFFSET_COMMIT, version=3)
    (found,) = worker.decisions()
    assert (found.kind, found.api_key, rows_of(found)) == (Kind.OFFSET_COMMIT, apis.TXN_OFFSET_COMMIT, [(2, 30, 30)])


async def test_commits_of_other_topics_and_without_a_log_are_not_looked_at() -> None:
    """They pass as they did; where nothing is recorded, so do those of the dialect."""
    worker = Worker()
    assert await worker.commit({0: 10}, topic=("other", OTHER_ID), own=False) is None
    silent = Worker(records=False)
    assert (await silent.commit({0: 10})).topics[0].name == "orders"
    assert await Worker(records=False, dialect=True).commit({0: 10}, own=False) is None
    assert worker.decisions() == silent.decisions() == []


async def test_commits_that_rise_are_one_record_and_one_that_falls_begins_another() -> None:
    """First and last offset of each stream: a commit each second costs no more than one in half a minute."""
    worker = Worker()
    for offsets in ({0: 10}, {0: 15, 1: 3}, {0: 15}, {0: 12}):
        await worker.commit(offsets)
    rose, fell = worker.decisions()
    assert (rose.batches, rows_of(rose)) == (3, [(0, 10, 15), (1, 3, 3)])
    assert (fell.batches, rows_of(fell)) == (1, [(0, 12, 12)])


@pytest.mark.parametrize(
    "other", [{"member_id": "n"}, {"generation_id_or_member_epoch": 4}, {"group_id": "h"}], ids=str
)
async def test_each_member_generation_and_group_has_records_of_its_own(other: dict[str, Any]) -> None:
    """They take turns, and do not end each other's."""
    worker = Worker()
    for offset in (1, 2):
        await worker.commit({0: offset})
        await worker.commit({0: offset}, **other)
    assert [(each.batches, rows_of(each)) for each in worker.decisions()] == 2 * [(2, [(0, 1, 2)])]


async def test_a_topic_that_is_named_twice_is_whole() -> None:
    """Whoever splits its partitions over two rows commits all of them."""
    worker = Worker()
    rows = [
        {"name": "orders", "partitions": [{"partition_index": v, "committed_offset": v, "committed_metadata": ""}]}
        for v in (1, 2)
    ]
    asked = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "topics": rows}
    told = [{"name": "__kordon.orders", "partitions": [{"partition_index": v, "error_code": 0}]} for v in (1, 2)]
    await worker.exchange(apis.OFFSET_COMMIT, 5, asked, {"throttle_time_ms": 0, "topics": told})
    (found,) = worker.decisions()
    assert rows_of(found) == [(1, 1, 1), (2, 2, 2)]


async def test_offsets_that_no_log_can_have_are_left_out() -> None:
    """A client may commit what it likes; who reckons with what is on record has 64 bits."""
    worker = Worker()
    await worker.commit({0: 2**63 - 1, 1: -1, 2: 7})
    told = await worker.fetch({"__kordon.orders": {0: 2**63 - 1, 2: 7}})
    assert told == {0: 2**63 - 1, 2: 7}
    assert [rows_of(each) for each in worker.decisions()] == [[(2, 7, 7)], [(2, 7)]]


async def test_what_a_client_is_told_stands_behind_what_was_committed_before_it_asked() -> None:
    """By its number, and by the one that it names; other groups' runs go on."""
    worker = Worker()
    await worker.commit({0: 10, 1: 20})
    await worker.commit({0: 1}, group_id="other")
    assert await worker.fetch({"__kordon.orders": {0: 10, 1: 20, 2: -1}}) == {0: 10, 1: 20, 2: -1}
    committed, told = worker.noted.entries
    assert (committed.number, told.number, told.decision.evidence["asked_after"]) == (0, 1, 0)
    found = told.decision
    assert (found.kind, found.topic, found.group_id, found.api_key) == (Kind.OFFSET_FETCH, "orders", "g", 9)
    assert (found.connection, found.client_id, found.layout_epoch, found.layouts_offset) == (1, "app", 1, 7)
    assert (rows_of(found), rows_of(found, "told"), found.member_id) == ([(0, 10), (1, 20)], [], None)


async def test_a_member_that_says_so_is_named() -> None:
    """Members of KIP-848 groups do, from version 9 on."""
    worker = Worker()
    await worker.fetch({"__kordon.orders": {0: 10}}, member_id="m", member_epoch=5)
    assert [(each.member_id, each.generation_id) for each in worker.decisions()] == [("m", 5)]


async def test_where_another_offset_is_told_both_are_on_record_and_where_the_commit_lies() -> None:
    """In the partition where the virtual one lives now: it moved there at 100 of its offsets, and began at 0."""
    moved = next(v for v, chain in enumerate(GROWN.chains) if len(chain.stays) > 1)
    stayed = next(v for v, chain in enumerate(GROWN.chains) if len(chain.stays) == 1)
    worker = Worker(ends={moved: 108, stayed: 40})
    assert await worker.fetch({"__kordon.orders": {moved: 104, stayed: 40}}) == {moved: 108, stayed: 40}
    (found,) = worker.decisions()
    assert (rows_of(found), rows_of(found, "told")) == ([(moved, 104), (stayed, 40)], [(moved, 104, 108, 1, 1, 4)])


async def test_errors_and_commits_from_before_are_not_on_record_as_told() -> None:
    """A commit from before the topic was managed is told, and is another topic's to the coordinator."""
    worker = Worker()
    assert await worker.fetch({"__kordon.taken": {0: 5, 1: -1}, "taken": {0: 3, 1: 9}}, topic="taken") == {0: 5, 1: 9}
    await worker.fetch({"__kordon.orders": {0: 7}}, code=88)
    assert [(each.topic, rows_of(each), rows_of(each, "told")) for each in worker.decisions()] == [
        ("taken", [(0, 5)], [])
    ]


async def test_what_the_dialect_inherits_is_not_on_record_as_told() -> None:
    """Only what was committed on the physical partition itself."""
    worker = Worker(dialect=True)
    told = await worker.fetch({"orders": {0: 50, 1: -1}, "__kordon.orders": {0: 60, 1: 60, 2: 120, 3: 120}})
    assert told[0] == 50
    assert told[1] > 0
    assert [rows_of(each) for each in worker.decisions()] == [[(~0, 50)]]


async def test_what_is_told_beyond_the_room_for_it_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small request may ask for much, again and again: the next record says how much is left out."""
    monkeypatch.setattr(room, "ROWS_AT_ONCE", 5)
    monkeypatch.setattr(room, "ROWS_A_SECOND", 2)
    worker = Worker()
    for _ in range(4):
        await worker.fetch({"__kordon.orders": {0: 1, 1: 1, 2: 1}})
    worker.seconds = 10
    await worker.fetch({"__kordon.orders": {0: 1, 1: 1, 2: 1}})
    assert [each.evidence.get("left_out") for each in worker.decisions()] == [None, 9]


async def test_without_a_log_nothing_is_noted_of_what_clients_are_told() -> None:
    """The answer is the same."""
    worker = Worker(records=False)
    assert await worker.fetch({"__kordon.orders": {0: 10}}) == {0: 10}
    assert worker.decisions() == []
