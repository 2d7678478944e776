"""How a member takes source partitions and gives them up, with a group and transactions in memory."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

import pytest
from aiokafka.errors import (
    CommitFailedError,
    GroupLoadInProgressError,
    IllegalOperation,
    KafkaConnectionError,
    ProducerFenced,
    TopicAuthorizationFailedError,
)

from kordon.client import SourceRebalancedError, SourceRebalanceListener
from kordon.client.sources.holding import Holding
from kordon.client.sources.outgoing import NotCommitted, Outgoing
from kordon.client.sources.settings import SourceSettings
from kordon.client.sources.store import PointStore, SourceMember
from kordon.codecs.source_points import Point
from kordon.testing.waiting import turns, until

DEAD = "d" * 32
MEMBER = SourceMember("me", 4)


class Group:
    """The records of a group, and what was asked for in which order."""

    def __init__(self) -> None:
        self.records: dict[int, Point] = {}
        self.log: list[str] = []
        self.fenced: set[str] = set()
        self.unsettled_until_fenced = False
        self.raises: dict[str, list[BaseException]] = {}

    def did(self, what: str) -> None:
        self.log.append(what)
        if self.raises.get(what):
            raise self.raises[what].pop(0)

    async def read(self, partitions: Collection[int], *, settled: bool) -> dict[int, Point] | None:
        self.did("settled" if settled else "read")
        if settled and self.unsettled_until_fenced and "fence" not in self.log:
            return None
        return {each: self.records[each] for each in partitions if each in self.records}

    async def write(self, points: Mapping[int, Point], member: SourceMember) -> None:
        if points:
            self.did("released" if all(not each.owner for each in points.values()) else "claimed")
            assert member == MEMBER
            self.records.update(points)

    async def confirm(self, member: SourceMember) -> None:
        assert member == MEMBER
        self.did("confirmed")

    async def fence(self, owners: Collection[str], seconds: float) -> None:
        assert seconds > 0
        self.fenced |= set(owners)
        self.did("fence")


class Written(Outgoing):
    """Transactions that are committed into a group's records."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self.owner = f"{1:032x}"
        self._points: Mapping[int, Point] = {}

    async def renew(self) -> None:
        self._group.did("renewed")
        self.owner = f"{int(self.owner, 16) + 1:032x}"

    async def begin(self) -> None:
        self._group.did("begun")

    async def put(self, points: Mapping[int, Point], member: SourceMember) -> None:
        assert member == MEMBER
        self._group.did("put")
        self._points = points

    async def commit(self) -> None:
        self._group.did("committed")
        self._group.records.update(self._points)

    async def abort(self) -> None:
        self._group.did("aborted")


