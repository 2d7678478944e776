"""Commits of single offsets: what the coordinator is asked, what is written to the log, and what clients are told."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast
from uuid import UUID

import pytest

from kordon.codecs import apis
from kordon.codecs.decision import Kind
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import request, response
from kordon.codecs.ranges import Range, Ranges, load
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.core.interception import Confer
from kordon.proxy.core.verdicts import Route
from kordon.proxy.handlers import individual_offset_commit
from kordon.proxy.handlers.individual_offset_commit import IndividualOffsetCommit
from kordon.proxy.handlers.individual_offset_fetch import IndividualOffsetFetch
from kordon.proxy.handlers.offset_commit import OffsetCommit
from kordon.proxy.handlers.offset_fetch import OffsetFetch
from kordon.proxy.ordering.claims import Claim, Claims, Done, Place, PlaceKey, Said, Start
from kordon.proxy.ordering.commit_marks import marked, read_mark
from kordon.proxy.own_topics.compacted_topic import OwnTopicUnfit
from kordon.proxy.own_topics.individual_commits import IndividualCommits
from kordon.proxy.runtime.clock import now_ms
from kordon.proxy.topics.managed_topics import ManagedTopics
from kordon.proxy.topics.names import NO_ID
from kordon.testing.handled import guard_of, route_of
from kordon.testing.messages.as_read import as_read
from kordon.testing.noted import Noted

GROUP, TOPIC, TOPIC_ID = "readers", "plain", UUID(int=77)
PLACE = PlaceKey(GROUP, TOPIC_ID, 0)
LIFE = 11
"""An incarnation that stands in the log."""


class MemoryLog:
    """A log of claims without brokers, which reads back at once."""

    def __init__(self, happened: list[str]) -> None:
        self.life = 0
        self.claims = Claims()
        self.written: list[tuple[PlaceKey, Said]] = []
        self.written_at: list[int] = []
        """How far the log had been read when records were made."""
        self.fails: set[str] = set()
        self._happened = happened
        self.read_to = 0

    def put(self, place: PlaceKey, said: Said) -> None:
        self.claims.apply(place, f"k-{self.read_to}", self.read_to, said, timestamp_ms=now_ms())
        self.read_to += 1

    def of(self, place: PlaceKey) -> Place:
        return self.claims.of(place)

    async def read_to_end(self) -> None:
        self._note("read")

    async def write(self, said: Iterable[tuple[PlaceKey, Said]], read_to: int) -> None:
        self._note("write")
        self.written_at.append(read_to)
        for place, each in said:
            self.written.append((place, each))
            self.put(place, each)

    def _note(self, what: str) -> None:
        self._happened.append(what)
        if what in self.fails:
            raise UpstreamUnavailable("away")


class Logs:
    """All groups have one log."""

    def __init__(self, log: MemoryLog) -> None:
        self.outcomes: Counter[str] = Counter()
        self.is_full = False
        self.is_wanted = True
        self.read: bool = True
        self.opened = 0
        """How often a log was asked for."""
        self.error: Exception | None = None
        self._log = log

    def is_read(self, group_id: str) -> bool:
        return self.read

    async def of_group(self, group_id: str) -> MemoryLog:
        self.opened += 1
        if self.error is not None:
            raise self.error
        return self._log


class Stage:
    """A client, its coordinator, and a worker that takes individual commits."""

    def __init__(self) -> None:
        self.happened: list[str] = []
        self.log = MemoryLog(self.happened)
        self.logs = Logs(self.log)
        self.noted = Noted()
        journal = self.noted.journal
        logs = cast(IndividualCommits, self.logs)
        commit = IndividualOffsetCommit(OffsetCommit(), logs, journal)
        fetch = IndividualOffsetFetch(OffsetFetch(takes_marks_off=True), logs)
        self.guard = guard_of(ManagedTopics(), [commit, fetch], journal=journal)
        self.committed: dict[int, tuple[int, str]] = {}
        """By partition, what the coordinator has."""
        self.commit_code = self.heartbeat_code = Code.NONE
        self.ids = {TOPIC: TOPIC_ID}
        self.sent: list[Any] = []
        """OffsetCommit requests that the coordinator got."""
        self.before: dict[int, list[Callable[[], None]]] = {}
        """By api key, what happens before the next answers."""

    async def ask(self, route: Route, body: bytes) -> Any:
        key = route.api.key
        self.happened.append(route.api.name)
        for happens in self.before.get(key, [])[:1]:
            self.before[key].pop(0)
            happens()
        value = request(key).at(route.version).parse(body)[0]
        answers: Mapping[int, Callable[[Any], Mapping[str, Any]]] = {
            apis.METADATA: self._metadata,
            apis.HEARTBEAT: self._heartbeat,
            apis.OFFSET_COMMIT: self._commit,
            apis.OFFSET_FETCH: self._fetch,
        }
        return as_read(response(key), route.version, answers[key](value))

    def _heartbeat(self, value: Any) -> Mapping[str, Any]:
        assert value.member_id == ""
        return {"error_code": self.heartbeat_code}

    def _metadata(self, value: Any) -> Mapping[str, Any]:
        rows = [
            {"error_code": 0, "name": each.name, "topic_id": self.ids[each.name], "partitions": []}
            for each in value.topics
            if each.name in self.ids
        ]
        return {"brokers": [], "topics": rows, "controller_id": 1}

    def _commit(self, value: Any) -> Mapping[str, Any]:
        self.sent.append(value)
        topics = []
        for topic in value.topics:
            rows = [
                {"partition_index": row.partition_index, "error_code": self.commit_code} for row in topic.partitions
            ]
            topics.append({"name": topic.get("name", ""), "topic_id": topic.get("topic_id", NO_ID), "partitions": rows})
            if not self.commit_code:
                for row in topic.partitions:
                    self.committed[row.partition_index] = (row.committed_offset, row.committed_metadata)
        return {"topics": topics}

    def _fetch(self, value: Any) -> Mapping[str, Any]:
        groups = []
        for group in value.groups:
            asked = group.topics if group.topics is not None else [_Asked(TOPIC, list(self.committed))]
            topics = [
                {"name": each.name, "partitions": [self._row(p) for p in each.partition_indexes]} for each in asked
            ]
            groups.append({"group_id": group.group_id, "topics": topics, "error_code": 0})
        return {"groups": groups}

    def _row(self, partition: int) -> Mapping[str, Any]:
        offset, metadata = self.committed.get(partition, (-1, ""))
        return {"partition_index": partition, "committed_offset": offset, "metadata": metadata, "error_code": 0}

    async def answer(self, key: int, fields: Mapping[str, Any], version: int = 8) -> Any:
        """Returns the answer; None: nobody confers on it."""
        route = route_of(key, version)
        assert self.guard.wants(route)
        decision = self.guard.decide(route, memoryview(bytearray(request(key).build(version, fields))))
        if not isinstance(decision, Confer):
            return None
        answer = await decision.answer(self.ask)
        assert isinstance(answer, bytes)
        return response(key).parse(version, answer)

    async def commit(self, *rows: Mapping[str, Any], topic: str = TOPIC) -> Any:
        """Returns the code and stable offset of each row."""
        fields = {"group_id": GROUP, "generation_id_or_member_epoch": 3, "member_id": "m"}
        answer = await self.answer(
            apis.OFFSET_COMMIT, {**fields, "topics": [{"name": topic, "partitions": list(rows)}]}
        )
        if answer is None:
            return None
        ((*told,),) = (each.partitions for each in answer.topics)
        return [(row.error_code, row.last_stable_offset) for row in told]

    async def fetch(self, partitions: list[int] | None = None, *, with_ranges: bool = True) -> Any:
        """Returns the rows of the group's topic."""
        topics = None if partitions is None else [{"name": TOPIC, "partition_indexes": partitions}]
        fields = {"groups": [{"group_id": GROUP, "topics": topics}], "require_stable": True, "with_ranges": with_ranges}
        answer = await self.answer(apis.OFFSET_FETCH, fields)
        if answer is None:
            return None
        return {row.partition_index: row for topic in answer.groups[0].topics for row in topic.partitions}


