"""A client whose requests are kept is told what one is told whom nobody knows; a session is its connection's alone."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kordon.codecs import apis
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import request, response
from kordon.proxy.core.answers import body_of
from kordon.proxy.core.waiting import Answer
from kordon.proxy.decisions.journal import NO_JOURNAL
from kordon.proxy.decisions.runs import Client
from kordon.proxy.handlers.api_handler import HeldRequest, ServedRequest
from kordon.proxy.handlers.fetch import Fetch
from kordon.proxy.handlers.told_clients import ToldClient
from kordon.proxy.kafka.leaders import Leaders
from kordon.proxy.ordering.identity import tag
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.reads.fetch_handler import FetchHandler
from kordon.proxy.reads.fetch_sessions import IDLE_SECONDS, KeptFetches, ReaderMemory
from kordon.proxy.reads.fetching import GivenRow
from kordon.proxy.reads.resting import Rests
from kordon.proxy.reads.worker_reads import WorkerReads
from kordon.proxy.topics.managed_topics import Fence, ManagedTopic, ManagedTopics
from kordon.testing.fake_broker import led
from kordon.testing.handled import route_of, shared
from kordon.testing.random_logs import FACE_ID, LEADER_EPOCH, NAME, Log, LogBroker, consume

_MOST = 1 << 20
_V, _U = 8, 2
Row = tuple[int, int, int, bytes]
"""Of an answer: error, end, start, records."""


class Stage:
    """A topic of eight virtual partitions in two logs, which can grow to four."""

    def __init__(self, memory: ReaderMemory | None = None) -> None:
        self.logs = {q: Log() for q in range(_V)}
        self.broker = LogBroker(self.logs, _MOST)
        self.topic = ManagedTopic(Layout.created(NAME, UUID(int=1), _U, _V), FACE_ID)
        self.topics = ManagedTopics()
        self.topics.add(self.topic)
        self.may_serve = True
        self.leaders = Leaders(self.broker)
        self.reads = WorkerReads(self.topics, self.broker, self.leaders, may_serve=lambda: self.may_serve)
        self.fetch = Fetch(FetchHandler(self.reads, memory=memory))
        self.epoch = LEADER_EPOCH

    def write(self, v: int, value: str) -> None:
        """Writes a record where a virtual partition lives."""
        home = self.topic.layout.chain(v).home
        assert home is not None
        self.logs[home.partition].append(tag(v, home.move, 3), [value])

    def grow(self) -> None:
        """One physical partition more."""
        layout = self.topic.layout
        u = min(layout.u + 1, _V)
        self.topic.adopt(layout.changed(layout.next_epoch(u), {q: log.end for q, log in self.logs.items()}), {})
        self.reads.logs.invalidate(NAME)

    async def elect(self) -> None:
        """Another leader of all partitions."""
        self.epoch += 1
        self.broker.topics[NAME] = led(self.logs, epoch=self.epoch)
        await self.leaders.renew(NAME)

    def seal(self) -> None:
        """A fence on all partitions."""
        ends = {q: log.end for q, log in self.logs.items()}
        self.topic.raise_fence(Fence("first", frozenset(ends)).frozen(ends, {}, has_served=True))

    def connection(self) -> "Connection":
        return Connection(self)

    async def close(self) -> None:
        """Ends what is under way."""
        await self.reads.close()
        await self.broker.close()


class Connection:
    """A client's connection, which asks for what it is told to."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._told = ToldClient(Client(1), stage.topics, NO_JOURNAL)

    @property
    def kept(self) -> KeptFetches:
        return self._told.fetches

    def hold_to(self, most_bytes: int) -> None:
        """Has its answers no larger (CLIENT-QUOTA)."""
        self._told.client.most_fetch_bytes = most_bytes

    def decide(self, version: int, fields: Mapping[str, Any]) -> Any:
        body = memoryview(bytearray(request(apis.FETCH).build(version, fields)))
        held = HeldRequest(route_of(apis.FETCH, version), body, shared(self._stage.topics), self._told)
        return self._stage.fetch.decide(held)

    def decided(
        self,
        offsets: Mapping[int, int],
        *,
        session: tuple[int, int] = (0, -1),
        forgets: tuple[int, ...] = (),
        version: int = 12,
        current_leader_epoch: int = -1,
        **more: Any,
    ) -> ServedRequest:
        """Has a Fetch decided on; returns what answers it."""
        each = {"partition_max_bytes": _MOST, "current_leader_epoch": current_leader_epoch}
        rows = [{"partition": v, "fetch_offset": at} | each for v, at in offsets.items()]
        named = {"topic": NAME, "topic_id": FACE_ID}
        forgotten = [{**named, "partitions": [*forgets]}] if forgets else []
        fields = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": _MOST, "rack_id": "", "isolation_level": 0}
        fields |= {"session_id": session[0], "session_epoch": session[1], **more}
        fields |= {"topics": [{**named, "partitions": rows}] if rows else [], "forgotten_topics_data": forgotten}
        handled = self.decide(version, fields)
        assert isinstance(handled, ServedRequest)
        return handled

    async def ask(self, offsets: Mapping[int, int], *, version: int = 12, **more: Any) -> Any:
        """Fetches; returns the parsed response."""
        return parsed(await self.decided(offsets, version=version, **more).answer(None), version)