class Noted(SourceRebalanceListener):
    """What an application is told."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self.at_revocation: Callable[[], Any] | None = None

    async def on_source_partitions_revoked(self, revoked: Collection[int]) -> None:
        self._group.did(f"told to give up {list(revoked)}")
        if self.at_revocation is not None:
            await self.at_revocation()

    def on_source_partitions_assigned(self, points: Mapping[int, str | None]) -> None:
        self._group.did(f"told to take {dict(points)}")


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
def holding(group: Group) -> Holding:
    settings = SourceSettings("g", 3, 6_000, drain_timeout_ms=200)
    made = Holding(settings, cast(PointStore, group), Written(group), lambda: group.did("rejoin"))
    made.listener = Noted(group)
    return made


async def taken(holding: Holding, *partitions: int) -> None:
    """Has it take partitions, and waits until it may write."""
    holding.take(MEMBER, partitions)
    await holding.ready()


async def test_partitions_are_taken_and_given_up_step_by_step(group: Group, holding: Holding) -> None:
    """Who stands on record is fenced before points are read; the own id is on record before anything is written."""
    group.records[0], group.unsettled_until_fenced = Point(7, "x", DEAD), True
    await taken(holding, 0, 1)
    begun = await holding.begin()
    holding.work.restart_at(begun, {0: "y"})
    await holding.work.commit(begun)
    assert holding.points == {0: "y", 1: None}
    assert group.fenced == {DEAD}
    await holding.give_up(is_member=True)
    took = ["read", "confirmed", "fence", "settled", "claimed", "told to take {0: 'x', 1: None}"]
    assert group.log == [*took, "begun", "put", "committed", "told to give up [0, 1]", "released"]
    assert (group.records[0].number, group.records[0].text, group.records[0].owner) == (8, "y", "")
    assert group.records[1] == Point()


async def test_whoever_is_no_member_any_more_fences_nobody(group: Group, holding: Holding) -> None:
    """It may have read the id of who owns the partition now (MEMBER-FENCES)."""
    group.records[0], group.raises["confirmed"] = Point(7, "x", DEAD), [CommitFailedError()]
    holding.take(MEMBER, [0])
    await until("it joins again", lambda: "rejoin" in group.log)
    assert group.log == ["read", "confirmed", "rejoin"]


async def test_it_waits_until_points_are_settled(group: Group, holding: Holding) -> None:
    """An open transaction of who may not be fenced ends by itself (SETTLED-POINT)."""
    group.unsettled_until_fenced = True
    holding.take(MEMBER, [0])
    await until("it has asked again", lambda: group.log.count("settled") > 2)
    assert "claimed" not in group.log
    group.unsettled_until_fenced = False
    await holding.ready()


async def test_a_transaction_ends_before_its_partitions_are_given_up(group: Group, holding: Holding) -> None:
    """By the application, within its time (ENDED-FIRST); the listener may do it."""
    await taken(holding, 0)
    begun = await holding.begin()
    listener = holding.listener
    assert isinstance(listener, Noted)
    listener.at_revocation = lambda: holding.work.commit(begun)
    await holding.give_up(is_member=True)
    assert group.log[-3:] == ["put", "committed", "released"]


async def test_a_transaction_that_goes_on_is_aborted(group: Group, holding: Holding) -> None:
    """The application is told at its next call, and can begin again with the next assignment."""
    await taken(holding, 0)
    begun = await holding.begin()
    await holding.give_up(is_member=True)
    assert group.log[-2:] == ["aborted", "released"]
    for _ in range(2):
        with pytest.raises(SourceRebalancedError, match="begin another one"):
            holding.work.restart_at(begun, {0: "y"})
    await holding.work.abort(begun)
    await taken(holding, 1)
    await holding.work.commit(await holding.begin())
    assert "renewed" not in group.log


async def test_nothing_begins_while_partitions_are_given_up(group: Group, holding: Holding) -> None:
    """It waits for the next assignment, and gets the points of that."""
    await taken(holding, 0)
    await holding.give_up(is_member=True)
    beginning = asyncio.ensure_future(holding.begin())
    await turns()
    assert not beginning.done()
    group.records[1] = Point(3, "z")
    await taken(holding, 1)
    await beginning
    assert holding.points == {1: "z"}


async def test_whoever_was_thrown_out_takes_another_id(group: Group, holding: Holding) -> None:
    """Its own may be fenced at any time; it writes nothing more, and waits for nothing (ID-ONCE)."""
    await taken(holding, 0)
    await holding.begin()
    await holding.give_up(is_member=False)
    assert group.log[-2:] == ["told to give up [0]", "aborted"]
    assert "released" not in group.log
    await taken(holding, 0)
    assert "renewed" in group.log
    assert group.fenced == {f"{1:032x}"}, "its former id is one of the dead"


@pytest.mark.parametrize("error", [ProducerFenced(), KafkaConnectionError(), TopicAuthorizationFailedError()])
async def test_of_a_commit_without_an_answer_the_record_decides(
    group: Group, holding: Holding, error: BaseException
) -> None:
    """Nothing is taken off the record by who does not know what stands there (ID-ONCE)."""
    await taken(holding, 0)
    begun = await holding.begin()
    holding.work.restart_at(begun, {0: "y"})
    group.raises["committed"] = [error]
    expected = SourceRebalancedError if isinstance(error, ProducerFenced) else type(error)
    with pytest.raises(expected):
        await holding.work.commit(begun)
    assert group.log[-1] == "rejoin"
    await holding.give_up(is_member=True)
    assert "released" not in group.log
    await taken(holding, 0)
    assert "renewed" in group.log


async def test_what_is_known_not_to_be_committed_costs_no_id(group: Group, holding: Holding) -> None:
    """A record failed: the transaction is aborted, the error told, and the next one goes on."""
    await taken(holding, 0)
    begun = await holding.begin()
    why = NotCommitted()
    why.__cause__ = TopicAuthorizationFailedError()
    group.raises["committed"] = [why]
    with pytest.raises(TopicAuthorizationFailedError):
        await holding.work.commit(begun)
    assert group.log[-2:] == ["committed", "aborted"]
    await holding.work.commit(await holding.begin())


async def test_a_point_that_the_group_refuses_ends_the_transaction(group: Group, holding: Holding) -> None:
    """Data that were sent with it are aborted (POINT-WITH-DATA), and this member joins again (NAMED-GENERATION)."""
    await taken(holding, 0)
    begun = await holding.begin()
    holding.work.restart_at(begun, {0: "y"})
    group.raises["put"] = [CommitFailedError()]
    with pytest.raises(SourceRebalancedError):
        await holding.work.commit(begun)
    assert group.log[-3:] == ["put", "aborted", "rejoin"]
    assert group.records[0].number == 0


@pytest.mark.parametrize("error", [ProducerFenced(), IllegalOperation("the transaction has failed")])
async def test_a_producer_that_is_over_lets_the_application_begin_again(
    group: Group, holding: Holding, error: BaseException
) -> None:
    """With the next assignment, under another id."""
    await taken(holding, 0)
    group.raises["begun"] = [error]
    with pytest.raises(SourceRebalancedError):
        await holding.begin()
    assert group.log[-1] == "rejoin"
    await holding.give_up(is_member=True)
    await taken(holding, 0)
    assert "renewed" in group.log
    await holding.begin()


@pytest.mark.parametrize("error", [ProducerFenced(), IllegalOperation("the transaction has failed")])
async def test_an_abort_that_fails_costs_an_id(group: Group, holding: Holding, error: BaseException) -> None:
    """Whoever gets the partitions fences what may be open."""
    await taken(holding, 0)
    group.raises["aborted"] = [error]
    await holding.work.abort(await holding.begin())
    assert group.log[-1] == "rejoin"
    await holding.give_up(is_member=True)
    assert "released" not in group.log


async def test_a_release_that_is_not_acknowledged_costs_an_id(group: Group, holding: Holding) -> None:
    """It may have stayed on record (ID-ONCE)."""
    await taken(holding, 0)
    group.raises["released"] = [KafkaConnectionError()]
    await holding.give_up(is_member=True)
    await taken(holding, 0)
    assert "renewed" in group.log


async def test_what_keeps_it_from_its_partitions_is_told(group: Group, holding: Holding) -> None:
    """To whoever begins a transaction; what passes is tried again."""
    group.raises["read"] = [GroupLoadInProgressError(), TopicAuthorizationFailedError()]
    holding.take(MEMBER, [0])
    for _ in range(2):
        with pytest.raises(TopicAuthorizationFailedError):
            await holding.begin()
    assert group.log == ["read", "read"]
    await holding.give_up(is_member=True)
    await taken(holding, 0)


async def test_the_application_is_told_what_it_does_wrong(holding: Holding) -> None:
    """Before anything is sent."""
    with pytest.raises(IllegalOperation, match="no transaction is open: begin one first"):
        holding.work.restart_at(None, {0: "x"})
    await taken(holding, 0)
    begun = await holding.begin()
    with pytest.raises(IllegalOperation, match="a transaction is open: commit or abort it"):
        await holding.begin()
    with pytest.raises(IllegalOperation, match=r"source partition 2 is not this producer's, which has \[0\]"):
        holding.work.restart_at(begun, {2: "x"})
    with pytest.raises(ValueError, match="at most 4,000 bytes"):
        holding.work.restart_at(begun, {0: "x" * 4_001})
    await holding.work.abort(begun)
    with pytest.raises(IllegalOperation, match="no transaction is open"):
        await holding.work.commit(begun)


async def test_whoever_cannot_write_is_told_why(group: Group, holding: Holding) -> None:
    """That the transaction is over, if another has fenced it or it was aborted; any other error as it is."""
    with pytest.raises(IllegalOperation, match="no transaction is open"):
        holding.work.writing()
    await taken(holding, 0)
    begun = await holding.begin()
    assert holding.work.writing() is begun
    other = IllegalOperation("other")
    assert holding.work.judge(begun, other) is other
    fenced = IllegalOperation("the transaction has failed")
    fenced.__cause__ = ProducerFenced()
    for error in (ProducerFenced(), fenced):
        assert isinstance(holding.work.judge(begun, error), SourceRebalancedError)
        assert group.log[-1] == "rejoin"
    await holding.give_up(is_member=True)
    await taken(holding, 0)
    begun = await holding.begin()
    await holding.give_up(is_member=True)
    assert isinstance(holding.work.judge(begun, other), SourceRebalancedError)


async def test_a_listener_that_fails_harms_nothing(
    group: Group, holding: Holding, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged; one that takes too long is left alone."""
    group.raises["told to take {0: None}"] = [RuntimeError("oh")]
    await taken(holding, 0)
    assert "on_source_partitions_assigned has failed" in caplog.text
    listener = holding.listener
    assert isinstance(listener, Noted)
    listener.at_revocation = lambda: asyncio.sleep(3600)
    await holding.give_up(is_member=True)
    assert "on_source_partitions_revoked took longer than drain_timeout_ms" in caplog.text
    assert group.log[-1] == "released"


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"group_id": ""}, "`group_id` is needed"),
        ({"source_partition_count": 0}, "`source_partition_count` should be an integer from 1 to 10,000, not 0"),
        ({"source_partition_count": True}, "`source_partition_count` should be an integer"),
        ({"session_timeout_ms": 10}, "`session_timeout_ms` should be an integer from 1000 to 1,800,000, not 10"),
        ({"heartbeat_interval_ms": 10_001}, "`heartbeat_interval_ms` should be an integer from 1 to 10,000"),
        ({"drain_timeout_ms": 30_000}, "`drain_timeout_ms` should be an integer from 0 to 29,999"),
        ({"group_id": "a group"}, "no topic can be named 'a group': give `source_topic`"),
        ({"source_topic": ".."}, r"no topic can be named '\.\.'"),
    ],
)
def test_options_out_of_their_range_are_refused(told: dict[str, Any], why: str) -> None:
    """With the range, or the cure."""
    settings: dict[str, Any] = {"group_id": "g", "source_partition_count": 3, **told}
    with pytest.raises(ValueError, match=why):
        SourceSettings(**settings)


def test_a_group_hears_of_a_member_at_least_once_a_second() -> None:
    """A survivor learns of a death by its heartbeat, so the time to take over rests on it."""
    assert SourceSettings("g", 3, 30_000).heartbeat_ms == 1_000
    assert SourceSettings("g", 3, 3_000).heartbeat_ms == 500
    assert SourceSettings("g", 3, 30_000, heartbeat_interval_ms=200).heartbeat_ms == 200
