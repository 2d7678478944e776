"""Each kind of decision says all that is known when it is taken: a play of each, held against a table of columns."""

from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias, cast
from uuid import UUID

import pytest

from kordon.codecs import apis
from kordon.codecs.bodies import MetadataResponse, MetadataResponseTopic, OffsetFetchRequest
from kordon.codecs.decision import Decision, Entry, Kind
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import request, response
from kordon.codecs.produce import WriteOutcome
from kordon.codecs.ranges import Ranges
from kordon.codecs.source_points import Point
from kordon.proxy.controller.controller_notes import ControllerNotes
from kordon.proxy.core import verdicts
from kordon.proxy.core.causes import CloseCause
from kordon.proxy.core.interception import Translate
from kordon.proxy.core.tally import Tally
from kordon.proxy.decisions.backlog import Backlog
from kordon.proxy.decisions.commits import Committer
from kordon.proxy.decisions.events import Given, ReadingMember
from kordon.proxy.decisions.individual_commits import individual_commit
from kordon.proxy.decisions.runs import Client
from kordon.proxy.decisions.share_groups import Sharer, share_acknowledged, share_given
from kordon.proxy.decisions.source_owners import assignment
from kordon.proxy.decisions.source_points import PointPlace, restart_point
from kordon.proxy.handlers.api_handler import HeldRequest
from kordon.proxy.handlers.introductions import Introduction
from kordon.proxy.handlers.position_decisions import decisions_of
from kordon.proxy.handlers.told_clients import ToldClient
from kordon.proxy.handlers.told_commits import ToldCommits
from kordon.proxy.kafka.group import GroupMember
from kordon.proxy.member.member_notes import MemberNotes
from kordon.proxy.member.membership import Generation
from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.changes import Producers
from kordon.proxy.ordering.claims import Claim, Done, PlaceKey
from kordon.proxy.ordering.images import WhyNotWritten
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.position_records import MemberKey
from kordon.proxy.ordering.positions import MemberReport, TopicReport
from kordon.proxy.ordering.records import AckRecord, FenceRecord, TopicRecord
from kordon.proxy.ordering.share.acknowledging import AcknowledgementBatch
from kordon.proxy.ordering.share.acquiring import GivenRecord
from kordon.proxy.ordering.streams import physical_stream
from kordon.proxy.ordering.write_sequencer import Binding, WriteSequencer
from kordon.proxy.own_topics.layouts_writer import Records
from kordon.proxy.reads.read_decisions import ReadDecisions
from kordon.proxy.relay.connection_record import ConnectionRecord
from kordon.proxy.topics.managed_topics import Fence, ManagedTopic, ManagedTopics, Why
from kordon.proxy.writes.client_writes import ClientWrite, PendingProduce
from kordon.proxy.writes.stream_queue import StreamQueue
from kordon.proxy.writes.write_decisions import WriteDecisions
from kordon.testing.decision_columns import FORMS, form_of, lacking
from kordon.testing.handled import route_of, shared
from kordon.testing.messages.as_read import as_read
from kordon.testing.noted import Noted

LAYOUT: Final = Layout.created("orders", UUID(int=1), 3, 12)
RECORD: Final = TopicRecord(LAYOUT, UUID(int=2))
FENCE: Final = FenceRecord("f1", "orders", LAYOUT.next_epoch(4), frozenset({0}))
GROWN: Final = TopicRecord(LAYOUT.changed(FENCE.following, {0: 100, 3: 0}), UUID(int=2))
GENERATION: Final = Generation(4, "m-1", "m-1", (GroupMember("m-1", "me", "here"),))
READERS: Final = ReadingMember("readers", 1, "a")


class Stage:
    """A worker with one topic and one client that has said all that clients say."""

    def __init__(self) -> None:
        self.noted = Noted()
        self.journal = self.noted.journal
        self.client: Client = self.journal.connected()
        self.journal.named(self.client, "shop", "User:ann")
        self.topic = ManagedTopic(LAYOUT, UUID(int=2), layouts_offset=7)
        self.topics = ManagedTopics()
        self.topics.add(self.topic)

    def queue(self) -> StreamQueue:
        """The writes of a stream."""
        return StreamQueue(self.topic, 0, WriteSequencer(0), lambda _: None)

    def write(self) -> ClientWrite:
        """A batch of the client's that was sent."""
        pending = PendingProduce(self.client)
        write = ClientWrite(9, 0, 40, 2, 81, -1, 0.0, pending=pending, place=0, batch=memoryview(b""), timeout_ms=1000)
        write.bound = Binding(0, 0, 9, 9, 0, 40, opens=False)
        return write


