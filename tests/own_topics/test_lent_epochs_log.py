"""The log of lent epochs on real brokers: made on demand, counted alike by all, and what it lives through."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from unittest.mock import MagicMock
from uuid import uuid4

import pytest

from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.batches import NewRecord, Record
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.plain_writer import PlainWriter
from kordon.proxy.kafka.topics_admin import TopicsAdmin
from kordon.proxy.ordering.lent_epoch_records import dump, key_of
from kordon.proxy.ordering.lent_epochs import EpochClaim, Lent, ProducerIdentity
from kordon.proxy.ordering.lent_table import FORGET_MS
from kordon.proxy.own_topics import lent_epochs_log
from kordon.proxy.own_topics.compacted_topic import PRODUCERS, OwnTopicUnfit
from kordon.proxy.own_topics.lent_epochs_log import LentEpochsLog
from kordon.testing.waiting import until

KEY = key_of("orders-writer")
KEPT_MS = "3600000"
SECONDS = 60.0
REAL = pytest.mark.broker


def lent(number: int, token: str = "a") -> Lent:
    return Lent(number, ProducerIdentity(7, number), claim=EpochClaim(token, None))


@pytest.fixture
def topic() -> str:
    """The name of a log that no other test uses."""
    return f"producers-{uuid4().hex[:8]}"


@asynccontextmanager
async def worker(brokers: Brokers, topic: str) -> AsyncIterator[LentEpochsLog]:
    made = LentEpochsLog(brokers, topic)
    try:
        yield made
    finally:
        await made.close()


async def ready(log: LentEpochsLog) -> None:
    """Returns when it has read all there is."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                return await log.read_to_end()
            except UpstreamUnavailable:
                await asyncio.sleep(0.1)


@REAL
async def test_what_one_worker_has_written_all_know(new_worker: Callable[[], Awaitable[Brokers]], topic: str) -> None:
    """The log is made when it is first needed, such that it keeps what is late for long enough."""
    brokers = await new_worker()
    async with worker(brokers, topic) as one, worker(await new_worker(), topic) as other:
        await ready(one)
        assert await one.write(KEY, lent(0))
        await ready(other)
        assert other.table.lent(KEY) == lent(0)
    configs = await TopicsAdmin(brokers).topic_configs(topic)
    assert (configs["cleanup.policy"], configs["min.compaction.lag.ms"]) == ("compact", KEPT_MS)
    assert configs["unclean.leader.election.enable"] == "false"


@REAL
async def test_of_records_that_come_together_one_counts(
    new_worker: Callable[[], Awaitable[Brokers]], topic: str
) -> None:
    """Whoever writes them. What does not count is mended, so that the last record of the log is one that counts."""
    logs = [LentEpochsLog(await new_worker(), topic) for _ in range(2)]
    for each in logs:
        await ready(each)
    claims = [(log, token) for token in "abcd" for log in logs]
    found = await asyncio.gather(*(log.write(KEY, lent(0, f"{n}{t}")) for n, (log, t) in enumerate(claims)))
    assert found.count(True) == 1
    for each in logs:
        await ready(each)
    winner = next(f"{n}{t}" for (n, (_, t)), counts in zip(enumerate(claims), found, strict=True) if counts)
    await until("it is mended", lambda: all(each.table.mended(KEY) is None for each in logs))
    for each in logs:
        await ready(each)
        known = each.table.lent(KEY)
        assert known is not None
        assert known.claim == EpochClaim(winner, None)
        assert each.late >= len(claims) - 1
        await each.close()


@REAL
async def test_a_log_that_was_deleted_is_made_anew(brokers: Brokers, topic: str) -> None:
    """What was known is forgotten: brokers say then what epochs there are."""
    async with worker(brokers, topic) as one:
        await ready(one)
        assert await one.write(KEY, lent(3))
        await TopicsAdmin(brokers).delete_topic(topic)
        await until("the log is read anew", lambda: one.log.tally.lost == 1)
        await ready(one)
        assert one.table.lent(KEY) is None
        assert await one.write(KEY, lent(0))


