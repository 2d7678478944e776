"""What becomes of those who wait for a log that is lost, late or not to be had."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from unittest.mock import MagicMock

import pytest

from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.batches import NewRecord, Record
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.internal_topic_log import LogLost
from kordon.proxy.own_topics import followed_log
from kordon.proxy.own_topics.compacted_topic import GROUPS, CompactedTopic, OwnTopicUnfit
from kordon.proxy.own_topics.followed_log import FollowedLog
from kordon.proxy.runtime.tasks import Tasks
from kordon.testing.waiting import until

ENTRY = NewRecord("key", b"value")
LARGE = NewRecord("key", b"v" * 500_000)


class Broker:
    """What stands in the topic, and how it answers."""

    def __init__(self) -> None:
        self.batches: list[Sequence[NewRecord]] = []
        self.unfit = ""
        self.reads = asyncio.Event()
        """Cleared: what is written is not read back."""
        self.reads.set()
        self.lost = asyncio.Event()


class Opened:
    """Stands in for an `InternalTopicLog`."""

    position, end, read_at = 0, 0, 1e12

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def begin_at_its_start(self) -> None:
        """Is there."""

    async def read_to_end(self, _: float = 0.0) -> int:
        return 0

    async def append(self, entries: Sequence[NewRecord]) -> int:
        self._broker.batches.append(entries)
        return sum(map(len, self._broker.batches)) - 1

    async def reached(self, _: int) -> None:
        await self._broker.reads.wait()

    async def follow(self, _: Callable[[Record], None]) -> None:
        await self._broker.lost.wait()
        self._broker.lost.clear()
        raise LogLost("it was deleted")

    def close(self) -> None:
        """Has no connection."""


class Noted:
    """Contents that keep nothing."""

    def __init__(self) -> None:
        self.forgotten = self.caught = 0

    def take_in(self, record: Record) -> None:
        """Reads nothing that is empty."""
        if not record.value:
            raise ValueError("it is empty")

    def forget(self) -> None:
        """Counts."""
        self.forgotten += 1

    def caught_up(self, work: Tasks) -> None:
        """Counts."""
        self.caught += 1


@pytest.fixture
async def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    """Has the topic."""
    made = Broker()

    async def ensure(_: CompactedTopic, __: Brokers) -> None:
        if made.unfit:
            raise OwnTopicUnfit(made.unfit)

    def opened(*_: object, **__: object) -> Opened:
        return Opened(made)

    monkeypatch.setattr(CompactedTopic, "ensure", ensure)
    monkeypatch.setattr(followed_log, "InternalTopicLog", opened)
    monkeypatch.setattr(followed_log, "_FIRST_RETRY_SECONDS", 0.0)
    return made


@pytest.fixture
async def contents() -> Noted:
    """Of the log."""
    return Noted()


@pytest.fixture
async def log(broker: Broker, contents: Noted) -> AsyncIterator[FollowedLog]:
    """A log that nobody has used yet."""
    made = FollowedLog(MagicMock(), replace(GROUPS, name="groups"), contents)
    yield made
    await made.close()


async def test_writes_that_come_together_are_one_batch_and_each_is_told_its_offset(
    log: FollowedLog, broker: Broker
) -> None:
    """The offset of its last record."""
    await log.ready()
    offsets = list(await asyncio.gather(log.write([ENTRY]), log.write([ENTRY, ENTRY]), log.write([ENTRY])))
    assert offsets == [0, 2, 3]
    assert [len(each) for each in broker.batches] == [4]
    assert (log.tally.written, log.tally.batches) == (4, 1)


async def test_a_batch_takes_what_there_is_room_for(log: FollowedLog, broker: Broker) -> None:
    """The broker would refuse a larger one."""
    await log.ready()
    await asyncio.gather(*(log.write([LARGE]) for _ in range(3)))
    assert [len(each) for each in broker.batches] == [1, 1, 1]


@pytest.mark.parametrize("use", [FollowedLog.ready, FollowedLog.read_to_end, lambda log: log.write([ENTRY])])
async def test_whoever_waits_for_a_log_uses_it(
    log: FollowedLog, use: Callable[[FollowedLog], Awaitable[object]]
) -> None:
    """One that is not used for long is closed: whoever still reads or writes without opening it anew would lose it."""
    await log.ready()
    log.used_at = 0.0
    await use(log)
    assert log.used_at > 0.0


async def test_who_waits_is_told_when_the_log_is_lost(log: FollowedLog, broker: Broker, contents: Noted) -> None:
    """Without waiting for the end of its time: nobody can say what became of the records."""
    await log.ready()
    broker.reads.clear()
    waits = asyncio.ensure_future(log.write([ENTRY], timeout=1e6))
    await until("it is written", lambda: bool(broker.batches))
    broker.lost.set()
    with pytest.raises(UpstreamUnavailable, match="opened anew"):
        await waits
    await log.ready()
    broker.reads.set()
    assert await log.write([ENTRY]) == 1
    assert (log.tally.lost, contents.forgotten, contents.caught) == (1, 1, 2)


async def test_more_writes_than_there_is_room_for_are_refused(
    log: FollowedLog, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those on their way count, too; whoever gives up makes room."""
    monkeypatch.setattr(followed_log, "MOST_WAITING", 2)
    await log.ready()
    broker.reads.clear()
    waits = [asyncio.ensure_future(log.write([ENTRY], timeout=1e6)) for _ in range(2)]
    await until("it is written", lambda: bool(broker.batches))
    with pytest.raises(UpstreamUnavailable, match="2 records wait"):
        await log.write([ENTRY])
    waits[0].cancel()
    await asyncio.wait({waits[0]})
    broker.reads.set()
    await log.write([ENTRY])
    await waits[1]


async def test_a_topic_that_is_not_fit_is_told_until_it_is_mended(log: FollowedLog, broker: Broker) -> None:
    """With what to change, to readers and writers, at once as soon as it is known."""
    broker.unfit = "has 2 partitions"
    with pytest.raises(UpstreamUnavailable):
        await log.ready(timeout=0.01)
    await until("the topic was looked at", lambda: log.problem is not None)
    for wanted in (log.ready(1e6), log.read_to_end(), log.write([ENTRY], timeout=1e6)):
        with pytest.raises(UpstreamUnavailable, match="has 2 partitions"):
            await wanted
    broker.unfit = ""
    await until("it is looked at again", lambda: log.problem is None)
    await log.write([ENTRY])


async def test_a_record_that_cannot_be_read_is_counted(log: FollowedLog) -> None:
    """And raises nothing: what stands behind it is read."""
    log.on_record(Record("key", b"", 0))
    log.on_record(Record("key", b"value", 1))
    assert (log.tally.read, log.tally.unreadable) == (2, 1)
