"""Who speaks the dialect, and what becomes of his requests: without brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import request, response
from kordon.proxy.core import verdicts
from kordon.proxy.core.answers import body_of
from kordon.proxy.core.interception import Announce, Confer, Decision, Serve, Translate
from kordon.proxy.core.tally import Tally
from kordon.proxy.handlers.api_handler import ApiHandler
from kordon.proxy.handlers.api_versions import ApiVersions, DialectApiVersions
from kordon.proxy.handlers.consumer_group_heartbeat import DialectConsumerGroupHeartbeat
from kordon.proxy.handlers.describe_topic_partitions import DialectDescribeTopicPartitions
from kordon.proxy.handlers.metadata import DialectMetadata
from kordon.proxy.handlers.offset_fetch import DialectOffsetFetch, OffsetFetch
from kordon.proxy.handlers.partition_leader_epochs import PartitionLeaderEpochs
from kordon.proxy.handlers.produce import Produce
from kordon.proxy.handlers.retired_partitions import RetiredPartitions
from kordon.proxy.handlers.rights import Rights
from kordon.proxy.handlers.subscriptions import Subscriptions
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.placements import Placement
from kordon.proxy.runtime.turns import Turns
from kordon.proxy.topics.managed_topics import ManagedTopic, ManagedTopics, face_of
from kordon.proxy.topics.views import PHYSICAL
from kordon.testing.handled import guard_of
from kordon.testing.known import known
from kordon.testing.messages.as_read import as_read

REAL_ID, FACE_ID = UUID(int=1), UUID(int=2)
NOTHING: Any = None
UNANNOUNCED = Announce(private=False, ordered=False)
GREETINGS = [3, 4]


def resized(*counts: int) -> Layout:
    """`orders` with N = 2, after these counts; each sealed partition is cut ten records on."""
    layout = Layout.created("orders", REAL_ID, 2, 8)
    for u in counts:
        following = layout.next_epoch(u)
        cuts = dict.fromkeys(layout.change_to(following).touched, 10 * following.number)
        layout = layout.changed(following, cuts)
    return layout


class Worker:
    """A worker's handlers, and what is managed there.

    Args:
        layouts: Of managed topics.
        log_starts: Where the logs of physical partitions begin.
    """

    def __init__(self, *layouts: Layout, log_starts: Mapping[int, int] | None = None) -> None:
        self.topics = ManagedTopics()
        for layout in layouts:
            self.topics.add(ManagedTopic(layout, FACE_ID))
        self.log_starts = dict(log_starts or {})
        self.asked: list[set[int]] = []
        self.now = 0.0
        self.retired = RetiredPartitions(self.topics, self._starts, lambda: self.now)

    async def _starts(self, topic: str, partitions: Collection[int], timestamp: int) -> Mapping[int, int]:
        self.asked.append(set(partitions))
        return {q: self.log_starts[q] for q in partitions if q in self.log_starts}

    def connection(self, rights: Rights | None = None) -> Connection:
        return Connection(guard_of(self.topics, self._stock(), self._dialect(), rights=rights))

    def _stock(self) -> list[ApiHandler]:
        return [ApiVersions(offers_dialect=True), Produce(self.topics, NOTHING)]

    def _dialect(self) -> list[ApiHandler]:
        return [
            DialectApiVersions(offers_dialect=True),
            Produce(self.topics, NOTHING, PHYSICAL),
            DialectMetadata(),
            DialectDescribeTopicPartitions(),
            DialectOffsetFetch(),
            DialectConsumerGroupHeartbeat(Subscriptions(lambda: None)),
            PartitionLeaderEpochs(self.topics, Turns(Tally())),
        ]


class Connection:
    """What a worker decides on one connection."""

    def __init__(self, service: Any) -> None:
        self.service = service

    def sends(self, key: int, version: int, fields: Mapping[str, Any]) -> Decision:
        route = known(verdicts.route(key, version) or verdicts.private_route(key, version))
        decided: Decision = self.service.decide(route, memoryview(request(key).build(version, fields)))
        return decided

    def greets(self, version: int, kordon_client: int = 0) -> Decision:
        fields = {"client_software_name": "a", "client_software_version": "1", "kordon_client": kordon_client}
        return self.sends(apis.API_VERSIONS, version, fields)

    def wants(self, key: int, version: int = 0) -> bool:
        """Whether a request may concern Kordon."""
        route = known(verdicts.route(key, version) or verdicts.private_route(key, version))
        return bool(self.service.wants(route))


@pytest.mark.parametrize("version", GREETINGS)
def test_a_connection_speaks_the_dialect_once_it_says_so(version: int) -> None:
    """That one and no other; and it stays so, whatever is asked later."""
    worker = Worker()
    one, other = worker.connection(), worker.connection()
    assert not one.wants(apis.PARTITION_LEADER_EPOCHS)
    assert one.greets(version) == Announce(private=False)
    assert one.greets(version, 1) == Announce(private=True)
    assert one.greets(version) == Announce(private=True)
    assert one.wants(apis.PARTITION_LEADER_EPOCHS)
    assert not other.wants(apis.PARTITION_LEADER_EPOCHS)


@pytest.mark.parametrize("version", range(3))
def test_versions_without_tags_cannot_say_it(version: int) -> None:
    """Their answers have no room for features either: they pass as ever."""
    assert Worker().connection().greets(version, 1) == UNANNOUNCED


def test_an_api_versions_request_that_cannot_be_read_is_the_brokers_business() -> None:
    """It answers INVALID_REQUEST; Kordon must not end the connection in its place."""
    connection = Worker().connection()
    route = verdicts.route(apis.API_VERSIONS, 3)
    assert connection.service.decide(route, memoryview(b"\xff\xff\xff")) == UNANNOUNCED


def row_of(partitions: int, name: str = "orders", topic_id: UUID = REAL_ID) -> dict[str, Any]:
    rows = [{"partition_index": q, "leader_id": 1, "leader_epoch": 5 + q} for q in range(partitions)]
    return {"name": name, "topic_id": topic_id, "partitions": rows}


def answered(worker: Worker, rows: list[dict[str, Any]], version: int = 12) -> Any:
    """What a client of the dialect gets of Metadata."""

    async def play() -> Any:
        connection = worker.connection()
        connection.greets(3, 1)
        asked = {"topics": [{"name": row["name"]} for row in rows]}
        decision = connection.sends(apis.METADATA, version, asked)
        table = response(apis.METADATA)
        answer = as_read(table, version, {"topics": rows})
        assert not isinstance(decision, Serve | Announce | Confer)
        assert decision is not None
        decision.back(answer)
        await worker.retired.complete(answer)
        return as_read(table, version, answer).topics

    return asyncio.run(play())


@pytest.mark.parametrize("version", range(1, 14))
def test_metadata_in_every_version_has_physical_partitions(version: int) -> None:
    """Tags only where there is room for them; ids are the real topic's."""
    (row,) = answered(Worker(resized(3)), [row_of(3)], version)
    assert [each.partition_index for each in row.partitions] == [0, 1, 2]
    if version >= 7:
        assert [each.leader_epoch for each in row.partitions] == [1 << 15 | 5, 6, 1 << 15 | 7]
    if version >= 9:
        assert (row.initial_partition_count, row.undeleted_partition_count, row.virtual_partition_count) == (2, 3, 8)
        assert (row.layout_epoch, row.enable_ordered_delivery) == (1, True)
    if version >= 10:
        assert row.topic_id == REAL_ID