class _Asked:
    def __init__(self, name: str, partition_indexes: list[int]) -> None:
        self.name = name
        self.partition_indexes = partition_indexes


def row(stable: int, *ranges: Range, partition: int = 0, incarnation: int = LIFE, text: str = "t") -> dict[str, Any]:
    return {
        "partition_index": partition,
        "committed_offset": stable,
        "committed_leader_epoch": 4,
        "committed_metadata": text,
        "offset_ranges": Ranges(ranges).dump(),
        "incarnation": incarnation,
    }


def done(stable: int, *ranges: Range) -> Done:
    return Done(stable, Ranges(ranges))


@pytest.fixture
def stage() -> Stage:
    """The group has done all before 10, and 12 and 13."""
    found = Stage()
    found.log.put(PLACE, Start(LIFE, 0, done(10, (12, 14))))
    found.committed[0] = (8, marked("t", PLACE, 8, LIFE))
    return found


async def test_the_coordinator_is_asked_first_and_given_what_is_stable(stage: Stage) -> None:
    """In its own words: it does not see ranges, and the leader epoch is of another offset."""
    assert await stage.commit(row(9, (10, 12), (20, 21))) == [(Code.NONE, 14)]
    assert stage.happened == ["Metadata", "OffsetCommit", "write"]
    ((sent,),) = (topic.partitions for topic in stage.sent[0].topics)
    assert (sent.committed_offset, sent.committed_leader_epoch) == (10, -1)
    assert (sent.offset_ranges, sent.incarnation) == (b"", 0)
    assert read_mark(sent.committed_metadata, PLACE, 10) == ("t", LIFE)
    assert stage.log.written == [(PLACE, Claim(LIFE, done(-1, (10, 12), (20, 21))))]
    assert stage.logs.outcomes == {"taken": 1}