def parsed(answer: Answer, version: int = 12) -> Any:
    return response(apis.FETCH).parse(version, body_of(answer))


def rows_of(answer: Any) -> dict[int, Row]:
    """All rows of an answer; where a busy machine has not learnt an end in time, there is an error."""
    return {
        row.partition_index: (row.error_code, row.high_watermark, row.log_start_offset, bytes(row.records or b""))
        for topic in answer.responses
        for row in topic.partitions
    }


class Sessioned:
    """A client with a session: it names what has changed, and knows of the others what it was told last."""

    def __init__(self, stage: Stage) -> None:
        self.connection = stage.connection()
        self.id = self.epoch = 0
        self.named: dict[int, int] = {}
        self.told: dict[int, Row] = {}

    async def ask(self, offsets: Mapping[int, int]) -> dict[int, Row]:
        """Names what is not as before; returns all rows as they are known then."""
        changed = {v: at for v, at in offsets.items() if self.named.get(v) != at}
        forgets = tuple(v for v in self.named if v not in offsets)
        answer = await self.connection.ask(changed, session=(self.id, self.epoch), forgets=forgets)
        assert not answer.error_code
        self.id, self.epoch = answer.session_id, self.epoch + 1
        self.named = dict(offsets)
        kept = {v: (error, end, start, b"") for v, (error, end, start, _) in self.told.items() if v in offsets}
        self.told = kept | rows_of(answer)
        return self.told


OF_ALL = ("ask", "grow", "elect", "seal", "unseal", "lose the lease", "get it back")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, _V - 1)),
        st.tuples(st.just("read"), st.integers(0, _V - 1)),
        st.tuples(st.just("seek"), st.integers(0, _V - 1)),
        st.tuples(st.just("leave out"), st.integers(0, _V - 1)),
        st.tuples(
            st.sampled_from(["ask", "grow", "elect", "seal", "unseal", "lose the lease", "get it back"]), st.just(0)
        ),
    ),
    max_size=14,
)


ALL_STEPS = [
    *(("write", v) for v in range(_V)),
    *(("read", 0), ("ask", 0), ("seek", 1), ("read", 0), ("leave out", 2), ("grow", 0), ("ask", 0), ("write", 2)),
    *(("write", 5), ("read", 0), ("ask", 0), ("elect", 0), ("ask", 0), ("seal", 0), ("write", 1), ("unseal", 0)),
    *(("lose the lease", 0), ("write", 3), ("get it back", 0), ("read", 0), ("ask", 0)),
]


@example(ALL_STEPS)
@given(STEPS)
def test_what_is_kept_changes_no_answer(steps: list[tuple[str, int]]) -> None:
    """Layouts, leaders, fences and leases come and go: with a session and without one, clients are told the same."""

    async def play() -> None:
        stage = Stage()
        try:
            await _follow(stage, steps)
        finally:
            await stage.close()

    asyncio.run(play())


