"""Performs the steps that `ordering.controller` asks for during a change, and reports to it what came of each."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from kordon.codecs.error_codes import Code
from kordon.proxy.controller.ahead import MOVES_ON, WhoWrote
from kordon.proxy.controller.context import ControllerContext
from kordon.proxy.controller.controller_notes import ControllerNotes
from kordon.proxy.controller.fence_times import Phase
from kordon.proxy.controller.janitor import Janitors
from kordon.proxy.controller.leading_worker import LeadingWorker
from kordon.proxy.controller.older_looks import OlderLooks
from kordon.proxy.controller.open_wishes import OpenWishes
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.topics_admin import TopicsRefused
from kordon.proxy.ordering.changes import (
    REMEMBERED_MS,
    Abandoned,
    AskEnds,
    AskOpen,
    Command,
    Commit,
    ConfirmMembers,
    Finished,
    Mended,
    Prepare,
    Producers,
    ReadCuts,
    WriteAhead,
)
from kordon.proxy.ordering.controller import Controller
from kordon.proxy.ordering.findings import records_lost
from kordon.proxy.ordering.placements import Placement
from kordon.proxy.ordering.records import FenceRecord, OutcomeRecord, TopicRecord
from kordon.proxy.own_topics.layouts_writer import Records
from kordon.proxy.runtime.clock import clock, now_ms
from kordon.proxy.topics.managed_topics import face_of

log = structlog.get_logger(__name__)

CUT_SECONDS: Final = 1.5
"""The longest time that Kordon waits for log ends to stop moving; it is less than the time that a fence lasts."""
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
"""Refusals that an admin client would get too, and that another attempt would not change."""


class ChangeSteps:
    """Performs the steps of changes.

    Args:
        janitors: The janitors, which look through compacted topics up to their cuts.
        open_wishes: The wishes that get their outcome when a change has ended.
    """

    def __init__(
        self,
        context: ControllerContext,
        worker: LeadingWorker,
        *,
        janitors: Janitors,
        open_wishes: OpenWishes,
        notes: ControllerNotes,
    ) -> None:
        self._ledger, self._admin, self._adoption, self._tasks, _ = context
        self._confirm, self._on_layout, self._times = worker.confirm, worker.on_layout, worker.times
        self._janitors = janitors
        self._open_wishes = open_wishes
        self._notes = notes
        self._who_wrote = WhoWrote(context.admin.ends, context.ledger, context.adoption)
        self._older = OlderLooks(context.admin)

    def do(self, commands: list[Command]) -> None:
        """Begins to perform commands. Any failure ends the role, and the next controller begins again."""
        for command in commands:
            if isinstance(command, ReadCuts):
                self._notes.enough(command.fence)
            self._tasks.start(self._perform(command), name=f"{type(command).__name__} {command.topic}")

    async def _perform(self, command: Command) -> None:
        try:
            await self._try(command)
        except Exception as error:  # whatever it is, the procedure waits for an answer: it begins again with the role
            self._ledger.fail(error)

    async def _try(self, command: Command) -> None:
        controller = self._ledger.controller
        if controller is None:
            return
        match command:
            case Commit(topic, records):
                await self._commit(topic, records)
                self._ledger.take(value for _, value in records if isinstance(value, TopicRecord))
                self.do(controller.on_committed(topic, clock()))
            case Prepare(topic, partitions):
                await self._prepare(controller, topic, partitions)
            case ConfirmMembers(topic, announcement):
                await self._confirm_members()
                self.do(controller.on_confirmed(topic, clock(), announcement))
            case AskEnds() | AskOpen():
                await self._look_for_older(controller, command)
            case WriteAhead(topic, _, images):
                problem, reason = await self._who_wrote.write_ahead(controller.known, command)
                self.do(controller.on_ahead(topic, images, clock(), problem, reason))
            case ReadCuts(topic, fence):
                self._times.end(Phase.ACKNOWLEDGE, topic)
                self._times.begin(Phase.CUT, topic)
                cuts = await self._cuts(command)
                self._times.end(Phase.CUT, topic)
                self._notes.cut(fence, cuts or {})
                reason = MOVES_ON if cuts is None and self._who_wrote.moved else ""
                self.do(controller.on_cuts(topic, fence, cuts, clock(), reason))
            case Finished() | Abandoned() | Mended():
                await self._end(command)

    async def _look_for_older(self, controller: Controller, command: AskEnds | AskOpen) -> None:
        announcing, topic = controller.announcing, command.topic
        if isinstance(command, AskEnds):
            self.do(announcing.on_ends(topic, command.announcement, await self._older.ends(command), clock()))
            return
        open_at, known = await self._older.open(command) or ((), None)
        self.do(announcing.on_open(topic, command.announcement, open_at, known, clock()))
        self._older.tell(controller, topic)

    async def _end(self, command: Finished | Abandoned | Mended) -> None:
        self._who_wrote.forget(command.topic)
        self._older.forget(command.topic)
        match command:
            case Finished(topic):
                await self._finish(topic)
            case Abandoned(topic, problem, code):
                await self._abandon(topic, problem, Code.INVALID_REQUEST if code is None else code)
            case Mended(topic):
                await self._ledger.write_finding(records_lost(self._ledger.topics[topic].layout, now_ms()))

    def _renewed_by(self, topic: str) -> tuple[int, ...]:
        change = self._ledger.controller.changes.get(topic) if self._ledger.controller is not None else None
        return change.fence.following.renewed if change is not None and change.fence is not None else ()

    async def _finish(self, topic: str) -> None:
        record = self._ledger.topics[topic]
        layout = record.layout
        log.info("layout_changed", topic=topic, epoch=layout.epoch, partitions=layout.u)
        if layout.epoch == 1 and layout.epochs[0].placement is Placement.UNMANAGED:
            log.info("topic_managed", topic=topic, partitions=layout.n, virtual_partitions=layout.v_count)
        if layout.epochs[-1].shortened:
            await self._ledger.write_finding(records_lost(layout, now_ms()))
        if topic in self._open_wishes.under_way:
            lowering = await self._adoption.wait_until_adopted(record)
            await self._open_wishes.conclude(topic, OutcomeRecord(0, ""), lowering)

    async def _abandon(self, topic: str, problem: str, code: int) -> None:
        """Gives up a change that has changed nothing yet, and concludes its wish."""
        log.warning("change_abandoned", topic=topic, problem=problem)
        if topic in self._open_wishes.under_way:
            if topic not in self._ledger.topics:  # a takeover: its face has no use
                await self._admin.delete_topic(face_of(topic))
            await self._open_wishes.conclude(topic, OutcomeRecord(code, problem))

    async def _confirm_members(self) -> None:
        """Returns when the known generation is proven to be the current one."""
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
            if self._janitors.is_behind(topic):
                raise UpstreamUnavailable(f"the janitor of {topic} is behind")
            await self._admin.create_partitions(topic, partitions)
            await self._admin.wait_for_leaders(topic, partitions=partitions)
            remembered_ms = await self._admin.producers_remembered_ms() or REMEMBERED_MS
            has_many = await self._who_wrote.are_many(topic)
        except UpstreamUnavailable as error:
            if isinstance(error, TopicsRefused) and error.code in _FOR_GOOD:
                self.do(controller.on_refused(topic, error.code, str(error)))
                return
            log.warning("partitions_unready", topic=topic, error=str(error))
            problem = str(error)
        self.do(controller.on_prepared(topic, problem, clock(), remembered_ms, has_many=has_many))

    async def _refuse_another(self, topic: str) -> None:
        record = self._ledger.topics.get(topic)
        if record is not None and await self._admin.topic_id(topic) != record.layout.topic_id:
            raise UpstreamUnavailable(f"{topic} was deleted and made again")

    async def _cuts(self, command: ReadCuts) -> dict[int, Producers] | None:
        """Reads ends and producers until they stop changing (STILL-CUT); None if they do not stop in time.

        The cuts of compacted topics move on until the janitor has looked at everything before them.
        """
        topic, fence, partitions, ahead = command.topic, command.fence, command.partitions, command.ahead
        try:
            async with asyncio.timeout(CUT_SECONDS):
                cuts = await self._who_wrote.settled(topic, partitions, ahead)
                while await self._janitors.sweep(topic, fence, {q: cut.end for q, cut in cuts.items()}):
                    cuts = await self._who_wrote.settled(topic, partitions, ahead)
                if renewed := self._renewed_by(topic):
                    await self._janitors.bring_back(topic, fence, renewed)  # behind the cuts: first of the new segments
                return cuts
        except (TimeoutError, UpstreamUnavailable) as error:
            log.warning("cuts_unread", topic=topic, error=str(error) or f"no end stood still in {CUT_SECONDS} s")
            return None
