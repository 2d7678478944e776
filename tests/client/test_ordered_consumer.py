"""OrderedConsumer with a real broker and two real proxies: alone, in groups, and beside other clients."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import InconsistentGroupProtocolError
from aiokafka.structs import TopicPartition

from kordon.client.consumer import OrderedConsumer
from kordon.client.group import MixedGroupError
from kordon.client.listener import PartitionKeyRebalanceListener
from kordon.testing.cluster import Cluster
from kordon.testing.managed_clients import Sender, create_managed, resize
from kordon.testing.order.findings import Account, Findings
from kordon.testing.order.handovers import Handovers
from kordon.testing.order.history import Assigned, KeyAssigned, KeyMaybeRevoked, Processed, Read, Revoked
from kordon.testing.proxy_process import ProxyProcess
from kordon.testing.waiting import until

# pyright: reportPrivateUsage=false

pytestmark = pytest.mark.broker

PATIENCE_SECONDS = 90.0


@pytest.fixture(scope="module")
def proxies(open_cluster: Cluster) -> Iterator[list[str]]:
    """Where two proxies in front of one broker listen."""
    bootstrap = open_cluster.bootstrap("PLAINTEXT")
    with ProxyProcess.start(bootstrap) as first, ProxyProcess.start(bootstrap) as second:
        yield [first.bootstrap, second.bootstrap]


class Story:
    """What the members of a group got and were called, in the order in which it happened."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Read]] = []
        self.got: list[tuple[bytes, int]] = []

    def add(self, member: str, event: Read) -> None:
        """Takes an event in; what happens later has a later time."""
        self.events.append((member, event._replace(time_us=len(self.events) + 1)))

    def assert_handed_over(self) -> None:
        """Each key was flushed by whoever had it before whoever got it next loaded it."""
        account, findings = Account(), Findings()
        handovers = Handovers("g", account)
        for member, event in self.events:
            handovers.take(member, event)
        handovers.finish(findings)
        assert findings.counts == {}, findings
        assert account.moved > 0, "no key moved from one member to another: this has shown nothing"

    def assert_all_in_order(self, sender: Sender) -> None:
        """All that was acknowledged was read, each key in order; again only what is older."""
        assert set(sender.acknowledged) - set(self.got) == set(), "lost"
        newest: dict[bytes, int] = {}
        seen: set[int] = set()
        for key, number in self.got:
            assert number in seen or number > newest.get(key, -1), f"{key!r}: {number} after {newest[key]}"
            newest[key] = max(number, newest.get(key, -1))
            seen.add(number)


class Since:
    """What happened since a moment of a story."""

    def __init__(self, story: Story, begun: int) -> None:
        self._events = story.events[begun:]

    def first(self, member: str, kind: type[Read], partition: int) -> int:
        """Returns when something first happened to a partition of a member."""
        return next(
            place
            for place, (name, event) in enumerate(self._events)
            if name == member and isinstance(event, kind) and partition in _partitions(event)
        )

    def by(self, member: str, partition: int) -> bool:
        """Whether a member was called to load a partition."""
        return any(
            name == member and isinstance(event, KeyAssigned) and partition in event.partitions
            for name, event in self._events
        )


def _partitions(event: Any) -> Collection[int]:
    match event:
        case KeyMaybeRevoked():
            return [partition for partition, _ in event.offsets]
        case Processed():
            return [event.partition]
        case _:
            return list(event.partitions)