async def test_a_topic_may_be_named_by_its_id(stage: Stage) -> None:
    """As clients of Kafka 4.1 do; nobody has to be asked for it."""
    fields = {"group_id": GROUP, "generation_id_or_member_epoch": 3, "member_id": "m"}
    topics = [{"topic_id": TOPIC_ID, "partitions": [row(9, (10, 12))]}]
    answer = await stage.answer(apis.OFFSET_COMMIT, {**fields, "topics": topics}, 10)
    (told,) = answer.topics
    assert (told.topic_id, told.partitions[0].error_code, told.partitions[0].last_stable_offset) == (TOPIC_ID, 0, 14)
    assert stage.happened == ["OffsetCommit", "write"]


async def test_what_says_nothing_new_is_not_written(stage: Stage) -> None:
    """The coordinator hears it, as its members' commits keep their offsets from expiring."""
    assert await stage.commit(row(10, (12, 14))) == [(Code.NONE, 10)]
    assert stage.happened == ["Metadata", "OffsetCommit"]


@pytest.mark.parametrize("code", [Code.ILLEGAL_GENERATION, Code.GROUP_AUTHORIZATION_FAILED, Code.NOT_COORDINATOR])
async def test_whoever_the_coordinator_refuses_writes_nothing(stage: Stage, code: Code) -> None:
    """It alone knows generation, member and rights."""
    stage.commit_code = code
    assert await stage.commit(row(11)) == [(code, -1)]
    assert stage.log.written == []
    assert stage.logs.outcomes == {"refused": 1}


async def test_a_reset_that_comes_between_the_verdict_and_the_log_voids_the_commit(stage: Stage) -> None:
    """A claim bears the incarnation that its member was told, and that is over."""
    stage.before[apis.OFFSET_COMMIT] = [lambda: stage.log.put(PLACE, Start(12, LIFE, done(0)))]
    assert await stage.commit(row(11)) == [(Code.INDIVIDUAL_COMMIT_TOO_OLD, -1)]
    assert stage.log.written == []


async def test_who_was_told_of_an_earlier_incarnation_is_told_so_before_the_coordinator_is_asked(stage: Stage) -> None:
    """Once the log was read to its end: another proxy may have begun the one that its member names."""
    assert await stage.commit(row(11, incarnation=5)) == [(Code.INDIVIDUAL_COMMIT_TOO_OLD, -1)]
    assert stage.happened == ["Metadata", "Heartbeat", "read"]


