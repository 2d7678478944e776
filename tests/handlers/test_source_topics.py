"""Source topics refuse records with the reason, and commits that are no restart points; all else goes its way."""

import asyncio
from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from unittest.mock import AsyncMock, MagicMock
from uuid import UUID

import pytest

from kordon.codecs import apis
from kordon.codecs.decision import Kind
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import request, response
from kordon.codecs.source_points import POINT_BYTES, Point, build
from kordon.proxy.core.interception import Confer, Serve
from kordon.proxy.core.verdicts import Route
from kordon.proxy.decisions import room
from kordon.proxy.handlers import source_commits, source_wishes
from kordon.proxy.handlers.alter_configs import AlterConfigs
from kordon.proxy.handlers.create_topics import CreateTopics
from kordon.proxy.handlers.delete_topics import DeleteTopics
from kordon.proxy.handlers.incremental_alter_configs import IncrementalAlterConfigs
from kordon.proxy.handlers.offset_commit import OffsetCommit
from kordon.proxy.handlers.produce import Produce
from kordon.proxy.handlers.source_commits import LastNumbers, SourceCommits
from kordon.proxy.handlers.source_wishes import SourceWishes
from kordon.proxy.handlers.topic_wishes import TopicWishes, WishedApi
from kordon.proxy.handlers.txn_offset_commit import TxnOffsetCommit
from kordon.proxy.kafka.ends import Ends
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.records import OutcomeRecord
from kordon.proxy.ordering.source_records import SourceTopic, SourceWish
from kordon.proxy.ordering.wishes import Manage
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics
from kordon.testing.handled import guard_of, held, route_of
from kordon.testing.messages.as_read import as_read
from kordon.testing.noted import Noted

GROUP, SOURCE, SOURCE_ID, OTHER = "db1", "db1", UUID(int=7), "plain"
NOBODY = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
MEMBER = {"generation_id_or_member_epoch": 3, "member_id": "m", "group_instance_id": None}


def point(number: int) -> str:
    """Returns the metadata of a restart point."""
    return build(Point(number, "12:34" if number else None))


def known(*, managed: bool = False) -> ManagedTopics:
    """Returns topics of which one is a source topic."""
    topics = ManagedTopics()
    if managed:
        topics.add(ManagedTopic(Layout.created("orders", UUID(int=1), 1, 4), UUID(int=2), layouts_offset=7))
    topics.sources.know({SOURCE: SourceTopic(SOURCE_ID, 1)})
    return topics


class Coordinator:
    """A group's coordinator behind a worker, with one client.

    Args:
        points: The metadata that the group has, by partition.
    """

    def __init__(self, points: Mapping[int, str] | None = None, *, managed: bool = False) -> None:
        self.topics = known(managed=managed)
        self.noted = Noted()
        journal = self.noted.journal
        self.numbers = LastNumbers()
        stock = [OffsetCommit(), TxnOffsetCommit()]
        looked_at = [SourceCommits(each, self.numbers, journal) for each in stock]
        self.guard = guard_of(self.topics, stock, journal=journal, with_sources=looked_at)
        self.points = dict(points or {})
        self.asked: list[Any] = []
        """OffsetFetch requests."""
        self.got: list[Any] = []
        """Commits."""
        self.code = Code.NONE

    async def ask(self, route: Route, body: bytes) -> Any:
        value = request(route.api.key).at(route.version).parse(body)[0]
        if route.api.key == apis.OFFSET_FETCH:
            self.asked.append(value)
            rows = [
                {"partition_index": each, "committed_offset": 0, "metadata": self.points.get(each, ""), "error_code": 0}
                for each in value.topics[0].partition_indexes
            ]
            return as_read(response(route.api.key), route.version, {"topics": [{"name": SOURCE, "partitions": rows}]})
        self.got.append(value)
        topics = [
            {
                **{field: topic[field] for field in ("name", "topic_id") if field in topic},
                "partitions": [
                    {"partition_index": row.partition_index, "error_code": self.code} for row in topic.partitions
                ],
            }
            for topic in value.topics
        ]
        return as_read(response(route.api.key), route.version, {"topics": topics, "throttle_time_ms": 4})

    async def commit(
        self,
        rows: Mapping[str | UUID, Mapping[int, str | None]],
        *,
        key: int = apis.OFFSET_COMMIT,
        version: int = 8,
        who: Mapping[str, object] = MEMBER,
        offset: int = 0,
    ) -> dict[object, dict[int, int]] | None:
        """Commits metadata by topic and partition; returns the codes that the client is told, None if it passes."""
        topics = [
            {
                ("name" if isinstance(topic, str) else "topic_id"): topic,
                "partitions": [
                    {"partition_index": each, "committed_offset": offset, "committed_metadata": metadata}
                    for each, metadata in partitions.items()
                ],
            }
            for topic, partitions in rows.items()
        ]
        body = {"group_id": GROUP, "topics": topics, "transactional_id": "t", "producer_id": 1, "producer_epoch": 0}
        route = route_of(key, version)
        if not self.guard.wants(route):
            return None
        made = request(key).build(version, {**body, **who})
        decision = self.guard.decide(route, memoryview(bytearray(made)))
        if decision is None:
            return None
        assert isinstance(decision, Confer)
        answer: Any = await decision.answer(self.ask)
        told = response(key).parse(version, bytes(answer))
        return {
            topic.get("name", "") or topic.get("topic_id", None): {
                row.partition_index: row.error_code for row in topic.partitions
            }
            for topic in told.topics
        }


