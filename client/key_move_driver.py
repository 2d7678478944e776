"""Performs what `moves.py` asks for: reports, calls of the application, and looking again in time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Final

from aiokafka.consumer.subscription_state import Assignment, SubscriptionState
from aiokafka.errors import GroupLoadInProgressError, KafkaError, RebalanceInProgressError
from aiokafka.structs import TopicPartition
from aiokafka.util import create_task

from kordon.client.application_progress import ApplicationProgress
from kordon.client.calls import Calls
from kordon.client.dialect_client import DialectClient
from kordon.client.known_layouts import KnownLayouts
from kordon.client.long_waits import LongWaits
from kordon.client.moves import KeyMoves
from kordon.client.moves_events import (
    Answered,
    Assigned,
    CallAssigned,
    CallFailed,
    CallMaybeRevoked,
    CallReturned,
    Event,
    Leaving,
    Left,
    MemberPositions,
    ReportFailed,
    Resume,
    SendReport,
    Stood,
    Ticked,
    Withhold,
)
from kordon.client.reports import ReportingGroup, ReportingMember, tell

# pyright: reportPrivateUsage=false
# aiokafka has no hooks; tests/client/test_aiokafka_parts.py fails when what is used here changes.

_log = logging.getLogger(__name__)

_ORDINARY: Final = (GroupLoadInProgressError, RebalanceInProgressError)
"""What a report meets where a Kordon has just begun to follow groups, or members come and go."""


class KeyMoveDriver:
    """One consumer's, from start to stop.

    Args:
        heartbeat_seconds: How often the group is told and asked.
        resume: Called when partitions may be fetched again.
        withhold: Called when what was fetched of partitions may not be delivered any more.
    """

    def __init__(
        self,
        client: DialectClient,
        subscription: SubscriptionState,
        *,
        calls: Calls,
        heartbeat_seconds: float,
        resume: Callable[[], None],
        withhold: Callable[[Collection[TopicPartition]], None],
    ) -> None:
        self.known = KnownLayouts(client)
        self.member: ReportingMember | None = None
        self._client = client
        self._subscription = subscription
        self.calls = calls
        self._hurry_seconds = min(0.2, heartbeat_seconds)
        self._resume = resume
        self._withhold = withhold
        self.application = ApplicationProgress(subscription, self._hurry_seconds)
        self.moves = KeyMoves(heartbeat_seconds, self._hurry_seconds)
        self._group: ReportingGroup | None = None
        self._assignment: Assignment | None = None
        """The one that the moves are about; None between two."""
        self._next_assignment: Assignment | None = None
        self._goes_on = False
        """Whether the next assignment is the one of now with more or fewer partitions."""
        self._stint = object()
        """What is under way belongs to it, and is of no interest behind it."""
        self._assigned_by: Mapping[str, int] = {}
        self._taken_at = 0.0
        self._long_waits = LongWaits()
        self._stale = False
        self._wake = asyncio.Event()
        self._under_way: set[asyncio.Task[None]] = set()
        self._call_task: asyncio.Task[None] | None = None
        self._task = create_task(self._run())

    def admits(self, assignment: Assignment, tp: TopicPartition, position: int) -> bool:
        """Whether a partition may be fetched from a position."""
        if self._client.layouts.get(tp.topic) is None:
            return True
        if assignment is not self._assignment:
            return False  # it is not known yet what holds it
        admitted = self.moves.admits(tp, position)
        if not admitted and self.application.stands_elsewhere(tp, position):
            self._wake.set()
        return admitted

    def came_back(self) -> None:
        """The application asks for more: all that it got before is handled."""
        self.application.came_back(self._assignment, self.moves.partitions)
        self._wake.set()

    def goes_elsewhere(self) -> None:
        """The application is about to go to another offset: what it got until now is to be flushed, however soon."""
        if self._assignment is not None:
            self._stand(self._assignment)

    def is_out_of_date(self) -> None:
        """An answer has shown that there is a newer layout than the one that is known."""
        self._stale = True
        self._wake.set()

    def look(self) -> None:
        """Something may have changed."""
        self._wake.set()

    def take(self, assignment: Assignment, group: ReportingGroup | None, assigned_by: Mapping[str, int]) -> None:
        """Partitions have been assigned.

        Args:
            group: None: the member is alone, so what it flushed itself is all there is to know.
            assigned_by: The layout epochs by which they were shared out, by topic.
        """
        self._goes_on = group is None and self._group is None and self._assignment is not None
        if not self._goes_on:
            self._stint = object()
        self._group, self._assigned_by, self._taken_at = group, assigned_by, _now()
        self._assignment, self._next_assignment = None, assignment
        self.member = ReportingMember(group.group_id, group.generation, group.member_id) if group is not None else None
        self._wake.set()

    async def give_up(self, *, all_is_handled: bool = False) -> None:
        """Lets the application flush what it has handled, before partitions are given up.

        Args:
            all_is_handled: The application is not working on a record: it has stopped the consumer.
        """
        assignment = self._assignment
        if assignment is None:
            return
        if not all_is_handled:
            await self.application.wait_until_back(assignment, self.moves.partitions, self.calls.seconds)
        self._stand(assignment, all_is_handled=all_is_handled)
        self._do(Leaving(_now()))
        while self._call_task is not None and not self._call_task.done():
            await asyncio.wait([self._call_task])
        for tp in self.moves.unflushed:
            _log.error("%s is given up with state that was not flushed", tp)

    def gone(self) -> None:
        """The partitions have been given up."""
        self._stint = object()
        self._assignment = self._next_assignment = None
        self.application.forget()
        self._do(Left(_now()))

    async def close(self) -> None:
        """Ends all that is under way."""
        for task in (self._task, *self._under_way):
            task.cancel()
        await asyncio.gather(self._task, *self._under_way, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while True:
                await self._until_due()
                await self._turn()
        except Exception as error:
            _log.exception("The driver of key moves has failed")
            # whoever waits for records waits in vain from now on
            self._subscription.abort_waiters(KafkaError(f"the driver of key moves has failed: {error!r}"))
            raise

    async def _until_due(self) -> None:
        due = self.moves.next_tick()
        timeout = None if due is None else max(due - _now(), 0.01)
        if self._stale or self._next_assignment is not None:
            timeout = self._hurry_seconds
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):  # wait_for may forget that this task is being ended
                await self._wake.wait()
        self._wake.clear()

    async def _turn(self) -> None:
        if self._stale:
            self._stale = False
            await self._client.force_metadata_update()
        if self._next_assignment is not None:
            await self._begin(self._next_assignment)
        if self._assignment is not None:
            await self._follow_layouts()
        if self._assignment is not None:
            places = self._stand(self._assignment)
            self._do(Ticked(_now()))
            self.application.ask(places)
            self._long_waits.look(self.moves.held, _now())

    def _stand(
        self, assignment: Assignment, *, all_is_handled: bool = False
    ) -> Mapping[TopicPartition, MemberPositions]:
        """Takes in where the partitions stand, and returns that."""
        places = self.application.places(assignment, self.moves.partitions, all_is_handled=all_is_handled)
        self._do(Stood(_now(), places))
        return places

    async def _begin(self, assignment: Assignment) -> None:
        """Begins with an assignment as soon as the segments of its topics are known."""
        topics = {tp.topic for tp in assignment.tps}
        if not assignment.active:
            self._next_assignment = None
            return
        is_known = await self.known.learn(topics, self._assigned_by, _now() - self._taken_at)
        is_wanted = self._next_assignment is assignment
        if is_known and is_wanted:
            self._assignment, self._next_assignment = assignment, None
            self._do(Assigned(_now(), assignment.tps, self.known.gates(topics), self._goes_on))
            self._resume()

    async def _follow_layouts(self) -> None:
        """Asks the group to share out partitions under a new layout; a member that is alone keeps its partitions."""
        assert self._assignment is not None
        topics = {tp.topic for tp in self._assignment.tps}
        epochs = {topic: self.known.epoch(topic) for topic in topics}
        newer = [topic for topic, epoch in epochs.items() if epoch > self._assigned_by.get(topic, -1)]
        if not newer:
            return
        if self._group is not None:
            self._group.request_rejoin()
        elif await self.known.segments.refresh(newer):
            self._assigned_by = {**self._assigned_by, **epochs}
            self._do(Assigned(_now(), self._assignment.tps, self.known.gates(topics), goes_on=True))

    def _do(self, event: Event) -> None:
        for command in self.moves.handle(event):
            match command:
                case CallMaybeRevoked() | CallAssigned():
                    self._call_task = self._start(self._call(command))
                case SendReport():
                    self._start(self._report(command))
                case Resume():
                    self._resume()
                case Withhold():
                    self._withhold(command.partitions)

    def _start(self, work: Coroutine[object, None, None]) -> asyncio.Task[None]:
        task: asyncio.Task[None] = create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def _call(self, call: CallMaybeRevoked | CallAssigned) -> None:
        stint = self._stint
        has_returned = await self.calls.make(call)
        if stint is self._stint:
            self._do(CallReturned(_now()) if has_returned else CallFailed(_now()))
            self._wake.set()

    async def _report(self, report: SendReport) -> None:
        stint = self._stint
        event: Event
        if self._group is None or self.member is None:
            nobodys = {row.partition: -1 for row in report.rows if row.needed and row.position < 0}
            event = Answered(_now(), nobodys, ())
        else:
            try:
                heard = await tell(self._client, report, self._group, self.member)
                event = Answered(_now(), heard.positions, heard.needed)
            except KafkaError as error:
                level = logging.INFO if isinstance(error, _ORDINARY) else logging.WARNING
                _log.log(level, "Positions were not told, and are told again: %r", error)
                event = ReportFailed(_now())
        if stint is self._stint:
            if self._assignment is not None:
                self._stand(self._assignment)
            self._do(event)


def _now() -> float:
    return time.monotonic()
