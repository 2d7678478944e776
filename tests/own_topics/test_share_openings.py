"""Which share groups are older than their log: what opens a partition of it, and what such groups begin with."""

import asyncio
from types import SimpleNamespace
from typing import cast
from unittest.mock import AsyncMock
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from kordon.codecs.error_codes import Code
from kordon.codecs.row import Row
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.group_offsets import GroupOffsets, ListedGroup
from kordon.proxy.ordering.claim_records import key_of
from kordon.proxy.ordering.claims import Done, PlaceKey, Start
from kordon.proxy.ordering.share.lock_records import KIND, dump, dump_opening, load_opening
from kordon.proxy.ordering.share.opening import Opening
from kordon.proxy.own_topics import share_groups, share_opening
from kordon.proxy.own_topics.logs_of_groups import LogsOfGroups, partition_of
from kordon.proxy.own_topics.share_groups import ShareGroups
from kordon.proxy.own_topics.share_log import ShareLog
from kordon.proxy.runtime.tasks import Tasks
from kordon.testing.share_log_in_memory import SharedRecords, ShareLogInMemory
from kordon.testing.waiting import turns

# pyright: reportPrivateUsage=false


async def test_a_log_is_opened_once_with_the_groups_that_there_are() -> None:
    """Before any group begins; groups that come later are not named, whoever reads it (OLD-GROUP)."""
    records, work = SharedRecords(), Tasks()
    one, other = ShareLogInMemory(records, "one"), ShareLogInMemory(records, "other")
    with pytest.raises(UpstreamUnavailable, match="older than"):
        await one.opening.known(0.0)
    one.older.add("old")
    one.caught_up(work)
    await other.opening.known(60)
    one.older.add("new")
    for each in (one, other):
        each.caught_up(work)
        assert (each.opening.begins_at_earliest("old"), each.opening.begins_at_earliest("new")) == (True, False)
    assert len(records.records) == 1
    assert ShareLogInMemory(records, "late").opening.begins_at_earliest("old")
    await work.stop()


async def test_a_log_that_was_lost_knows_all_groups_as_older() -> None:
    """What they had done is not known, and nothing is to be skipped."""
    records, work = SharedRecords(), Tasks()
    log = ShareLogInMemory(records)
    log.caught_up(work)
    await log.opening.known(60)
    records.records.clear()
    log.forget()
    with pytest.raises(UpstreamUnavailable):
        await log.opening.known(0.0)
    log.older.add("workers")
    log.caught_up(work)
    await log.opening.known(60)
    assert log.opening.begins_at_earliest("workers")
    await work.stop()


async def test_no_group_begins_while_brokers_do_not_list_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried again, and told."""
    monkeypatch.setattr(share_opening, "_RETRY_SECONDS", 0.0)
    log, work, failed = ShareLogInMemory(SharedRecords()), Tasks(), asyncio.Event()

    async def away(partition: int) -> list[str]:
        if failed.is_set():
            return []
        failed.set()
        raise UpstreamUnavailable("away")

    log.opening._older = lambda: away(0)
    with capture_logs() as lines:
        log.caught_up(work)
        await log.opening.known(60)
    assert [line["event"] for line in lines] == ["share_groups_not_opened"]
    await work.stop()


async def test_no_group_begins_before_its_log_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks is told to come again."""
    log = ShareLogInMemory(SharedRecords())

    async def of_group(_: LogsOfGroups[ShareLog], group_id: str) -> ShareLog:
        return log

    monkeypatch.setattr(LogsOfGroups, "of_group", of_group)
    monkeypatch.setattr(share_groups, "LOAD_SECONDS", 0.0)
    shares = ShareGroups(cast("Brokers", None), "w")
    with pytest.raises(UpstreamUnavailable, match="older than"):
        await shares.of_group("workers")
    work = Tasks()
    log.caught_up(work)
    await log.opening.known(60)
    assert await shares.of_group("workers") is log
    await work.stop()


async def test_a_log_is_made_before_anybody_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first member's group would be older than the log; where there is a log it is left alone."""
    missing = {"error_code": Code.UNKNOWN_TOPIC_OR_PARTITION}
    visits: list[object] = []

    async def visit(_: LogsOfGroups[ShareLog], do: object) -> None:
        visits.append(do)

    monkeypatch.setattr(LogsOfGroups, "visit", visit)
    for found, count in ((missing, 1), ({"error_code": 0}, 1)):
        brokers = SimpleNamespace(metadata=AsyncMock(return_value=Row(topics=[Row(**found)])))
        await ShareGroups(cast("Brokers", brokers), "w").prepare()
        assert len(visits) == count
    brokers = SimpleNamespace(metadata=AsyncMock(side_effect=UpstreamUnavailable("away")))
    with capture_logs() as lines:
        await ShareGroups(cast("Brokers", brokers), "w").prepare()
    assert [line["event"] for line in lines] == ["share_groups_not_prepared"]


async def test_of_all_groups_those_of_the_partition_are_older(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers are asked after whoever wants to know has asked, once for all who ask meanwhile."""
    asked: list[asyncio.Future[list[ListedGroup]]] = []

    def groups(_: GroupOffsets) -> asyncio.Future[list[ListedGroup]]:
        asked.append(asyncio.get_running_loop().create_future())
        return asked[-1]

    monkeypatch.setattr(GroupOffsets, "groups", groups)
    shares = ShareGroups(cast("Brokers", None), "w")
    first = asyncio.ensure_future(shares._older(partition_of("a", 50)))
    await turns()
    later = [asyncio.ensure_future(shares._older(partition_of(each, 50))) for each in "ab"]
    asked[0].set_result([ListedGroup("a", 1, "Share"), ListedGroup("c", 1, "Consumer")])
    assert await first == ["a"]
    await turns()
    assert len(asked) == 2
    asked[1].set_result([ListedGroup(each, 1, "Share") for each in "ab"])
    assert [await each for each in later] == [["a"], ["b"]]


def test_an_opening_that_cannot_be_read_opens_nothing() -> None:
    """It is counted, and another one is written; later versions are passed over, and so is what has taken one out."""
    records = SharedRecords()
    log = ShareLogInMemory(records)
    for value in (b"", b"\x01\x05", b"\x01\x05[1]", b"\x01\x05[" + b'"x",' * 400_000, b"\x02\x05[]", None):
        records.put("opening/x", value)
    assert (log.opening.is_known, log.log.tally.unreadable) == (False, 4)
    records.put("opening/y", dump_opening(Opening(frozenset(["a", "ü"]))))
    assert log.opening.begins_at_earliest("ü")
    assert load_opening(dump(Start(1, 0, Done(0)))) is None
    with pytest.raises(ValueError, match="groups take"):
        dump_opening(Opening(frozenset(f"{number:0900}" for number in range(1000))))


def test_an_opening_holds_up_no_record_of_a_group() -> None:
    """They stand in one log."""
    records = SharedRecords()
    log, place = ShareLogInMemory(records), PlaceKey("workers", UUID(int=1), 0)
    records.put("opening/y", dump_opening(Opening(frozenset())))
    records.put(key_of(place, "w", 1, KIND), dump(Start(1, 0, Done(7))))
    assert (log.state_of(place).done.stable, log.read_to) == (7, 2)