async def test_the_auto_commit_of_a_stock_consumer_is_refused_and_reaches_no_coordinator() -> None:
    coordinator = Coordinator({0: point(17)})
    told = await coordinator.commit({SOURCE: {0: "", 1: None}})
    assert told == {SOURCE: {0: source_commits.REFUSED, 1: source_commits.REFUSED}}
    assert not coordinator.got
    assert coordinator.topics.sources.refused == {"records": 0, "no_point": 2, "lower_number": 0}


async def test_what_a_consumer_commits_besides_is_taken() -> None:
    coordinator = Coordinator()
    told = await coordinator.commit({SOURCE: {0: ""}, OTHER: {0: "mine", 5: ""}})
    assert told == {SOURCE: {0: source_commits.REFUSED}, OTHER: {0: 0, 5: 0}}
    assert [(each.name, [row.partition_index for row in each.partitions]) for each in coordinator.got[0].topics] == [
        (OTHER, [0, 5])
    ]


async def test_managed_topics_beside_a_source_topic_are_committed_on_their_faces() -> None:
    coordinator = Coordinator(managed=True)
    told = await coordinator.commit({SOURCE: {0: "", 1: point(1)}, "orders": {3: ""}})
    assert told == {SOURCE: {0: source_commits.REFUSED, 1: 0}, "orders": {3: 0}}
    assert [each.name for each in coordinator.got[0].topics] == [SOURCE, "__kordon.orders"]


@pytest.mark.parametrize("key", [apis.OFFSET_COMMIT, apis.TXN_OFFSET_COMMIT])
async def test_restart_points_are_taken_as_they_are(key: int) -> None:
    coordinator = Coordinator({0: point(4)})
    version = 8 if key == apis.OFFSET_COMMIT else 3
    assert await coordinator.commit({SOURCE: {0: point(5)}}, key=key, version=version) == {SOURCE: {0: 0}}
    assert coordinator.got[0].topics[0].partitions[0].committed_metadata == point(5)
    assert coordinator.numbers.get((GROUP, SOURCE, 0)) == 5