def test_a_topic_that_is_being_taken_over_is_what_it_was() -> None:
    """Its keys lie by the hash that they always had (TAKEOVER-WAITS): no count is told that puts them elsewhere."""
    before = Layout.unmanaged("orders", REAL_ID, 2, 8)
    (row,) = answered(Worker(before.changed(before.next_epoch(2, Placement.OWN), {0: 5, 1: 5})), [row_of(2)])
    assert [each.partition_index for each in row.partitions] == [0, 1]
    assert (row.error_code, row.undeleted_partition_count, row.layout_epoch) == (Code.NONE, -1, -1)


def test_a_topic_that_was_made_anew_is_waited_for() -> None:
    """Its layout is another topic's of the same name (SAME-TOPIC)."""
    (row,) = answered(Worker(resized()), [row_of(2, topic_id=UUID(int=9))])
    assert (row.error_code, list(row.partitions)) == (Code.LEADER_NOT_AVAILABLE, [])


def test_a_partition_that_the_broker_has_not_heard_of_has_no_leader() -> None:
    """A client asks again."""
    (row,) = answered(Worker(resized(3)), [row_of(2)])
    assert [(each.partition_index, each.error_code) for each in row.partitions][2] == (2, Code.LEADER_NOT_AVAILABLE)


def test_retired_partitions_are_asked_about_once_in_a_while_and_gone_for_good_when_empty() -> None:
    """Not with each Metadata request; a partition of which no broker says anything stays."""
    worker = Worker(resized(4, 2), log_starts={2: 19})

    def shown() -> list[int]:
        (row,) = answered(worker, [row_of(4)])
        return [each.partition_index for each in row.partitions]

    assert shown() == [0, 1, 2, 3]
    worker.log_starts = {2: 20, 3: 19}
    assert shown() == [0, 1, 2, 3]
    assert worker.asked == [{2, 3}]
    worker.now = 1.0
    assert shown() == [0, 1, 3]
    worker.now = 2.0
    assert shown() == [0, 1, 3]
    assert worker.asked == [{2, 3}, {2, 3}, {3}]