async def _follow(stage: Stage, steps: list[tuple[str, int]]) -> None:
    kept, sessioned = stage.connection(), Sessioned(stage)
    at = dict.fromkeys(range(_V), 0)
    for number, (step, v) in enumerate([*steps, ("ask", 0)]):
        await _happens(stage, step, v, number)
        if step == "seek":
            at[v] = 0
        turned = [*at][number % _V :] + [*at][: number % _V] if number % 3 else [*at]
        asked = {each: at[each] for each in turned if step != "leave out" or each != v}
        expected = await _settled(stage, asked)
        assert rows_of(await kept.ask(asked)) == expected
        assert await sessioned.ask(asked) == expected
        if step == "read":
            for each, (_, _, _, records) in expected.items():
                at[each] = consume(records, at[each], [])


async def _happens(stage: Stage, step: str, v: int, number: int) -> None:
    match step:
        case "write":
            stage.write(v, f"{v}-{number}")
        case "grow":
            stage.topic.cancel_fence()
            stage.grow()
        case "elect":
            await stage.elect()
        case "seal" if stage.topic.fence is None:
            stage.seal()
        case "unseal":
            stage.topic.cancel_fence()
        case "lose the lease" | "get it back":
            stage.may_serve = step == "get it back"
        case _:
            pass  # the client does something


async def _settled(stage: Stage, asked: Mapping[int, int]) -> dict[int, Row]:
    """What a client is told of whom nobody knows anything, once that does not change any more."""
    before: dict[int, Row] = {}
    while True:
        now = rows_of(await stage.connection().ask(asked))
        if now == before:
            return now
        before = now


async def _begun(stage: Stage, offsets: Mapping[int, int], **more: Any) -> tuple[Connection, int]:
    """Begins a session; returns its id."""
    connection = stage.connection()
    answer = await connection.ask(offsets, session=(0, 0), **more)
    assert rows_of(answer).keys() == offsets.keys()
    assert answer.session_id
    return connection, answer.session_id


async def test_rows_are_completed_for_those_alone_who_want_committed_records_only() -> None:
    """What was aborted is asked of brokers, which costs; whoever reads everything needs none of it."""
    completed: list[tuple[ManagedTopic, int]] = []

    async def complete(given: Sequence[GivenRow]) -> None:
        completed.extend((each.topic, each.row.partition_index) for each in given)

    stage = Stage()
    stage.fetch = Fetch(FetchHandler(stage.reads, complete=complete))
    stage.write(3, "value")
    for session in ((0, -1), (0, 0)):
        connection = stage.connection()
        await connection.ask({3: 0}, session=session, isolation_level=0)
        assert completed == []
    for session in ((0, -1), (0, 0)):
        connection = stage.connection()
        await connection.ask({3: 0}, session=session, isolation_level=1)
        assert completed == [(stage.topic, 3)]
        completed.clear()
    await stage.close()


async def test_a_session_is_told_what_is_new_alone() -> None:
    """All of it at first, then nothing, then the record that has come; a partition that it forgets is told no more."""
    stage = Stage()
    at = dict.fromkeys(range(_V), 0)
    await _settled(stage, at)
    connection, session = await _begun(stage, at)
    nothing = await connection.ask({}, session=(session, 1))
    assert (nothing.session_id, rows_of(nothing)) == (session, {})
    stage.write(3, "news")
    assert rows_of(await connection.ask({}, session=(session, 2), max_wait_ms=60_000)).keys() == {3}
    stage.write(3, "more news")
    assert 3 not in rows_of(await connection.ask({}, session=(session, 3), forgets=(3,)))
    assert 3 in rows_of(await connection.ask({3: 0}, session=(session, 4)))
    await stage.close()


