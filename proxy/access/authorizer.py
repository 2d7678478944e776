"""What managed topics need where brokers hold their clients to ACLs: Kordon's own rights, and those of faces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Final

import structlog

from kordon.codecs.error_codes import Code
from kordon.proxy.access.acl_mirror import AclMirror
from kordon.proxy.access.wrong_rights import Access, WrongRights
from kordon.proxy.core.errors import UpstreamUnavailable
from kordon.proxy.kafka.topics_admin import TopicsRefused
from kordon.proxy.runtime.clock import clock

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
        access: The client that asks brokers for their authorizer and for rights.
    """

    def __init__(self, access: Access, mirror: AclMirror) -> None:
        self._access = access
        self._mirror = mirror
        self._open: frozenset[str] = frozenset()
        self.present = True
        """Whether there is one; until that is known it is taken for granted."""
        self._next_look = 0.0
        self._said: set[str] = set()

    async def admit(self, topic: str) -> None:
        """Sees that a topic can be managed: that Kordon has the rights for it, and its face has its ACLs.

        Raises:
            TopicsRefused: Kordon lacks a right.
            UpstreamUnavailable: No broker answers.
        """
        await self.refuse_lacking(topic)
        if self.present:
            await self._mirror.add(topic)

    async def refuse_lacking(self, topic: str) -> None:
        """Sees that Kordon has the rights to manage a topic, and changes nothing.

        Raises:
            TopicsRefused: Kordon lacks a right.
            UpstreamUnavailable: No broker answers.
        """
        self._note(present=await self._access.has_authorizer())
        missing = await self._access.missing([topic]) if self.present else []
        if missing:
            raise TopicsRefused(topic, Code.TOPIC_AUTHORIZATION_FAILED, "; ".join(map(str, missing)))

    async def run(self, topics: Callable[[], Collection[str]], leads: Callable[[], Collection[str] | None]) -> None:
        """Follows the authorizer until it is cancelled.

        Args:
            leads: Returns the topics whose ACLs this worker mirrors as the controller; None: it is not the controller.
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
        self._note(present=await self._access.has_authorizer())
        if topics:
            self._tell(await self._access.find(topics, authorizer=self.present))
        self._next_look = clock() + _LOOK_SECONDS

    def _note(self, *, present: bool) -> None:
        before, self.present = self.present, present
        if present and not before:
            log.info("authorizer_seen")
        elif before and not present:
            log.info("no_authorizer")

    def _tell(self, found: WrongRights) -> None:
        """Logs what is wrong, once of each."""
        self._said &= set(found.missing)
        for each in found.missing:
            if self._is_new(each):
                log.error("right_missing", problem=each)
        is_open = frozenset(found.open)
        for each in sorted(is_open - self._open)[:_MOST_SAID]:
            log.warning("own_topics_open", problem=each, more="docs/security.md#kordons-own-topics")
        self._open = is_open

    def _is_new(self, problem: str) -> bool:
        is_new = problem not in self._said
        self._said.add(problem)
        return is_new
