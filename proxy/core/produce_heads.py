"""Reads how Produce requests begin: whether one has an answer, and whether it has to be held to be decided on."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from kordon.codecs.errors import WireError
from kordon.codecs.look import (
    REQUEST_LOOK_BYTES,
    SIZE_BYTES,
    holds_any,
    look_names,
    look_only_name,
    look_produce,
    only_topic,
)
from kordon.proxy.core.causes import CloseCause
from kordon.proxy.core.errors import ClientProtocolError
from kordon.proxy.core.frame_limits import FrameLimits, too_long_a_head
from kordon.proxy.core.interception import Interception
from kordon.proxy.core.verdicts import Route
from kordon.proxy.core.waiting import PendingRequest, Waiting

_CLIENT_ID_AT: Final = REQUEST_LOOK_BYTES - 2
"""Where a frame has the length of the client id: after the correlation id."""
_LONGEST_KEPT_HEAD: Final = 1024
"""The most bytes that are kept of what a Produce request has before its records; a name takes up to 249."""


class _ProduceHead:
    """The beginning of a Produce request to one topic that has to be answered and names nothing that is asked for.

    Args:
        head: The bytes from the length of the client id to the end of the topic's name or id. The bytes before it
            differ from request to request.
        topic: Its topic; None: nobody has asked for it.
    """

    __slots__ = ("end", "head", "least_bytes", "route", "topic", "wanted")

    def __init__(self, route: Route, wanted: tuple[bytes, ...], head: bytes, topic: str | UUID | None) -> None:
        self.route = route
        self.wanted = wanted
        self.head = head
        self.topic = topic
        self.end = _CLIENT_ID_AT + len(head)
        self.least_bytes = self.end - SIZE_BYTES
        """The size of a request that is no longer than its head."""


class ProduceHeads:
    """Looks at the heads of a connection's Produce requests.

    Most requests begin like the one before them, up to the name of their topic. They pass without another look. Where
    handlers decide on some topics, a request passes only if it names one other topic, and that is here.

    Args:
        waiting: Gets the requests that have an answer.
    """

    def __init__(self, limits: FrameLimits, waiting: Waiting, interception: Interception) -> None:
        self._limits = limits
        self._waiting = waiting
        self._interception = interception
        self._last: _ProduceHead | None = None

    def begin(self, pending: PendingRequest, size: int, chunk: memoryview, at: int, end: int) -> bool | None:
        """Queues a Produce request for its response, unless acks=0 says that none will come.

        Returns:
            Whether its whole head is there; None: the request has to be held.

        Raises:
            ClientProtocolError: It is refused.
        """
        route, last = pending.route, self._last
        wanted = self._interception.asked_for(route)
        if (
            last is not None
            and last.route is route
            and last.wanted is wanted
            and last.least_bytes <= size
            and chunk[at + _CLIENT_ID_AT : at + last.end].tobytes() == last.head
            and not self._is_decided_on(route, last.topic)
        ):
            self._waiting.append(pending)
            return True
        return self._look(pending, size, chunk, at, end)

    def _look(self, pending: PendingRequest, size: int, chunk: memoryview, at: int, end: int) -> bool | None:
        frame_end = at + SIZE_BYTES + size
        end = min(end, frame_end)
        route = pending.route
        try:
            acks, topics_at = look_produce(chunk, at, end, route.version)
        except WireError as error:
            raise ClientProtocolError(CloseCause.MALFORMED_REQUEST, str(error)) from None
        if acks is None:
            if end == frame_end:
                raise ClientProtocolError(CloseCause.MALFORMED_REQUEST, "a Produce request ends before its acks")
            if end - at > 2 * self._limits.header_bytes:
                raise too_long_a_head(self._limits, route.api.key, size)
            return False
        names_end = look_only_name(chunk, topics_at, end, route.version)
        topic = None
        if self._interception.wants(route) and (topic := self._other_topic(route, chunk, topics_at, names_end)) is None:
            return None
        if wanted := self._interception.asked_for(route):
            said = chunk[at:names_end].tobytes() if names_end else None
            said = said or look_names(chunk, at, topics_at, end, route.version)
            if said is None or holds_any(said, wanted):
                return None
        if acks != 0:
            self._waiting.append(pending)
            if names_end and names_end - at <= _LONGEST_KEPT_HEAD:
                head = chunk[at + _CLIENT_ID_AT : names_end].tobytes()
                self._last = _ProduceHead(route, wanted, head, topic)
        return True

    def _other_topic(self, route: Route, chunk: memoryview, topics_at: int, names_end: int) -> str | UUID | None:
        """Returns the only topic of a request if nothing is decided on for it; None: it has to be held."""
        topic = only_topic(chunk, topics_at, names_end, route.version)
        return None if topic is None or self._interception.concerns(topic) else topic

    def _is_decided_on(self, route: Route, topic: str | UUID | None) -> bool:
        """Whether a request may have to be decided on; what is managed can change between two requests."""
        return self._interception.wants(route) and (topic is None or self._interception.concerns(topic))
