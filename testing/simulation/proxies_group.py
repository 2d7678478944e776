"""The coordinator of the proxies' group as a proxy of the simulation asks it; what it asks for is the product's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kordon.codecs.error_codes import Code
from kordon.proxy.kafka.group import About, GroupMember, GroupRefused, Joined

if TYPE_CHECKING:
    from kordon.testing.simulation.proxies import Proxy


class Coordinator:
    """What `GroupCoordinator` is to the product.

    Args:
        proxy: Who asks.
    """

    def __init__(self, proxy: Proxy, *_: str) -> None:
        self._proxy = proxy
        self._group = proxy.cluster.group
        self._about = proxy.cluster.about
        self.member_id = ""

    def close(self) -> None:
        """Has no connection."""

    async def join(self, about: About, session_ms: int) -> Joined:
        """Joins, and returns when the rebalance has ended."""
        del session_ms
        name, answer = self._proxy.name, self._proxy.loop.create_future()
        self._about[name] = GroupMember(name, name, about.host, about.lease_ms, about.seal, about.knows_transactions)

        def joined(generation: int, members: list[str]) -> None:
            found = Joined(generation, name, members[0], tuple(self._about[each] for each in members))
            self._proxy.later(lambda: None if answer.done() else answer.set_result(found))

        self._proxy.later_there(lambda: self._group.join(name, joined))
        found: Joined = await answer
        self.member_id = found.member_id
        return found

    async def sync(self, joined: Joined) -> tuple[GroupMember, ...]:
        """Gives everybody the list of members."""
        await self.beat(joined)
        return joined.members

    async def beat(self, joined: Joined) -> None:
        """Says that the member is there."""
        name = self._proxy.name
        fine = await self._proxy.asked(lambda: self._group.heartbeat(name, joined.generation))
        if not fine:
            raise self._refused("heartbeat", is_over=fine is False)

    async def commit(self, joined: Joined, topic: str, offset: int, metadata: str) -> None:
        """Commits, as members of the present generation may."""
        del topic, offset, metadata
        name = self._proxy.name
        if not await self._proxy.asked(lambda: self._group.commit(name, joined.generation)):
            raise self._refused("committing", is_over=False)

    async def leave(self) -> None:
        """Leaves."""
        await self._proxy.asked(lambda: self._group.leave(self._proxy.name))
        self.member_id = ""

    def _refused(self, what: str, *, is_over: bool) -> GroupRefused:
        if is_over:
            return GroupRefused(what, Code.REBALANCE_IN_PROGRESS)
        is_known = self._proxy.name in self._group.members
        return GroupRefused(what, Code.ILLEGAL_GENERATION if is_known else Code.UNKNOWN_MEMBER_ID)
