"""Finished ranges in commits: what is sent to whom, what is not sent any more, and what is believed."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import (
    CommitFailedError,
    GroupAuthorizationFailedError,
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    KafkaError,
    NodeNotReadyError,
    OffsetMetadataTooLargeError,
)
from aiokafka.structs import TopicPartition

from kordon.client.cooperative import group_commits
from kordon.client.cooperative.entry import Progress
from kordon.client.cooperative.found import Found
from kordon.client.cooperative.leader_epochs import NO_EPOCH
from kordon.client.cooperative.log_watch import LogWatch
from kordon.client.cooperative.range_store import NotKeptError, RangeStore
from kordon.client.cooperative.range_text import RangesOwner, build
from kordon.client.requests import WireRequest
from kordon.codecs import apis, dialect
from kordon.codecs.messages import response
from kordon.codecs.ranges import Ranges
from kordon.testing.messages.batch_heads import batch_head

# pyright: reportPrivateUsage=false

TP = TopicPartition("t", 0)
ID = UUID(int=7)
GAPS = Ranges([(7, 9)])
MANY = Progress(0, Ranges((10 * n, 10 * n + 3) for n in range(1, 3_000)))


class Cluster:
    """Answers as it is told to: a coordinator, a leader, and maybe a Kordon that keeps ranges."""

    def __init__(self) -> None:
        self.keeps_ranges = False
        self.topic_id = ID
        self.code = 0
        self.committed: dict[str, object] = {"committed_offset": -1, "metadata": ""}
        self.start, self.end = 0, 1_000
        self.epoch_ends: dict[int, int] = {}
        self.sent: list[dict[str, Any]] = []
        """The rows of commits."""

    def answer(self, request: WireRequest) -> Any:
        key = request.api_key
        version = 3 if key == apis.API_VERSIONS else request.versions[-1]
        return response(key).parse(version, response(key).build(version, self._body(request)))

    def _body(self, request: WireRequest) -> dict[str, object]:
        body: Any = request.body
        match request.api_key:
            case apis.API_VERSIONS:
                row = {"name": dialect.COOPERATIVE, "min_version": 1, "max_version": 1}
                return {"api_keys": [], "supported_features": [row] if self.keeps_ranges else []}
            case apis.METADATA:
                topic = {"name": "t", "topic_id": self.topic_id, "partitions": []}
                return {"brokers": [], "topics": [topic]}
            case apis.OFFSET_FETCH:
                row = {"partition_index": 0, "committed_leader_epoch": NO_EPOCH, "error_code": 0} | self.committed
                return {"groups": [{"group_id": "g", "topics": [{"name": "t", "partitions": [row]}], "error_code": 0}]}
            case apis.OFFSET_FOR_LEADER_EPOCH:
                epoch = body["topics"][0]["partitions"][0]["leader_epoch"]
                row = {"partition": 0, "error_code": 0, "end_offset": self.epoch_ends.get(epoch, -1)}
                return {"topics": [{"topic": "t", "partitions": [row]}]}
            case _:
                self.sent.append(body["topics"][0]["partitions"][0])
                row = {"partition_index": 0, "error_code": self.code}
                return {"topics": [{"name": "t", "partitions": [row]}]}


class Coordinator(GroupCoordinator):  # type: ignore[misc]  # aiokafka has no types
    """Answers as it is told to."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster_told = cluster
        self.generation = 3
        self.member_id = "m"
        self._group_instance_id = None
        self.rebalances = False
        self.told: list[str] = []
        self.fails: list[KafkaError] = []
        """With what the next requests fail."""

    async def ensure_coordinator_known(self) -> None:
        self.generation += self.rebalances

    async def _send_req(self, request: WireRequest) -> Any:
        if self.fails:
            raise self.fails.pop(0)
        return self._cluster_told.answer(request)

    def request_rejoin(self) -> None:
        self.told.append("rejoin")

    def reset_generation(self) -> None:
        self.told.append("fenced")

    def coordinator_dead(self) -> None:
        self.told.append("dead")


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def coordinator(cluster: Cluster) -> Coordinator:
    return Coordinator(cluster)


class Consumer:
    """What a store asks of a consumer."""

    def __init__(self, cluster: Cluster, coordinator: Coordinator) -> None:
        self._cluster = cluster
        self._coordinator = coordinator
        leaders = SimpleNamespace(leader_for_partition=self._leader)
        self._client = SimpleNamespace(
            send=self._send, get_random_node=lambda: 0, cluster=leaders, force_metadata_update=lambda: None
        )

    @staticmethod
    def _leader(partition: TopicPartition) -> int:
        return 0

    async def _send(self, node: int, request: WireRequest, *, group: object = None) -> Any:
        return self._cluster.answer(request)

    async def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self._cluster.start)

    async def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self._cluster.end)


