"""The controller's hands: does what `ordering.controller` says, while this proxy leads the proxies' group."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import Final, NamedTuple
from uuid import UUID

import structlog

from kordon.codecs.error_codes import Code
from kordon.proxy.controller.adoption import Adoption
from kordon.proxy.controller.ahead import MOVES_ON, WhoWrote
from kordon.proxy.controller.bindings import Bindings
from kordon.proxy.controller.compaction import Compaction
from kordon.proxy.controller.fence_times import FenceTimes, Phase
from kordon.proxy.controller.forged_fences import ForgedFences, StandingFence
from kordon.proxy.controller.fulfilment import Fulfilment
from kordon.proxy.controller.janitor import Janitors
from kordon.proxy.controller.ledger import Ledger
from kordon.proxy.controller.letting_go import LettingGo
from kordon.proxy.controller.managing import Managing
from kordon.proxy.controller.minutes import Minutes
from kordon.proxy.controller.shortened_logs import ShortenedLogs
from kordon.proxy.controller.sweeping import Sweeping
from kordon.proxy.controller.takeover_steps import TakeoverSteps
from kordon.proxy.controller.takeovers import Takeovers
from kordon.proxy.controller.topic_janitor import Hands
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.decisions.journal import Journal, NoJournal
from kordon.proxy.kafka.topics_admin import TopicsAdmin, TopicsRefused
from kordon.proxy.ordering.changes import (
    REMEMBERED_MS,
    Abandoned,
    Command,
    Commit,
    ConfirmMembers,
    Finished,
    Prepare,
    Producers,
    ReadCuts,
    Stage,
    WriteAhead,
)
from kordon.proxy.ordering.controller import Controller
from kordon.proxy.ordering.findings import not_mended, records_lost, topic_gone
from kordon.proxy.ordering.images import ImageParts
from kordon.proxy.ordering.layout import Layout, Placement
from kordon.proxy.ordering.leftovers import Leftovers
from kordon.proxy.ordering.presence import Presence
from kordon.proxy.ordering.records import (
    FenceRecord,
    FindingRecord,
    OutcomeRecord,
    TopicRecord,
    why_never,
    why_no_more,
)
from kordon.proxy.ordering.wishes import Delete, Manage, Wish
from kordon.proxy.own_topics.layouts_writer import Fenced, LayoutsWriter, Offsets, Records
from kordon.proxy.runtime.clock import clock
from kordon.proxy.runtime.log_limits import client_log
from kordon.proxy.runtime.tasks import Tasks
from kordon.proxy.topics.managed_topics import face_of

log = structlog.get_logger(__name__)
told = client_log(__name__)

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


def _nothing(*_: object) -> None:
    pass


class Cleaning(NamedTuple):
    """What the janitors of compacted topics work with, and how far they had come before."""

    hands: Hands
    looked_to: Callable[[], Mapping[str, Mapping[int, int]]]
    """By topic and physical partition."""
    least_lag_ms: int
    """The least min.compaction.lag.ms of their topics."""


class Leading:
    """The controller's role, from taking over to standing down.

    Args:
        admin: Asks the cluster.
        writer: Writes layouts; fences all former controllers when it is opened.
        members: Returns the incarnations of the present generation.
        confirm: Tells whether the generation that is known is still the present one.
        presence: Knows who may serve besides the members.
        admit: Sees that a topic can be managed as far as rights go; raises TopicsRefused where not.
        takeovers: Look at topics with data.
        times: Counts what fences wait for.
        on_layout: Told of the records of a change that is durable, and where they stand: readers of the layouts get
            them some answers later.
        cleaning: What the janitors of compacted topics work with.
        leftovers: What nobody needs any more.
        why_untouched: Says why nothing may be done with a topic, because records of it cannot be read.
        journal: Where decisions are recorded; None: nowhere.
        standing: Returns the fences that stand here, by topic.
        on_forged: Told the key and the offset of a fence that no controller has raised.
    """

    def __init__(
        self,
        admin: TopicsAdmin,
        writer: LayoutsWriter,
        members: Callable[[], frozenset[str]],
        confirm: Callable[[], Awaitable[bool]],
        *,
        presence: Presence,
        admit: Callable[[str], Awaitable[None]],
        takeovers: Takeovers,
        times: FenceTimes,
        on_layout: Callable[[Records, Offsets], None],
        cleaning: Cleaning,
        leftovers: Leftovers,
        why_untouched: Callable[[str], str | None] = lambda _: None,
        journal: Journal | None = None,
        standing: Callable[[], Mapping[str, StandingFence]] = dict,
        on_forged: Callable[[str, int], None] = _nothing,
    ) -> None:
        self._on_layout = on_layout
        self._times = times
        self._admin = admin
        self._writer = writer
        self._confirm = confirm
        self._members = members
        self._presence = presence
        self._tasks = Tasks()
        self._minutes = Minutes(journal or NoJournal(), members)
        self._ledger = Ledger(writer, self._minutes)
        self._told_waits: Mapping[str, float] = {}
        self._sweeping = Sweeping(self._ledger, leftovers, members)
        self._forged = ForgedFences(self._ledger, standing, why_untouched=why_untouched, on_forged=on_forged)
        self._not_mended: dict[str, tuple[int, Mapping[int, int]]] = {}
        """By topic that cannot be mended, its layout epoch, and what has got shorter."""
        self._adoption = Adoption(self._ledger, members)
        self._who_wrote = WhoWrote(admin, self._ledger, self._adoption)
        self._bindings = Bindings(admin, self._topic_ids, self._on_gone)
        self._shortened = ShortenedLogs(admin, self._layouts, self._mend)
        self._letting_go = LettingGo(self._ledger, admin, self._adoption, confirm)
        self._takeovers = TakeoverSteps(self._ledger, self._tasks, takeovers, self._do)
        compaction = Compaction(admin, cleaning.least_lag_ms)
        self.janitors = Janitors(self._ledger, admin, cleaning.hands, compaction, cleaning.looked_to, renew=self._renew)
        managing = Managing(
            self._ledger,
            admin,
            admit,
            adoption=self._adoption,
            bindings=self._bindings,
            takeovers=takeovers,
            compaction=compaction,
            do=self._do,
        )
        self._fulfilment = Fulfilment(
            self._ledger,
            self._tasks,
            managing=managing,
            letting_go=self._letting_go,
            takeovers=self._takeovers,
            bindings=self._bindings,
            why_untouched=why_untouched,
            do=self._do,
        )

    @property
    def controller(self) -> Controller | None:
        """The state of all procedures; None until this proxy has taken over."""
        return self._ledger.controller

    @property
    def topics(self) -> frozenset[str]:
        """The topics that are managed, or wished to be."""
        wished = {each.topic for each in self._fulfilment.wishes if isinstance(each, Manage)}
        return frozenset(self._ledger.topics.keys() | wished)

    async def run(
        self,
        read_to_end: Callable[[], Awaitable[object]],
        known: Callable[[], Mapping[str, tuple[TopicRecord, Mapping[int, ImageParts]]]],
        unfinished: Callable[[], tuple[Mapping[str, FenceRecord], Mapping[str, Wish]]],
    ) -> None:
        """Leads until cancelled, or until another controller writes.

        Args:
            read_to_end: Reads the layouts to an end taken now (ONE-CONTROLLER).
            known: The topics that the layouts say, with their images.
            unfinished: The fences and wishes that the layouts say.

        Raises:
            Fenced: Another controller has taken over.
            UpstreamUnavailable: The cluster does not answer; lead again later, from the beginning.
        """
        try:
            await self._take_over(read_to_end)
            now = clock()
            found = known()
            if not found:
                self._presence.nobody_served(now)
            alone_from = self._presence.alone_from
            controller = self._ledger.controller = Controller(self._members(), alone_from)
            for record, images in found.values():
                self._ledger.take((record,))
                controller.know(record, images)
            fences, wishes = unfinished()
            found_fences = self._forged.found(self._writer.producer_id)
            fences = {topic: fence for topic, fence in fences.items() if topic in found_fences}
            log.info(
                "controller_began",
                topics=len(found),
                unfinished=len(fences),
                wishes=len(wishes),
                waits_seconds=round(max(alone_from - now, 0.0), 1),
            )
            for fence in fences.values():
                self._minutes.found(fence)
                self._do(controller.found_fence(fence, now))
            for wish_id, wish in wishes.items():
                self.on_wish(wish_id, wish)
            self._tasks.keep(self._bindings.run, name="hold layouts to their topics")
            self._tasks.keep(self._shortened.run, name="hold logs to their layouts")
            self._tasks.keep(self.janitors.run, name="look through compacted topics")
            self._tasks.keep(self._sweeping.run, name="sweep the layouts")
            await self._tick(controller)
        finally:
            self._ledger.controller = None
            await self._tasks.stop()
            await self._writer.close()

    async def _take_over(self, read_to_end: Callable[[], Awaitable[object]]) -> None:
        """Fences all former controllers, and only then reads what they have written (ONE-CONTROLLER)."""
        await self._writer.open()
        await read_to_end()

    async def _tick(self, controller: Controller) -> None:
        while not await self._ledger.failed(TICK_SECONDS):
            self._do(controller.on_tick(clock(), uuid.uuid4().hex[:12]))
            self._tell_waits(controller)
            self._fulfilment.begin_next()
            self._takeovers.begin_next()
            if forged := self._forged.look(clock()):
                self._tasks.start(self._forged.lift(forged), name="lift forged fences")
        self._ledger.raise_failure()

    def _tell_waits(self, controller: Controller) -> None:
        """Logs once of each change that waits for leases, until who may have them is known better."""
        until = controller.alone_from
        seconds = round(until - clock(), 1) if until < inf else 0.0
        waiting = {topic: until for topic, change in controller.changes.items() if change.stage is Stage.WAITING}
        for topic in waiting:
            if seconds > 0 and self._told_waits.get(topic) != until:
                log.info("change_waits", topic=topic, seconds=seconds, cause="a proxy that is missing may still serve")
        self._told_waits = waiting

    def on_members(self) -> None:
        """The group has another generation, or a member of a former one has ended in order."""
        self._adoption.on_members()
        if self.controller is not None:
            self._do(self.controller.on_members(self._members(), clock(), self._presence.alone_from))

    def on_ack(
        self, fence: str, incarnation: str, told: Mapping[int, int] | None = None, offset: int | None = None
    ) -> None:
        """A proxy holds what a fence names.

        Args:
            fence: Its id.
            incarnation: The proxy's.
            told: As in `AckRecord`.
            offset: Where the acknowledgement was read; None: it was not, it is this worker's own.
        """
        self._minutes.on_ack(fence, incarnation, offset)
        self._adoption.on_ack(fence, incarnation)
        if self.controller is not None:
            self._do(self.controller.on_ack(fence, incarnation, clock(), told))

    def begin_anew(self, reason: str) -> None:
        """Ends the role; the next controller, this proxy or another, begins from what the layouts say then."""
        self._ledger.fail(UpstreamUnavailable(reason))

    def raised(self, fence: str) -> bool:
        """Whether a fence is one of this controller's."""
        return self._adoption.raised(fence) or (self.controller is not None and self.controller.raised(fence))

    def on_wish(self, wish_id: str, wish: Wish) -> None:
        """Somebody wants something; wishes for one topic come true one after the other."""
        if self.controller is not None:
            self._fulfilment.on_wish(wish_id, wish)

    def _topic_ids(self) -> dict[str, UUID]:
        return {topic: record.layout.topic_id for topic, record in self._ledger.topics.items()}

    def _layouts(self) -> list[Layout]:
        return [record.layout for record in self._ledger.topics.values()]

    async def _on_gone(self, topic: str, successor: UUID | None) -> None:
        """Lets a topic go that somebody has deleted who went round Kordon (SAME-TOPIC)."""
        controller, record = self.controller, self._ledger.topics.get(topic)
        if controller is None or record is None:
            return
        change = controller.changes.get(topic)
        if change is not None and change.stage is not Stage.PAUSING:
            return  # it fails, as there is no such topic, and is found again
        is_announced = Delete(topic) in self._fulfilment.wishes
        finding = None if is_announced else topic_gone(record.layout, successor, round(time.time() * 1000))
        try:
            await self._letting_go.let_go(topic, finding)
            if finding is not None:
                log.error("finding", kind=finding.kind, topic=topic, detail=finding.text)
            if change is not None:
                outcome = OutcomeRecord(Code.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} was deleted")
                await self._fulfilment.conclude(topic, outcome)
        except TopicsRefused as refusal:
            log.warning("face_not_deleted", topic=topic, error=str(refusal))
        except (Fenced, UpstreamUnavailable) as error:
            self._ledger.fail(error)

    def _do(self, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, ReadCuts):
                self._minutes.enough(command.fence)
            self._tasks.start(self._perform(command), name=f"{type(command).__name__} {command.topic}")

    async def _perform(self, command: Command) -> None:
        try:
            await self._try(command)
        except Exception as error:  # whatever it is, the procedure waits for an answer: it begins again with the role
            self._ledger.fail(error)

    async def _try(self, command: Command) -> None:
        controller = self.controller
        if controller is None:
            return
        match command:
            case Commit(topic, records):
                await self._commit(topic, records)
                self._ledger.take(value for _, value in records if isinstance(value, TopicRecord))
                self._do(controller.on_committed(topic, clock()))
            case Prepare(topic, partitions):
                await self._prepare(controller, topic, partitions)
            case ConfirmMembers(topic):
                await self._confirm_members()
                self._do(controller.on_confirmed(topic, clock()))
            case WriteAhead(topic, _, images):
                problem, reason = await self._who_wrote.write_ahead(controller, command)
                self._do(controller.on_ahead(topic, images, clock(), problem, reason))
            case ReadCuts(topic, fence):
                self._times.end(Phase.ACKNOWLEDGE, topic)
                self._times.begin(Phase.CUT, topic)
                cuts = await self._cuts(command)
                self._times.end(Phase.CUT, topic)
                self._minutes.cut(fence, cuts or {})
                reason = MOVES_ON if cuts is None and self._who_wrote.moved else ""
                self._do(controller.on_cuts(topic, fence, cuts, clock(), reason))
            case Finished(topic):
                self._who_wrote.forget(topic)
                await self._finish(topic)
            case Abandoned(topic, problem, code):
                self._who_wrote.forget(topic)
                await self._abandon(topic, problem, Code.INVALID_REQUEST if code is None else code)

    def _mend(self, layout: Layout, shortened: Mapping[int, int]) -> None:
        """Has a topic go on behind what its logs have lost, unless a wish is being fulfilled just now (BEYOND-LOSS)."""
        topic, controller = layout.topic, self.controller
        record = self._ledger.topics.get(topic)
        if controller is None or record is None or record.layout is not layout:
            return
        is_changing = topic in controller.changes
        if is_changing or (topic not in self._ledger.busy and self._is_mendable(record, shortened)):
            self._do(controller.mend(topic, shortened, clock()))

    def _is_mendable(self, record: TopicRecord, shortened: Mapping[int, int]) -> bool:
        """Whether there is room for one more layout; where there is none, that is found once."""
        layout = record.layout
        newest = layout.epochs[-1]
        if self._not_mended.get(layout.topic) == (layout.epoch, shortened):
            return False
        why = why_never(record, layout.next_epoch(newest.u, newest.placement, shortened))
        if not why:
            return True
        self._not_mended[layout.topic] = (layout.epoch, dict(shortened))
        finding = not_mended(layout, shortened, why, round(time.time() * 1000))
        self._tasks.start(self._find(finding), name=f"tell what is wrong with {layout.topic}")
        return False

    async def _find(self, finding: FindingRecord) -> None:
        try:
            await self._write_finding(finding)
        except (Fenced, UpstreamUnavailable) as error:
            self._ledger.fail(error)

    async def _write_finding(self, finding: FindingRecord) -> None:
        log.error("finding", kind=finding.kind, topic=finding.topic, detail=finding.text)
        await self._ledger.write(((f"finding/{finding.topic}", finding),))

    def _renew(self, topic: str, partitions: frozenset[int]) -> None:
        """Has a topic begin other segments, in which the janitor writes first, unless it is being changed just now."""
        controller, record = self.controller, self._ledger.topics.get(topic)
        if controller is None or record is None or topic in controller.changes or topic in self._ledger.busy:
            return
        open_ones = partitions & record.layout.open_segments.keys()
        if not open_ones:
            return
        newest = record.layout.epochs[-1]
        if problem := why_no_more(record, record.layout.next_epoch(newest.u, newest.placement, renewed=open_ones)):
            told.warning("change_abandoned", topic=topic, problem=problem)  # the janitor asks again and again
            return
        self._do(controller.renew(topic, frozenset(open_ones), clock()))

    def _renewed_by(self, topic: str) -> tuple[int, ...]:
        change = self.controller.changes.get(topic) if self.controller is not None else None
        return change.fence.following.renewed if change is not None and change.fence is not None else ()

    async def _finish(self, topic: str) -> None:
        record = self._ledger.topics[topic]
        layout = record.layout
        log.info("layout_changed", topic=topic, epoch=layout.epoch, partitions=layout.u)
        if layout.epoch == 1 and layout.epochs[0].placement is Placement.UNMANAGED:
            log.info("topic_managed", topic=topic, partitions=layout.n, virtual_partitions=layout.v_count)
        if layout.epochs[-1].shortened:
            await self._write_finding(records_lost(layout, round(time.time() * 1000)))
        if self._fulfilment.is_wished(topic):
            lowering = await self._adoption.wait_until_adopted(record)
            await self._fulfilment.conclude(topic, OutcomeRecord(0, ""), lowering)

    async def _abandon(self, topic: str, problem: str, code: int) -> None:
        """Gives up a change that has changed nothing yet, and tells whoever wished it."""
        log.warning("change_abandoned", topic=topic, problem=problem)
        if self._fulfilment.is_wished(topic):
            if topic not in self._ledger.topics:  # a takeover: its face has no use
                await self._admin.delete_topic(face_of(topic))
            await self._fulfilment.conclude(topic, OutcomeRecord(code, problem))

    async def _confirm_members(self) -> None:
        """Returns when the generation that is known is proven to be the present one."""
        while True:
            if await self._confirm():
                return
            await asyncio.sleep(_MEMBERS_RETRY_SECONDS)

    async def _commit(self, topic: str, records: Records) -> None:
        self._times.begin(Phase.COMMIT, topic)
        offsets = await self._ledger.write(records)
        if any(isinstance(value, TopicRecord) for _, value in records):
            self._times.end(Phase.COMMIT, topic)
            self._on_layout(records, offsets)
        if any(isinstance(value, FenceRecord) for _, value in records):
            self._times.begin(Phase.ACKNOWLEDGE, topic)
            # the layout, or the end of the fence, waits for one answer less: writes are held until it is there
            self._tasks.start(self._ledger.begin_transaction(), name="begin the next transaction")

    async def _prepare(self, controller: Controller, topic: str, partitions: int) -> None:
        problem, remembered_ms, has_many = None, REMEMBERED_MS, False
        try:
            await self._refuse_another(topic)
            if self.janitors.is_behind(topic):
                raise UpstreamUnavailable(f"the janitor of {topic} is behind")
            await self._admin.create_partitions(topic, partitions)
            await self._admin.wait_for_leaders(topic, partitions=partitions)
            remembered_ms = await self._admin.producers_remembered_ms() or REMEMBERED_MS
            has_many = await self._who_wrote.are_many(topic)
        except UpstreamUnavailable as error:
            if isinstance(error, TopicsRefused) and error.code in _FOR_GOOD:
                self._do(controller.on_refused(topic, error.code, str(error)))
                return
            log.warning("partitions_unready", topic=topic, error=str(error))
            problem = str(error)
        self._do(controller.on_prepared(topic, problem, clock(), remembered_ms, has_many=has_many))

    async def _refuse_another(self, topic: str) -> None:
        record = self._ledger.topics.get(topic)
        if record is not None and await self._admin.topic_id(topic) != record.layout.topic_id:
            raise UpstreamUnavailable(f"{topic} was deleted and made again")

    async def _cuts(self, command: ReadCuts) -> dict[int, Producers] | None:
        """Reads ends and producers until they stand still (STILL-CUT); None if they do not in time.

        On compacted topics they move on until the janitor has looked at all that stands before them.
        """
        topic, fence, partitions, ahead = command.topic, command.fence, command.partitions, command.ahead
        self._who_wrote.moved = False
        try:
            async with asyncio.timeout(CUT_SECONDS):
                cuts = await self._who_wrote.settled(topic, partitions, ahead)
                while await self.janitors.sweep(topic, fence, {q: cut.end for q, cut in cuts.items()}):
                    cuts = await self._who_wrote.settled(topic, partitions, ahead)
                if renewed := self._renewed_by(topic):
                    await self.janitors.bring_back(topic, fence, renewed)  # behind the cuts: first of the new segments
                return cuts
        except (TimeoutError, UpstreamUnavailable) as error:
            log.warning("cuts_unread", topic=topic, error=str(error) or f"no end stood still in {CUT_SECONDS} s")
            return None
