"""Requests on their way upstream: cut into frames, judged by their first bytes, streamed on as they come.

begin ──(head is all there, verdict: pass or rewrite)──> body ──(last byte)──> begin
  ├────(answered here)──> body, dropped ──(last byte)──────────────────────────^
  ├────(may concern a managed topic)──> body, held ──(last byte: decided)──────^
  │                                       ├──(large: decided on in turns)──> unread ──(decided)──> begin
  │                                       └──(Kordon asks the broker)──────> unread ──(answered)─> begin
  └────(the same, too large for a client that has proved nothing)──> unread ──(proof)──> begin
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kordon.codecs import apis
from kordon.codecs.look import REQUEST_LOOK_BYTES, SIZE_BYTES, SMALLEST_REQUEST, Buffer, holds_any, look_request
from kordon.codecs.turns import MOST_BYTES_AT_ONCE
from kordon.proxy.core import verdicts
from kordon.proxy.core.answers import unsupported_api_versions
from kordon.proxy.core.causes import CloseCause
from kordon.proxy.core.errors import ClientProtocolError
from kordon.proxy.core.frame_limits import FrameLimits, check_size, too_long_a_head
from kordon.proxy.core.interception import Interception
from kordon.proxy.core.produce_heads import ProduceHeads
from kordon.proxy.core.tally import Tally
from kordon.proxy.core.verdicts import Route, api_name
from kordon.proxy.core.waiting import ConnectionMemory, PendingRequest, Waiting
from kordon.proxy.core.whole_requests import WholeRequests

_UNSUPPORTED: Final = "UNSUPPORTED_VERSION"


class Undecided(NamedTuple):
    """A request that has so many rows, perhaps, that it is decided on in turns with the event loop."""

    pending: PendingRequest
    frame: bytearray


class RequestLeg:
    """One connection's requests; owned by its `Connection`."""

    def __init__(
        self, limits: FrameLimits, tally: Tally, waiting: Waiting, interception: Interception, kept: ConnectionMemory
    ) -> None:
        self.unread = 0
        """Bytes at the end of the last chunk that must come again before the next one."""
        self.frames = 0
        """Frames whose head was accepted."""
        self.draining = False
        self.frame_started: float | None = None
        """When the first byte of the frame under way was seen; None between frames."""
        self._limits = limits
        self._header_bytes = limits.header_bytes
        self._frame_bytes = limits.frame_bytes
        self._kept = kept
        self.whole = WholeRequests(waiting, interception, kept)
        """Decides on the requests that are held."""
        self._produce_heads = ProduceHeads(limits, waiting, interception)
        self.proven = False
        """Whether the broker has answered a request that it answers only after a log-in."""
        self.lacks_proof: int | None = None
        """Size of the request that is not read before there is proof; None: there is none."""
        self._tally = tally
        self._waiting = waiting
        self._remaining = 0
        self._dropping = False
        self._held: bytearray | None = None  # the frame under way, where it is not sent before it is whole
        self._interception = interception
        self._current: PendingRequest | None = None
        self.undecided: Undecided | None = None
        """A large request that is all there; what comes behind it stays unread until it is decided on."""
        self.completed: list[PendingRequest] = []

    def receive(self, chunk: memoryview, now: float) -> list[Buffer] | None:
        """Takes the next bytes of the client.

        Args:
            chunk: The bytes, after what was left `unread`.
            now: Seconds of a monotonic clock.

        Returns:
            What goes to the broker: views into `chunk`, and requests that were held. None: all of `chunk` as it is,
            one frame or a part of one, as it nearly always comes.

        Raises:
            ClientProtocolError: A frame that is refused.
        """
        end = len(chunk)
        begun = self._remaining or self._begin(chunk, 0, end, now)
        if begun and end <= self._remaining and not self._dropping and self._held is None:
            self.unread = 0
            self._remaining -= end
            if not self._remaining:
                self._complete([])
            return None
        return self._cut(chunk, end, now) if begun else self._leave(end)

    def _cut(self, chunk: memoryview, end: int, now: float) -> list[Buffer]:
        """Goes through the frames of a chunk, of which the first has begun."""
        at = start = 0
        pieces: list[Buffer] = []
        while at < end and self.undecided is None and (self._remaining or self._begin(chunk, at, end, now)):
            takes_out = self._dropping or self._held is not None
            if takes_out and at > start:
                pieces.append(chunk[start:at])
            step = min(self._remaining, end - at)
            if self._held is not None:
                self._held += chunk[at : at + step]
                self._kept.memory_bytes += step
            at += step
            self._remaining -= step
            if takes_out:
                start = at
            if not self._remaining:
                self._complete(pieces)
        if at > start:
            pieces.append(chunk[start:at])
        self._leave(end - at)
        return pieces

    def _leave(self, unread: int) -> list[Buffer]:
        """Leaves the end of a chunk unread; what begins while draining is not read at all."""
        self.unread = 0 if self.draining and not self._remaining else unread
        return []

    def forget(self) -> None:
        """Lets go of the request that is held: its connection is closed."""
        self._held = self.undecided = None
        self._kept.forget()

    def performed(self, now: float) -> None:
        """Notes that the frames completed since the last call have been handed to the broker's socket."""
        for pending in self.completed:
            pending.handed = now
            self._tally.request_seconds.observe(now - pending.started)
        self.completed.clear()

    @property
    def under_way(self) -> bool:
        """Whether an accepted frame is not complete yet, or not decided on."""
        return self._remaining > 0 or self.undecided is not None

    @property
    def passing(self) -> PendingRequest | None:
        """The request of which a part has gone to the broker, or may soon, and that awaits no answer yet."""
        if self.undecided is not None:
            return self.undecided.pending
        return self._current if self._remaining and self._held is None and not self._dropping else None

    def restart_clock(self, now: float) -> None:
        """Forgives the time that a frame under way has taken so far."""
        if self.frame_started is not None:
            self.frame_started = now

    def _begin(self, chunk: memoryview, at: int, end: int, now: float) -> bool:
        """Judges the frame at `at`; False if its head is not all there yet, or none may begin any more."""
        if self.draining or self.whole.conferring is not None:
            return False
        if self.frame_started is None:
            self.frame_started = now
        if end - at < REQUEST_LOOK_BYTES:
            return self._look_at_beginning(chunk, at, end)
        size, api_key, api_version, correlation_id, client_id_bytes = look_request(chunk, at)
        if not SMALLEST_REQUEST <= size <= self._frame_bytes:
            check_size(self._limits, chunk, at, is_first=not self.frames)
        if client_id_bytes > self._header_bytes or client_id_bytes > size - SMALLEST_REQUEST:
            raise too_long_a_head(self._limits, api_key, size, client_id_bytes)
        route = verdicts.route(api_key, api_version) or self._private_route(api_key, api_version)
        if route is None:
            self._hear(chunk, at + REQUEST_LOOK_BYTES, end, client_id_bytes)
            pending = self._answer_or_refuse(api_key, api_version, correlation_id)
        else:
            pending = PendingRequest(route, correlation_id, self.frame_started)
            if route.api.brings_records:
                is_taken = self._produce_heads.begin(pending, size, chunk, at, end)
            elif self._interception.wants(route):
                is_taken = self._take_untouched(pending, size, chunk, at, end) if route.api.polls else None
            else:
                is_taken = self._take_up(pending, size, chunk, at, end)
            if not (self._begin_held(route, size) if is_taken is None else is_taken):
                return False
        self._tally.requests[pending.route.index] += 1
        self.frames += 1
        self._current = pending
        self._remaining = SIZE_BYTES + size
        return True

    def _begin_held(self, route: Route, size: int) -> bool:
        """Begins to hold a request until it is whole; False: it may not be before the broker accepts the client."""
        if size > self._limits.request_bytes and not route.api.brings_records:
            detail = (
                f"a {route.api.name} request of {size} bytes; limits.request_bytes allows {self._limits.request_bytes}"
            )
            raise ClientProtocolError(CloseCause.REQUEST_TOO_LARGE, detail)
        if not self.proven and self._kept.request_bytes + size > self._limits.unproven_bytes:
            self.lacks_proof = size
            return False
        self._held = bytearray()
        return True

    def _hear(self, chunk: memoryview, at: int, end: int, client_id_bytes: int) -> None:
        """Tells the interception the client id of a request that is not read, if it is all here."""
        if 0 <= client_id_bytes <= end - at:
            self._interception.hear(str(chunk[at : at + client_id_bytes], errors="replace"))

    def _private_route(self, api_key: int, api_version: int) -> Route | None:
        """Returns where a request of the dialect leads, None where this connection does not speak it."""
        route = verdicts.private_route(api_key, api_version)
        return route if route is not None and self._interception.wants(route) else None

    def _look_at_beginning(self, chunk: memoryview, at: int, end: int) -> bool:
        """Judges a frame's size if that is there; False: its head is not."""
        if end - at >= SIZE_BYTES:
            check_size(self._limits, chunk, at, is_first=not self.frames)
        return False

    def _take_up(self, pending: PendingRequest, size: int, chunk: memoryview, at: int, end: int) -> bool | None:
        """Queues an unwanted request for its response; None: it has to be held.

        It has to as long as it may name what the interception asks for, which is as long as it is not all here.
        """
        wanted = self._interception.asked_for(pending.route)
        if wanted:
            frame_end = at + SIZE_BYTES + size
            if frame_end > end or holds_any(chunk[at:frame_end].tobytes(), wanted):
                return None
        self._waiting.append(pending)
        return True

    def _take_untouched(self, pending: PendingRequest, size: int, chunk: memoryview, at: int, end: int) -> bool | None:
        """Queues a wanted Fetch for the broker's response if it is all here, and names nothing that is decided on."""
        frame_end = at + SIZE_BYTES + size
        if frame_end > end or not self.whole.lets_pass(pending.route, chunk, at, frame_end):
            return None
        return self._take_up(pending, size, chunk, at, end)

    def _complete(self, pieces: list[Buffer]) -> None:
        if self._current is not None and not self._dropping:
            if self._held is not None:
                held, self._held = self._held, None
                if len(held) > MOST_BYTES_AT_ONCE and not self._current.route.api.brings_records:
                    self.undecided = Undecided(self._current, held)
                else:
                    self._kept.memory_bytes -= len(held)
                    head = self._produce_heads.held if self._current.route.api.brings_records else None
                    self.whole.decide(self._current, held, pieces, head)
            self.completed.append(self._current)
        self._current = None
        self._dropping = False
        self.frame_started = None

    def decide_late(self) -> list[Buffer]:
        """Decides on the request that was large; returns what goes to the broker.

        Raises:
            ClientProtocolError: The request is refused.
        """
        pieces: list[Buffer] = []
        if self.undecided is not None:
            self.whole.decide(*self.undecided, pieces)
            self._kept.memory_bytes -= len(self.undecided.frame)
        return pieces

    def _answer_or_refuse(self, api_key: int, api_version: int, correlation_id: int) -> PendingRequest:
        """Answers an ApiVersions request of a version to come, as brokers do (KIP-511); refuses all else."""
        if api_key == apis.API_VERSIONS and api_version > 0:
            self._tally.answered[verdicts.NEWEST_API_VERSIONS.index] += 1
            self._interception.refused(api_key, api_version, _UNSUPPORTED, ends=False)
            answer = [unsupported_api_versions(correlation_id)]
            pending = PendingRequest(verdicts.NEWEST_API_VERSIONS, correlation_id, 0.0, answer)
            self._waiting.append(pending)
            self._dropping = True
            return pending
        name = api_name(api_key)
        self._tally.refused[name] += 1
        self._interception.refused(api_key, api_version, _UNSUPPORTED, ends=True)
        detail = f"api key {api_key} ({name}) version {api_version} is not among what Kordon advertises"
        raise ClientProtocolError(CloseCause.UNSUPPORTED_REQUEST, detail)