class Callbacks(PartitionKeyRebalanceListener):
    """Tells the story of one member's callbacks."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self.failing = 0
        """So many of the next flushes fail."""

    async def on_partition_key_maybe_revoked(self, revoked: Collection[TopicPartition]) -> None:
        offsets = tuple((tp.partition, self._member.handled.get(tp.partition, 0)) for tp in revoked)
        await asyncio.sleep(0.05)
        if self.failing:
            self.failing -= 1
            raise OSError("the store is away")
        self._member.story.add(self._member.name, KeyMaybeRevoked(0, offsets))

    async def on_partition_key_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._member.story.add(self._member.name, KeyAssigned(0, tuple(tp.partition for tp in assigned)))
        await asyncio.sleep(0.05)


class Ownership(ConsumerRebalanceListener):  # type: ignore[misc]  # mypy cannot read aiokafka  # type: ignore[misc]  # aiokafka has no types  # type: ignore[misc]  # aiokafka has no types
    """Tells the story of one member's partitions."""

    def __init__(self, member: Member) -> None:
        self._member = member

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Others may get them from now on."""
        self._member.story.add(self._member.name, Revoked(0, tuple(tp.partition for tp in revoked), False))

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Nothing has been read from them yet."""
        self._member.story.add(self._member.name, Assigned(0, tuple(tp.partition for tp in assigned)))


class Member:
    """An OrderedConsumer of a group, and a task that reads from it."""

    def __init__(self, story: Story, name: str, bootstrap: str, topic: str, **options: Any) -> None:
        self.story, self.name = story, name
        self.handled: dict[int, int] = {}
        self.callbacks = Callbacks(self)
        options = {"auto_offset_reset": "earliest", "session_timeout_ms": 30_000, **options}
        self.consumer = OrderedConsumer(
            bootstrap_servers=bootstrap, group_id=topic, heartbeat_interval_ms=500, **options
        )
        self.consumer.subscribe([topic], listener=Ownership(self), key_listener=self.callbacks)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.consumer.start()
        self._task = asyncio.get_running_loop().create_task(self._read())

    async def stop(self) -> None:
        """Leaves; what it was given last has been handled."""
        await self._end()
        await self.consumer.stop()

    async def die(self) -> None:
        """Is gone from one moment to the next, without leaving or committing."""
        await self._end()
        coordinator: Any = self.consumer._coordinator
        for task in (coordinator._coordination_task, coordinator._heartbeat_task, coordinator._commit_refresh_task):
            task.cancel()
        assert self.consumer._driver is not None
        await self.consumer._driver.close()
        assert self.consumer._fetcher is not None
        await self.consumer._fetcher.close()
        await self.consumer._client.close()
        self.consumer._closed = True

    async def _end(self) -> None:
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _read(self) -> None:
        async for record in self.consumer:
            number = int(record.value)
            self.story.got.append((record.key, number))
            key = record.key.decode()
            self.story.add(self.name, Processed(0, record.partition, record.offset, key, number))
            self.handled[record.partition] = record.offset + 1


@asynccontextmanager
async def group(
    story: Story, proxies: list[str], topic: str, size: int = 3, **options: Any
) -> AsyncIterator[list[Member]]:
    """Members at either proxy; those that still live are stopped at the end."""
    members = [Member(story, f"m{i}", proxies[i % len(proxies)], topic, **options) for i in range(size)]
    await asyncio.gather(*(member.start() for member in members))
    try:
        yield members
    finally:
        await asyncio.gather(*(member.stop() for member in members if not member.consumer._closed))


async def managed(proxies: list[str], topic: str) -> Any:
    return await asyncio.to_thread(create_managed, proxies[0], topic)


async def send_over(sender: Sender, admin: Any, topic: str, *counts: int, seconds: float = 1.5) -> None:
    """Writes while a topic gets other counts of partitions, one after the other."""
    await asyncio.to_thread(sender.send_for, seconds)
    for count in counts:
        await asyncio.to_thread(sender.send_for, seconds, resize(admin, topic, count))
    await asyncio.to_thread(sender.finish)


def has_read_all(story: Story, sender: Sender) -> bool:
    return {number for _, number in story.got} >= {number for _, number in sender.acknowledged}


