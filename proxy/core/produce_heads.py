"""Reads how Produce requests begin: whether one has an answer, and whether it has to be held to be decided on."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from kordon.codecs.errors import WireError
from kordon.codecs.headers import RequestHeader, parse_request_header
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


class ProduceHead:
    """The beginning of a Produce request to one topic that has to be answered and names nothing that is asked for.

    Args:
        head: The bytes from the length of the client id to the end of the topic's name or id. The bytes before it
            differ from request to request.
        topic: The topic of the request; None: nobody has asked for it.
    """

    __slots__ = ("_header", "end", "head", "least_bytes", "route", "topic", "wanted")

    def __init__(self, route: Route, wanted: tuple[bytes, ...], head: bytes, topic: str | UUID | None) -> None:
        self.route = route
        self.wanted = wanted
        self.head = head
        self.topic = topic
        self.end = _CLIENT_ID_AT + len(head)
        self.least_bytes = self.end - SIZE_BYTES
        """The size of a request that is no longer than its head."""
        self._header: tuple[RequestHeader, int] | None = None

    def header_of(self, frame: bytearray) -> tuple[RequestHeader, int]:
        """Returns the header of a request that begins so, and where its body begins in the frame.

        The header has the correlation id of the first request that began so.
        """
        if self._header is None:
            header, header_bytes = parse_request_header(memoryview(frame)[SIZE_BYTES:])
            self._header = header, SIZE_BYTES + header_bytes
        return self._header


class ProduceHeads:
    """Looks at the heads of a connection's Produce requests.

    Most requests begin like the one before them, up to the name of their topic. They pass, or are held, without another
    look. Where handlers decide on some topics, a request passes only if it names one other topic, and that is here.

    Args:
        waiting: The queue that gets the requests that have an answer.
    """

    def __init__(self, limits: FrameLimits, waiting: Waiting, interception: Interception) -> None:
        self._limits = limits
        self._waiting = waiting
        self._interception = interception
        self._last: ProduceHead | None = None
        self.held: ProduceHead | None = None
        """How the request begins that is held, if it names one topic; None: that is not known."""

    def begin(self, pending: PendingRequest, size: int, chunk: memoryview, at: int, end: int) -> bool | None:
        """Queues a Produce request for its response, unless acks=0 says that none will come.

        Returns:
            Whether its whole head is there; None: the request has to be held.

        Raises:
            ClientProtocolError: The request is refused.
        """
        route, last = pending.route, self._last
        self.held = None
        wanted = self._interception.asked_for(route)
        if (
            last is not None
            and last.route is route
            and last.wanted is wanted
            and last.least_bytes <= size
            and chunk[at + _CLIENT_ID_AT : at + last.end].tobytes() == last.head
        ):
            if not self._is_decided_on(route, last.topic):
                self._waiting.append(pending)
                return True
            if last.topic is not None:
                self.held = last
                return None
        return self._look(pending, size, chunk, at, end)

    def _look(self, pending: PendingRequest, size: int, chunk: memoryview, at: int, end: int) -> bool | None:
        end = min(end, at + SIZE_BYTES + size)
        route = pending.route
        try:
            acks, topics_at = look_produce(chunk, at, end, route.version)
        except WireError as error:
            raise ClientProtocolError(CloseCause.MALFORMED_REQUEST, str(error)) from None
        if acks is None:
            return self._wait_for_acks(route, size, end - at)
        names_end = look_only_name(chunk, topics_at, end, route.version)
        is_wanted, topic = self._interception.wants(route), None
        if is_wanted and (topic := only_topic(chunk, topics_at, names_end, route.version)) is None:
            return None
        wanted = self._interception.asked_for(route)
        if wanted:
            said = chunk[at:names_end].tobytes() if names_end else look_names(chunk, at, topics_at, end, route.version)
            if said is None or holds_any(said, wanted):
                return None
        head = self._keep(route, wanted, chunk[at + _CLIENT_ID_AT : names_end], topic) if acks else None
        if self._is_decided_on(route, topic):
            self.held = head
            return None
        if acks:
            self._waiting.append(pending)
        return True

    def _wait_for_acks(self, route: Route, size: int, seen: int) -> bool:
        """Returns False, as the head is not all there; raises ClientProtocolError if it never will be."""
        if seen == SIZE_BYTES + size:
            raise ClientProtocolError(CloseCause.MALFORMED_REQUEST, "a Produce request ends before its acks")
        if seen > 2 * self._limits.header_bytes:
            raise too_long_a_head(self._limits, route.api.key, size)
        return False

    def _keep(
        self, route: Route, wanted: tuple[bytes, ...], head: memoryview, topic: str | UUID | None
    ) -> ProduceHead | None:
        """Keeps how a request begins that names one topic (else its head is empty), if that is not too long."""
        if not head or len(head) > _LONGEST_KEPT_HEAD:
            return None
        self._last = ProduceHead(route, wanted, head.tobytes(), topic)
        return self._last

    def _is_decided_on(self, route: Route, topic: str | UUID | None) -> bool:
        """Whether a request may have to be decided on; what is managed can change between two requests."""
        return self._interception.wants(route) and (topic is None or self._interception.concerns(topic))