async def test_a_session_that_names_nothing_any_more_is_over() -> None:
    """As at brokers: nobody could say anything to it."""
    stage = Stage()
    connection, session = await _begun(stage, {0: 0})
    assert (await connection.ask({}, session=(session, 1), forgets=(0,))).session_id == 0
    assert connection.kept.session is None
    await stage.close()


async def test_an_error_is_told_each_time_and_its_end_when_it_is_over() -> None:
    """A client must not believe the end that it was told before."""
    stage = Stage()
    connection, session = await _begun(stage, {0: 0})
    for epoch in (1, 2):
        asked = {0: 7} if epoch == 1 else {}
        rows = rows_of(await connection.ask(asked, session=(session, epoch), max_wait_ms=60_000))
        assert rows[0][0] == Code.OFFSET_OUT_OF_RANGE
    assert rows_of(await connection.ask({0: 0}, session=(session, 3)))[0][:2] == (0, 0)
    await stage.close()


@pytest.mark.parametrize("named", [{}, {0: 0}], ids=["nothing", "a managed topic"])
async def test_nobody_else_can_go_on_with_a_session(named: dict[int, int]) -> None:
    """A request that names managed topics is refused here, and what names none by the client's broker."""
    stage = Stage()
    _, session = await _begun(stage, {0: 0})
    other = stage.connection()
    if named:
        assert (await other.ask(named, session=(session, 1))).error_code == Code.FETCH_SESSION_ID_NOT_FOUND
    else:
        fields = {"max_wait_ms": 0, "min_bytes": 1, "topics": [], "forgotten_topics_data": [], "rack_id": ""}
        assert other.decide(12, fields | {"session_id": session, "session_epoch": 1}) is None
    await stage.close()


async def test_requests_of_a_session_are_numbered() -> None:
    """One that comes twice, or too early, changes nothing; the right one goes on."""
    stage = Stage()
    connection, session = await _begun(stage, {0: 0})
    for wrong in (2, 7):
        answer = await connection.ask({1: 0}, session=(session, wrong))
        assert (answer.error_code, rows_of(answer)) == (Code.INVALID_FETCH_SESSION_EPOCH, {})
    assert rows_of(await connection.ask({2: 0}, session=(session, 1))).keys() == {2}
    await stage.close()


async def test_a_session_goes_on_by_names_or_by_ids_as_it_has_begun() -> None:
    """Brokers do not know either what the other one means."""
    stage = Stage()
    connection, session = await _begun(stage, {0: 0}, version=12)
    answer = await connection.ask({}, session=(session, 1), version=13)
    assert answer.error_code == Code.FETCH_SESSION_TOPIC_ID_ERROR
    await stage.close()


async def test_a_session_ends_with_the_right_to_one_of_its_topics() -> None:
    """Though the request names none: what it was given before is given to nobody who may not read (RIGHTS-FIRST)."""
    stage = Stage()
    stage.write(0, "secret")
    connection, session = await _begun(stage, {0: 0})
    fields = {"max_wait_ms": 0, "min_bytes": 1, "topics": [], "forgotten_topics_data": [], "rack_id": ""}
    handled = connection.decide(12, fields | {"session_id": session, "session_epoch": 1})
    assert [*handled.names()] == [NAME]
    answer = response(apis.FETCH).parse(12, body_of(await handled.refuse({NAME: 29}).answer(None)))
    assert (answer.error_code, rows_of(answer)) == (Code.FETCH_SESSION_ID_NOT_FOUND, {})
    assert connection.kept.session is None
    await stage.close()


async def test_a_session_ends_when_one_of_its_topics_is_managed_no_more() -> None:
    """Its broker would answer for that one."""
    stage = Stage()
    connection, session = await _begun(stage, {0: 0})
    stage.topics.remove(NAME)
    assert (await connection.ask({}, session=(session, 1))).error_code == Code.FETCH_SESSION_ID_NOT_FOUND
    assert connection.kept.session is None
    await stage.close()


