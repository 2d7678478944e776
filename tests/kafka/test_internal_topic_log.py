"""Whether a topic of Kordon's own is there: a broker that has just started may not know it yet."""

import asyncio
from collections.abc import Sequence
from typing import Any, Self, cast
from uuid import UUID

import pytest

from kordon.codecs.error_codes import Code
from kordon.codecs.row import Row
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka import internal_topic_log
from kordon.proxy.kafka.internal_topic_log import InternalTopicLog, LogLost

THERE, ANOTHER = UUID(int=1), UUID(int=2)


class Told:
    """Brokers that answer what a test has them answer: a topic's id, or None if they know no such topic.

    The topic's leader gives nothing, and nothing more once it is `asked`, before the test has it `answer`.
    """

    def __init__(self) -> None:
        self.topic_id: UUID | None = THERE
        self.asked, self.answer = asyncio.Event(), asyncio.Event()

    async def metadata(self, _: Sequence[str]) -> Row:
        code = Code.NONE if self.topic_id else Code.UNKNOWN_TOPIC_OR_PARTITION
        return Row(topics=[Row(error_code=code, topic_id=self.topic_id or UUID(int=0))])

    async def leader(self, *_: object) -> Self:
        return self

    def version(self, *_: object) -> int:
        return 13

    async def ask(self, *_: object) -> Row:
        self.asked.set()
        await self.answer.wait()
        self.answer.clear()
        row = Row(error_code=Code.NONE, high_watermark=0, records=b"", aborted_transactions=None)
        return Row(responses=[Row(partitions=[row])])


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
async def own(told: Told) -> InternalTopicLog:
    """A topic that was there."""
    log = InternalTopicLog(cast("Any", told), "__kordon.layouts", "layouts")
    assert await log.exists()
    return log


async def test_a_broker_that_does_not_know_a_topic_yet_does_not_make_it_a_lost_one(
    told: Told, own: InternalTopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ZooKeeper, a broker answers before its controller has told it of any topic."""
    times = iter((0.0, 4.9, 100.0))
    monkeypatch.setattr(internal_topic_log, "clock", lambda: next(times))
    told.topic_id = None
    for _ in range(2):
        with pytest.raises(UpstreamUnavailable, match="not known to the broker"):
            await own.exists()
    told.topic_id = THERE
    assert await own.exists()
    told.topic_id = None
    with pytest.raises(UpstreamUnavailable):
        await own.exists()


async def test_a_topic_that_stays_missing_is_lost(
    told: Told, own: InternalTopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was made of its records must not be used any longer."""
    times = iter((0.0, 5.0))
    monkeypatch.setattr(internal_topic_log, "clock", lambda: next(times))
    told.topic_id = None
    with pytest.raises(UpstreamUnavailable):
        await own.exists()
    with pytest.raises(LogLost, match="was deleted"):
        await own.exists()


async def test_a_topic_that_its_leader_still_gives_is_not_missing(
    told: Told, own: InternalTopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one broker did not know an hour ago is no reason to give the topic up when another one starts."""
    times = iter((0.0, 3_600.0))
    monkeypatch.setattr(internal_topic_log, "clock", lambda: next(times))
    following = asyncio.ensure_future(own.follow(lambda _: None))
    await told.asked.wait()
    told.topic_id = None
    with pytest.raises(UpstreamUnavailable):
        await own.exists()
    told.asked.clear()
    told.answer.set()
    await told.asked.wait()
    with pytest.raises(UpstreamUnavailable):
        await own.exists()
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_a_topic_that_was_made_again_is_lost_at_once(told: Told, own: InternalTopicLog) -> None:
    """Its id says so."""
    told.topic_id = ANOTHER
    with pytest.raises(LogLost, match="was deleted"):
        await own.exists()