async def writes(stage: Stage) -> None:
    """Written, there already, refused, held, let go, gone elsewhere."""
    decisions, queue, write = WriteDecisions(stage.journal), stage.queue(), stage.write()
    decisions.answered(queue, write, WriteOutcome(0, 0, 100), WriteOutcome(0, 0, 100))
    decisions.answered(queue, write, WriteOutcome(0, Code.DUPLICATE_SEQUENCE_NUMBER), WriteOutcome(0, 0))
    decisions.judged(queue, write, WhyNotWritten.DUPLICATE, WriteOutcome(0, 0))
    decisions.judged(queue, write, WhyNotWritten.FENCED, WriteOutcome(0, Code.INVALID_PRODUCER_EPOCH))
    decisions.given_up(queue, write, Code.NOT_LEADER_OR_FOLLOWER, Why.LEADER)
    decisions.unfit(stage.client, stage.topic, "orders", 3, Code.INVALID_RECORD)
    stage.topic.raise_fence(Fence("f1", frozenset({0})))
    for why in Why:
        decisions.held(queue, why)
    queue.held_for = Why.FENCE
    decisions.released(queue, 0.1, given_up=False)
    decisions.redirected(stage.topic, 0, (0, 0), Stay(1, 1, 0, None, 0))


async def reads(stage: Stage) -> None:
    """Given, given again, refused, held at the gate, let through."""
    decisions, stay = ReadDecisions(stage.journal), Stay(0, 0, 0, None, 0)
    for asked in (0, 0):
        decisions.gave(stage.client, stage.topic, 0, Given(stay, 0, asked, asked + 5, 0, 0))
    decisions.refused(stage.client, stage.topic, 0, 99, Code.OFFSET_OUT_OF_RANGE)
    stream, place = physical_stream(0), {"stay": stay, "group": READERS}
    decisions.held(stage.client, stage.topic, stream, asks={1: 3}, **cast("Any", place))
    decisions.released(stage.client, stage.topic, stream, by={"positions": {1: 3}}, **cast("Any", place))


async def told(stage: Stage) -> None:
    """What a client hears of a layout, of itself, and of a request that nobody knows."""
    answer = MetadataResponse(topics=[MetadataResponseTopic(name="orders", error_code=0, partitions=[])])
    ToldClient(stage.client, stage.topics, stage.journal).tell_layouts(apis.METADATA, answer)
    introduction = Introduction(stage.client, stage.journal)
    introduction.refused(9999, 1, "UNSUPPORTED_VERSION", ends=True)
    route, message = verdicts.route(apis.INIT_PRODUCER_ID, 4), response(apis.INIT_PRODUCER_ID)
    assert route is not None
    asked = {"transactional_id": "t", "transaction_timeout_ms": 1, "producer_id": -1, "producer_epoch": -1}
    look = introduction.look(route, memoryview(request(apis.INIT_PRODUCER_ID).build(4, asked)))
    assert isinstance(look, Translate)
    fields = {"throttle_time_ms": 0, "error_code": 0, "producer_id": 9, "producer_epoch": 0}
    look.back(as_read(message, 4, fields))


async def positions(stage: Stage) -> None:
    report = MemberReport(1, 0, {"orders": TopicReport({0: 40, 1: 7}, cast("Any", ()))})
    for decision in decisions_of(MemberKey("readers", "a"), report, {"orders": {1: 9}}, stage.client):
        stage.journal.note(decision)


