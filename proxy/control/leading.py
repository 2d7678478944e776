"""The controller's hands: does what `ordering.controller` says, while this proxy leads the proxies' group."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeAlias
from uuid import UUID

import structlog

from kordon.proxy.control.batches import Entry
from kordon.proxy.control.bindings import Bindings
from kordon.proxy.control.codes import Code
from kordon.proxy.control.ends import LeaderAt, Snapshot
from kordon.proxy.control.fence_times import FenceTimes, Phase
from kordon.proxy.control.layouts_writer import Fenced, LayoutsWriter
from kordon.proxy.control.lease import clock
from kordon.proxy.control.shortened_logs import ShortenedLogs
from kordon.proxy.control.takeovers import NotQuiesced, Takeovers
from kordon.proxy.control.topics_admin import TopicsAdmin, TopicsRefused
from kordon.proxy.errors import UpstreamUnavailable
from kordon.proxy.managed.topics import face_of
from kordon.proxy.ordering.controller import (
    FENCE_SECONDS,
    Abandoned,
    Command,
    Commit,
    ConfirmMembers,
    Controller,
    Finished,
    Prepare,
    Producers,
    ReadCuts,
    Stage,
)
from kordon.proxy.ordering.findings import records_lost, topic_gone, why_not_let_go
from kordon.proxy.ordering.floors import with_floors
from kordon.proxy.ordering.hashing import why_not
from kordon.proxy.ordering.images import Image
from kordon.proxy.ordering.layout import Layout, Placement
from kordon.proxy.ordering.records import FenceRecord, FindingRecord, OutcomeRecord, TopicRecord, Value, dump
from kordon.proxy.ordering.takeover import Step, Takeover, first_placement, next_step, shown
from kordon.proxy.ordering.wishes import (
    Delete,
    LeaveOut,
    LookAgain,
    Manage,
    OrderDelivery,
    RaiseFloors,
    Resize,
    Unmanage,
    Wish,
)
from kordon.proxy.tasks import Tasks

log = structlog.get_logger(__name__)

TICK_SECONDS: Final = 0.1
CUT_SECONDS: Final = 1.5
"""How long ends may take to stand still; below the time that a fence lasts."""
_MEMBERS_RETRY_SECONDS: Final = 0.2
_FOR_GOOD: Final = frozenset(
    {
        Code.TOPIC_AUTHORIZATION_FAILED,
        Code.CLUSTER_AUTHORIZATION_FAILED,
        Code.UNSUPPORTED_VERSION,
        Code.INVALID_PARTITIONS,
        Code.INVALID_REPLICATION_FACTOR,
        Code.INVALID_REPLICA_ASSIGNMENT,
        Code.INVALID_CONFIG,
        Code.INVALID_REQUEST,
        Code.POLICY_VIOLATION,
    }
)
"""Refusals that an admin client would get as well, and would not meet by asking again."""
ADOPTION_SECONDS: Final = 12.0
"""How long whoever wishes waits until all proxies know the layout; a dead one is out of their group by then."""


Records: TypeAlias = tuple[tuple[str, Value | None], ...]
"""What is written in one transaction, by key; None is a tombstone."""


class Refused(Exception):  # noqa: N818 - what is told to whoever asked
    """Raised when a wish cannot come true; carries Kafka's error code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Leading:
    """The controller's role, from taking over to standing down.

    Args:
        admin: Asks the cluster.
        writer: Writes layouts; fences all former controllers when it is opened.
        confirm: Tells whether the generation that is known is still the present one.
        lease_seconds: L.
        admit: Sees that a topic can be managed as far as rights go; raises TopicsRefused where not.
        takeovers: Look at topics with data.
        times: Counts what fences wait for.
        on_layout: Told of the records of a change that is durable: readers of the layouts get them some answers later.
    """

    def __init__(
        self,
        admin: TopicsAdmin,
        writer: LayoutsWriter,
        confirm: Callable[[], Awaitable[bool]],
        lease_seconds: float,
        admit: Callable[[str], Awaitable[None]],
        *,
        takeovers: Takeovers,
        times: FenceTimes,
        on_layout: Callable[[Records], None],
    ) -> None:
        self._on_layout = on_layout
        self._times = times
        self._admit = admit
        self._takeovers = takeovers
        self._admin = admin
        self._writer = writer
        self._confirm = confirm
        self._lease_seconds = lease_seconds
        self._tasks = Tasks()
        self._writing = asyncio.Lock()
        self._controller: Controller | None = None
        self._wishes: dict[str, Wish] = {}
        self._asked: dict[str, str] = {}  # topic -> the wish that is being fulfilled
        self._topics: dict[str, TopicRecord] = {}
        self._members: Callable[[], frozenset[str]] = frozenset
        self._heard = asyncio.Event()  # of a member or an acknowledgement
        self._adopters: dict[str, set[str]] = {}  # of topics that have just been managed, by fence
        self._looking: set[str] = set()  # topics whose groups are being looked at, so that nothing else begins
        self._bindings = Bindings(admin, lambda: {t: r.layout.topic_id for t, r in self._topics.items()}, self._on_gone)
        self._shortened = ShortenedLogs(admin, lambda: [each.layout for each in self._topics.values()], self._mend)
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def controller(self) -> Controller | None:
        """The state of all procedures; None until this proxy has taken over."""
        return self._controller

    @property
    def topics(self) -> frozenset[str]:
        """The topics that are managed, or wished to be."""
        return frozenset(
            self._topics.keys() | {each.topic for each in self._wishes.values() if isinstance(each, Manage)}
        )

    async def run(
        self,
        members: Callable[[], frozenset[str]],
        read_to_end: Callable[[], Awaitable[object]],
        known: Callable[[], Mapping[str, tuple[TopicRecord, Mapping[int, Image]]]],
        unfinished: Callable[[], tuple[Mapping[str, FenceRecord], Mapping[str, Wish]]],
    ) -> None:
        """Leads until cancelled, or until another controller writes.

        Args:
            members: Incarnations of the present generation.
            read_to_end: Reads the layouts to an end taken now (rule C2).
            known: The topics that the layouts say, with their images.
            unfinished: The fences and wishes that the layouts say.

        Raises:
            Fenced: Another controller has taken over.
            UpstreamUnavailable: The cluster does not answer; lead again later, from the beginning.
        """
        self._members = members
        try:
            await self._writer.open()
            await read_to_end()
            now = clock()
            found = known()
            # where nothing is managed yet nobody can be serving it
            heard = now if found else now - self._lease_seconds
            controller = self._controller = Controller(heard, self._lease_seconds, members())
            for record, images in found.values():
                self._topics[record.layout.topic] = record
                controller.know(record, images)
            fences, wishes = unfinished()
            log.info("controller_began", topics=len(self._topics), unfinished=len(fences), wishes=len(wishes))
            for fence in fences.values():
                self._do(controller.found_fence(fence, now))
            for wish_id, wish in wishes.items():
                self.on_wish(wish_id, wish)
            self._tasks.start(self._bindings.run(), name="hold layouts to their topics")
            self._tasks.start(self._shortened.run(), name="hold logs to their layouts")
            await self._tick(controller)
        finally:
            self._controller = None
            await self._tasks.stop()
            await self._writer.close()

    async def _tick(self, controller: Controller) -> None:
        while not self._failed.done():
            await asyncio.wait({self._failed}, timeout=TICK_SECONDS)
            self._do(controller.on_tick(clock(), uuid.uuid4().hex[:12]))
            self._begin_next()
            self._carry_takeovers_on(controller)
        self._failed.result()

    def on_members(self, members: frozenset[str], gone: frozenset[str]) -> None:
        """The group has another generation."""
        self._heard.set()
        if self._controller is not None:
            self._do(self._controller.on_members(members, clock(), gone))

    def on_ack(self, fence: str, incarnation: str, told: Mapping[int, int] | None = None) -> None:
        """A proxy holds what a fence names; `told` as in `AckRecord`."""
        if fence in self._adopters:
            self._adopters[fence].add(incarnation)
            self._heard.set()
        if self._controller is not None:
            self._do(self._controller.on_ack(fence, incarnation, clock(), told))

    def raised(self, fence: str) -> bool:
        """Whether a fence is one of this controller's."""
        changes = self._controller.changes.values() if self._controller is not None else ()
        return fence in self._adopters or any(each.fence is not None and each.fence.id == fence for each in changes)

    def on_wish(self, wish_id: str, wish: Wish) -> None:
        """Somebody wants something; wishes for one topic come true one after the other."""
        if self._controller is not None:
            self._wishes[wish_id] = wish
            self._begin_next()

    def _begin_next(self) -> None:
        for wish_id, wish in list(self._wishes.items()):
            change = None if self._controller is None else self._controller.changes.get(wish.topic)
            busy = self._controller is None or change is not None or wish.topic in self._looking
            if isinstance(wish, Resize) and change is not None and wish.partitions != change.target:
                del self._wishes[wish_id]
                self._tasks.start(self._refuse_second(wish_id, wish, change.target), name=f"refuse wish {wish_id}")
            elif not busy and wish.topic not in self._asked:
                self._asked[wish.topic] = wish_id
                self._tasks.start(self._fulfil(wish_id, wish), name=f"fulfil wish {wish_id}")

    async def _refuse_second(self, wish_id: str, wish: Resize, target: int) -> None:
        """Tells whoever wants another number of partitions that a change is under way (rule C8)."""
        detail = f"{wish.topic} is on its way to {target} partitions; ask again when it has come there"
        outcome = OutcomeRecord(Code.REASSIGNMENT_IN_PROGRESS, detail)
        with suppress(Fenced, UpstreamUnavailable):  # the role ends by that, and the wish is found again
            await self._write(((f"wish/{wish_id}", None), (f"outcome/{wish_id}", outcome)))

    async def _fulfil(self, wish_id: str, wish: Wish) -> None:
        """Begins what a wish asks for; whatever is done at once gets its outcome here, a resize when it is finished."""
        try:
            if await self._begin(wish):
                await self._conclude(wish.topic, OutcomeRecord(0, ""))
        except Refused as refusal:
            await self._conclude(wish.topic, OutcomeRecord(refusal.code, str(refusal)))
        except NotQuiesced as refusal:
            await self._conclude(wish.topic, OutcomeRecord(Code.INVALID_REQUEST, str(refusal)))
        except TopicsRefused as refusal:
            await self._conclude(wish.topic, OutcomeRecord(refusal.code, str(refusal)))
        except UpstreamUnavailable as error:
            log.warning("wish_delayed", wish=wish_id, topic=wish.topic, error=str(error))
            del self._asked[wish.topic]  # begun again with the next tick
        except Fenced as error:
            self._fail(error)
        except Exception as error:
            # The outermost edge of a wish: whoever asked is told, and the next one can come.
            log.exception("wish_failed", wish=wish_id, topic=wish.topic)
            await self._conclude(wish.topic, OutcomeRecord(Code.UNKNOWN_SERVER_ERROR, repr(error)))

    async def _begin(self, wish: Wish) -> bool:
        """Returns whether the wish has come true already."""
        match wish:
            case Manage():
                return await self._manage(wish)
            case LeaveOut(topic, groups):
                await self._leave_out(topic, groups)
                return True
            case Resize(topic, partitions):
                return self._resize(topic, partitions)
            case RaiseFloors(topic, floors):
                await self._raise_floors(topic, floors)
                return True
            case Delete(topic):
                await self._let_go(topic)
                return True
            case Unmanage(topic):
                await self._unmanage(topic)
                return True
            case LookAgain(topic):
                await self._bindings.look_at(topic)
                return True
            case OrderDelivery(topic, ordered):
                await self._order_delivery(topic, ordered=ordered)
                return True

    def _resize(self, topic: str, partitions: int) -> bool:
        record = self._topics.get(topic)
        if record is None or self._controller is None:
            raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} is not managed by Kordon")
        layout = record.layout
        if problem := why_not(layout.n, partitions, layout.v_count):
            raise Refused(Code.INVALID_PARTITIONS, problem)
        if record.takeover is not None:
            detail = f"{topic} is still being taken over; see kordon topics describe {topic}"
            raise Refused(Code.REASSIGNMENT_IN_PROGRESS, detail)
        if partitions == layout.u:
            return True
        self._do(self._controller.resize(topic, partitions, clock()))
        return False

    async def _manage(self, wish: Manage) -> bool:
        """Makes a topic a managed one: its face, then its first layout; False: that goes on, because it has data."""
        topic = wish.topic
        if topic in self._topics:
            await self._bindings.look_at(topic)
        if topic in self._topics:
            if self._topics[topic].layout.v_count == wish.virtual_partitions:
                return True  # this very wish had come true when its controller ended
            raise Refused(Code.TOPIC_ALREADY_EXISTS, f"{topic} is managed already, with another number of them")
        leaders = await self._leaders_of_new(topic)
        await self._admit(topic)
        if "compact" in ((await self._admin.topic_configs(topic)).get("cleanup.policy") or ""):
            detail = f"{topic} is compacted: a key's old value could outlive the new one in a partition it has left"
            raise Refused(Code.INVALID_CONFIG, detail)
        n = len(leaders)
        if problem := why_not(n, n, wish.virtual_partitions):
            raise Refused(Code.INVALID_PARTITIONS, problem)
        ends = {q: each.log_end_offset for q, each in (await self._admin.ends_of(topic, leaders)).items()}
        if any(ends.values()):
            await self._take_over(wish, ends)
            return False
        created = Layout.created(topic, await self._admin.topic_id(topic), n, wish.virtual_partitions)
        layout = replace(created, ordered_delivery=wish.ordered_delivery)
        record = TopicRecord(layout, await self._make_face(layout))
        await self._write(((f"topic/{topic}", record),))
        self._topics[topic] = record
        if self._controller is not None:
            self._controller.know(record, {})
        await self._write(await self._wait_until_adopted(record))
        log.info("topic_managed", topic=topic, partitions=n, virtual_partitions=wish.virtual_partitions)
        return True

    async def _make_face(self, layout: Layout) -> UUID:
        face = face_of(layout.topic)
        await self._admin.create_topic(face, partitions=layout.v_count, replicas=-1, configs={})
        await self._admin.wait_for_leaders(face, partitions=layout.v_count)
        return await self._admin.topic_id(face)

    async def _take_over(self, wish: Manage, ends: Mapping[int, int]) -> None:
        """Begins to manage a topic that has data: a change like others, from the layout that it has had all along."""
        topic = wish.topic
        await self._takeovers.refuse_transactions(topic, frozenset(ends))
        if wish.quiesced:
            await self._takeovers.prove_quiesced(topic, ends)
        layout = Layout.unmanaged(topic, await self._admin.topic_id(topic), len(ends), wish.virtual_partitions)
        takeover = Takeover(None, transition_ms=wish.transition_ms)
        record = TopicRecord(layout, await self._make_face(layout), takeover)
        placement = first_placement(layout, quiesced=wish.quiesced)
        if self._controller is not None:
            expected = ends if wish.quiesced else None
            self._do(self._controller.take_over(record, placement, clock(), expected=expected))

    def _carry_takeovers_on(self, controller: Controller) -> None:
        for topic, record in self._topics.items():
            takeover = record.takeover
            if takeover is None or topic in controller.changes or topic in self._asked or topic in self._looking:
                continue
            step = next_step(record.layout, takeover, round(time.time() * 1000))
            if step is Step.CUT:
                self._do(controller.resize(topic, record.layout.n, clock()))
            elif step is Step.SHOWN:
                self._looking.add(topic)
                self._tasks.start(self._begin_transition(record, takeover), name=f"transition of {topic}")
            elif self._takeovers.is_due(topic):
                self._looking.add(topic)
                self._tasks.start(self._look_at_groups(record), name=f"groups of {topic}")

    async def _begin_transition(self, record: TopicRecord, takeover: Takeover) -> None:
        """Lets the time of the old view run: every proxy shows V by now."""
        try:
            await self._renew(replace(record, takeover=shown(takeover, round(time.time() * 1000))))
        except (Fenced, UpstreamUnavailable) as error:
            log.warning("transition_delayed", topic=record.layout.topic, error=str(error))
        finally:
            self._looking.discard(record.layout.topic)

    async def _look_at_groups(self, record: TopicRecord) -> None:
        """Delivers all virtual partitions of a topic once every group has passed the cuts (rule A2)."""
        topic = record.layout.topic
        try:
            takeover = await self._takeovers.look(record)
            if takeover == record.takeover:
                return
            layout = record.layout if takeover is not None else replace(record.layout, withheld=False)
            await self._renew(replace(record, layout=layout, takeover=takeover))
        except (Fenced, UpstreamUnavailable) as error:
            log.warning("groups_unknown", topic=topic, error=str(error))
            return
        finally:
            self._looking.discard(topic)
        if takeover is None:
            log.info("topic_taken_over", topic=topic)
        else:
            log.info("takeover_waits", topic=topic, groups=takeover.waits_for, members=len(takeover.subscribers))

    async def _leave_out(self, topic: str, groups: tuple[str, ...]) -> None:
        record = self._topics.get(topic)
        if record is None or record.takeover is None:
            raise Refused(Code.INVALID_REQUEST, f"{topic} is not being taken over: no group is waited for")
        left_out = tuple(sorted({*record.takeover.left_out, *groups}))
        await self._renew(replace(record, takeover=replace(record.takeover, left_out=left_out)))
        self._takeovers.hurry(topic)

    async def _renew(self, record: TopicRecord) -> None:
        """Writes down a record in which no epoch is new."""
        topic = record.layout.topic
        await self._write(((f"topic/{topic}", record),))
        self._topics[topic] = record
        if self._controller is not None:
            self._controller.know_again(record)

    async def _wait_until_adopted(self, record: TopicRecord) -> tuple[tuple[str, None], ...]:
        """Returns when all proxies know a layout: none takes the topic for an ordinary one, or tells a former count.

        They acknowledge a fence that holds nothing and stands behind the layout. One that does not is either gone, or
        may not serve without reading the layouts anew.

        Returns:
            What is to be written then, to end that fence.
        """
        topic, layout = record.layout.topic, record.layout
        fence = FenceRecord(uuid.uuid4().hex[:12], topic, layout.epochs[-1], frozenset())
        if not await self._raise(fence, ADOPTION_SECONDS):
            missing = self._members() - self._adopters[fence.id]
            log.warning("layout_unadopted", topic=topic, members=sorted(missing))
        return self._lowering(fence)

    async def _raise(self, fence: FenceRecord, seconds: float) -> bool:
        """Writes a fence and waits; returns whether all members have acknowledged it. `_lowering` ends it."""
        adopters = self._adopters[fence.id] = set()
        await self._write(((f"fence/{fence.topic}", fence),))
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._members() <= adopters:
                    self._heard.clear()
                    await self._heard.wait()
        return self._members() <= adopters

    def _lowering(self, fence: FenceRecord) -> tuple[tuple[str, None], ...]:
        """Returns what ends a fence when it is written, with all that was written for it."""
        acks = ((f"ack/{fence.id}/{each}", None) for each in sorted(self._adopters.pop(fence.id)))
        return (f"fence/{fence.topic}", None), *acks

    async def _leaders_of_new(self, topic: str) -> dict[int, LeaderAt]:
        """Waits for the leaders of a topic that may have been created a moment ago; brokers hear of it one by one."""
        try:
            return await self._admin.wait_for_leaders(topic, partitions=1)
        except UpstreamUnavailable as error:
            await self._admit(topic)  # names the right that is missing, if it is that
            raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, str(error)) from error

    async def _raise_floors(self, topic: str, floors: Mapping[int, int]) -> None:
        record = self._topics.get(topic)
        if record is None:
            raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} is not managed by Kordon")
        await self._renew(replace(record, layout=with_floors(record.layout, floors)))

    async def _order_delivery(self, topic: str, *, ordered: bool) -> None:
        record = self._topics.get(topic)
        if record is None:
            raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} is not managed by Kordon")
        await self._renew(replace(record, layout=replace(record.layout, ordered_delivery=ordered)))

    async def _unmanage(self, topic: str) -> None:
        record = self._topics.get(topic)
        if record is None:
            raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} is not managed by Kordon")
        if record.takeover is not None:
            detail = f"{topic} is still being taken over; see kordon topics describe {topic}"
            raise Refused(Code.REASSIGNMENT_IN_PROGRESS, detail)
        if record.layout.is_plain:
            await self._let_go(topic)
        else:
            await self._let_go_empty(record)

    async def _let_go_empty(self, record: TopicRecord) -> None:
        """Lets a topic go whose keys will lie on other partitions: only while it holds nothing, and nobody writes."""
        topic, layout = record.layout.topic, record.layout
        fence = FenceRecord(uuid.uuid4().hex[:12], topic, layout.epochs[-1], frozenset(layout.open_segments))
        held = await self._raise(fence, FENCE_SECONDS)
        try:
            if self._controller is None or not (held and self._controller.is_heard_of_all(clock())):
                detail = f"not all proxies have stopped writing to {topic} within {FENCE_SECONDS:g} s; try again"
                raise Refused(Code.REQUEST_TIMED_OUT, detail)
            partitions = {each.id.partition for each in layout.segments}
            starts = await self._admin.log_starts(topic, partitions)
            ends = await self._admin.ends_of(topic, partitions)
            if left := sorted(q for q, end in ends.items() if end.log_end_offset > starts[q]):
                raise Refused(Code.INVALID_REQUEST, why_not_let_go(layout, left))
            await self._let_go(topic)
        finally:
            await self._write(self._lowering(fence))

    async def _let_go(self, topic: str, finding: FindingRecord | None = None) -> None:
        """Ends a topic's layout, and its face with the commits that groups have there."""
        record = self._topics.get(topic)
        if record is None or self._controller is None:
            return  # done before
        self._controller.forget(topic)
        await self._admin.delete_topic(face_of(topic))  # first: a layout whose face has gone is found again, not this
        records: list[tuple[str, Value | None]] = [(f"topic/{topic}", None)]
        records += [(f"image/{topic}/{v}", None) for v in range(record.layout.v_count)]
        if finding is not None:
            records.append((f"finding/{topic}", finding))
        await self._write(tuple(records))
        self._topics.pop(topic, None)

    async def _on_gone(self, topic: str, successor: UUID | None) -> None:
        """Lets a topic go that somebody has deleted who went round Kordon (rule C9)."""
        controller, record = self._controller, self._topics.get(topic)
        if controller is None or record is None:
            return
        change = controller.changes.get(topic)
        if change is not None and change.stage is not Stage.PAUSING:
            return  # it fails, as there is no such topic, and is found again
        is_announced = any(isinstance(wish, Delete) and wish.topic == topic for wish in self._wishes.values())
        finding = None if is_announced else topic_gone(record.layout, successor, round(time.time() * 1000))
        try:
            await self._let_go(topic, finding)
            if finding is not None:
                log.error("finding", kind=finding.kind, topic=topic, detail=finding.text)
            if change is not None and topic in self._asked:
                await self._conclude(topic, OutcomeRecord(Code.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} was deleted"))
        except TopicsRefused as refusal:
            log.warning("face_not_deleted", topic=topic, error=str(refusal))
        except (Fenced, UpstreamUnavailable) as error:
            self._fail(error)

    async def _conclude(self, topic: str, outcome: OutcomeRecord, more: tuple[tuple[str, None], ...] = ()) -> None:
        wish_id = self._asked[topic]
        await self._write((*more, (f"wish/{wish_id}", None), (f"outcome/{wish_id}", outcome)))
        del self._wishes[wish_id]
        del self._asked[topic]

    def _do(self, commands: list[Command]) -> None:
        for command in commands:
            self._tasks.start(self._perform(command), name=f"{type(command).__name__} {command.topic}")

    async def _perform(self, command: Command) -> None:
        try:
            await self._try(command)
        except (Fenced, UpstreamUnavailable) as error:
            self._fail(error)

    async def _try(self, command: Command) -> None:
        controller = self._controller
        if controller is None:
            return
        match command:
            case Commit(topic, records):
                await self._commit(topic, records)
                self._topics |= {v.layout.topic: v for _, v in records if isinstance(v, TopicRecord)}
                self._do(controller.on_committed(topic, clock()))
            case Prepare(topic, partitions):
                await self._prepare(controller, topic, partitions)
            case ConfirmMembers(topic):
                await self._confirm_members()
                self._do(controller.on_confirmed(topic, clock()))
            case ReadCuts(topic, fence, partitions):
                self._times.end(Phase.ACKNOWLEDGE, topic)
                self._times.begin(Phase.CUT, topic)
                cuts = await self._cuts(topic, partitions)
                self._times.end(Phase.CUT, topic)
                self._do(controller.on_cuts(topic, fence, cuts, clock()))
            case Finished(topic):
                await self._finish(topic)
            case Abandoned(topic, problem, code):
                await self._abandon(topic, problem, Code.INVALID_REQUEST if code is None else code)

    def _mend(self, layout: Layout, shortened: Mapping[int, int]) -> None:
        """Has a topic go on behind what its logs have lost, unless a wish is being fulfilled just now (rule C10)."""
        topic, controller = layout.topic, self._controller
        if controller is None or topic not in self._topics or self._topics[topic].layout is not layout:
            return
        if topic in controller.changes or not (topic in self._asked or topic in self._looking):
            self._do(controller.mend(topic, shortened, clock()))

    async def _report_loss(self, layout: Layout) -> None:
        finding = records_lost(layout, round(time.time() * 1000))
        log.error("finding", kind=finding.kind, topic=layout.topic, detail=finding.text)
        await self._write(((f"finding/{layout.topic}", finding),))

    async def _finish(self, topic: str) -> None:
        layout = self._topics[topic].layout
        log.info("layout_changed", topic=topic, epoch=layout.epoch, partitions=layout.u)
        if layout.epoch == 1 and layout.epochs[0].placement is Placement.UNMANAGED:
            log.info("topic_managed", topic=topic, partitions=layout.n, virtual_partitions=layout.v_count)
        if layout.epochs[-1].shortened:
            await self._report_loss(layout)
        if topic in self._asked:
            await self._conclude(topic, OutcomeRecord(0, ""), await self._wait_until_adopted(self._topics[topic]))

    async def _abandon(self, topic: str, problem: str, code: int) -> None:
        """Gives up a change that has changed nothing yet, and tells whoever wished it."""
        log.warning("change_abandoned", topic=topic, problem=problem)
        if topic in self._asked:
            if topic not in self._topics:  # a takeover: its face has no use
                await self._admin.delete_topic(face_of(topic))
            await self._conclude(topic, OutcomeRecord(code, problem))

    async def _confirm_members(self) -> None:
        """Returns when the generation that is known is proven to be the present one."""
        while True:
            if await self._confirm():
                return
            await asyncio.sleep(_MEMBERS_RETRY_SECONDS)

    async def _commit(self, topic: str, records: Records) -> None:
        self._times.begin(Phase.COMMIT, topic)
        await self._write(records)
        if any(isinstance(value, TopicRecord) for _, value in records):
            self._times.end(Phase.COMMIT, topic)
            self._on_layout(records)
        if any(isinstance(value, FenceRecord) for _, value in records):
            self._times.begin(Phase.ACKNOWLEDGE, topic)
            self._tasks.start(self._begin_transaction(), name="begin the next transaction")

    async def _begin_transaction(self) -> None:
        """Has the layout, or the end of the fence, wait for one answer less: writes are held until it is there."""
        async with self._writing:
            try:
                await self._writer.begin()
            except Fenced as error:
                self._fail(error)

    async def _write(self, records: Records) -> None:
        async with self._writing:
            try:
                await self._writer.commit(
                    [Entry(key, None if value is None else dump(value)) for key, value in records]
                )
            except (Fenced, UpstreamUnavailable) as error:
                self._fail(error)  # the writer has to be opened again, and what was written to be read
                raise

    def _fail(self, error: Exception) -> None:
        """Ends the role; whoever leads next, this proxy or another, begins from what the layouts say."""
        if not self._failed.done():
            self._failed.set_exception(error)

    async def _prepare(self, controller: Controller, topic: str, partitions: int) -> None:
        problem = None
        try:
            await self._refuse_another(topic)
            await self._admin.create_partitions(topic, partitions)
            await self._admin.wait_for_leaders(topic, partitions=partitions)
        except UpstreamUnavailable as error:
            if isinstance(error, TopicsRefused) and error.code in _FOR_GOOD:
                self._do(controller.on_refused(topic, error.code, str(error)))
                return
            log.warning("partitions_unready", topic=topic, error=str(error))
            problem = str(error)
        self._do(controller.on_prepared(topic, problem, clock()))

    async def _refuse_another(self, topic: str) -> None:
        record = self._topics.get(topic)
        if record is not None and await self._admin.topic_id(topic) != record.layout.topic_id:
            raise UpstreamUnavailable(f"{topic} was deleted and made again")

    async def _cuts(self, topic: str, partitions: frozenset[int]) -> dict[int, Producers] | None:
        """Reads ends and producers until they stand still (rule C6); None if they do not in time."""
        try:
            async with asyncio.timeout(CUT_SECONDS):
                cuts: dict[int, Producers] = {}
                while left := partitions - cuts.keys():
                    for q, snapshot in (await self._admin.snapshots(topic, left)).items():
                        if snapshot.is_cut:
                            cuts[q] = _producers(snapshot)
                return cuts
        except (TimeoutError, UpstreamUnavailable) as error:
            log.warning("cuts_unread", topic=topic, error=str(error) or f"no end stood still in {CUT_SECONDS} s")
            return None


def _producers(snapshot: Snapshot) -> Producers:
    written = {each: (state.producer_epoch, state.last_sequence) for each, state in snapshot.producers.items()}
    in_transaction = any(state.in_transaction for state in snapshot.producers.values())
    return Producers(snapshot.ends.log_end_offset, written, in_transaction, snapshot.ends.leader_epoch)
