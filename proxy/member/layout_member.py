"""A worker's part in the control of managed topics: follows the layouts, holds a lease, keeps fences, leads if told to.

Until somebody wants a topic managed there is no layouts topic; then nothing of this runs but a look for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

import structlog

from kordon.proxy.controller.controller_role import ControllerRole
from kordon.proxy.controller.fence_times import FenceTimes
from kordon.proxy.controller.leading_worker import LeadingWorker
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.decisions.journal import Journal
from kordon.proxy.kafka.batches import NewRecord, Record
from kordon.proxy.kafka.internal_topic_log import LogLost
from kordon.proxy.member.fence_holder import FenceHolder
from kordon.proxy.member.findings import Findings
from kordon.proxy.member.layouts_follower import RETRY_SECONDS, LayoutsFollower
from kordon.proxy.member.leadership import Leadership
from kordon.proxy.member.lost_layouts import LostLayouts
from kordon.proxy.member.member_notes import MemberNotes
from kordon.proxy.member.membership import Generation, Membership
from kordon.proxy.member.record_intake import RecordIntake
from kordon.proxy.member.served import ServedParts
from kordon.proxy.member.serving_lease import ServingLease
from kordon.proxy.ordering.layouts_state import LayoutsState
from kordon.proxy.ordering.leftovers import GONE, Leftovers
from kordon.proxy.ordering.member import Forget
from kordon.proxy.ordering.records import GoneRecord, dump
from kordon.proxy.ordering.wishes import Resize, Wish
from kordon.proxy.own_topics.layouts_log import LayoutsLog
from kordon.proxy.own_topics.wishing import WISH_SECONDS, Wishing
from kordon.proxy.runtime.tasks import Tasks
from kordon.proxy.topics.managed_topics import ManagedTopics

log = structlog.get_logger(__name__)

_LEAVE_SECONDS: Final = 3.0
"""How long a worker that ends tries to say so; if it cannot, others wait for its lease."""


class LayoutMember:
    """Keeps a worker's managed topics current.

    Args:
        admit: Called with a topic. It raises TopicsRefused where Kordon lacks a right to manage the topic.

    Attributes:
        state: The state that the layouts describe.
        times: The durations of fences.
        findings: The findings about topics.
        lease: The lease, which says when managed topics are served.
        leadership: The holder of the controller's role, while this worker leads.
        know: Returns when the layouts have been read to their end, or when there are none; `start` comes first.
        wish: Called to send the controller a wish and to wait for its outcome.
    """

    def __init__(
        self,
        *,
        topics: ManagedTopics,
        layouts: LayoutsLog,
        membership: Membership,
        served: ServedParts,
        make_role: Callable[[LeadingWorker], ControllerRole],
        admit: Callable[[str], Awaitable[None]],
        journal: Journal,
    ) -> None:
        self._topics = topics
        self._layouts = layouts
        self._membership = membership
        self._served = served
        self._make_role = make_role
        self._tasks = tasks = Tasks()
        kept_seconds = {"outcome": 2 * WISH_SECONDS, "ack": 2 * WISH_SECONDS, GONE: 2 * membership.lease.seconds}
        self.state = LayoutsState(membership.incarnation, Leftovers(kept_seconds))
        self.times = FenceTimes()
        self._follower = LayoutsFollower(
            layouts,
            tasks,
            on_record=self.on_record,
            forget=self._forget,
            take_up=self._take_up,
            on_known=lambda: self._fence_holder.on_known(),  # noqa: PLW0108 - it is made below
        )
        self.leadership = Leadership(self._new_role, self._follower.read_to_end, tasks)
        self.findings = Findings(topics, self.state, self.leadership)
        self._lost = LostLayouts(self._follower.know, layouts, self.findings)
        self.know = self._lost.know
        notes = MemberNotes(journal)
        self._fence_holder = FenceHolder(
            topics,
            self.state.member,
            layouts,
            served,
            leadership=self.leadership,
            notes=notes,
            times=self.times,
            tasks=tasks,
        )
        self.lease = ServingLease(
            self.state,
            membership.lease.seconds,
            layouts=layouts,
            follower=self._follower,
            writes=served.writes,
            notes=notes,
            tasks=tasks,
        )
        wishing = Wishing(layouts, admit)
        self.wish = wishing.wish
        self._intake = RecordIntake(
            self.state,
            self.findings,
            self.leadership,
            wishing,
            self._fence_holder,
            withholds=self._follower.withholds,
            on_wish=self._get_ready_for,
        )

    def start(self) -> None:
        """Begins to follow the layouts, and to join the group as soon as there are any; until `leave`."""
        self._tasks.keep(self._follow, name="keep managed topics")
        self._tasks.keep(self._join, name="join the proxies' group")
        self._tasks.keep(self.lease.watch, name="watch the lease")
        self._tasks.keep(self._lost.run, name="look for lost layouts")

    async def leave(self, *, in_order: bool = True) -> None:
        """Ends; `in_order` if nothing of clients is under way to brokers, so that nobody waits for this lease."""
        await self._tasks.stop()  # nothing renews the lease from here on
        self.lease.end()
        if self.lease.generation is None and not self._membership.is_known:
            return  # nobody waits for it
        if in_order:
            await self._say_gone()
        await self._membership.stop()

    @property
    def lost(self) -> str:
        """The reason why the layouts can no longer be followed. Only a restart helps. Empty: they can."""
        return self._follower.lost

    @property
    def position(self) -> int:
        """The offset up to which the layouts topic has been read."""
        return self._layouts.position

    def may_serve(self) -> bool:
        """Whether managed topics are served now: the lease lives, the layouts are known."""
        return self.lease.may_serve()

    def may_mark(self, topic: str, epoch: int, fence: str | None) -> bool:
        """Whether something of Kordon's own may be written to a topic now, wherever it is.

        Args:
            epoch: The epoch of the layout that must be in force.
            fence: The fence that may stand, as whoever holds it writes; None: none may.
        """
        record, standing = self.state.member.topics.get(topic), self.state.member.fences.get(topic)
        is_open = standing is None or standing.id == fence
        is_open = is_open and topic not in self._topics.unserved
        return self.may_serve() and is_open and record is not None and record.layout.epoch == epoch

    def on_generation(self, generation: Generation) -> None:
        """Joined a generation of the group."""
        self.lease.on_generation(generation)
        self._lead_if_told(generation)
        if self.leadership.role is not None:
            self.leadership.role.on_members()

    def on_renewed(self, sent: float) -> None:
        """The lease was renewed, as was asked at a time on the clock of leases."""
        self.lease.on_renewed(sent)

    def on_lost(self) -> None:
        """This worker is no longer a member. What was admitted under the lease stays admitted until it ends."""
        self.state.presence.lost()
        self.leadership.stop()

    def on_record(self, record: Record) -> None:
        """Takes in a record of the layouts topic; one that cannot be read harms its own topic at most."""
        self._intake.on_record(record)

    async def _follow(self) -> None:
        await self._follower.run()
        self.state.member.on_joined()  # nobody knows what holds: nothing is served any more
        self.leadership.stop()
        await self._membership.stop()

    def _forget(self) -> None:
        """Forgets what was read; what is managed stays so, unserved, until all has been read again."""
        self.state.forget()
        self.leadership.stop()  # the controller begins from what the layouts say

    def _take_up(self, offsets: Mapping[str, int]) -> None:
        """Goes by what the layouts amount to that have been read again, where each key's last record has an offset."""
        member = self.state.member
        for name in self._topics.names - member.topics.keys() - member.fences.keys():
            self._fence_holder.perform(Forget(name), self.position)
        for key, command in member.standing():
            self._fence_holder.perform(command, offsets[key])
        self.findings.judge_again()
        if self.lease.generation is not None:
            self.lease.read_again()
            self._lead_if_told(self.lease.generation)

    async def _join(self) -> None:
        """Waits until there are layouts to keep; a cluster without managed topics gets no group.

        Whoever led while layouts that are lost are restored would keep them from being written.
        """
        while not self.lost:
            try:
                if await self._layouts.exists() and not self.findings.all_is_lost:
                    await self._membership.run(self)
            except UpstreamUnavailable as error:
                log.debug("layouts_not_looked_for", error=str(error))
            await asyncio.sleep(RETRY_SECONDS)

    def _lead_if_told(self, generation: Generation) -> None:
        if generation.leads:
            self.leadership.lead()
        else:
            self.leadership.stop()

    def _new_role(self) -> ControllerRole:
        return self._make_role(
            LeadingWorker(
                self.state,
                self._membership.confirm,
                self._fence_holder.take_layout,
                partial(self._intake.on_forged, error="no controller has raised this fence; it is lifted"),
                self.times,
            )
        )

    def _get_ready_for(self, wish: Wish) -> None:
        if isinstance(wish, Resize) and self.may_serve():
            self._tasks.start(self._get_ready(wish.topic), name=f"get ready to hold {wish.topic}")

    async def _get_ready(self, topic: str) -> None:
        """Dials, before clients wait for it, whom a fence asks: brokers may have closed what was idle for long."""
        await asyncio.gather(self._layouts.ready(), self._served.reads.ready(topic))

    async def _say_gone(self) -> None:
        """Tells the others that they need not wait for this worker's lease, once nothing that it sent can land."""
        gone = GoneRecord(self._membership.incarnation, self._membership.word)
        try:
            async with asyncio.timeout(_LEAVE_SECONDS):
                for topic in filter(None, map(self._topics.served, self._topics.names)):
                    every = frozenset(each.id.partition for each in topic.layout.segments)
                    await self._served.writes.drain(topic.name, every)
                await self._layouts.append([NewRecord(f"gone/{gone.incarnation}", dump(gone))])
        except (UpstreamUnavailable, LogLost, TimeoutError) as error:
            log.warning(
                "left_unsaid",
                error=str(error) or "no answer in time",
                cost="the other proxies wait until its lease has run out",
            )