@REAL
async def test_a_topic_that_is_not_fit_is_refused_with_what_to_change(brokers: Brokers, topic: str) -> None:
    """Somebody has made it with two partitions; until that is mended, no epochs are lent."""
    await TopicsAdmin(brokers).create_topic(topic, partitions=2, replicas=1, configs={"cleanup.policy": "compact"})
    with pytest.raises(OwnTopicUnfit, match="has 2 partitions"):
        await replace(PRODUCERS, name=topic).ensure(brokers)
    async with worker(brokers, topic) as one:
        with pytest.raises(UpstreamUnavailable):
            await one.read_to_end()
        await until("what is wrong is known", lambda: "has 2 partitions" in (one.problem or ""))


@REAL
@pytest.mark.parametrize(
    ("configs", "said"),
    [
        ({"cleanup.policy": "delete"}, "set it to compact"),
        ({"cleanup.policy": "compact"}, f"min.compaction.lag.ms is below {KEPT_MS}"),
    ],
    ids=["deletes", "compacts at once"],
)
async def test_a_topic_with_other_configs_is_refused(
    brokers: Brokers, topic: str, configs: dict[str, str], said: str
) -> None:
    """Which says what to set."""
    await TopicsAdmin(brokers).create_topic(topic, partitions=1, replicas=1, configs=configs)
    with pytest.raises(OwnTopicUnfit, match=said):
        await replace(PRODUCERS, name=topic).ensure(brokers)


@REAL
async def test_silent_ids_are_forgotten_and_late_records_of_others_mended(
    brokers: Brokers, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a request; all proxies agree on it by the log."""
    monkeypatch.setattr(lent_epochs_log, "_LOOK_SECONDS", 0.05)
    async with worker(brokers, topic) as one:
        await ready(one)
        assert await one.write(KEY, lent(0))
        monkeypatch.setattr("kordon.proxy.ordering.lent_table.TAKE_OVER_SECONDS", 0.0)
        writer = PlainWriter(brokers, topic, "test")
        await writer.append([NewRecord(KEY, dump(lent(0, "late"))), NewRecord(KEY, b"junk")])
        writer.close()
        await until("it is mended", lambda: (known := one.table.lent(KEY)) is not None and known.number > 0)
        assert one.log.tally.unreadable == 1
        monkeypatch.setattr("kordon.proxy.ordering.lent_table.FORGET_MS", 0)
        await until("it is forgotten", lambda: one.table.lent(KEY) is None)


def read(log: LentEpochsLog, key: str, value: bytes | None, fault: str = "", written_ms: int = 1_000) -> None:
    log.log.on_record(Record(key, value, log.log.tally.read, fault=fault, timestamp_ms=written_ms))


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        (KEY, b"junk", ""),
        (KEY, b'{"version": 1}', ""),
        (KEY, b"{" * 5000, ""),
        (KEY, dump(lent(9)), "its batch does not match its checksum"),
        ("epochs/7", dump(lent(9)), ""),
        ("", None, "it is a message of magic 1"),
    ],
    ids=["no JSON", "fields are missing", "too long", "damaged", "no such id", "no batch"],
)
def test_what_cannot_be_read_is_counted_and_passed(key: str, value: bytes | None, fault: str) -> None:
    """Whoever has written it: what is known stays."""
    log = LentEpochsLog(MagicMock())
    read(log, KEY, dump(lent(1)))
    read(log, key, value, fault)
    assert log.log.tally.unreadable == 1
    assert log.table.lent(KEY) == lent(1)


def test_an_id_is_forgotten_by_a_record_without_a_value() -> None:
    """If it was silent for long enough by then; kinds of a later version are passed over."""
    log = LentEpochsLog(MagicMock())
    read(log, KEY, dump(lent(1)))
    read(log, 'others/"orders-writer"', b"anything")
    read(log, KEY, None, written_ms=1_000 + FORGET_MS - 1)
    assert log.table.lent(KEY) == lent(1)
    read(log, KEY, None, written_ms=1_000 + FORGET_MS)
    assert log.table.lent(KEY) is None
    assert log.log.tally.unreadable == 0