@pytest.fixture
def watch(cluster: Cluster, coordinator: Coordinator) -> LogWatch:
    consumer: Any = Consumer(cluster, coordinator)
    return LogWatch(consumer)


@pytest.fixture
def store(cluster: Cluster, coordinator: Coordinator, watch: LogWatch) -> RangeStore:
    consumer: Any = Consumer(cluster, coordinator)
    return RangeStore(consumer, "g", watch)


async def read(store: RangeStore) -> Found | None:
    """What the next member finds."""
    return (await store.read([TP])).get(TP)


def committed(cluster: Cluster, offset: int, ranges: Ranges, **fields: object) -> None:
    """The commit that a member has left in metadata."""
    text, _ = build(RangesOwner("g", "t", 0, ID), offset, ranges)
    cluster.committed = {"committed_offset": offset, "metadata": text} | fields


def kept(cluster: Cluster, offset: int, ranges: Ranges, **fields: object) -> None:
    """What a Kordon tells of a group."""
    cluster.keeps_ranges = True
    cluster.committed = {
        "committed_offset": offset,
        "metadata": "",
        "incarnation": 11,
        "committed_range_offsets": ranges.dump(),
    } | fields


async def test_a_commit_has_the_stable_offset_and_the_ranges_behind_it(store: RangeStore, cluster: Cluster) -> None:
    """Without ranges it is like any other."""
    await store.write({TP: Progress(5)})
    await store.write({TP: Progress(5, GAPS)})
    assert [each["committed_offset"] for each in cluster.sent] == [5, 5]
    assert [each["committed_metadata"][:4] for each in cluster.sent] == ["", "kr1:"]
    assert all("incarnation" not in each for each in cluster.sent)


async def test_a_commit_of_a_former_assignment_is_not_sent(
    store: RangeStore, coordinator: Coordinator, cluster: Cluster
) -> None:
    """It waited while the group rebalanced, and would be taken for one of the generation that is now."""
    coordinator.rebalances = True
    with pytest.raises(CommitFailedError):
        await store.write({TP: Progress(5)})
    assert cluster.sent == []


async def test_who_is_no_member_commits_nothing(store: RangeStore, coordinator: Coordinator, cluster: Cluster) -> None:
    """Its commit would pass for one of a tool."""
    coordinator.generation = -1
    with pytest.raises(CommitFailedError):
        await store.write({TP: Progress(5)})
    assert (cluster.sent, store.is_member) == ([], False)


@pytest.mark.parametrize(("code", "told"), [(22, "fenced"), (25, "fenced"), (27, "rejoin")])
async def test_a_fenced_member_is_told_so(
    store: RangeStore, cluster: Cluster, coordinator: Coordinator, code: int, told: str
) -> None:
    """The coordinator knows a newer generation, and aiokafka joins it."""
    cluster.code = code
    with pytest.raises(CommitFailedError):
        await store.write({TP: Progress(5)})
    assert coordinator.told == [told]