async def test_who_names_all_again_ends_its_session() -> None:
    """Be it to have another one, or none."""
    stage = Stage()
    connection, session = await _begun(stage, {0: 0})
    assert (await connection.ask({0: 0}, session=(session, -1))).session_id == 0
    assert (await connection.ask({0: 0}, session=(session, 1))).error_code == Code.FETCH_SESSION_ID_NOT_FOUND
    await stage.close()


async def test_two_requests_of_a_session_at_once_are_answered_one_after_the_other() -> None:
    """The second one waits for the first, and is told what that was not."""
    stage = Stage()
    connection, session = await _begun(stage, {0: 0})
    first = asyncio.ensure_future(connection.ask({}, session=(session, 1), max_wait_ms=60_000))
    second = asyncio.ensure_future(connection.ask({1: 0}, session=(session, 2)))
    await asyncio.sleep(0)
    stage.write(0, "news")
    assert rows_of(await first).keys() == {0}
    assert rows_of(await second).keys() == {0, 1}
    await stage.close()


async def test_room_is_shared_by_turns() -> None:
    """Partitions that have got records come last in the next answer, or else they would take all the room again."""
    stage = Stage()
    at = dict.fromkeys(range(4), 0)
    for number in range(3):
        for v in at:
            stage.write(v, f"{v}-{number}")
    await _settled(stage, at)
    connection, session = await _begun(stage, at, max_bytes=1)
    given: list[int] = []
    for epoch in range(1, 5):
        rows = rows_of(await connection.ask({}, session=(session, epoch), max_bytes=1))
        given += [v for v, row in rows.items() if row[3]]
    assert sorted(given) == [0, 1, 2, 3]
    await stage.close()


async def test_an_answer_is_no_larger_than_its_clients_quota_allows() -> None:
    """Whatever the client asks for; one batch it gets anyway."""
    stage = Stage()
    at = dict.fromkeys(range(4), 0)
    for v in at:
        stage.write(v, f"{v}")
    await _settled(stage, at)
    connection = stage.connection()
    assert sum(bool(row[3]) for row in rows_of(await connection.ask(at)).values()) == 4
    connection.hold_to(1)
    assert sum(bool(row[3]) for row in rows_of(await connection.ask(at)).values()) == 1
    await stage.close()


async def test_where_there_is_no_room_nothing_is_kept() -> None:
    """The client gets no session, and one that grows beyond the room loses its own."""
    stage = Stage(ReaderMemory(most_rows=2))
    connection, session = await _begun(stage, {0: 0, 1: 0})
    assert rows_of(await connection.ask({2: 0}, session=(session, 1))).keys() == {2}
    assert (await connection.ask({0: 0}, session=(session, 2))).error_code == Code.FETCH_SESSION_ID_NOT_FOUND
    answer = await connection.ask({0: 0, 1: 0, 2: 0}, session=(0, 0))
    assert (answer.session_id, connection.kept.session) == (0, None)
    await connection.ask({0: 0, 1: 0, 2: 0})
    assert connection.kept.rests is None
    await stage.close()


def test_who_does_not_ask_makes_room() -> None:
    """Two minutes after it did; and who is gone, at once."""
    now = 0.0
    memory = ReaderMemory(3, lambda: now)
    idle, busy = KeptFetches(), KeptFetches()
    assert memory.has_room(idle, 2)
    assert not memory.has_room(busy, 2)
    assert memory.has_room(busy, 1)
    now = IDLE_SECONDS
    assert memory.has_room(busy, 3)
    assert not memory.has_room(idle, 1)
    del busy
    assert memory.has_room(idle, 3)


async def test_what_rests_goes_on_resting_from_one_request_to_the_next() -> None:
    """Nothing is looked up of it again, however often it is named."""
    stage = Stage()
    at = dict.fromkeys(range(_V), 0)
    await _settled(stage, at)
    connection, (sessioned, session) = stage.connection(), await _begun(stage, at)
    await connection.ask(at)
    with patch.object(Rests, "lay", autospec=True, side_effect=Rests.lay) as lay:
        await connection.ask(at)
        await connection.ask(at)
        await sessioned.ask({}, session=(session, 1))
    assert [call.args[1].awake for call in lay.call_args_list] == [[], [], []]
    await stage.close()


