"""Who is in a group now, as its coordinator says, so that reports of those who are not are taken out in time.

A group that was deleted and made again counts its generations from 1 again. What members of its former life have
reported must not be taken for what those of the new one have; their ids are never given out again (a coordinator makes
a new one for whoever joins without). So before the first report of a member is written, all others that are known are
held against the group's members, asked for later than they were known: who is missing there is gone for good, and is
taken out of the log first. The broker is asked on the client's own connection (DescribeGroups needs less than joining).
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Final

from kordon.codecs import apis
from kordon.codecs.bodies import DescribeGroupsRequest, DescribeGroupsResponse, DescribeGroupsResponseGroup
from kordon.codecs.error_codes import Code
from kordon.codecs.messages import describe_groups
from kordon.proxy.core import verdicts
from kordon.proxy.core.interception import Question

_VERSION: Final = 5
"""Of DescribeGroups; spoken by all brokers since Kafka 2.4."""
_MOST_GROUPS: Final = 100
"""Whose members are remembered; others are asked for again."""
ASK_SECONDS: Final = 5.0
"""For a broker to say who is in a group, and for those who are not to be taken out."""


@dataclass(slots=True, eq=False)
class Roll:
    """One question for a group's members, for all who wait for its outcome."""

    group_id: str
    known: frozenset[str]
    """Who had reported when it was asked."""
    asked_at: float
    answer: asyncio.Future[DescribeGroupsResponseGroup]
    """What the broker says of the group."""
    over: asyncio.Event
    """Set when it is over, for better or worse."""


class Rosters:
    """The members of groups, as one worker has been told."""

    def __init__(self) -> None:
        self._members: OrderedDict[str, frozenset[str]] = OrderedDict()
        self._rolls: dict[str, Roll] = {}

    def vouches(self, group_id: str, member_id: str, others: Collection[str]) -> bool:
        """Whether a member and all others that are known have been in the group at the same time."""
        members = self._members.get(group_id, frozenset())
        return not others or (member_id in members and members.issuperset(others))

    def call(self, group_id: str, known: Collection[str]) -> tuple[Roll, Question | None]:
        """Returns what to wait for until `vouches` may say yes, and what has to be asked for that.

        Returns:
            A question that is under way already where there is one, and then none to ask. Whoever asks calls `settle`.
        """
        now = time.monotonic()
        under_way = self._rolls.get(group_id)
        if under_way is not None and now - under_way.asked_at < ASK_SECONDS:
            return under_way, None
        answer: asyncio.Future[DescribeGroupsResponseGroup] = asyncio.get_running_loop().create_future()
        roll = self._rolls[group_id] = Roll(group_id, frozenset(known), now, answer, asyncio.Event())

        def told(value: DescribeGroupsResponse) -> None:
            if not answer.done():
                answer.set_result(value.groups[0])

        route = verdicts.route(apis.DESCRIBE_GROUPS, _VERSION)
        assert route is not None, "DescribeGroups is spoken"
        asked = describe_groups.REQUEST.build(_VERSION, DescribeGroupsRequest(groups=[group_id]))
        return roll, Question(route, asked, told)

    async def settle(self, roll: Roll, take_out: Callable[[Collection[str]], Awaitable[None]]) -> int:
        """Waits for the answer, and has those taken out who are in the group no more.

        Args:
            take_out: Does it; when it returns, they are known no more.

        Returns:
            The broker's error code.

        Raises:
            UpstreamUnavailable: The members that are gone could not be removed from the log.
        """
        try:
            group = await roll.answer
            if group.error_code == Code.NONE:
                members = frozenset(each.member_id for each in group.members)
                if gone := roll.known - members:
                    await take_out(gone)
                self._members[roll.group_id] = members
                self._members.move_to_end(roll.group_id)
                if len(self._members) > _MOST_GROUPS:
                    self._members.popitem(last=False)
            return group.error_code
        finally:
            self.give_up(roll)

    def give_up(self, roll: Roll) -> None:
        """Ends the wait for a question, whatever its outcome."""
        roll.over.set()
        if self._rolls.get(roll.group_id) is roll:
            del self._rolls[roll.group_id]