async def test_restart_points_and_refusals_are_on_record() -> None:
    """Of the point its hash: the text is the application's own."""
    coordinator = Coordinator()
    await coordinator.commit({SOURCE: {0: point(1), 1: ""}, OTHER: {0: ""}}, key=apis.TXN_OFFSET_COMMIT, version=3)
    await coordinator.commit({SOURCE: {0: point(2)}})
    coordinator.code = Code.ILLEGAL_GENERATION
    await coordinator.commit({SOURCE: {0: point(3)}})
    coordinator.noted.journal.end_runs()
    told = coordinator.noted.of()
    points = [each for each in told if each.kind is Kind.POINT]
    assert [(each.topic, each.partition, each.evidence["number"]) for each in points] == [
        (SOURCE, 0, 1),
        (SOURCE, 0, 2),
    ]
    assert [(each.producer_id, each.producer_epoch, each.generation_id) for each in points] == [
        (1, 0, 3),
        (None, None, 3),
    ]
    assert points[0].evidence["sha256"] == sha256(b"12:34").hexdigest()
    asked = [(each.evidence["asked_after"], each.evidence.get("held")) for each in points]
    assert asked == [(-1, 0), (0, None)], "the coordinator was asked for the number once"
    (refusal,) = (each for each in told if each.kind is Kind.REFUSE)
    assert (refusal.topic, refusal.rule, refusal.reason) == (SOURCE, "POINT-KEPT", "INVALID_COMMIT_OFFSET_SIZE")


async def test_who_commits_more_than_there_is_room_for_fills_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand restart points of 4,000 bytes a request: each is taken, and what is not on record is counted."""
    monkeypatch.setattr(room, "ROWS_AT_ONCE", 250)
    monkeypatch.setattr(room, "ROWS_A_SECOND", 0)
    coordinator = Coordinator()
    long = build(Point(1, "x" * POINT_BYTES))
    told = await coordinator.commit({SOURCE: dict.fromkeys(range(10_000), long)})
    assert told == {SOURCE: dict.fromkeys(range(10_000), 0)}
    assert len(coordinator.noted.of(Kind.POINT)) == 250
    assert len(coordinator.asked) == 1


async def test_rows_of_one_partition_are_taken_as_often_as_they_come() -> None:
    """In one request: what counts then is the coordinator's matter."""
    coordinator = Coordinator({0: point(4)})
    body = {"group_id": GROUP, "topics": [], **MEMBER}
    rows = [
        {"partition_index": 0, "committed_offset": 0, "committed_metadata": each}
        for each in (point(5), "", point(3), point(6))
    ]
    made = request(apis.OFFSET_COMMIT).build(8, {**body, "topics": [{"name": SOURCE, "partitions": rows}]})
    decision = coordinator.guard.decide(route_of(apis.OFFSET_COMMIT, 8), memoryview(bytearray(made)))
    assert isinstance(decision, Confer)
    told = response(apis.OFFSET_COMMIT).parse(8, bytes(await decision.answer(coordinator.ask)))  # type: ignore[arg-type]
    codes = [row.error_code for row in told.topics[0].partitions]
    assert codes == [0, source_commits.REFUSED, source_commits.REFUSED, 0]


async def test_a_number_that_leaves_none_for_others_is_refused() -> None:
    """Nobody could go on behind it, and nobody could set the restart point."""
    coordinator = Coordinator({0: point(4)})
    for number in (2**62 + 1, 2**63 - 1):
        assert await coordinator.commit({SOURCE: {0: point(number)}}) == {SOURCE: {0: source_commits.REFUSED}}
    assert await coordinator.commit({SOURCE: {0: point(2**62)}}) == {SOURCE: {0: 0}}


async def test_a_topic_that_is_named_by_its_id_is_a_source_topic_too() -> None:
    coordinator = Coordinator()
    assert await coordinator.commit({SOURCE_ID: {0: ""}}, version=10) == {SOURCE_ID: {0: source_commits.REFUSED}}


async def test_an_older_restart_point_takes_the_place_of_no_newer_one() -> None:
    coordinator = Coordinator({0: point(17), 1: point(17)})
    told = await coordinator.commit({SOURCE: {0: point(16), 1: point(17)}})
    assert told == {SOURCE: {0: source_commits.REFUSED, 1: 0}}
    assert coordinator.topics.sources.refused["lower_number"] == 1


async def test_the_coordinator_is_asked_for_a_number_once_where_members_are_named() -> None:
    coordinator = Coordinator()
    for number in (1, 2, 2, 3):
        await coordinator.commit({SOURCE: {0: point(number)}})
    assert len(coordinator.asked) == 1


