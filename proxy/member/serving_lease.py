"""When a worker may serve managed topics: under a live lease, and after it has read the layouts since it joined.

These are LIVE-LEASE and READ-BEFORE-SERVE.
"""

from __future__ import annotations

import asyncio
from functools import partial

from kordon.proxy.member.layouts_follower import RETRY_SECONDS, LayoutsFollower
from kordon.proxy.member.member_notes import MemberNotes
from kordon.proxy.member.membership import Generation
from kordon.proxy.member.served import ServedWrites
from kordon.proxy.ordering.layouts_state import LayoutsState
from kordon.proxy.own_topics.layouts_log import LayoutsLog
from kordon.proxy.runtime.clock import clock
from kordon.proxy.runtime.tasks import Tasks


class ServingLease:
    """Follows the worker's lease, and reads the layouts again wherever what is known may be old.

    Args:
        state: The state that the layouts describe. Its member holds the lease.
        seconds: The seconds for which a renewal holds.
        writes: The writes, which are told when they may judge what was kept behind an ended lease (LATE-ANSWER).
        tasks: The tasks that read the layouts. Whoever made them ends them.

    Attributes:
        generation: The generation of the proxies' group that was joined last; None: none was joined yet.
    """

    def __init__(
        self,
        state: LayoutsState,
        seconds: float,
        *,
        layouts: LayoutsLog,
        follower: LayoutsFollower,
        writes: ServedWrites,
        notes: MemberNotes,
        tasks: Tasks,
    ) -> None:
        self._state = state
        self._seconds = seconds
        self._layouts = layouts
        self._follower = follower
        self._writes = writes
        self._notes = notes
        self._tasks = tasks
        self._lives = asyncio.Event()
        self._catch_up_task: asyncio.Task[None] | None = None
        self.generation: Generation | None = None

    def may_serve(self) -> bool:
        """Whether managed topics are served now."""
        return self._state.member.may_serve(clock())

    def on_generation(self, generation: Generation) -> None:
        """Takes in a generation that was joined; nothing is served before the layouts have been read again."""
        self.generation = generation
        lease_seconds = max(generation.longest_lease_seconds, self._seconds)
        members = frozenset(each.incarnation for each in generation.members)
        seals = {each.incarnation: each.seal for each in generation.members if each.seal}
        hosts = {each.incarnation: each.host for each in generation.members}
        self._state.presence.joined(generation.number, members, lease_seconds, clock(), seals=seals, hosts=hosts)
        self._state.without_transactions = tuple(
            sorted(each.host for each in generation.members if not each.knows_transactions)
        )
        self._notes.joined(generation, self._layouts.position)
        self.read_again()

    def on_renewed(self, sent: float) -> None:
        """Takes in a renewal that was sent at a time on the clock of leases."""
        member = self._state.member
        if member.lease_expires <= clock():
            self._notes.lost(self.generation, self._layouts.position)
        reading = member.on_renewed(sent, self._seconds, clock())
        self._notes.alive(self.generation, self._layouts.position)
        self._lives.set()
        if reading is not None:
            self._catch_up(reading)

    def end(self) -> None:
        """Ends the lease at once: the worker leaves."""
        self._state.member.lease_expires = 0.0
        self._state.member.on_joined()
        self._notes.lost(self.generation, self._layouts.position)

    def read_again(self) -> None:
        """Serves nothing before the layouts are read to their end as of now (READ-BEFORE-SERVE)."""
        self._catch_up(self._state.member.on_joined())

    async def watch(self) -> None:
        """Notes when the lease has ended; what is served is decided by the clock, not by this."""
        while True:
            await self._lives.wait()
            left = self._state.member.lease_expires - clock()
            if left > 0:
                await asyncio.sleep(left)
                continue
            self._lives.clear()
            self._notes.lost(self.generation, self._layouts.position)

    def _catch_up(self, reading: int) -> None:
        if self._catch_up_task is not None:
            self._catch_up_task.cancel()
        self._catch_up_task = self._tasks.keep(partial(self._read, reading), name="read the layouts to their end")

    async def _read(self, reading: int) -> None:
        while not self._follower.lost:
            if await self._follower.reaches_end():
                if self._state.member.on_caught_up(reading) and self.may_serve():
                    self._writes.lease_renewed()
                return
            await asyncio.sleep(RETRY_SECONDS)
