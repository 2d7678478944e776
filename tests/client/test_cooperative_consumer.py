"""CooperativeConsumer with a real broker: what it leaves behind, what it believes, and when it gives up."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.errors import KafkaConnectionError
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from kordon.client import AcknowledgeType, CooperativeConsumer
from kordon.client.cooperative import range_store
from kordon.client.cooperative.settings import Record
from kordon.testing.broker_features import DESCRIBED_PRODUCERS, TOPIC_IDS
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import create_managed
from kordon.testing.ports import free_ports
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import until

# pyright: reportPrivateUsage=false

pytestmark = pytest.mark.broker

GROUP = "g"
QUICK: dict[str, Any] = {
    "group_id": GROUP,
    "auto_offset_reset": "earliest",
    "commit_interval_ms": 100,
    "drain_timeout_ms": 200,
    "redelivery_backoff_ms": 1,
    "heartbeat_interval_ms": 200,
    "metadata_max_age_ms": 1_000,
    "fetch_max_wait_ms": 100,
}


@pytest.fixture(scope="module")
def proxy(open_cluster: Cluster) -> Iterator[ProxyProcess]:
    """A Kordon in front of the broker, which keeps individual commits."""
    with ProxyProcess.start(open_cluster.bootstrap(), config={"ordering": {"individual_commits": True}}) as started:
        yield started


class Topic:
    """A topic of one partition, unless it says otherwise, on brokers."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.name = f"cooperative-{uuid4().hex[:8]}"
        self.tp = TopicPartition(self.name, 0)

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[AIOKafkaAdminClient]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()

    async def create(self, partitions: int = 1) -> None:
        async with self._admin() as admin:
            await admin.create_topics([NewTopic(self.name, partitions, 1)])

    async def make_again(self) -> None:
        async with self._admin() as admin:
            await admin.delete_topics([self.name])

            async def is_made() -> bool:
                made: Any = await admin.create_topics([NewTopic(self.name, 1, 1)])
                return bool(made.topic_errors[0][1] == 0)

            for _ in range(300):
                with suppress(Exception):
                    if await is_made():
                        return
                await asyncio.sleep(0.1)

    async def delete_up_to(self, offset: int) -> None:
        """Deletes the records before an offset, as retention does."""
        async with self._admin() as admin:
            await admin.delete_records({self.tp: RecordsToDelete(offset)})

    async def send(self, *keys: bytes | None, partition: int | None = 0, **options: Any) -> None:
        """Sends a record of each key; its value is its number in this call."""
        async with AIOKafkaProducer(bootstrap_servers=self.bootstrap, **options) as producer:
            for number, key in enumerate(keys):
                await producer.send(self.name, b"%d" % number, key=key, partition=partition)

    async def committed(self) -> OffsetAndMetadata | None:
        async with self._group() as consumer:
            coordinator: Any = consumer._coordinator
            found: dict[TopicPartition, OffsetAndMetadata] = await coordinator.fetch_committed_offsets([self.tp])
            return found.get(self.tp)

    async def commit(self, offset: int, metadata: str) -> None:
        """Commits as a tool does, for a group that has no members."""
        async with self._group() as consumer:
            consumer.assign([self.tp])
            await consumer.commit({self.tp: OffsetAndMetadata(offset, metadata)})

    @asynccontextmanager
    async def _group(self) -> AsyncIterator[AIOKafkaConsumer]:
        async with AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap, group_id=GROUP, enable_auto_commit=False
        ) as consumer:
            yield consumer

    def consumer(self, **options: Any) -> CooperativeConsumer:
        return CooperativeConsumer(self.name, bootstrap_servers=self.bootstrap, **{**QUICK, **options})


@pytest.fixture(scope="module")
def brokers(request: pytest.FixtureRequest) -> Cluster:
    """Those without a Kordon can be older than what manages topics."""
    found: Cluster = request.getfixturevalue("cluster" if DESCRIBED_PRODUCERS.is_missing else "open_cluster")
    return found


@pytest.fixture
async def topic(brokers: Cluster) -> Topic:
    """A topic of one partition."""
    made = Topic(brokers.bootstrap())
    await made.create()
    return made


class Handler:
    """Counts what it handles; records of some keys never end."""

    def __init__(self, *stuck: bytes) -> None:
        self.stuck = stuck
        self.handled: Counter[int] = Counter()
        self.order: list[int] = []

    async def __call__(self, record: Record) -> None:
        if record.key in self.stuck:
            await asyncio.Event().wait()
        self.handled[record.offset] += 1
        self.order.append(record.offset)