async def test_a_group_reads_each_key_in_order_and_hands_it_over(proxies: list[str]) -> None:
    """3 -> 6 -> 3 under writes: nothing is lost, no key out of order, and state is flushed before it is loaded."""
    topic, story = "handed-over", Story()
    admin, sender = await managed(proxies, topic), Sender(proxies[0], topic)
    async with group(story, proxies, topic) as members:
        for count in (6, 3):  # the group reads from the new partitions before they are gone again
            await send_over(sender, admin, topic, count)
            await until("all is read", lambda: has_read_all(story, sender), PATIENCE_SECONDS)
        assert sum(member.consumer.key_counts.loads for member in members) > 0
    sender.close()
    story.assert_all_in_order(sender)
    story.assert_handed_over()


async def test_others_flush_and_load_anew_when_a_member_goes_back(proxies: list[str]) -> None:
    """Behind 3 -> 6 one seeks to its beginning: who had its keys flushes before it reads on, and loads after it."""
    topic, story = "goes-back", Story()
    admin, sender = await managed(proxies, topic), Sender(proxies[0], topic)
    async with group(story, proxies, topic) as members:
        await send_over(sender, admin, topic, 6)
        await until("all is read", lambda: has_read_all(story, sender), PATIENCE_SECONDS)
        await until("each has two", lambda: {len(member.consumer.assignment()) for member in members} == {2})
        parent = TopicPartition(topic, 0)
        child = TopicPartition(topic, 3)
        first = next(member for member in members if parent in member.consumer.assignment())
        other = next(member for member in members if child in member.consumer.assignment())
        assert first is not other
        begun = len(story.events)
        await first.consumer.seek_to_beginning(parent)
        await until("the keys are loaded anew", lambda: Since(story, begun).by(other.name, 3), PATIENCE_SECONDS)
    sender.close()
    again = Since(story, begun)
    flushed, loaded = again.first(other.name, KeyMaybeRevoked, 3), again.first(first.name, KeyAssigned, 0)
    read_on = again.first(first.name, Processed, 0)
    assert flushed < loaded < read_on
    assert again.first(first.name, KeyMaybeRevoked, 0) < again.first(other.name, KeyAssigned, 3)


async def test_a_group_goes_on_when_a_member_dies_while_keys_move(proxies: list[str]) -> None:
    """What it held is held by others; what it had not committed is read again, and nothing is passed over."""
    topic, story = "member-dies", Story()
    admin, sender = await managed(proxies, topic), Sender(proxies[0], topic)
    async with group(story, proxies, topic, session_timeout_ms=6_000) as members:
        writing = asyncio.get_running_loop().create_task(send_over(sender, admin, topic, 6, seconds=2))
        await until("something is read", lambda: len(story.got) > 100, PATIENCE_SECONDS)
        await members[1].die()
        story.add("m1", Revoked(0, tuple(range(6)), True))
        await writing
        await until("all is read", lambda: has_read_all(story, sender), PATIENCE_SECONDS)
    sender.close()
    story.assert_all_in_order(sender)


async def test_others_wait_until_a_flush_that_fails_has_succeeded(proxies: list[str]) -> None:
    """It is called again at the next heartbeat; meanwhile nobody gets the keys."""
    topic, story = "flush-fails", Story()
    admin, sender = await managed(proxies, topic), Sender(proxies[0], topic)
    async with group(story, proxies, topic) as members:
        for member in members:
            member.callbacks.failing = 2
        await send_over(sender, admin, topic, 6)
        await until("all is read", lambda: has_read_all(story, sender), PATIENCE_SECONDS)
        assert sum(member.consumer.key_counts.failures for member in members) > 0
    sender.close()
    story.assert_all_in_order(sender)


