"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords of a managed topic, with a layout made by hand over a real one.

The same in front of a broker in memory, which is quick, and of a real one, which says whether the former is like it.

V = 4 on one partition, that grew to two and to three: each record has its own time, its place in the list.

    partition 0   [0, 10) all   [10, 15) v 0, 1   [15, 17) v 0
    partition 1                 [0, 7)   v 2, 3
    partition 2                                   [0, 4)   v 1
"""

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import aiokafka
import pytest

from kordon.codecs import apis
from kordon.codecs.messages import api, request, response
from kordon.codecs.schema import Api
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.decisions.runs import Client
from kordon.proxy.handlers.delete_records import DeleteRecords
from kordon.proxy.handlers.describe_topic_partitions import DescribeTopicPartitions
from kordon.proxy.handlers.list_offsets import ListOffsets, OffsetWish
from kordon.proxy.handlers.metadata import Metadata
from kordon.proxy.handlers.offset_for_leader_epoch import OffsetForLeaderEpoch
from kordon.proxy.kafka.broker_connections import BrokerConnections
from kordon.proxy.kafka.leader_requests import Form, PartitionLeaderRequests, PartitionQuestion, Row
from kordon.proxy.kafka.leaders import Leaders
from kordon.proxy.ordering.floors import with_floors
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.topics.managed_topics import Fence, ManagedTopic, ManagedTopics
from kordon.testing.broker_features import DESCRIBED_PRODUCERS, PENDING_UPLOADS
from kordon.testing.cluster import Cluster
from kordon.testing.cluster_links import create_topic, links_to
from kordon.testing.fake_broker import Answer, Asked, FakeBroker
from kordon.testing.messages.as_read import as_read

REAL = [
    pytest.mark.broker,
    pytest.mark.skipif(DESCRIBED_PRODUCERS.is_missing, reason=DESCRIBED_PRODUCERS.reason),
]
"""Marks of what a real broker is needed for."""
TIMES = {0: [*range(1000, 1010), *range(2000, 2005), 3000, 3001], 1: [*range(2000, 2007)], 2: [*range(3000, 3004)]}
"""Of the records, by physical partition."""
NONE, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 0, 74, 75
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)
MOVED_ONCE = 1 << 15


@dataclass
class Stage:
    """A managed topic over a real one, and what answers for it."""

    links: BrokerConnections
    topics: ManagedTopics
    topic: ManagedTopic
    questions: PartitionLeaderRequests

    async def offsets(self, timestamps: Mapping[int, int], version: int = 11, epoch: int = -1) -> dict[int, Any]:
        """Asks ListOffsets, through the wire; returns rows by v."""
        rows = [
            {"partition_index": v, "timestamp": timestamp, "current_leader_epoch": epoch}
            for v, timestamp in timestamps.items()
        ]
        fields = {"replica_id": -1, "topics": [{"name": self.topic.name, "partitions": rows}]}
        asked = as_read(request(2), version, fields)
        served = await ListOffsets(self.topics, self.questions).serve(version, asked, Client(1))
        (answer,) = as_read(response(2), version, served).topics
        return {row.partition_index: row for row in answer.partitions}

    async def all_offsets(self, timestamp: int) -> list[int]:
        rows = await self.offsets(dict.fromkeys(range(4), timestamp))
        assert [row.error_code for row in rows.values()] == [NONE] * 4
        return [row.offset for row in rows.values()]

    async def end_of_epoch(self, v: int, epoch: int, current: int = -1) -> tuple[int, int, int]:
        """Asks OffsetForLeaderEpoch, through the wire; returns error code, epoch and end."""
        row = {"partition": v, "leader_epoch": epoch, "current_leader_epoch": current}
        fields = {"topics": [{"topic": self.topic.name, "partitions": [row]}]}
        asked = as_read(request(23), 4, fields)
        served = await OffsetForLeaderEpoch(self.topics, self.questions).serve(4, asked, Client(1))
        found = as_read(response(23), 4, served).topics[0].partitions[0]
        return found.error_code, found.leader_epoch, found.end_offset

    async def delete(self, offsets: Mapping[int, int]) -> dict[int, tuple[int, int]]:
        """Asks DeleteRecords, through the wire; returns error code and low watermark by v."""

        async def raise_floors(topic: str, floors: Mapping[int, int]) -> None:
            assert topic == self.topic.name
            self.topic.adopt(with_floors(self.topic.layout, floors), {})

        rows = [{"partition_index": v, "offset": offset} for v, offset in offsets.items()]
        fields = {"topics": [{"name": self.topic.name, "partitions": rows}], "timeout_ms": 10_000}
        asked = as_read(request(21), 2, fields)
        lists = ListOffsets(self.topics, self.questions)
        served = await DeleteRecords(self.topics, self.questions, lists, raise_floors).serve(2, asked, Client(1))
        (answer,) = as_read(response(21), 2, served).topics
        return {row.partition_index: (row.error_code, row.low_watermark) for row in answer.partitions}

    async def log_starts(self) -> list[int]:
        """Returns the real log starts of the three physical partitions."""
        form = Form(apis.LIST_OFFSETS, range(4, 12), "name", "partition_index", "test")
        asked = [PartitionQuestion(self.topic.name, q, (("timestamp", EARLIEST),)) for q in range(3)]
        rows = await self.questions.ask(form, asked, {"replica_id": -1})
        return [rows[question]["offset"] for question in asked]


async def make_topic(links: BrokerConnections, leaders: Leaders, name: str) -> UUID:
    """Creates a topic of three partitions; returns its id when all are led."""
    row = {"name": name, "num_partitions": 3, "replication_factor": 1, "assignments": [], "configs": []}
    await create_topic(links, row)
    while [leader.node_id >= 0 for leader in (await leaders.of(name)).values()] != [True] * 3:
        leaders.forget(name)
    topic_id = await leaders.topic_id(name)
    assert topic_id is not None
    return topic_id


async def write(cluster: Cluster, topic: str, times: Mapping[int, Collection[int]]) -> None:
    """Writes a record for each time, by partition, each in a batch of its own."""
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap()) as producer:
        for partition, stamps in times.items():
            for stamp in stamps:
                await producer.send_and_wait(topic, b"x", partition=partition, timestamp_ms=stamp)


class Memory(FakeBroker):
    """A broker in memory that has the records of the picture above."""

    def __init__(self, name: str) -> None:
        handlers = {apis.LIST_OFFSETS: self._list, apis.OFFSET_FOR_LEADER_EPOCH: self._epochs}
        super().__init__({name: len(TIMES)}, {**handlers, apis.DELETE_RECORDS: self._delete})
        self.starts = dict.fromkeys(TIMES, 0)
        self.forbids = NONE
        """The error of whoever would delete records."""

    def _list(self, asked: Asked) -> Answer:
        return self._rows(asked, "name", lambda row: self._offset(row.partition_index, row.timestamp))

    def _offset(self, q: int, timestamp: int) -> dict[str, int]:
        times, start = TIMES[q], self.starts[q]
        found = next((at for at, each in enumerate(times) if each >= timestamp and at >= start), None)
        match timestamp:
            case -1:
                told = (len(times), -1)
            case -2 | -4:
                told = (start, -1)
            case -3:
                told = (times.index(max(times)), max(times))
            case _ if timestamp >= 0 and found is not None:
                told = (found, times[found])
            case _:
                told = (-1, -1)
        epoch = -1 if told[0] < 0 else 0
        return {"partition_index": q, "offset": told[0], "timestamp": told[1], "leader_epoch": epoch}

    def _epochs(self, asked: Asked) -> Answer:
        return self._rows(asked, "topic", lambda row: self._end(row.partition, row.leader_epoch))

    def _end(self, q: int, epoch: int) -> dict[str, int]:
        return {"partition": q, "leader_epoch": -1 if epoch else 0, "end_offset": -1 if epoch else len(TIMES[q])}

    def _delete(self, asked: Asked) -> Answer:
        return self._rows(asked, "name", lambda row: self._deleted(row.partition_index, row.offset))

    def _deleted(self, q: int, offset: int) -> dict[str, int]:
        if self.forbids:
            return {"partition_index": q, "low_watermark": -1, "error_code": self.forbids}
        self.starts[q] = max(self.starts[q], offset)
        return {"partition_index": q, "low_watermark": self.starts[q]}

    def _rows(self, asked: Asked, name: str, told: Callable[[Any], dict[str, int]]) -> Answer:
        (topic,) = asked.body.topics
        believed = [row.get("current_leader_epoch", -1) for row in topic.partitions]
        rows = [
            {"error_code": UNKNOWN_LEADER_EPOCH if epoch > 0 else NONE} | told(row)
            for epoch, row in zip(believed, topic.partitions, strict=True)
        ]
        return {"topics": [{name: topic[name], "partitions": rows}]}


def stage_of(links: BrokerConnections, leaders: Leaders, name: str, topic_id: UUID) -> Stage:
    """Manages a topic of three partitions by the layout of the picture above."""
    layout = Layout.created(name, topic_id, 1, 4)
    layout = layout.changed(layout.next_epoch(2), {0: 10, 1: 0})
    layout = layout.changed(layout.next_epoch(3), {0: 15, 2: 0})
    assert layout.homes == (0, 2, 1, 1)
    topics = ManagedTopics()
    topic = ManagedTopic(layout, UUID(int=5))
    topics.add(topic)
    return Stage(links, topics, topic, PartitionLeaderRequests(links, leaders))


@asynccontextmanager
async def on_a_broker(cluster: Cluster) -> AsyncIterator[Stage]:
    """The topic of the picture above on a real broker."""
    name = f"queries-{uuid4().hex[:8]}"
    async with links_to(cluster) as links:
        leaders = Leaders(links)
        topic_id = await make_topic(links, leaders, name)
        await write(cluster, name, TIMES)
        yield stage_of(links, leaders, name, topic_id)


@asynccontextmanager
async def in_memory() -> AsyncIterator[Stage]:
    broker = Memory("queries")
    yield stage_of(broker, Leaders(broker), "queries", UUID(int=1))
    await broker.close()


@pytest.fixture(params=["memory", pytest.param("broker", marks=REAL)])
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    """The topic of the picture above."""
    async with in_memory() if request.param == "memory" else on_a_broker(request.getfixturevalue("cluster")) as made:
        yield made


async def test_both_ends_of_each_chain(stage: Stage) -> None:
    """Earliest and latest are those of the chain, and so are the local ones; nothing is tiered here."""
    assert await stage.all_offsets(EARLIEST) == [0, 0, 0, 0]
    assert await stage.all_offsets(LATEST) == [17, 19, 17, 17]
    assert await stage.all_offsets(EARLIEST_LOCAL) == [0, 0, 0, 0]
    assert await stage.all_offsets(LATEST_TIERED) == [-1, -1, -1, -1]
    if not PENDING_UPLOADS.is_missing:
        assert await stage.all_offsets(EARLIEST_PENDING_UPLOAD) == [-1, -1, -1, -1]


async def test_offsets_by_time_follow_the_chain(stage: Stage) -> None:
    """The first stay with a record of that age or younger has the answer; what stands behind a cut does not count."""
    assert await stage.all_offsets(0) == [0, 0, 0, 0]
    assert await stage.all_offsets(1005) == [5, 5, 5, 5]
    assert await stage.all_offsets(2003) == [13, 13, 13, 13]
    assert await stage.all_offsets(2005) == [15, 15, 15, 15]
    assert await stage.all_offsets(3002) == [-1, 17, -1, -1]
    assert await stage.all_offsets(9999) == [-1, -1, -1, -1]
    rows = await stage.offsets({1: 2005, 2: 2005})
    assert {v: row.timestamp for v, row in rows.items()} == {1: 3000, 2: 2005}


async def test_the_greatest_timestamp(stage: Stage) -> None:
    """KIP-734 along the chain."""
    rows = await stage.offsets(dict.fromkeys(range(4), MAX_TIMESTAMP))
    assert {v: (row.offset, row.timestamp) for v, row in rows.items()} == {
        0: (16, 3001),
        1: (18, 3003),
        2: (16, 2006),
        3: (16, 2006),
    }


@pytest.mark.parametrize("version", range(12))
async def test_every_version_is_answered(stage: Stage, version: int) -> None:
    """Versions 0 to 11; what a version does not know is UNSUPPORTED_VERSION, as brokers answer it."""
    rows = await stage.offsets({1: LATEST, 2: MAX_TIMESTAMP, 3: EARLIEST_PENDING_UPLOAD, 0: -9}, version)
    assert (rows[1].offset if version else list(rows[1].old_style_offsets)) == (19 if version else [19])
    assert rows[2].error_code == (NONE if version >= 7 else 35)
    knows_uploads = isinstance(stage.links, Memory) or not PENDING_UPLOADS.is_missing
    assert rows[3].error_code == (NONE if version >= 11 and knows_uploads else 35)
    assert rows[0].error_code == 35
    if version >= 4:
        assert rows[1].leader_epoch == MOVED_ONCE


async def test_partitions_that_are_not_there(stage: Stage) -> None:
    """Behind V, and of a topic that is managed no more, there is nothing."""
    rows = await stage.offsets({0: LATEST, 4: LATEST, -1: LATEST})
    assert {v: row.error_code for v, row in rows.items()} == {0: NONE, 4: 3, -1: 3}
    stage.topics.remove(stage.topic.name)
    assert {row.error_code for row in (await stage.offsets({0: LATEST})).values()} == {3}


async def test_leader_epochs_are_checked_with_the_moves_in_them(stage: Stage) -> None:
    """KIP-320: who does not know of a move is fenced, who knows of more is to ask again; else the broker judges."""
    assert (await stage.offsets({1: LATEST}, epoch=0))[1].error_code == FENCED_LEADER_EPOCH
    assert (await stage.offsets({1: LATEST}, epoch=2 * MOVED_ONCE))[1].error_code == UNKNOWN_LEADER_EPOCH
    assert (await stage.offsets({1: LATEST}, epoch=MOVED_ONCE))[1].offset == 19
    assert (await stage.offsets({1: LATEST}, epoch=MOVED_ONCE + 1))[1].error_code == UNKNOWN_LEADER_EPOCH


async def test_a_fence_hides_what_came_after_it(stage: Stage) -> None:
    """FROZEN-READS: of sealed partitions nothing beyond the fence's high watermark is told; others go on."""
    stage.topic.raise_fence(Fence("1", frozenset({2}), {2: 2}))
    assert await stage.all_offsets(LATEST) == [17, 17, 17, 17]
    assert await stage.all_offsets(3002) == [-1, -1, -1, -1]
    assert await stage.end_of_epoch(1, MOVED_ONCE) == (UNKNOWN_LEADER_EPOCH, -1, -1)
    assert await stage.end_of_epoch(2, MOVED_ONCE) == (NONE, MOVED_ONCE, 17)
    stage.topic.raise_fence(Fence("1", frozenset({2})))
    assert (await stage.offsets({1: LATEST}))[1].error_code == UNKNOWN_LEADER_EPOCH
    stage.topic.cancel_fence()
    assert await stage.all_offsets(LATEST) == [17, 19, 17, 17]