async def test_a_session_has_one_id() -> None:
    """An id that somebody makes up is that of no session, on a connection that has one."""
    stage = Stage()
    connection, session = await _begun(stage, {0: 0})
    answer = await connection.ask({0: 0}, session=(session ^ 1, 1))
    assert (answer.error_code, rows_of(answer)) == (Code.FETCH_SESSION_ID_NOT_FOUND, {})
    assert rows_of(await connection.ask({1: 0}, session=(session, 1))).keys() == {1}
    await stage.close()


async def test_what_a_client_names_no_more_is_let_go() -> None:
    """Or else its news would end waits for which it is not asked."""
    stage = Stage()
    at = dict.fromkeys(range(_V), 0)
    await _settled(stage, at)
    connection = stage.connection()
    await connection.ask(at)
    await connection.ask({0: 0, 1: 0})
    assert connection.kept.rests is not None
    assert connection.kept.rests.count == 2
    await connection.ask({0: 0, 2: 0})
    assert connection.kept.rests.count == 2
    await stage.close()


async def test_nobody_goes_on_resting_without_a_lease() -> None:
    """Nor under a fence: each partition is looked at, as far as something may be shown."""
    stage = Stage()
    at = dict.fromkeys(range(_V), 0)
    await _settled(stage, at)
    connection = stage.connection()
    for step in ("ask", "lose the lease", "get it back", "seal"):
        await _happens(stage, step, 0, 0)
        await connection.ask(at)
        assert connection.kept.rests is not None
        assert connection.kept.rests.count == (_V if step in {"ask", "get it back"} else 0)
    await stage.close()


async def test_who_rests_is_told_who_leads_once_that_is_known() -> None:
    """Its client asks for Metadata then; while nobody knows, it is believed (KIP-320)."""
    stage = Stage()
    await _settled(stage, {0: 0})
    connection = stage.connection()
    stage.leaders.forget(NAME)
    for code in (Code.NONE, Code.FENCED_LEADER_EPOCH):
        assert rows_of(await connection.ask({0: 0}, current_leader_epoch=LEADER_EPOCH - 1))[0][0] == code
        await stage.leaders.of(NAME)
    await stage.close()


async def test_who_rests_is_told_where_its_log_begins_now() -> None:
    """Retention goes on while nothing comes; a session is told too, for its client resets by what it knows."""
    stage = Stage()
    stage.write(0, "old")
    await _settled(stage, {0: 1})
    connection, (sessioned, session) = stage.connection(), await _begun(stage, {0: 1})
    assert rows_of(await connection.ask({0: 1}))[0][2] == 0
    stage.reads.logs.of(stage.topic, 0).raise_log_start(1)
    assert rows_of(await connection.ask({0: 1}))[0][1:3] == (1, 1)
    assert rows_of(await sessioned.ask({}, session=(session, 1)))[0][1:3] == (1, 1)
    await stage.close()


async def test_rows_of_a_request_that_was_answered_in_between_are_not_compared_with() -> None:
    """Of three requests at once the third is compared with the first, and answered after the second."""
    stage = Stage()
    stage.write(0, "a record")
    await _settled(stage, {0: 1})
    connection = stage.connection()
    first, second = connection.decided({0: 0}), connection.decided({0: 1})
    await first.answer(None)
    third = connection.decided({0: 0})
    await second.answer(None)
    assert rows_of(parsed(await third.answer(None)))[0][3]
    await stage.close()


async def test_two_requests_at_once_are_not_compared_with_one_another() -> None:
    """Whichever of them is answered first, each gets what it asks for."""
    stage = Stage()
    stage.write(0, "a record")
    await _settled(stage, {0: 1})
    connection = stage.connection()
    await connection.ask({0: 1})
    first, second = connection.decided({0: 0}), connection.decided({0: 0})
    assert rows_of(parsed(await second.answer(None)))[0][3]
    assert rows_of(parsed(await first.answer(None)))[0][3]
    await stage.close()