async def test_who_reads_alone_gets_each_key_in_order_by_its_own_positions(proxies: list[str]) -> None:
    """Without a group, from the beginning, after all has been written: 3 -> 6 -> 3 -> 5; and again after a rewind."""
    topic = "alone"
    admin, sender = await managed(proxies, topic), Sender(proxies[0], topic)
    await send_over(sender, admin, topic, 6, 3, 5, seconds=0.5)
    consumer = OrderedConsumer(bootstrap_servers=proxies[1], auto_offset_reset="earliest")
    await consumer.start()
    consumer.assign([TopicPartition(topic, q) for q in range(6)])
    for _ in range(2):
        got: list[tuple[bytes, int]] = []
        while len(got) < len(sender.acknowledged):
            records = await asyncio.wait_for(consumer.getmany(timeout_ms=1000), PATIENCE_SECONDS)
            got += [(record.key or b"", int(record.value or b"-1")) for each in records.values() for record in each]
        assert sorted(got) == sorted(sender.acknowledged)
        for key in {key for key, _ in got}:
            numbers = [number for each, number in got if each == key]
            assert numbers == sorted(numbers), key
        await consumer.seek_to_beginning()
    await consumer.stop()
    sender.close()


async def test_a_group_at_the_end_reads_a_new_partition_from_its_start(proxies: list[str]) -> None:
    """auto_offset_reset=latest loses the first records of new partitions in Kafka (KIP-1327); not here."""
    topic, story = "from-its-start", Story()
    admin, sender = await managed(proxies, topic), Sender(proxies[0], topic)
    async with group(story, proxies, topic, size=1, auto_offset_reset="latest", auto_commit_interval_ms=100) as members:
        consumer = members[0].consumer
        for q in range(3):
            await consumer.position(TopicPartition(topic, q))
        await consumer.commit()
        await send_over(sender, admin, topic, 6)
        await until("all is read", lambda: has_read_all(story, sender), PATIENCE_SECONDS)
    sender.close()
    story.assert_all_in_order(sender)


async def test_ordered_consumers_are_refused_where_others_are(proxies: list[str]) -> None:
    """A clear message, and no crash: in one group there is one kind of members."""
    topic = "mixed-one"
    await managed(proxies, topic)
    async with AIOKafkaConsumer(topic, bootstrap_servers=proxies[0], group_id=topic):
        refused = OrderedConsumer(topic, bootstrap_servers=proxies[0], group_id=topic)
        with pytest.raises(MixedGroupError, match="has members that are no OrderedConsumers"):
            await asyncio.wait_for(refused.start(), PATIENCE_SECONDS)
        await refused.stop()


async def test_others_are_refused_where_ordered_consumers_are(proxies: list[str]) -> None:
    """By the group's coordinator, with Kafka's own error; the group goes on."""
    topic = "mixed-two"
    await managed(proxies, topic)
    async with OrderedConsumer(topic, bootstrap_servers=proxies[0], group_id=topic) as consumer:
        refused = AIOKafkaConsumer(topic, bootstrap_servers=proxies[0], group_id=topic)
        with pytest.raises(InconsistentGroupProtocolError):
            await asyncio.wait_for(refused.start(), PATIENCE_SECONDS)
        await refused.stop()
        assert consumer.assignment() == {TopicPartition(topic, q) for q in range(3)}


async def test_groups_of_either_kind_read_one_topic_at_the_same_time(proxies: list[str]) -> None:
    """Each gets all, and each key in order, over a growth."""
    topic, story = "both-kinds", Story()
    admin, sender = await managed(proxies, topic), Sender(proxies[0], topic)
    stock: list[tuple[bytes, int]] = []
    others = AIOKafkaConsumer(topic, bootstrap_servers=proxies[1], group_id="stock", auto_offset_reset="earliest")
    async with group(story, proxies, topic, size=2), others:
        await send_over(sender, admin, topic, 5)
        missing = set(sender.acknowledged)
        while missing:
            record = await asyncio.wait_for(others.getone(), PATIENCE_SECONDS)
            stock.append((record.key or b"", int(record.value or b"-1")))
            missing.discard(stock[-1])
        await until("all is read", lambda: has_read_all(story, sender), PATIENCE_SECONDS)
    sender.close()
    story.assert_all_in_order(sender)
    story.got = stock
    story.assert_all_in_order(sender)