async def handled(consumer: CooperativeConsumer, handler: Handler, over: Callable[[], object]) -> None:
    """Runs a consumer until something holds."""
    async with consumer:
        running = asyncio.ensure_future(consumer.run(handler))
        await until("handled", lambda: over() or running.done())
    await running


ROWS = (b"a", b"stuck", b"b", b"a", b"stuck", b"c")


async def left_with_gaps(topic: Topic) -> None:
    """A member has finished 0, 2, 3 and 5, and left."""
    await topic.send(*ROWS)
    handler = Handler(b"stuck")
    await handled(topic.consumer(), handler, lambda: len(handler.handled) == 4)
    assert set(handler.handled) == {0, 2, 3, 5}


async def again(topic: Topic, most: int = 6) -> set[int]:
    """The offsets that the next member handles, up to the end."""
    handler = Handler()
    consumer = topic.consumer()
    await handled(
        consumer, handler, lambda: (topic.tp in consumer.assignment()) and consumer.progress(topic.tp).stable >= most
    )
    assert set(handler.handled.values()) <= {1}
    return set(handler.handled)


async def test_a_handler_that_does_not_end_holds_only_its_key(topic: Topic) -> None:
    """All others are finished meanwhile, and the next member does nothing but what is missing."""
    await left_with_gaps(topic)
    commit = await topic.committed()
    assert commit is not None
    assert (commit.offset, commit.metadata[:4]) == (1, "kr1:")
    assert await again(topic) == {1, 4}
    commit = await topic.committed()
    assert commit is not None
    assert (commit.offset, commit.metadata) == (6, "")


