"""What is wrong with rights at the brokers: Kordon lacks some, or others have some on what is Kordon's own.

A running proxy logs it, and `kordon check --cluster` prints it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kordon.proxy.access.open_rights import NO_AUTHORIZER, OpenRights
from kordon.proxy.access.own_rights import Missing, OwnRights
from kordon.proxy.config.config import Upstream
from kordon.proxy.kafka.brokers import Brokers
from kordon.proxy.kafka.ends import TopicsRefused
from kordon.proxy.kafka.topics_admin import TopicsAdmin
from kordon.proxy.own_topics.layouts_topic import topics_with_faces

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of clients that neither log in nor show a certificate."""


def principal_of(upstream: Upstream) -> str | None:
    """Returns Kordon's principal; None: the brokers derive it from its certificate or token, by their own rules."""
    if upstream.sasl is not None:
        return f"User:{upstream.sasl.username}" if upstream.sasl.username is not None else None
    return ANONYMOUS if upstream.tls is None or upstream.tls.certificate is None else None


@dataclass(frozen=True, slots=True)
class WrongRights:
    """The wrong rights, each with the command that mends it."""

    missing: Sequence[str]
    """Rights that Kordon lacks."""
    open: Sequence[str]
    """What others than Kordon may do to its own topics, group and transactional id."""


class Access:
    """Asks brokers about rights.

    Args:
        principal: The principal that Kordon is to brokers, as `principal_of` tells it.
        share_groups: Whether Kordon serves share groups (`ordering.share_groups`).
    """

    def __init__(self, brokers: Brokers, principal: str | None, group: str, *, share_groups: bool = False) -> None:
        self._brokers = brokers
        self._share_groups = share_groups
        self._admin = TopicsAdmin(brokers)
        self._own = OwnRights(brokers, principal, group)
        self._open = OpenRights(brokers, principal, group)

    async def has_authorizer(self) -> bool:
        """Whether a broker holds clients to ACLs; a broker that does not say counts as one that does.

        Raises:
            UpstreamUnavailable: A broker does not answer.
        """
        return await self._admin.has_authorizer()

    async def missing(self, topics: Iterable[str]) -> list[Missing]:
        """Returns what Kordon lacks to manage topics, where there is an authorizer.

        Raises:
            UpstreamUnavailable: No broker answers.
        """
        return await self._own.missing(topics)

    async def find(self, topics: Iterable[str], *, authorizer: bool) -> WrongRights:
        """Returns all that is wrong.

        Raises:
            UpstreamUnavailable: No broker answers.
        """
        if not authorizer:
            return WrongRights(missing=(), open=[NO_AUTHORIZER])
        missing = await self.missing(topics)
        if self._share_groups:
            missing += await self._own.missing_for_share_groups()
        return WrongRights(missing=[str(each) for each in missing], open=await self._find_open())

    async def _find_open(self) -> list[str]:
        try:
            return await self._open.find()
        except TopicsRefused as refusal:
            return [f"who else may change Kordon's own topics cannot be seen: {refusal}"]

    async def managed(self) -> list[str]:
        """Returns the managed topics, found by their faces without reading the layouts.

        Raises:
            UpstreamUnavailable: No broker answers.
        """
        return await topics_with_faces(self._brokers)