async def test_a_layout_that_comes_meanwhile_counts(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """STEP-OVER: an answer that was under way at the switch is not given by the old layout."""
    ask = stage.questions.ask
    following = stage.topic.layout.changed(stage.topic.layout.next_epoch(1), {0: 17, 1: 6, 2: 3})

    async def ask_and_switch(form: Form, questions: Collection[PartitionQuestion], fields: Mapping[str, Any]) -> Any:
        rows = await ask(form, questions, fields)
        if stage.topic.layout is not following:
            stage.topic.adopt(following, {})
        return rows

    monkeypatch.setattr(stage.questions, "ask", ask_and_switch)
    assert await stage.all_offsets(LATEST) == [17, 18, 16, 16]  # what was written behind the cuts counts no more
    assert [stay.virtual_end for stay in following.chains[1].stays] == [15, 18, None]


async def test_a_lower_end_is_told_only_under_the_newest_layout(stage: Stage) -> None:
    """NO-FALSE-END: before an end falls the layouts are read to their end; where that fails the client asks again."""
    reads: list[str] = []

    async def read() -> None:
        reads.append("layouts")
        if len(reads) == 1:
            raise UpstreamUnavailable("the layouts cannot be read")

    lists = ListOffsets(stage.topics, stage.questions, read_layouts_to_end=read)
    wish = OffsetWish(stage.topic.name, 1, LATEST)
    assert (await lists.find([wish]))[0].offset == 19
    assert (await lists.find([wish]))[0].offset == 19
    assert reads == []
    stage.topic.raise_fence(Fence("1", frozenset({2}), {2: 3}))  # stands for a log that an election has cut short
    assert (await lists.find([wish]))[0].error == UNKNOWN_LEADER_EPOCH
    assert (await lists.find([wish]))[0].offset == 18
    assert (await lists.find([wish]))[0].offset == 18
    assert reads == ["layouts", "layouts"]


async def test_a_lease_that_is_away_for_a_moment_is_waited_for(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change of the proxies' group takes it away; librdkafka hands the error to whoever asked for an offset."""
    leases = [False, False, True, False, True]  # it comes, goes while brokers are asked, and comes again
    asked: list[Form] = []
    ask = stage.questions.ask

    async def counted(form: Form, questions: Collection[PartitionQuestion], fields: Mapping[str, Any]) -> Any:
        asked.append(form)
        return await ask(form, questions, fields)

    monkeypatch.setattr(stage.questions, "ask", counted)

    def may_serve() -> bool:
        return leases.pop(0) if leases else True

    lists = ListOffsets(stage.topics, stage.questions, may_serve=may_serve)
    (found,) = await lists.find([OffsetWish(stage.topic.name, 1, LATEST)])
    assert (found.error, found.offset, leases) == (NONE, 19, [])
    assert len(asked) == 2, "what was told without a lease does not count"


async def test_without_a_lease_nothing_is_told(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """LATE-ANSWER: a worker that slept may know an old layout; its clients ask again until the lease lives anew."""
    monkeypatch.setattr("kordon.proxy.handlers.settle.HOLD_SECONDS", 0.05)
    leases = [False, True]
    lists = ListOffsets(stage.topics, stage.questions, may_serve=lambda: leases[0])
    epochs = OffsetForLeaderEpoch(stage.topics, stage.questions, lambda: leases[0])
    fields = {"topics": [{"topic": stage.topic.name, "partitions": [{"partition": 1, "leader_epoch": 0}]}]}
    asked = as_read(request(23), 4, fields)
    told: list[tuple[int, int]] = []
    while leases:
        found = (await lists.find([OffsetWish(stage.topic.name, 1, LATEST)]))[0]
        row = (await epochs.serve(4, asked, Client(1))).topics[0].partitions[0]
        assert (found.error, row.error_code) == ((NONE, NONE) if leases[0] else (UNKNOWN_LEADER_EPOCH,) * 2)
        told.append((found.offset, row.end_offset))
        leases.pop(0)
    assert told == [(-1, -1), (19, 15)]


async def test_withheld_partitions_look_empty(stage: Stage) -> None:
    """TAKEOVER-WAITS: what is written but not delivered yet is not told of."""
    layout = stage.topic.layout
    stage.topic.adopt(layout.changed(layout.next_epoch(1), {0: 16, 1: 6, 2: 3}, withheld=True), {})
    assert await stage.all_offsets(LATEST) == [17, 18, 16, 16]  # v 1 to 3 have moved to partition 0, where 1 record is
    assert await stage.all_offsets(9999) == [-1, -1, -1, -1]
    assert await stage.end_of_epoch(2, 2 * MOVED_ONCE) == (NONE, 2 * MOVED_ONCE, 16)


async def test_where_leader_epochs_end(stage: Stage) -> None:
    """RISING-EPOCH: each move ends where the next begins; the last goes on to the end; unknown ones are undefined."""
    assert await stage.end_of_epoch(1, 0) == (NONE, 0, 15)
    assert await stage.end_of_epoch(1, MOVED_ONCE) == (NONE, MOVED_ONCE, 19)
    assert await stage.end_of_epoch(2, 0) == (NONE, 0, 10)
    assert await stage.end_of_epoch(0, 0) == (NONE, 0, 17)
    assert await stage.end_of_epoch(0, MOVED_ONCE) == (NONE, -1, -1)
    assert await stage.end_of_epoch(1, MOVED_ONCE, current=0) == (FENCED_LEADER_EPOCH, -1, -1)
    assert await stage.end_of_epoch(7, 0) == (3, -1, -1)


async def test_deleted_records_raise_the_floor_and_then_the_log_start(stage: Stage) -> None:
    """OWN-FLOOR: a floor per v at once; the brokers delete what no other v needs any more."""
    assert await stage.delete({1: 12}) == {1: (NONE, 12)}
    assert await stage.all_offsets(EARLIEST) == [0, 12, 0, 0]
    assert await stage.all_offsets(1005) == [5, 12, 5, 5]
    assert await stage.log_starts() == [0, 0, 0]
    assert await stage.delete({0: 11, 2: 12, 3: 13}) == {0: (NONE, 11), 2: (NONE, 12), 3: (NONE, 13)}
    assert await stage.all_offsets(EARLIEST) == [11, 12, 12, 13]
    assert await stage.log_starts() == [11, 2, 0]


async def test_all_records_can_be_deleted(stage: Stage) -> None:
    """-1 is the high watermark: earliest is latest then, for clients and on the brokers."""
    assert await stage.delete(dict.fromkeys(range(4), -1)) == {0: (0, 17), 1: (0, 19), 2: (0, 17), 3: (0, 17)}
    assert await stage.all_offsets(EARLIEST) == await stage.all_offsets(LATEST) == [17, 19, 17, 17]
    assert await stage.log_starts() == [17, 7, 4]


async def test_deletions_out_of_range_change_nothing(stage: Stage) -> None:
    """Beyond the end is OFFSET_OUT_OF_RANGE; below the start the start is answered."""
    assert await stage.delete({1: 20, 2: -2, 9: 0}) == {1: (1, -1), 2: (1, -1), 9: (3, -1)}
    assert await stage.delete({1: 3}) == {1: (NONE, 3)}
    assert await stage.delete({1: 2}) == {1: (NONE, 3)}
    assert await stage.log_starts() == [0, 0, 0]


async def test_where_brokers_forbid_it_no_floor_rises() -> None:
    """A topic that is compacted only, or a client without the right (KafkaApis.handleDeleteRecordsRequest)."""
    async with in_memory() as stage:
        assert isinstance(stage.links, Memory)
        stage.links.forbids = 44  # POLICY_VIOLATION
        assert await stage.delete({1: 12}) == {1: (44, -1)}
        stage.links.forbids = NONE
        assert await stage.all_offsets(EARLIEST) == [0, 0, 0, 0]


async def test_floors_that_cannot_be_raised_are_a_timeout(stage: Stage) -> None:
    """While there is no controller the client may try again; nothing is deleted."""

    async def nobody(topic: str, floors: Mapping[int, int]) -> None:
        raise UpstreamUnavailable(f"no controller for {topic}: {floors}")

    lists = ListOffsets(stage.topics, stage.questions)
    fields = {"topics": [{"name": stage.topic.name, "partitions": [{"partition_index": 0, "offset": 5}]}]}
    asked = as_read(request(21), 2, {**fields, "timeout_ms": 1000})
    served = await DeleteRecords(stage.topics, stage.questions, lists, nobody).serve(2, asked, Client(1))
    assert served.topics[0].partitions == [{"partition_index": 0, "low_watermark": -1, "error_code": 7}]
    assert await stage.all_offsets(EARLIEST) == [0, 0, 0, 0]
    assert await stage.log_starts() == [0, 0, 0]


@pytest.mark.broker
async def test_a_dead_broker_is_a_retriable_error(unled_cluster: Cluster) -> None:
    """Clients are sent to look for a leader, and nothing hangs."""
    async with on_a_broker(unled_cluster) as stage:
        assert (await stage.offsets({0: LATEST}))[0].offset == 17
        unled_cluster.brokers[0].kill()
        assert (await stage.offsets({0: LATEST}))[0].error_code in {5, 6}


async def test_questions_to_one_leader_are_one_request(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """All virtual partitions together cost a broker one request, with each physical partition in it once."""
    client = await stage.links.to(1, "queries")
    sent: list[Any] = []
    ask = client.ask

    async def counted(api: Api[Any, Any], version: int, fields: Mapping[str, Any]) -> Any:
        sent.append(fields)
        return await ask(api, version, fields)

    monkeypatch.setattr(client, "ask", counted)
    await stage.all_offsets(2003)
    (body,) = sent
    assert sorted(row["partition_index"] for row in body["topics"][0]["partitions"]) == [0, 1, 2]


@pytest.mark.parametrize("stage", [pytest.param("broker", marks=REAL)], indirect=True)
async def test_metadata_of_a_real_broker(stage: Stage) -> None:
    """The broker's own answers are translated: V partitions, and the broker's leader with the move in its epoch."""
    client = await stage.links.to(1, "test")
    asked = {"topics": [{"topic_id": UUID(int=5), "name": None}]}
    value = as_read(request(3), 12, asked)
    assert Metadata().request(12, value, stage.topics)
    answer = await client.ask(api(3), 12, value)
    Metadata().response(12, answer, stage.topics, as_read(request(3), 12, asked))
    (topic,) = response(3).parse(12, response(3).build(12, answer)).topics
    assert (topic["name"], topic["topic_id"]) == (stage.topic.name, UUID(int=5))
    rows = [(row["partition_index"], row["leader_id"], row["leader_epoch"]) for row in topic["partitions"]]
    assert rows == [(0, 1, 0), (1, 1, MOVED_ONCE), (2, 1, MOVED_ONCE), (3, 1, MOVED_ONCE)]


@pytest.mark.parametrize("stage", [pytest.param("broker", marks=REAL)], indirect=True)
async def test_pages_of_a_real_broker(stage: Stage) -> None:
    """A real broker takes the cursors that are made for it: past its own topics' names, and past a topic."""
    client = await stage.links.to(1, "test")
    if 75 not in client.versions:
        pytest.skip("this Kafka has no DescribeTopicPartitions (KIP-966)")
    translation, cursor, got = DescribeTopicPartitions(), None, list[tuple[str, int]]()
    for _ in range(1000):
        wish: dict[str, Any] = {"topics": [], "response_partition_limit": 3, "cursor": cursor}
        asked, value = (as_read(request(75), 0, wish) for _ in range(2))
        translation.request(0, value, stage.topics)
        answer = await client.ask(api(75), 0, value)
        translation.response(0, answer, stage.topics, asked)
        page = as_read(response(75), 0, answer)
        got += [(topic.name, row.partition_index) for topic in page.topics for row in topic.partitions]
        if page.next_cursor is None:
            break
        cursor = page.next_cursor
    assert [v for name, v in got if name == stage.topic.name] == [0, 1, 2, 3]
    for unusual in ("__kordon/", stage.topic.name + "!", "/"):
        wish = {"topics": [], "response_partition_limit": 2000, "cursor": {"topic_name": unusual, "partition_index": 0}}
        names = [topic.name for topic in (await client.ask(api(75), 0, wish)).topics]
        assert all(name > unusual for name in names)
    wish = {"topics": [{"name": "/"}], "response_partition_limit": 3, "cursor": None}
    assert [row.error_code for row in (await client.ask(api(75), 0, wish)).topics] != [NONE]


async def test_rows_are_named_for_what_they_are(stage: Stage) -> None:
    """Answers to questions are by question, whatever the order in which brokers answer."""
    form = Form(apis.LIST_OFFSETS, range(4, 12), "name", "partition_index", "test")
    times = (LATEST, EARLIEST, 2001)
    asked = [PartitionQuestion(stage.topic.name, q, (("timestamp", time),)) for q in range(3) for time in times]
    rows: Mapping[PartitionQuestion, Row] = await stage.questions.ask(form, asked, {"replica_id": -1})
    assert [rows[question]["offset"] for question in asked] == [17, 0, 11, 7, 0, 1, 4, 0, 0]