async def test_commit_seek_and_pause_are_those_of_aiokafka(proxies: list[str]) -> None:
    """On physical partitions; a commit is where the next one begins."""
    topic = "as-ever"
    admin, sender = await managed(proxies, topic), Sender(proxies[0], topic)
    await send_over(sender, admin, topic, seconds=0.3)
    options: dict[str, Any] = {"bootstrap_servers": proxies[0], "group_id": topic, "enable_auto_commit": False}
    async with OrderedConsumer(topic, auto_offset_reset="earliest", **options) as consumer:
        first = await asyncio.wait_for(consumer.getone(), PATIENCE_SECONDS)
        tp = TopicPartition(topic, first.partition)
        consumer.seek(tp, 0)
        again = await asyncio.wait_for(consumer.getone(tp), PATIENCE_SECONDS)
        assert again.value == first.value
        consumer.pause(tp)
        assert consumer.paused() == {tp}
        assert await consumer.getmany(tp, timeout_ms=300) == {}
        consumer.resume(tp)
        await consumer.commit({tp: 5})
    async with OrderedConsumer(topic, **options) as consumer:
        assert await consumer.committed(tp) == 5
        assert (await asyncio.wait_for(consumer.getone(tp), PATIENCE_SECONDS)).offset == 5
    sender.close()


async def test_offsets_are_asked_for_and_portions_taken_as_with_aiokafka(proxies: list[str]) -> None:
    """Of physical partitions: where they begin and end, who stands where, and so many records of some of them."""
    topic = "offsets-as-ever"
    admin, sender = await managed(proxies, topic), Sender(proxies[0], topic)
    await send_over(sender, admin, topic, 5, seconds=0.3)
    sender.close()
    options: dict[str, Any] = {"bootstrap_servers": proxies[1], "group_id": topic, "enable_auto_commit": False}
    async with OrderedConsumer(topic, auto_offset_reset="earliest", **options) as consumer:
        tps = [TopicPartition(topic, q) for q in range(5)]
        begins, ends = await consumer.beginning_offsets(tps), await consumer.end_offsets(tps)
        assert begins == dict.fromkeys(tps, 0)
        assert sum(ends.values()) == len(sender.acknowledged)
        assert {
            tp: found and found.offset
            for tp, found in (await consumer.offsets_for_times(dict.fromkeys(tps, 0))).items()
        } == {tp: 0 if ends[tp] else None for tp in tps}
        tp = tps[2]  # its keys have never moved
        got: list[int] = []
        while len(got) < 3:
            found = await asyncio.wait_for(consumer.getmany(tp, timeout_ms=500, max_records=3 - len(got)), 90)
            assert set(found) <= {tp}
            got += [record.offset for records in found.values() for record in records]
        assert got == [0, 1, 2]
        assert await consumer.position(tp) == 3
        assert consumer.highwater(tp) == ends[tp]
        await consumer.commit()
        assert await consumer.committed(tp) == 3
        await consumer.seek_to_end(tp)
        assert await consumer.position(tp) == ends[tp]


async def test_without_a_kordon_it_is_an_aiokafka_consumer_and_says_so_once(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """It even shares a group with others; nobody is called when keys move."""
    bootstrap, topic = cluster.bootstrap("PLAINTEXT"), "no-kordon"
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        await producer.send_and_wait(topic, b"x", key=b"k")
    options: dict[str, Any] = {"bootstrap_servers": bootstrap, "group_id": topic, "auto_offset_reset": "earliest"}
    with caplog.at_level(logging.WARNING, "kordon.client"):
        async with OrderedConsumer(topic, **options) as consumer:
            record = await asyncio.wait_for(consumer.getone(), PATIENCE_SECONDS)
            assert record.value == b"x"
            other = AIOKafkaConsumer(topic, **options)
            await asyncio.wait_for(other.start(), PATIENCE_SECONDS)
            await other.stop()
    said = [record.message for record in caplog.records if record.name.startswith("kordon.client")]
    assert len(said) == 1
    assert "No Kordon answers" in said[0]
