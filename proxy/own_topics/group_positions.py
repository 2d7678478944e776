"""Where groups stand, as all proxies know it: each reads the log of reports, and writes to it what its clients report.

Where a worker cannot tell whether what it knows is current, it knows nothing: readers wait then, which is always right.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from weakref import WeakValueDictionary

from kordon.proxy.kafka.batches import NewRecord, Record, in_batches
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.ordering.position_records import MemberKey, dump, key_of, load, place_of
from kordon.proxy.ordering.positions import MemberReport, Positions
from kordon.proxy.own_topics.compacted_topic import GROUPS
from kordon.proxy.own_topics.followed_log import BATCH_BYTES, WRITE_SECONDS, FollowedLog, what_is_said
from kordon.proxy.runtime.tasks import Tasks


class GroupPositions:
    """The positions of all groups, as one worker knows them.

    Args:
        topic: The name of the log.
    """

    def __init__(self, brokers: Brokers, topic: str = GROUPS.name) -> None:
        self.positions = Positions()
        """As far as has been read."""
        self.log = FollowedLog(brokers, replace(GROUPS, name=topic), self)
        self._changes: WeakValueDictionary[str, asyncio.Event] = WeakValueDictionary()
        """By group that somebody waits for."""

    @property
    def is_current(self) -> bool:
        """Whether what is known is all there is, give or take what is being written now."""
        return self.log.is_current

    def of(self, group_id: str, generation_id: int, topic: str, member_id: str) -> Mapping[int, int]:
        """Returns where a group stands, as evidence for one of its members.

        Args:
            generation_id: The generation in which the positions were reported.
            member_id: The member that asks. The log may have reports from before the group was deleted and created
                again. They are gone if this member's own report is known.

        Returns:
            Next offsets by partition; empty where the member has not reported in this generation, as far as has been
            read, or that is not known to be current. A view, good until something else is awaited.
        """
        return self.positions.of_member(group_id, generation_id, topic, member_id) if self.is_current else {}

    async def changed(self, group_id: str) -> None:
        """Returns when a position of a group has changed, or may have; the wait is the caller's to bound."""
        self.log.start()
        event = self._changes.get(group_id)
        if event is None:
            event = self._changes[group_id] = asyncio.Event()
        await event.wait()

    async def ready(self, timeout: float) -> None:
        """Waits until what is known is current.

        Raises:
            UpstreamUnavailable: The log is not read to its end within `timeout` seconds.
        """
        await self.log.ready(timeout)

    async def say(self, reports: Mapping[MemberKey, MemberReport | None], timeout: float = WRITE_SECONDS) -> None:
        """Writes reports in their order, and returns when they have been read back.

        Args:
            reports: Reports by member. None: the member has left.
            timeout: The time limit in seconds.

        Raises:
            UpstreamUnavailable: The records may or may not be written.
            ValueError: A report is too large.
        """
        entries = [NewRecord(key_of(place), None if each is None else dump(each)) for place, each in reports.items()]
        for batch in in_batches(entries, BATCH_BYTES):
            await self.log.write(batch, timeout)

    async def close(self) -> None:
        """Ends reading and writing."""
        await self.log.close()

    def take_in(self, record: Record) -> None:
        """Takes in a record of the log; if it cannot be read, its member has not reported.

        Raises:
            ValueError: The record cannot be read.
        """
        read = what_is_said(record, place_of, load)
        if read is None:
            return
        place, report = read
        before = self.positions.said(*place)
        self.positions.apply(*place, report)
        if before is None or report is None or _moved(before, report):
            self._tell([place.group_id])

    def forget(self) -> None:
        """Forgets all reports; whoever waits for a change is told."""
        self.positions = Positions()
        self._tell(list(self._changes))

    def caught_up(self, work: Tasks) -> None:
        """Wakes all tasks that wait for a change: what has been read now counts."""
        self._tell(list(self._changes))

    def _tell(self, groups: Sequence[str]) -> None:
        for group_id in groups:
            event = self._changes.pop(group_id, None)
            if event is not None:
                event.set()


def _moved(before: MemberReport, after: MemberReport) -> bool:
    owned = [{name: each.owned for name, each in report.topics.items()} for report in (before, after)]
    return before.generation_id != after.generation_id or owned[0] != owned[1]