@pytest.mark.parametrize("is_read", [True, False], ids=["the log is read", "the log is not read"])
async def test_who_may_not_read_the_group_makes_nobody_read_anything(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, *, is_read: bool
) -> None:
    """Neither ranges nor the log, whatever incarnation is made up."""
    monkeypatch.setattr(individual_offset_commit, "load", None)
    stage.heartbeat_code, stage.logs.read = Code.GROUP_AUTHORIZATION_FAILED, is_read
    asked = row(9, (10, 12), incarnation=5)
    assert await stage.commit(asked) == [(Code.GROUP_AUTHORIZATION_FAILED, -1)]
    assert stage.happened == ["Metadata", "Heartbeat"]
    assert stage.logs.opened == is_read
    assert await stage.commit(asked, topic="other") == [(Code.GROUP_AUTHORIZATION_FAILED, -1)]


async def test_a_member_whose_proxy_does_not_read_the_log_yet_is_taken(stage: Stage) -> None:
    """It has another proxy than the one that has told it where the group stands."""
    stage.logs.read = False
    assert await stage.commit(row(9, (10, 12))) == [(Code.NONE, 14)]
    assert stage.happened == ["Metadata", "Heartbeat", "OffsetCommit", "write"]


@pytest.mark.parametrize("wrong", [{"incarnation": -1}, {"committed_offset": -5}])
async def test_a_broker_sees_each_request_before_it_is_answered(stage: Stage, wrong: Mapping[str, Any]) -> None:
    """It ends the connection of who has not logged in; and so it does where no row is left for the coordinator."""
    assert await stage.commit({**row(9, (10, 12)), **wrong}) == [(Code.INVALID_REQUEST, -1)]
    assert stage.happened == ["Heartbeat"]


async def test_a_proxy_that_takes_none_says_so_where_others_do(stage: Stage) -> None:
    """Its coordinator would be told an offset without a mark, and the group would begin anew."""
    stage.logs.error = OwnTopicUnfit("ordering.individual_commits is not set")
    assert await stage.commit(row(9, (10, 12))) == [(Code.INDIVIDUAL_COMMIT_NOT_ALLOWED, -1)]
    assert (stage.sent, stage.logs.outcomes) == ([], {"not_allowed": 1})
    stage.logs.is_wanted = False
    assert await stage.commit(row(9, (10, 12))) is None


async def test_a_log_that_is_lost_meanwhile_tells_nothing(stage: Stage) -> None:
    """What was made of it counts for nothing."""

    def lose() -> None:
        stage.log.life += 1

    stage.before[apis.OFFSET_COMMIT] = [lose]
    assert await stage.commit(row(11)) == [(Code.COORDINATOR_LOAD_IN_PROGRESS, -1)]
    assert stage.logs.outcomes == {"unavailable": 1}


async def test_a_log_that_cannot_be_written_is_no_success(stage: Stage) -> None:
    """The member sends it again."""
    stage.log.fails = {"write"}
    assert await stage.commit(row(11)) == [(Code.COORDINATOR_NOT_AVAILABLE, -1)]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UpstreamUnavailable("not read yet"), Code.COORDINATOR_LOAD_IN_PROGRESS),
        (OwnTopicUnfit("no ids"), Code.INDIVIDUAL_COMMIT_NOT_ALLOWED),
    ],
)
async def test_without_a_log_stock_rows_of_a_request_are_committed_all_the_same(
    stage: Stage, error: Exception, code: Code
) -> None:
    """They have nothing to do with it."""
    stage.logs.error = error
    stock = {"partition_index": 1, "committed_offset": 7, "committed_metadata": "s"}
    assert await stage.commit(row(11), stock) == [(code, -1), (Code.NONE, -1)]
    assert stage.committed[1] == (7, "s")
    assert stage.committed[0][0] == 8