async def test_ranges_that_do_not_fit_are_warned_of_once(
    store: RangeStore, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """And once more when they have fitted in between."""
    for progress in (MANY, MANY, Progress(0), MANY):
        await store.write({TP: progress})
    assert caplog.text.count("has 2999 finished ranges behind offset 0") == 2
    assert max(len(each["committed_metadata"]) for each in cluster.sent) <= 4096


async def test_a_broker_that_takes_less_metadata_gets_less(
    store: RangeStore, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Each refusal halves it."""
    cluster.code = OffsetMetadataTooLargeError.errno
    for _ in range(2):
        with pytest.raises(OffsetMetadataTooLargeError):
            await store.write({TP: MANY})
    cluster.code = 0
    await store.write({TP: MANY})
    assert [round(len(each["committed_metadata"]) / 1000) for each in cluster.sent] == [4, 2, 1]
    assert "offset.metadata.max.bytes" in caplog.text


@pytest.mark.parametrize(
    ("start", "stable", "ranges"),
    [
        (0, 41, [(43, 46), (48, 50)]),
        (41, 41, [(43, 46), (48, 50)]),
        (42, 42, [(43, 46), (48, 50)]),
        (44, 46, [(48, 50)]),
        (99, 99, []),
    ],
)
async def test_a_member_begins_no_earlier_than_the_log(
    store: RangeStore, cluster: Cluster, start: int, stable: int, ranges: list[tuple[int, int]]
) -> None:
    """What is gone cannot be handled any more."""
    committed(cluster, 41, Ranges([(43, 46), (48, 50)]))
    cluster.start = start
    assert await read(store) == Found(stable, Ranges(ranges))


@pytest.mark.parametrize("keep", [committed, kept])
@pytest.mark.parametrize(
    ("epoch_end", "found"),
    [
        (50, Found(41, Ranges([(43, 46), (48, 50)]), 3)),
        (49, Found(41, Ranges([(43, 46), (48, 49)]), 3)),
        (44, Found(41, Ranges([(43, 44)]), 3)),
        (20, Found(20, Ranges(), 3)),
        (None, Found(41, Ranges(), 3)),
    ],
)
async def test_what_a_log_has_no_more_that_was_cut_is_handled_again(
    store: RangeStore, cluster: Cluster, keep: Any, epoch_end: int | None, found: Found, caplog: Any
) -> None:
    """Though it has grown again: new records stand at these offsets (KIP-320)."""
    keep(cluster, 41, Ranges([(43, 46), (48, 50)]), committed_leader_epoch=3)
    cluster.epoch_ends = {} if epoch_end is None else {3: epoch_end}
    assert await read(store) == found
    assert ("The log of TopicPartition(topic='t', partition=0) was cut" in caplog.text) == (epoch_end != 50)
    await store.write({TP: Progress(41)})
    assert ("incarnation" in cluster.sent[-1]) == (keep is kept and epoch_end == 50), "else it would come back"


async def test_a_commit_behind_the_end_of_the_log_is_left_to_the_reset_policy(
    store: RangeStore, cluster: Cluster
) -> None:
    """Its leader epoch is not known, so nobody can say where the log was cut."""
    committed(cluster, 41, Ranges([(43, 46)]))
    cluster.end = 40
    assert await read(store) is None


async def test_a_topic_that_was_made_again_under_its_member_is_handled_from_its_start(
    store: RangeStore, cluster: Cluster
) -> None:
    """What the member has committed since is of the former topic."""
    committed(cluster, 41, Ranges([(43, 46)]))
    assert await read(store) == Found(41, Ranges([(43, 46)]))
    cluster.topic_id = UUID(int=8)
    assert await read(store) == Found(0)


async def test_a_kordon_keeps_all_ranges(store: RangeStore, cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """Each commit names all that is done, and the incarnation that the member was told."""
    kept(cluster, 5, GAPS)
    assert await read(store) == Found(5, GAPS)
    await store.write({TP: MANY})
    row = cluster.sent[-1]
    assert (row["committed_offset"], row["committed_metadata"], row["incarnation"]) == (0, "", 11)
    assert row["offset_ranges"] == MANY.ranges.dump()
    assert caplog.text == ""


async def test_bare_brokers_are_told_of_once(
    store: RangeStore, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """And the group's ranges are in metadata."""
    committed(cluster, 5, GAPS)
    assert [await read(store), await read(store)] == [Found(5, GAPS)] * 2
    assert caplog.text.count("No Kordon answers that keeps individual commits (the feature kordon.cooperative)") == 1


async def test_a_kordon_that_does_not_keep_a_partition_gets_metadata(store: RangeStore, cluster: Cluster) -> None:
    """Its incarnation is 0."""
    committed(cluster, 5, GAPS, incarnation=0)
    cluster.keeps_ranges = True
    assert await read(store) == Found(5, GAPS)
    await store.write({TP: Progress(5, GAPS)})
    assert cluster.sent[-1]["committed_metadata"][:4] == "kr1:"


async def test_ranges_from_before_a_kordon_kept_them_are_taken_over(store: RangeStore, cluster: Cluster) -> None:
    """A group that has used bare brokers repeats nothing."""
    text, _ = build(RangesOwner("g", "t", 0, ID), 5, GAPS)
    kept(cluster, 5, Ranges([(20, 30)]), metadata=text)
    assert await read(store) == Found(5, Ranges([(7, 9), (20, 30)]))


async def test_junk_of_a_kordon_is_not_believed(
    store: RangeStore, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The stable offset counts."""
    kept(cluster, 5, GAPS, committed_range_offsets=b"\xff" * 30)
    assert await read(store) == Found(5)
    assert "is not known, and is handled again" in caplog.text


async def test_a_group_that_was_reset_under_its_member_is_asked_again(
    store: RangeStore, cluster: Cluster, coordinator: Coordinator
) -> None:
    """What it has finished counts no more."""
    kept(cluster, 5, GAPS)
    await read(store)
    cluster.code = dialect.INDIVIDUAL_COMMIT_TOO_OLD
    with pytest.raises(CommitFailedError, match="was reset, or has begun anew"):
        await store.write({TP: Progress(9)})
    assert coordinator.told == ["rejoin"]


async def test_a_kordon_that_keeps_no_ranges_any_more_gets_metadata_next(store: RangeStore, cluster: Cluster) -> None:
    """The commit that it has refused is sent again."""
    kept(cluster, 5, GAPS)
    await read(store)
    cluster.code = dialect.INDIVIDUAL_COMMIT_NOT_ALLOWED
    with pytest.raises(NotKeptError) as raised:
        await store.write({TP: Progress(5, GAPS)})
    assert raised.value.retriable
    cluster.code = 0
    await store.write({TP: Progress(5, GAPS)})
    assert cluster.sent[-1]["committed_metadata"][:4] == "kr1:"


async def test_more_ranges_than_a_kordon_keeps_are_warned_of(
    store: RangeStore, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """No more than ten thousand are sent, the lowest; what it has not taken is sent with the next commit."""
    kept(cluster, 5, GAPS)
    await read(store)
    await store.write({TP: Progress(0, Ranges((2 * n, 2 * n + 1) for n in range(1, 20_000)))})
    assert cluster.sent[-1]["offset_ranges"][:2] == b"\x90\x4e", "10,000"
    cluster.code = dialect.MAX_INDIVIDUAL_COMMIT_REACHED
    await store.write({TP: Progress(5, GAPS)})
    assert "a commit has room for 10000" in caplog.text


async def test_a_commit_tells_the_leader_epoch_of_its_last_record(
    store: RangeStore, cluster: Cluster, watch: LogWatch
) -> None:
    """By which the next member asks whether the log still has it."""
    cluster.epoch_ends = {2: 9, 4: 100}
    committed(cluster, 5, GAPS, committed_leader_epoch=2)
    await read(store)
    watch.epochs.fetched(TP, batch_head(5, 2, 4) + batch_head(9, 4, 10), watch.epochs.assignment)
    assert await watch.cut([TP]) == set()
    for progress in (Progress(6), Progress(6, GAPS), Progress(6, Ranges([(7, 12)]))):
        await store.write({TP: progress})
    assert [each["committed_leader_epoch"] for each in cluster.sent] == [2, 2, 4]


async def test_a_log_that_is_cut_under_its_reader_is_noticed(cluster: Cluster, watch: LogWatch) -> None:
    """It has grown beyond the reader's position meanwhile, so nothing is out of range."""
    watch.epochs.begin(TP, 0, NO_EPOCH)
    watch.epochs.fetched(TP, batch_head(0, 2, 120), watch.epochs.assignment)
    watch.epochs.fetched(TP, batch_head(120, 3, 5), watch.epochs.assignment)
    cluster.epoch_ends = {2: 100}
    assert await watch.cut([TP]) == {TP}


async def test_brokers_that_tell_no_leader_epochs_are_believed(
    cluster: Cluster, watch: LogWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka before 2.1."""

    def refuse(request: WireRequest) -> Mapping[str, object]:
        raise IncompatibleBrokerVersion

    monkeypatch.setattr(cluster, "answer", refuse)
    watch.epochs.begin(TP, 120, 2)
    watch.epochs.fetched(TP, batch_head(120, 3, 5), watch.epochs.assignment)
    assert await watch.cut([TP]) == set()


async def test_a_proxy_that_dies_while_a_member_asks_where_its_group_stands_is_left_for_another(
    store: RangeStore, cluster: Cluster, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is asked for what it serves, or for commits; the consumer goes on."""
    monkeypatch.setattr(group_commits, "_RETRY_SECONDS", 0.0)
    cluster.committed = {"committed_offset": 5, "metadata": ""}
    is_asked = [KafkaConnectionError("closed"), NodeNotReadyError("gone")]
    coordinator.fails = [*is_asked]
    assert await store.commits.serves_ranges() is False
    coordinator.fails = [*is_asked]
    assert {tp: row.committed_offset for tp, row in (await store.commits.fetch([TP])).items()} == {TP: 5}
    for ask in (store.commits.serves_ranges, lambda: store.commits.fetch([TP])):
        coordinator.fails = [GroupAuthorizationFailedError("g")]
        with pytest.raises(GroupAuthorizationFailedError):
            await ask()