async def test_of_a_commit_without_a_generation_the_coordinator_is_asked_always() -> None:
    coordinator = Coordinator()
    await coordinator.commit({SOURCE: {0: point(1)}}, who=NOBODY)
    coordinator.points[0] = point(9)  # of a member at another proxy
    told = await coordinator.commit({SOURCE: {0: point(2)}}, who=NOBODY)
    assert told == {SOURCE: {0: source_commits.REFUSED}}


async def test_a_group_that_was_deleted_begins_with_low_numbers_again() -> None:
    coordinator = Coordinator({0: point(17)})
    await coordinator.commit({SOURCE: {0: point(18)}})
    coordinator.points.clear()
    assert await coordinator.commit({SOURCE: {0: point(0)}}) == {SOURCE: {0: 0}}


async def test_what_the_coordinator_refuses_is_told_and_its_number_is_not_kept() -> None:
    coordinator = Coordinator()
    coordinator.code = Code.ILLEGAL_GENERATION
    assert await coordinator.commit({SOURCE: {0: point(3)}}) == {SOURCE: {0: Code.ILLEGAL_GENERATION}}
    assert coordinator.numbers.get((GROUP, SOURCE, 0)) is None


async def test_a_restart_point_at_another_offset_is_refused() -> None:
    coordinator = Coordinator()
    assert await coordinator.commit({SOURCE: {0: point(3)}}, offset=1) == {SOURCE: {0: source_commits.REFUSED}}


async def test_commits_that_name_no_source_topic_pass() -> None:
    assert await Coordinator().commit({OTHER: {0: ""}}) is None


async def test_nothing_is_looked_at_without_source_topics() -> None:
    coordinator = Coordinator()
    coordinator.topics.sources.know({})
    assert not coordinator.guard.wants(route_of(apis.OFFSET_COMMIT, 8))
    assert not coordinator.guard.wants(route_of(apis.TXN_OFFSET_COMMIT, 3))


def test_no_more_numbers_are_kept_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_commits, "MOST_NUMBERS", 2)
    numbers = LastNumbers()
    for partition in (0, 1, 0, 2):
        numbers.saw((GROUP, SOURCE, partition), 1)
    assert [numbers.get((GROUP, SOURCE, each)) for each in range(3)] == [1, None, 1]


async def produce(rows: Mapping[str | UUID, int], *, version: int) -> tuple[Any, Any, ManagedTopics]:
    """Writes to topics, of which the broker takes the ones that are no source topics.

    Args:
        rows: By topic the number of partitions.

    Returns:
        What the client is told, what the broker is asked (None: nothing), and the topics that are known.
    """
    topics = known()
    guard = guard_of(topics, [Produce(topics, MagicMock())])
    data = [
        {
            ("name" if isinstance(topic, str) else "topic_id"): topic,
            "partition_data": [{"index": each, "records": b"x"} for each in range(count)],
        }
        for topic, count in rows.items()
    ]
    asked = {"transactional_id": None, "acks": -1, "timeout_ms": 1, "topic_data": data}
    route, table = route_of(apis.PRODUCE, version), response(apis.PRODUCE)
    decision = guard.decide(route, memoryview(bytearray(request(apis.PRODUCE).build(version, asked))))
    assert isinstance(decision, Serve)
    rest = None if decision.rest is None else request(apis.PRODUCE).parse(version, decision.rest)
    part: asyncio.Future[Any] | None = None
    if rest is not None:
        part = asyncio.get_running_loop().create_future()
        part.set_result(as_read(table, version, {"responses": [{"name": OTHER, "partition_responses": []}]}))
    made: Any = await decision.answer(part)
    pieces: Any = made() if callable(made) else made
    return table.parse(version, pieces if isinstance(pieces, bytes) else b"".join(pieces)), rest, topics


@pytest.mark.parametrize(("version", "named"), [(3, SOURCE), (12, SOURCE), (13, SOURCE_ID)])
async def test_records_for_a_source_topic_are_refused_with_the_reason(version: int, named: str | UUID) -> None:
    told, rest, topics = await produce({named: 2}, version=version)
    rows = told.responses[0].partition_responses
    assert [(row.index, row.error_code, row.base_offset) for row in rows] == [
        (0, Code.POLICY_VIOLATION, -1),
        (1, Code.POLICY_VIOLATION, -1),
    ]
    if version > 8:
        assert "db1 is a source topic and takes no records" in rows[0].error_message
    assert rest is None
    assert topics.sources.refused["records"] == 2