@pytest.mark.parametrize(
    "wrong",
    [
        {"offset_ranges": b"\x01"},
        {"offset_ranges": Ranges([(5, 6)]).dump()},
        {"offset_ranges": Ranges([(11, 12)]).dump()},
        {"offset_ranges": b"\x02" + b"\xff" * 40},
        {"committed_offset": -1},
        {"committed_offset": 1 << 63 - 1},
        {"incarnation": 0},
        {"incarnation": -7},
        {"incarnation": 1 << 62},
    ],
)
async def test_what_cannot_be_meant_costs_its_own_row(stage: Stage, wrong: Mapping[str, Any]) -> None:
    """Nobody is asked for it."""
    bad = {**row(11, (20, 21)), **wrong}
    good = row(0, partition=1, incarnation=21)
    stage.log.put(PLACE._replace(partition=1), Start(21, 0, done(0)))
    assert await stage.commit(bad, good) == [(Code.INVALID_REQUEST, -1), (Code.NONE, 0)]
    assert [each.partition_index for each in stage.sent[0].topics[0].partitions] == [1]


async def test_the_ranges_of_a_request_have_a_bound(stage: Stage) -> None:
    """Each row has a count that is allowed; together they would hold up all other clients."""
    largest = Ranges((2 * each, 2 * each + 1) for each in range(6, 10_000)).dump()
    rows = [{**row(11, partition=number), "offset_ranges": largest} for number in range(60)]
    told = await stage.commit(*rows)
    taken = sum(len(largest) for code, _ in told if code != Code.INVALID_REQUEST)
    assert (1 << 20) - len(largest) < taken <= 1 << 20


async def test_what_is_read_while_a_commit_is_reckoned_with_is_outlived_by_none_of_its_records(stage: Stage) -> None:
    """Others have their turn between large rows: a claim that comes then is in no union (COVER-BEHIND)."""
    stage.log.put(PLACE._replace(partition=1), Start(21, 0, done(0)))
    many = [(2 * each, 2 * each + 1) for each in range(10, 400)]
    before = stage.log.read_to

    def comes() -> None:
        stage.log.put(PLACE, Claim(LIFE, done(-1, (5_000, 5_001))))

    def comes_soon() -> None:
        asyncio.get_running_loop().call_soon(comes)

    stage.before[apis.OFFSET_COMMIT] = [comes_soon]
    assert (await stage.commit(row(11, *many), row(0, *many, partition=1, incarnation=21)))[0][0] == Code.NONE
    assert stage.log.read_to > before + 2
    assert stage.log.written_at == [before]


async def test_a_partition_is_named_once(stage: Stage) -> None:
    """The first row counts."""
    told = await stage.commit(row(11), row(14))
    assert told[1] == (Code.INVALID_REQUEST, -1)
    assert await stage.fetch([0]) is not None
    assert stage.log.claims.of(PLACE).done == done(11, (12, 14))


async def test_a_topic_that_nobody_knows_has_no_commits(stage: Stage) -> None:
    """Its name says nothing: the next topic of that name has another id."""
    assert await stage.commit(row(11), topic="other") == [(Code.UNKNOWN_TOPIC_OR_PARTITION, -1)]
    assert stage.sent == []


async def test_without_room_only_what_closes_gaps_is_taken(stage: Stage) -> None:
    """So a worker's memory is bounded, and the group still comes on."""
    stage.logs.is_full = True
    assert await stage.commit(row(10, (30, 31))) == [(Code.MAX_INDIVIDUAL_COMMIT_REACHED, 10)]
    assert await stage.commit(row(12, (30, 31))) == [(Code.NONE, 14)]
    assert stage.log.claims.of(PLACE).done == done(14, (30, 31))


async def test_a_decision_says_what_was_new(stage: Stage) -> None:
    """And what the coordinator has got, by which an auditor knows whether that was ahead."""
    await stage.commit(row(10, (12, 14), (20, 21)))
    (found,) = stage.noted.of(Kind.INDIVIDUAL_COMMIT)
    assert (found.group_id, found.generation_id, found.member_id, found.topic) == (GROUP, 3, "m", TOPIC)
    assert (found.partition, found.last_offset) == (0, 10)
    assert found.evidence["topic_id"] == str(TOPIC_ID)
    assert (found.evidence["incarnation"], found.evidence["stable"]) == (LIFE, -1)


