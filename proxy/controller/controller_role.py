"""The controller's role: changes layouts as `ordering.controller` says, while this proxy leads the proxies' group."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import Final

import structlog

from kordon.proxy.controller.adoption import Adoption
from kordon.proxy.controller.bindings import Bindings
from kordon.proxy.controller.change_steps import ChangeSteps
from kordon.proxy.controller.compaction import Compaction
from kordon.proxy.controller.context import ControllerContext
from kordon.proxy.controller.controller_notes import ControllerNotes
from kordon.proxy.controller.forged_fences import ForgedFences
from kordon.proxy.controller.janitor import Janitors
from kordon.proxy.controller.leading_worker import LeadingWorker
from kordon.proxy.controller.ledger import Ledger
from kordon.proxy.controller.managing import Managing
from kordon.proxy.controller.mending import Mending
from kordon.proxy.controller.open_wishes import OpenWishes
from kordon.proxy.controller.shortened_logs import ShortenedLogs
from kordon.proxy.controller.sweeping import Sweeping
from kordon.proxy.controller.takeover_steps import TakeoverSteps
from kordon.proxy.controller.takeovers import Takeovers
from kordon.proxy.controller.topic_janitor import JanitorTools
from kordon.proxy.controller.transacting import Transacting
from kordon.proxy.controller.unmanaging import Unmanaging
from kordon.proxy.controller.verifying import Verifying
from kordon.proxy.controller.wish_queue import WishQueue
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.decisions.journal import Journal
from kordon.proxy.kafka.topics_admin import TopicsAdmin
from kordon.proxy.ordering.changes import Command, Stage
from kordon.proxy.ordering.controller import Controller
from kordon.proxy.ordering.layout import Layout
from kordon.proxy.ordering.records import AnnouncementRecord
from kordon.proxy.ordering.wishes import Manage, Wish
from kordon.proxy.own_topics.layouts_writer import LayoutsWriter
from kordon.proxy.runtime.clock import clock
from kordon.proxy.runtime.tasks import Tasks

log = structlog.get_logger(__name__)

TICK_SECONDS: Final = 0.1


class ControllerRole:
    """The controller's role, from taking over to standing down.

    Args:
        writer: The writer of layouts. It fences all former controllers when it is opened.
        admit: Called with a topic. It raises TopicsRefused where Kordon lacks a right to manage the topic.
        tools: The tools of the janitors of compacted topics.
    """

    def __init__(
        self,
        worker: LeadingWorker,
        *,
        admin: TopicsAdmin,
        writer: LayoutsWriter,
        admit: Callable[[str], Awaitable[None]],
        takeovers: Takeovers,
        tools: JanitorTools,
        journal: Journal,
    ) -> None:
        self._state = state = worker.state
        self._writer = writer
        self._tasks = Tasks()
        self._told_waits: Mapping[str, float] = {}
        self._notes = notes = ControllerNotes(journal, state.members)
        self._ledger = ledger = Ledger(writer, notes, state.findings)
        self._adoption = Adoption(ledger, state.members)
        context = ControllerContext(ledger, admin, self._adoption, self._tasks, self._do)
        why_untouched = state.unread.why_unserved
        self._open_wishes = OpenWishes(ledger)
        unmanaging = Unmanaging(context, worker.confirm)
        self._bindings = Bindings(context, unmanaging, self._open_wishes)
        compaction = Compaction(admin, tools.least_lag_ms)
        self.janitors = Janitors(context, tools, compaction, state.looked_to)
        self._steps = ChangeSteps(context, worker, janitors=self.janitors, open_wishes=self._open_wishes, notes=notes)
        self._mending = Mending(context)
        self._shortened = ShortenedLogs(admin.ends, self._layouts, self._mending.mend)
        self._verifying = Verifying(context)
        self._sweeping = Sweeping(ledger, state.leftovers, state.members)
        self._forged = ForgedFences(
            ledger, state.standing_fences, why_untouched=why_untouched, on_forged=worker.on_forged
        )
        self._takeovers = TakeoverSteps(context, takeovers)
        self._wish_queue = WishQueue(
            context,
            self._open_wishes,
            managing=Managing(context, admit, bindings=self._bindings, takeovers=takeovers, compaction=compaction),
            unmanaging=unmanaging,
            transacting=Transacting(context, state, worker.confirm, compaction),
            takeovers=self._takeovers,
            bindings=self._bindings,
            why_untouched=why_untouched,
        )

    @property
    def controller(self) -> Controller | None:
        """The state of all procedures; None until this proxy has taken over."""
        return self._ledger.controller

    @property
    def wished_since(self) -> Mapping[str, float]:
        """The time since which a wish for a topic is open, by topic, on the clock of leases."""
        return self._open_wishes.since

    @property
    def topics(self) -> frozenset[str]:
        """The topics that are managed, or wished to be."""
        wished = {each.topic for each in self._open_wishes.all if isinstance(each, Manage)}
        return frozenset(self._ledger.topics.keys() | wished)

    async def run(self, read_to_end: Callable[[], Awaitable[object]]) -> None:
        """Leads until cancelled, or until another controller writes.

        Args:
            read_to_end: Called to read the layouts to an end that is taken at the call (ONE-CONTROLLER).

        Raises:
            Fenced: Another controller has taken over.
            UpstreamUnavailable: The cluster does not answer; lead again later, from the beginning.
        """
        try:
            await self._take_over(read_to_end)
            now = clock()
            found = self._state.known()
            if not found:
                self._state.presence.nobody_served(now)
            alone_from = self._state.presence.alone_from
            controller = self._ledger.controller = Controller(self._state.members(), alone_from)
            for record, images in found.values():
                self._ledger.take((record,))
                controller.known.know(record, images)
            found_fences = self._forged.found(self._writer.producer_id)
            fences = {topic: fence for topic, fence in self._state.fences().items() if topic in found_fences}
            wishes = dict(self._state.wishes)
            log.info(
                "controller_began",
                topics=len(found),
                unfinished=len(fences),
                wishes=len(wishes),
                waits_seconds=round(max(alone_from - now, 0.0), 1),
            )
            announced = self._state.member.announcements
            controller.announcing.announced.inherit(each for topic, each in announced.items() if topic in found)
            for fence in fences.values():
                self._notes.found(fence)
                self._do(controller.found_fence(fence, now))
            for wish_id, wish in wishes.items():
                self.on_wish(wish_id, wish)
            self._tasks.keep(self._bindings.run, name="hold layouts to their topics")
            self._tasks.keep(self._shortened.run, name="hold logs to their layouts")
            self._tasks.keep(self.janitors.run, name="look through compacted topics")
            self._tasks.keep(self._verifying.run, name="look whether transactions are verified")
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
            self._do(controller.announcing.withdraw_stale(self._is_idle, clock()))
            self._tell_waits(controller)
            self._wish_queue.begin_next()
            self._takeovers.begin_next()
            if forged := self._forged.look(clock()):
                self._tasks.start(self._forged.lift(forged), name="lift forged fences")
        self._ledger.raise_failure()

    def _is_idle(self, topic: str) -> bool:
        """Whether nothing happens with a topic and no wish for it is open."""
        wishes, controller = self._open_wishes, self.controller
        is_changing = controller is not None and topic in controller.changes
        return not (is_changing or topic in self._ledger.busy or topic in wishes.by_topic or topic in wishes.under_way)

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
            presence = self._state.presence
            self._do(self.controller.on_members(presence.members, clock(), presence.alone_from))

    def on_ack(
        self, fence: str, incarnation: str, told: Mapping[int, int] | None = None, offset: int | None = None
    ) -> None:
        """A proxy holds what a fence names; `told` as in `AckRecord`.

        The acknowledgement was read at `offset`; None: it was not, as it is this worker's own.
        """
        self._notes.on_ack(fence, incarnation, offset)
        self._adoption.on_ack(fence, incarnation)
        if self.controller is not None:
            self._do(self.controller.on_ack(fence, incarnation, clock(), told))

    def begin_anew(self, reason: str) -> None:
        """Ends the role; the next controller, this proxy or another, begins from what the layouts say then."""
        self._ledger.fail(UpstreamUnavailable(reason))

    def raised(self, fence: str) -> bool:
        """Whether a fence is one of this controller's."""
        return self._adoption.raised(fence) or (self.controller is not None and self.controller.raised(fence))

    def why_forged(self, topic: str, announced: AnnouncementRecord | None) -> str:
        """Says why an announcement that was read, or its tombstone, is none of a controller's; empty if it is.

        The first is withdrawn then, and what the second takes away is written again.
        """
        if self.controller is None:
            return ""
        standing = self.controller.announcing.announced
        if announced is not None:
            return "no controller has announced this; it is withdrawn" if standing.is_others(announced) else ""
        if standing.taken_away(topic) is None:
            return ""
        self._tasks.start(self._announce_again(topic), name=f"announce again what comes of {topic}")
        return "no controller has taken this announcement away; it is written again"

    async def _announce_again(self, topic: str) -> None:
        """Writes the announcement that stands by then; a failure ends the role, as with any write of the controller."""
        controller = self.controller
        record = controller.announcing.announced.taken_away(topic) if controller is not None else None
        if record is not None:
            await self._ledger.attempt(((f"announcement/{topic}", record),))

    def on_wish(self, wish_id: str, wish: Wish) -> None:
        """Somebody wants something; wishes for one topic come true one after the other."""
        if self.controller is not None:
            self._wish_queue.on_wish(wish_id, wish)

    def _layouts(self) -> list[Layout]:
        return [record.layout for record in self._ledger.topics.values()]

    def _do(self, commands: list[Command]) -> None:
        self._steps.do(commands)