async def test_records_for_other_topics_in_the_same_request_are_written() -> None:
    told, rest, _ = await produce({OTHER: 1, SOURCE: 1}, version=9)
    assert [each.name for each in rest.topic_data] == [OTHER]
    assert [each.name for each in told.responses] == [OTHER, SOURCE]


def test_produce_heads_that_name_a_source_topic_are_decided_on() -> None:
    guard = guard_of(known(managed=True), [Produce(known(managed=True), MagicMock())])
    assert guard.concerns(SOURCE)
    assert guard.concerns(SOURCE_ID)
    assert not guard.concerns(OTHER)


class Wishes:
    """Has each wish come true, and keeps it."""

    def __init__(self) -> None:
        self.wished: list[object] = []

    async def fulfil(self, wish: object) -> OutcomeRecord:
        self.wished.append(wish)
        return OutcomeRecord(0, "")

    async def of(self, handler: WishedApi[Any, Any], version: int, fields: Mapping[str, Any]) -> Any:
        """Has a handler serve a request; returns the answer and what the broker is asked."""
        taken = handler.decide(held(known(), handler.key, version, fields))
        assert isinstance(taken, TopicWishes)
        rest = None if taken.rest is None else request(handler.key).parse(version, taken.rest)
        part: asyncio.Future[Any] | None = None
        if rest is not None:
            part = asyncio.get_running_loop().create_future()
            names = [each.name for each in rest.get("topics", [])]
            rows = [{"name": each, "error_code": 0, "error_message": None, "configs": []} for each in names]
            part.set_result(as_read(response(handler.key), version, {handler.answered: rows}))
        made: Any = await taken.answer(part)
        return response(handler.key).parse(version, bytes(made())), rest


def new_topic(name: str, **configs: str) -> dict[str, Any]:
    """Returns a row of CreateTopics."""
    told = [{"name": f"kordon.{each.replace('_', '.')}", "value": value} for each, value in configs.items()]
    told.append({"name": "retention.ms", "value": "1"})
    return {"name": name, "num_partitions": 3, "replication_factor": 1, "assignments": [], "configs": told}


async def test_a_topic_is_created_as_a_source_topic_and_the_broker_does_not_hear_of_it() -> None:
    wishes = Wishes()
    asked = {"topics": [new_topic("db2", source="true")], "timeout_ms": 1, "validate_only": False}
    answer, rest = await wishes.of(CreateTopics(wishes.fulfil), 5, asked)
    assert wishes.wished == [SourceWish("db2", on=True)]
    assert [each.name for each in rest.topics[0].configs] == ["retention.ms"]
    assert answer.topics[0].error_code == 0


@pytest.mark.parametrize("configs", [{"source": "yes"}, {"source": "true", "virtual_partitions": "6"}])
async def test_a_topic_is_not_created_as_what_it_cannot_be(configs: dict[str, str]) -> None:
    wishes = Wishes()
    asked = {"topics": [new_topic("db2", **configs)], "timeout_ms": 1, "validate_only": False}
    answer, rest = await wishes.of(CreateTopics(wishes.fulfil), 5, asked)
    assert answer.topics[0].error_code == Code.INVALID_CONFIG
    assert rest is None
    assert not wishes.wished


@pytest.mark.parametrize(("operation", "value", "on"), [(0, "true", True), (0, "false", False), (1, None, False)])
async def test_a_topic_that_is_there_becomes_a_source_topic_or_none_any_more(
    operation: int, value: str | None, on: bool
) -> None:
    wishes = Wishes()
    config = {"name": "kordon.source", "config_operation": operation, "value": value}
    row = {"resource_type": 2, "resource_name": SOURCE, "configs": [config]}
    handler = IncrementalAlterConfigs(wishes.fulfil)
    answer, rest = await wishes.of(handler, 1, {"resources": [row], "validate_only": False})
    assert wishes.wished == [SourceWish(SOURCE, on=on)]
    assert rest is None
    assert answer.responses[0].error_code == 0