async def commits(stage: Stage) -> None:
    """A group commits, and a client asks for it."""
    stage.journal.commits.accepted(stage.client, stage.topic, Committer("readers", 1, "a", apis.OFFSET_COMMIT), {0: 5})
    committer, place = Committer("readers", 1, "a", apis.OFFSET_COMMIT), PlaceKey("readers", UUID(int=1), 0)
    claim = Claim(12, Done(5, Ranges([(7, 9)])))
    stage.journal.note(
        individual_commit(stage.client, committer, place, claim, known_ranges=0, pushed=4, topic="orders")
    )
    sharer = Sharer(stage.client, "a", "s1", place, "orders", 12)
    stage.journal.note(share_given(sharer, [GivenRecord(4, 1), GivenRecord(7, 2)]))
    stage.journal.note(
        share_acknowledged(sharer, [AcknowledgementBatch(4, 5, (1, 0)), AcknowledgementBatch(7, 7, (2,))])
    )
    source = PointPlace("db1", UUID(int=7), 0)
    stage.journal.note(
        restart_point(stage.client, committer, source, Point(3, "12:34"), producer=(9, 0), asked_after=1, held=2)
    )
    stage.journal.note(assignment(stage.client, committer, source.topic, source.topic_id, {"a": [0], "b": []}))
    held = HeldRequest(
        route_of(apis.OFFSET_FETCH, 7),
        memoryview(b""),
        shared(stage.topics, stage.journal),
        ToldClient(stage.client, stage.topics, stage.journal),
    )
    watch = ToldCommits(stage.journal).watch(held, OffsetFetchRequest(group_id="readers", topics=None))
    assert watch is not None
    for name, look in (("__kordon.orders", watch.answered), ("orders", watch.told)):
        row = {"partition_index": 0, "committed_offset": 5, "metadata": "", "error_code": 0}
        fields = {"topics": [{"name": name, "partitions": [row]}], "error_code": 0, "throttle_time_ms": 0}
        look(as_read(response(apis.OFFSET_FETCH), 7, fields))


async def changes(stage: Stage) -> None:
    """A controller's, and a member's part in them; some whose outcome nobody knows."""
    notes = ControllerNotes(stage.journal, lambda: frozenset({"me"}))
    raised: Records = (("fence/orders", FENCE),)
    laid: Records = (("topic/orders", GROWN), ("fence/orders", None))
    before = {"orders": RECORD}
    notes.written((("topic/orders", RECORD),), {"topic/orders": 3}, {})
    notes.doubted(raised)
    for last in (laid, (("fence/orders", None),)):
        notes.written(raised, {"fence/orders": 10}, before)
        notes.on_ack("f1", "me", None)
        notes.enough("f1")
        notes.cut("f1", {0: Producers(100, {}, leader_epoch=5)})
        notes.doubted(last)
        notes.written(last, {key: 14 for key, _ in last}, before)
    member = MemberNotes(stage.journal)
    member.joined(GENERATION, 5)
    member.alive(GENERATION, 6)
    member.held(FENCE, 0, 10)
    member.acknowledged(AckRecord("f1", "me"), 10)
    member.released("orders", 12)
    member.adopted(GROWN.layout, 14)
    member.lost(GENERATION, 15)
    member.forgot("orders", 16)


async def ends(stage: Stage) -> None:
    """A connection that came to a limit."""
    record = ConnectionRecord(stage.journal, Tally(), "127.0.0.1", "bootstrap")
    stage.journal.named(record.peer, "shop", "User:ann")
    record.closed(CloseCause.FRAME_TOO_LARGE, "why")


async def drops(stage: Stage) -> None:
    """A queue that is full, and has room again."""
    backlog = Backlog("here", "me", 2_000, lambda: 0)
    for _ in range(50):
        backlog.add(Decision(kind=Kind.LEASE, reason="alive", generation_id=1, layouts_offset=0))
    while kept := backlog.next(10, 1 << 20):
        for value in kept:
            stage.journal.note(Entry.load(value).decision)
        backlog.written(kept)
        backlog.mend()


Play: TypeAlias = Callable[[Stage], Coroutine[Any, Any, None]]
PLAYS: Final[tuple[Play, ...]] = (writes, reads, told, positions, commits, changes, ends, drops)


async def played(play: Play) -> list[Decision]:
    """Returns what is on record of a play."""
    stage = Stage()
    await play(stage)
    stage.journal.end_runs()
    return stage.noted.of()


@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.__name__)
async def test_no_decision_lacks_what_could_be_known(play: Play) -> None:
    """Each has all columns of its form."""
    decisions = await played(play)
    assert [(form_of(each).name, lacking(each)) for each in decisions if lacking(each)] == []


async def test_each_form_of_each_kind_is_played() -> None:
    """So the table has no row that nobody holds to, and no kind without a row."""
    found = {form_of(each).name for play in PLAYS for each in await played(play)}
    assert found == {form.name for form in FORMS}
    assert {form.kind for form in FORMS} == set(Kind)


def test_the_table_names_columns_that_there_are() -> None:
    """By the names of the schema."""
    for form in FORMS:
        assert all(hasattr(Decision(kind=form.kind), column) for column in form.columns), form