@pytest.mark.parametrize("metadata", ["", "copied", "a tool's own text", "kr2:AAAA", "kr1:" + "A" * 4_000])
async def test_ranges_that_are_not_this_commits_are_not_believed(
    topic: Topic, metadata: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An operator goes back to offset 0, and all is handled again; metadata that is not ours is warned of."""
    await left_with_gaps(topic)
    commit = await topic.committed()
    assert commit is not None
    await topic.commit(0, commit.metadata if metadata == "copied" else metadata)
    with caplog.at_level(logging.WARNING, "kordon"):
        assert await again(topic) == {0, 1, 2, 3, 4, 5}
    assert ("is not known, and is handled again" in caplog.text) == bool(metadata)


@pytest.mark.skipif(TOPIC_IDS.is_missing, reason=TOPIC_IDS.reason)
async def test_a_topic_that_was_made_again_is_handled_from_its_start(topic: Topic) -> None:
    """Though somebody brings the commit of its former life back."""
    await topic.send(b"stuck", b"b", b"c")
    handler = Handler(b"stuck")
    await handled(topic.consumer(), handler, lambda: len(handler.handled) == 2)
    commit = await topic.committed()
    assert commit is not None
    assert commit.metadata
    await topic.make_again()
    await topic.send(*ROWS)
    await topic.commit(commit.offset, commit.metadata)
    assert await again(topic) == {0, 1, 2, 3, 4, 5}


async def test_ranges_beyond_the_end_of_the_log_are_not_believed(
    topic: Topic, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has become shorter, so other records may stand where finished ones stood."""
    await left_with_gaps(topic)

    async def shorter(consumer: AIOKafkaConsumer, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 5)

    monkeypatch.setattr(AIOKafkaConsumer, "end_offsets", shorter)
    assert await again(topic) == {1, 2, 3, 4, 5}
    assert "ends at 5, and ranges up to 6" in caplog.text


async def test_what_retention_has_taken_undone_does_not_hold_or_skip_the_rest(
    topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    """The next member would find its offset out of range, and `latest` would skip what nobody has handled."""
    await left_with_gaps(topic)
    await topic.delete_up_to(3)
    handler = Handler()
    consumer = topic.consumer(auto_offset_reset="latest")
    with caplog.at_level(logging.WARNING, "kordon"):
        await handled(
            consumer, handler, lambda: topic.tp in consumer.assignment() and consumer.progress(topic.tp).stable >= 6
        )
    assert set(handler.handled) == {4}
    assert "begins at 3, and everything was finished before 1 only" in caplog.text


async def test_without_a_commit_the_place_where_a_group_begins_is_committed(topic: Topic) -> None:
    """Before any record is fetched: with `latest` a member that died would leave out what comes until the next one."""
    await topic.send(*ROWS)
    consumer = topic.consumer(auto_offset_reset="latest", commit_interval_ms=600_000)
    async with consumer:
        await until("begun", lambda: topic.tp in consumer.assignment())
        commit = await topic.committed()
        assert commit is not None
        assert commit.offset == 6
        await topic.send(b"d", b"e")
        await until("in hand", lambda: consumer.in_hand().get(topic.tp) == 2)
    assert await again(topic, 8) == {6, 7}


async def test_offsets_of_markers_and_aborted_records_are_finished(topic: Topic) -> None:
    """The commit comes to the end of the log, and what is committed is handled in between."""
    await topic.send(b"a")
    async with AIOKafkaProducer(bootstrap_servers=topic.bootstrap, transactional_id=topic.name) as producer:
        for outcome in (producer.abort_transaction, producer.commit_transaction):
            await producer.begin_transaction()
            await producer.send_and_wait(topic.name, b"x", key=b"a", partition=0)
            await outcome()
    handler = Handler()
    consumer = topic.consumer(isolation_level="read_committed")
    await handled(
        consumer, handler, lambda: topic.tp in consumer.assignment() and consumer.progress(topic.tp).stable == 5
    )
    assert handler.order == [0, 3]
    commit = await topic.committed()
    assert commit is not None
    assert commit.offset == 5


async def test_no_more_is_in_hand_than_it_may(topic: Topic) -> None:
    """A handler that is slow does not fill the memory, and the consumer stays in its group."""
    await topic.send(*(b"%d" % n for n in range(200)))
    most = 0
    gate = asyncio.Semaphore(0)
    handler = Handler()
    consumer = topic.consumer(max_records_in_hand=10, concurrency=5)

    async def handle(record: Record) -> None:
        nonlocal most
        await gate.acquire()
        most = max(most, *consumer.in_hand().values())
        await handler(record)

    async with consumer:
        running = asyncio.ensure_future(consumer.run(handle))
        await until("full", lambda: consumer.in_hand().get(topic.tp, 0) >= 10)
        for _ in range(200):
            gate.release()
        await until("handled", lambda: len(handler.handled) == 200)
    await running
    assert set(handler.handled.values()) == {1}
    assert most == 10


async def test_a_member_that_joins_gets_nothing_that_another_one_works_on(brokers: Cluster) -> None:
    """The first one drains, and commits, before partitions move."""
    topic = Topic(brokers.bootstrap())
    await topic.create(2)
    for partition in (0, 1):
        await topic.send(*(b"%d" % (n % 7) for n in range(100)), partition=partition)
    busy: set[tuple[int, bytes | None]] = set()
    counted: Counter[tuple[int, int]] = Counter()

    async def handle(record: Record) -> None:
        at = record.partition, record.key
        assert at not in busy
        busy.add(at)
        await asyncio.sleep(0.005)
        busy.discard(at)
        counted[record.partition, record.offset] += 1

    first, second = topic.consumer(drain_timeout_ms=5_000), topic.consumer(drain_timeout_ms=5_000)
    async with first:
        tasks = [asyncio.ensure_future(first.run(handle))]
        await until("begun", lambda: len(counted) > 20)
        async with second:
            tasks.append(asyncio.ensure_future(second.run(handle)))
            await until("shared", lambda: len(first.assignment()) == len(second.assignment()) == 1)
            await until("handled", lambda: len(counted) == 200)
    await asyncio.gather(*tasks)
    assert set(counted.values()) == {1}


async def test_records_are_acknowledged_by_hand(topic: Topic) -> None:
    """In the order of their keys; what is not acknowledged comes again to the next member."""
    await topic.send(b"a", b"a", b"b")
    async with topic.consumer() as consumer:
        first, other = await consumer.getone(), await consumer.getone()
        assert (first.offset, other.offset) == (0, 2)
        assert consumer.acknowledge(first)
        behind = await consumer.getone()
        assert behind.offset == 1
        assert consumer.acknowledge(behind, AcknowledgeType.RELEASE)
        assert (await consumer.getone()).offset == 1
        assert consumer.acknowledge(other)
        oldest = consumer.oldest_gap(topic.tp)
        assert oldest is not None
        assert oldest.offset == 1
        assert await consumer.commit() == {topic.tp: 1}
    assert [record async for record in consumer] == []
    assert not consumer.acknowledge(first)
    assert await again(topic, 3) == {1}


async def test_a_group_that_may_not_be_is_told_to_the_application(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fails in the background ends `run`."""
    consumer = topic.consumer()

    async def refuse(partitions: object) -> dict[TopicPartition, object]:
        raise PermissionError("no right to read commits")

    monkeypatch.setattr(consumer._membership._store, "read", refuse)
    async with consumer:
        with pytest.raises(PermissionError, match="no right"):
            await consumer.run(Handler())


async def test_a_kordon_keeps_more_than_a_commits_metadata_has_room_for(
    topic: Topic, proxy: ProxyProcess, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who dies takes only its last commit along; an operator's reset is a reset; stock tools see the stable offset."""
    monkeypatch.setattr(range_store, "METADATA_BYTES", 100)  # which hold what is finished of 344 offsets
    through = Topic(proxy.bootstrap)
    through.name, through.tp = topic.name, topic.tp
    count, every = 900, 3
    await topic.send(*(b"stuck" if n % every == 0 else b"%d" % n for n in range(count)))
    stuck = {n for n in range(count) if n % every == 0}

    async def by_one_more(*keys: bytes) -> set[int]:
        handler = Handler(*keys)
        consumer = through.consumer(concurrency=200, commit_interval_ms=50)
        async with consumer:
            running = asyncio.ensure_future(consumer.run(handler))
            await until("fetched", lambda: topic.tp in consumer.assignment())
            await until("handled", lambda: _is_done(consumer, topic.tp, keys, count))
            await consumer.commit()
            if keys:
                store: Any = consumer._membership._store
                store.commits._consumer._coordinator.reset_generation()  # it dies: nothing more is told
        await running
        return set(handler.handled)

    assert await by_one_more(b"stuck") == set(range(count)) - stuck
    commit = await topic.committed()
    assert commit is not None
    assert (commit.offset, commit.metadata[:4]) == (0, "kc1:")
    assert await by_one_more() == stuck
    assert await by_one_more() == set()
    await topic.commit(count - 2, "")
    assert await by_one_more() == {count - 2, count - 1}
    assert "finished ranges behind" not in caplog.text


def _is_done(consumer: CooperativeConsumer, tp: TopicPartition, stuck: tuple[bytes, ...], count: int) -> bool:
    progress = consumer.progress(tp)
    return progress.ranges.end == count and len(progress.ranges) == count // 3 if stuck else progress.stable == count


@pytest.mark.parametrize("view", ["virtual", "physical"])
async def test_a_managed_topic_is_handled_through_a_kordon(proxy: ProxyProcess, view: str) -> None:
    """By its virtual partitions, or its physical ones; a second member goes on where the first one was."""
    topic = Topic(proxy.bootstrap)
    create_managed(proxy.bootstrap, topic.name)
    await topic.send(*(b"%d" % (n % 10) for n in range(100)), partition=None)
    counted: Counter[tuple[int, int]] = Counter()

    async def handle(record: Record) -> None:
        counted[record.partition, record.offset] += 1

    for _ in range(2):
        consumer = topic.consumer(view=view)
        async with consumer:
            running = asyncio.ensure_future(consumer.run(handle))
            await until("handled", lambda: len(counted) == 100)
            await until("assigned", consumer.assignment)
        await running
    assert set(counted.values()) == {1}
    assert len({partition for partition, _ in counted}) > (3 if view == "virtual" else 1)


async def test_a_consumer_that_cannot_be_started_says_why() -> None:
    """And leaves nothing behind."""
    with pytest.raises(KafkaConnectionError):
        async with CooperativeConsumer("t", bootstrap_servers=f"127.0.0.1:{free_ports(1)}", group_id=GROUP):
            pass


async def test_an_assignment_that_comes_while_it_stops_is_not_begun(topic: Topic) -> None:
    """A rebalance may end after the last records were drained."""
    await topic.send(b"a")
    consumer = topic.consumer()
    async with consumer:
        await until("in hand", lambda: consumer.in_hand().get(topic.tp))
        await consumer._membership.close()
        await consumer._membership.on_partitions_assigned([topic.tp])
        assert not consumer.assignment()
        assert consumer._membership._task is None


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "`group_id` is needed"),
        ({"group_id": "g", "enable_auto_commit": True}, "`enable_auto_commit` makes no sense"),
        ({"group_id": "g", "drain_timeout_ms": 30_000}, "should be below `rebalance_timeout_ms`"),
    ],
)
async def test_what_makes_no_sense_is_refused(options: dict[str, Any], why: str) -> None:
    """Before anything is connected."""
    with pytest.raises(ValueError, match=why):
        CooperativeConsumer("t", **options)