async def test_kordon_source_is_set_alone() -> None:
    wishes = Wishes()
    configs = [{"name": f"kordon.{each}", "value": "true"} for each in ("source", "janitor")]
    row = {"resource_type": 2, "resource_name": OTHER, "configs": configs}
    answer, _ = await wishes.of(AlterConfigs(wishes.fulfil), 1, {"resources": [row], "validate_only": False})
    assert answer.responses[0].error_code == Code.INVALID_CONFIG
    assert not wishes.wished


@pytest.mark.parametrize("named", [{"name": SOURCE, "topic_id": UUID(int=0)}, {"name": None, "topic_id": SOURCE_ID}])
async def test_a_source_topic_that_is_deleted_is_one_no_longer(named: dict[str, Any]) -> None:
    wishes = Wishes()
    handler = DeleteTopics(wishes.fulfil)
    taken = handler.decide(held(known(), handler.key, 6, {"topics": [named], "timeout_ms": 1}))
    assert isinstance(taken, TopicWishes)
    part: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    row = {"name": SOURCE, "topic_id": SOURCE_ID, "error_code": 0, "error_message": None}
    part.set_result(as_read(response(handler.key), 6, {"responses": [row], "throttle_time_ms": 0}))
    await taken.answer(part)
    assert wishes.wished == [SourceWish(SOURCE, on=False)]


class Declared:
    """What a worker has written down, and what is asked of the cluster."""

    def __init__(self, *, records: int = 0, managed: bool = False) -> None:
        self.log = AsyncMock()
        self.admin = MagicMock()
        self.admin.wait_for_leaders = AsyncMock(return_value={0: None})
        self.admin.topic_id = AsyncMock(return_value=SOURCE_ID)
        self.admin.ends.log_starts = AsyncMock(return_value={0: 4})
        self.admin.ends.ends_of = AsyncMock(return_value={0: Ends(4 + records, 4 + records, 1)})
        self.others = Wishes()
        self.topics = known(managed=managed)
        self.wishes = SourceWishes(self.topics, self.log, self.admin, self.others.fulfil, self.others.fulfil)


async def test_a_topic_without_records_is_declared_by_its_id() -> None:
    worker = Declared()
    outcome = await worker.wishes.fulfil(SourceWish("db2", on=True))
    assert outcome.error_code == 0
    (name, topic), _ = worker.log.declare.await_args
    assert (name, topic.topic_id) == ("db2", SOURCE_ID)


async def test_a_topic_with_records_is_no_source_topic() -> None:
    worker = Declared(records=1)
    outcome = await worker.wishes.fulfil(SourceWish("db2", on=True))
    assert outcome.error_code == Code.INVALID_CONFIG
    assert "has records" in outcome.message
    worker.log.declare.assert_not_awaited()


@pytest.mark.parametrize("wish", [SourceWish("orders", on=True), Manage(SOURCE, 6)])
async def test_a_topic_is_managed_or_a_source_topic(wish: SourceWish | Manage) -> None:
    worker = Declared(managed=True)
    for outcome in (await worker.wishes.fulfil(wish), await worker.wishes.check(wish)):
        assert outcome.error_code == Code.INVALID_CONFIG
    assert not worker.others.wished


async def test_there_is_a_bound_that_names_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_wishes, "MOST_TOPICS", 1)
    outcome = await Declared().wishes.fulfil(SourceWish("db2", on=True))
    assert outcome.error_code == Code.POLICY_VIOLATION
    assert "delete some" in outcome.message


async def test_only_a_source_topic_is_revoked_and_other_wishes_are_the_controllers() -> None:
    worker = Declared()
    await worker.wishes.fulfil(SourceWish("db2", on=False))
    worker.log.revoke.assert_not_awaited()
    await worker.wishes.fulfil(SourceWish(SOURCE, on=False))
    worker.log.revoke.assert_awaited_once_with(SOURCE)
    await worker.wishes.fulfil(Manage("db2", 6))
    assert worker.others.wished == [Manage("db2", 6)]