async def test_each_topic_with_retired_partitions_has_a_round_of_the_loop() -> None:
    """Of a large one the look takes milliseconds: of all in one round, it would hold up all other clients."""
    names = ("a", "b", "c")
    topics = Worker(*(replace(resized(4, 2), topic=name) for name in names)).topics
    rounds, asked_in = 0, list[int]()

    async def count_rounds() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    async def log_starts(_: str, __: Collection[int], ___: int) -> Mapping[int, int]:
        asked_in.append(rounds)
        return {}

    told = {"undeleted_partition_count": 2, "layout_epoch": 2}
    answer = as_read(response(apis.METADATA), 12, {"topics": [row_of(4, name) | told for name in names]})
    counting = asyncio.ensure_future(count_rounds())
    await RetiredPartitions(topics, log_starts).complete(answer)
    counting.cancel()
    assert len(set(asked_in)) == len(names)


def test_a_partition_that_is_used_again_is_shown_again() -> None:
    """What was found empty is of one layout epoch."""
    worker = Worker(resized(4, 2), log_starts={2: 20, 3: 20})
    answered(worker, [row_of(4)])
    topic = known(worker.topics.named("orders"))
    topic.adopt(resized(4, 2, 4), {})
    (row,) = answered(worker, [row_of(4)])
    assert [each.partition_index for each in row.partitions] == [0, 1, 2, 3]


def test_commits_of_a_dialect_group_are_no_virtual_offsets() -> None:
    """A group that goes back to virtual partitions begins no later than where each left the partition of its number."""
    before = Layout.unmanaged("orders", REAL_ID, 2, 8)
    own = before.changed(before.next_epoch(2, Placement.OWN), {0: 5, 1: 5})
    following = own.next_epoch(2)
    layout = own.changed(following, dict.fromkeys(own.change_to(following).touched, 20))
    assert layout.homes[:2] == (0, 0), "1 has moved"
    topics = ManagedTopics()
    topics.add(ManagedTopic(layout, FACE_ID))
    table = response(apis.OFFSET_FETCH)
    rows = [{"partition_index": q, "committed_offset": 100} for q in (0, 1)]
    answer = as_read(table, 7, {"topics": [{"name": "orders", "partitions": rows}]})
    asked = as_read(request(apis.OFFSET_FETCH), 7, {"topics": [{"name": "orders", "partition_indexes": [0, 1]}]})
    OffsetFetch().response(7, answer, topics, asked)
    (row,) = as_read(table, 7, answer).topics
    assert [each.committed_offset for each in row.partitions] == [100, 20]


