"""What managed topics need where brokers hold their clients to ACLs: Kordon's own rights, and those of faces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Final

import structlog

from kordon.proxy.control.acl_mirror import AclMirror
from kordon.proxy.control.codes import Code
from kordon.proxy.control.lease import clock
from kordon.proxy.control.open_rights import NO_AUTHORIZER, OpenRights
from kordon.proxy.control.own_rights import OwnRights
from kordon.proxy.control.topics_admin import TopicsAdmin, TopicsRefused
from kordon.proxy.errors import UpstreamUnavailable

log = structlog.get_logger(__name__)

_MIRROR_SECONDS: Final = 0.5
"""Between two looks at the ACLs of topics."""
_MOST_SAID: Final = 20
"""Of what is open, at a time: in large clusters there are thousands of ACLs."""
_LOOK_SECONDS: Final = 15.0
"""Between two looks for an authorizer: brokers get one when they are started again, one after the other."""


class Authorizer:
    """Follows whether brokers have an authorizer, and does what is to be done then.

    Args:
        admin: Asks brokers for it.
        mirror: Of ACLs.
        own_rights: Of Kordon.
        open_rights: Of others, on what is Kordon's own.
    """

    def __init__(self, admin: TopicsAdmin, mirror: AclMirror, own_rights: OwnRights, open_rights: OpenRights) -> None:
        self._open_rights = open_rights
        self._open: frozenset[str] = frozenset()
        self._admin = admin
        self._mirror = mirror
        self._own_rights = own_rights
        self.present = True
        """Whether there is one; until that is known it is taken for granted."""
        self._next_look = 0.0
        self._said: set[str] = set()

    async def admit(self, topic: str) -> None:
        """Sees that a topic can be managed: that Kordon has the rights for it, and its face has its ACLs.

        Raises:
            TopicsRefused: Kordon lacks a right.
            UpstreamUnavailable: Nobody answers.
        """
        before, self.present = self.present, await self._admin.has_authorizer()
        if self.present and not before:
            log.info("authorizer_seen")
        elif before and not self.present:
            log.info("no_authorizer")
        if not self.present:
            return
        missing = await self._own_rights.missing([topic])
        if missing:
            raise TopicsRefused(topic, Code.TOPIC_AUTHORIZATION_FAILED, "; ".join(map(str, missing)))
        await self._mirror.add(topic)

    async def run(self, topics: Callable[[], Collection[str]], leads: Callable[[], Collection[str] | None]) -> None:
        """Follows for ever.

        Args:
            topics: Returns what is managed.
            leads: Returns the topics whose ACLs this worker mirrors, being the controller; else None.
        """
        while True:
            try:
                await self._look(topics())
                led = leads()
                if self.present and led is not None:
                    await self._mirror.mirror(led)
            except TopicsRefused as error:
                if self._is_new(str(error)):
                    log.error("acls_not_mirrored", problem=str(error))
            except UpstreamUnavailable as error:
                log.debug("acls_unread", error=str(error))
            await asyncio.sleep(_MIRROR_SECONDS)

    async def _look(self, topics: Collection[str]) -> None:
        if clock() < self._next_look:
            return
        before, self.present = self.present, await self._admin.has_authorizer()
        if self.present and not before:
            log.info("authorizer_seen")
        elif before and not self.present:
            log.info("no_authorizer")
        if self.present and topics:
            missing = [str(each) for each in await self._own_rights.missing(topics)]
            self._said &= set(missing)
            for each in missing:
                if self._is_new(each):
                    log.error("right_missing", problem=each)
        if topics:
            await self._look_for_open()
        self._next_look = clock() + _LOOK_SECONDS

    async def _look_for_open(self) -> None:
        """Warns of what others than Kordon may do to its own topics at the brokers, once of each."""
        found = frozenset(await self._open_rights.find() if self.present else [NO_AUTHORIZER])
        for each in sorted(found - self._open)[:_MOST_SAID]:
            log.warning("own_topics_open", problem=each, more="docs/security.md#kordons-own-topics")
        self._open = found

    def _is_new(self, problem: str) -> bool:
        is_new = problem not in self._said
        self._said.add(problem)
        return is_new