async def test_other_requests_are_decided_on_as_ever(stage: Stage) -> None:
    """A stock member's commit begins the group's progress anew, which is found when somebody asks."""
    assert await stage.commit({"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}) is None
    assert await stage.fetch([0], with_ranges=False) is None


async def test_a_member_is_told_what_stands_in_the_log(stage: Stage) -> None:
    """It is read before the coordinator is asked, and behind it; the mark is not the client's."""
    told = (await stage.fetch([0]))[0]
    assert (told.committed_offset, told.incarnation, told.metadata) == (10, LIFE, "t")
    assert load(told.committed_range_offsets) == Ranges([(12, 14)])
    assert stage.happened == ["OffsetFetch", "Metadata", "read", "OffsetFetch", "Metadata", "read"]
    assert stage.log.written == []


async def test_a_commit_without_a_mark_begins_anew_for_all(stage: Stage) -> None:
    """The start is read back, and the coordinator asked once more, before anything is told."""
    stage.committed[0] = (4, "")
    told = (await stage.fetch([0]))[0]
    ((place, start),) = stage.log.written
    assert isinstance(start, Start)
    assert (place, start.ends, start.done) == (PLACE, LIFE, done(4))
    assert (told.committed_offset, told.incarnation, told.committed_range_offsets) == (4, start.name, b"\0")
    assert stage.happened.count("OffsetFetch") == 3
    assert stage.happened[-2:] == ["Metadata", "read"]


async def test_who_commits_while_a_start_is_written_is_told(stage: Stage) -> None:
    """Else `latest` would be resolved twice, and what came between would be skipped (seed 8790)."""
    stage.committed[0] = (-1, "")

    def commit() -> None:
        stage.committed[0] = (500, marked("", PLACE, 500, LIFE))

    stage.before[apis.HEARTBEAT] = [commit]
    told = (await stage.fetch([0]))[0]
    assert told.committed_offset == 500


async def test_whoever_may_not_read_the_group_begins_nothing(stage: Stage) -> None:
    """Else everybody who may look at a group could void what it has done. The broker is asked in the client's name."""
    stage.committed[0] = (4, "mine")
    stage.heartbeat_code = Code.GROUP_AUTHORIZATION_FAILED
    told = (await stage.fetch([0]))[0]
    assert (told.error_code, told.committed_offset, told.incarnation, told.metadata) == (0, 4, 0, "mine")
    assert stage.log.written == []


async def test_a_look_at_all_that_a_group_has_begins_nothing(stage: Stage) -> None:
    """Tools look so."""
    stage.committed = {0: stage.committed[0], 1: (5, "")}
    told = await stage.fetch()
    assert {number: (each.committed_offset, each.incarnation) for number, each in told.items()} == {
        0: (10, LIFE),
        1: (5, 0),
    }
    assert stage.log.written == []


async def test_a_coordinator_that_says_something_else_each_time_is_asked_a_few_times(stage: Stage) -> None:
    """Then the client asks again."""

    def changes(offset: int) -> Callable[[], None]:
        return lambda: stage.committed.update({0: (offset, "")})

    stage.before[apis.OFFSET_FETCH] = [changes(each) for each in range(20)]
    told = (await stage.fetch([0]))[0]
    assert (told.error_code, told.committed_offset) == (Code.COORDINATOR_LOAD_IN_PROGRESS, -1)
    assert len(stage.log.written) == 3


@pytest.mark.parametrize(
    ("error", "code", "offset"),
    [
        (UpstreamUnavailable("not read yet"), Code.COORDINATOR_LOAD_IN_PROGRESS, -1),
        (OwnTopicUnfit("no ids"), Code.NONE, 8),
    ],
)
async def test_without_a_log_a_member_asks_again_or_does_without(
    stage: Stage, error: Exception, code: Code, offset: int
) -> None:
    """What the coordinator has is behind what the group has done: told alone, work would be done again."""
    stage.logs.error = error
    told = (await stage.fetch([0]))[0]
    assert (told.error_code, told.committed_offset, told.incarnation, told.metadata) == (code, offset, 0, "t")


async def test_a_log_that_fails_behind_the_answer_tells_nothing(stage: Stage) -> None:
    """What was acknowledged meanwhile would be missing."""
    stage.before[apis.OFFSET_FETCH] = [lambda: None, lambda: stage.log.fails.add("read")]
    told = (await stage.fetch([0]))[0]
    assert told.error_code == Code.COORDINATOR_LOAD_IN_PROGRESS