@pytest.mark.parametrize(
    ("of_topic", "of_face", "told"),
    [
        (Code.NONE, Code.TOPIC_AUTHORIZATION_FAILED, Code.COORDINATOR_LOAD_IN_PROGRESS),
        (Code.TOPIC_AUTHORIZATION_FAILED, Code.TOPIC_AUTHORIZATION_FAILED, Code.TOPIC_AUTHORIZATION_FAILED),
        (Code.NONE, Code.UNSTABLE_OFFSET_COMMIT, Code.UNSTABLE_OFFSET_COMMIT),
    ],
)
def test_a_right_that_has_not_reached_the_face_yet_is_waited_for(of_topic: Code, of_face: Code, told: Code) -> None:
    """The face's ACLs follow those of its topic within a second: a member that was let in before is not told off."""
    topics = ManagedTopics()
    topics.add(ManagedTopic(resized(), FACE_ID))
    table, asks = response(apis.OFFSET_FETCH), request(apis.OFFSET_FETCH)
    asked = as_read(asks, 7, {"topics": [{"name": "orders", "partition_indexes": [0]}]})
    rows = [
        {"name": name, "partitions": [{"partition_index": 0, "committed_offset": -1, "error_code": code}]}
        for name, code in (("orders", of_topic), (face_of("orders"), of_face))
    ]
    answer = as_read(table, 7, {"topics": rows})
    DialectOffsetFetch().response(7, answer, topics, asked)
    (topic,) = as_read(table, 7, answer).topics
    assert [(row.error_code, row.committed_offset) for row in topic.partitions] == [(told, -1)]


def test_members_of_kip_848_groups_are_refused_managed_topics() -> None:
    """By name or by an expression; others pass."""
    worker = Worker(resized())
    connection = worker.connection()
    connection.greets(3, 1)

    def refusal(**fields: Any) -> bool:
        member = {"group_id": "g", "member_id": "m", "member_epoch": 0, **fields}
        decision = connection.sends(apis.CONSUMER_GROUP_HEARTBEAT, 1, member)
        return isinstance(decision, Translate) and decision.body is not None

    assert refusal(subscribed_topic_names=["others", "orders"])
    assert refusal(subscribed_topic_regex="ord.*")
    assert not refusal(subscribed_topic_names=["others"])


async def test_layouts_are_told_to_those_only_who_may_describe_the_topic() -> None:
    """As brokers do; the others' topics are answered."""
    worker = Worker(resized(3))
    rights = Rights(1.0, lambda: 0.0)
    connection = worker.connection(rights)
    connection.greets(3, 1)
    topics = [{"topic": "orders", "partitions": []}, {"topic": "others", "partitions": []}]
    decision = connection.sends(apis.PARTITION_LEADER_EPOCHS, 0, {"topics": topics})
    assert isinstance(decision, Serve)
    (question,) = decision.questions
    rows = [
        {"name": "orders", "error_code": Code.TOPIC_AUTHORIZATION_FAILED},
        {"name": "others", "topic_authorized_operations": 0},
    ]
    question.told(as_read(response(apis.METADATA), 9, {"topics": rows}))
    body = body_of(await decision.answer(None))
    answer = response(apis.PARTITION_LEADER_EPOCHS).parse(0, body)
    denied = {row.topic: (row.error_code, list(row.partitions)) for row in answer.topics}
    assert denied == dict.fromkeys(("orders", "others"), (Code.TOPIC_AUTHORIZATION_FAILED, []))
