"""Requests on their way upstream: cut into frames, judged by their first bytes, streamed on as they come.

begin ──(head is all there, verdict: pass or rewrite)──> body ──(last byte)──> begin
  ├────(answered here)──> body, dropped ──(last byte)──────────────────────────^
  ├────(may concern a managed topic)──> body, held ──(last byte: decided)──────^
  │                                       └──(large: decided on in turns)──> unread ──(decided)──> begin
  └────(the same, too large for a client that has proved nothing)──> unread ──(proof)──> begin
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, NamedTuple, Protocol

from kordon.codecs import apis
from kordon.codecs.errors import TooManyRows, WireError
from kordon.codecs.headers import RequestHeader, build_request_header, parse_request_header
from kordon.codecs.look import (
    REQUEST_LOOK_BYTES,
    SIZE_BYTES,
    SMALLEST_REQUEST,
    Buffer,
    begins_session,
    forget_session,
    holds_any,
    look_acks,
    look_names,
    look_only_name,
    look_produce,
    look_request,
    look_size,
)
from kordon.codecs.turns import MOST_BYTES_AT_ONCE
from kordon.proxy.core import verdicts
from kordon.proxy.core.answers import unsupported_api_versions
from kordon.proxy.core.causes import CloseCause
from kordon.proxy.core.errors import ClientProtocolError
from kordon.proxy.core.interception import PROOF, Announce, Interception, Question, Serve, Translate
from kordon.proxy.core.rewrite import Offer, Translated
from kordon.proxy.core.tally import Tally
from kordon.proxy.core.verdicts import Route, api_name
from kordon.proxy.core.waiting import ConnectionMemory, Waiting

_SPOKEN_BY_OTHERS: Final = {
    b"\x16\x03": "TLS (this listener is plain; connect without TLS, or give it listen.tls)",
    b"GET ": "HTTP",
    b"POST": "HTTP",
    b"PUT ": "HTTP",
    b"HEAD": "HTTP",
    b"OPTI": "HTTP",
    b"CONN": "HTTP",
    b"PRI ": "HTTP/2",
    b"SSH-": "SSH",
}

_UNSUPPORTED: Final = "UNSUPPORTED_VERSION"
_CLIENT_ID_AT: Final = REQUEST_LOOK_BYTES - 2
"""Where the length of the client id stands in a frame, behind the correlation id."""
_LONGEST_KEPT_HEAD: Final = 1024
"""Bytes of a Produce request in front of its records that are kept: names take 249 each, and nearly always few."""


class FrameLimits(Protocol):
    """The limits that frames are held against (`kordon.proxy.config.config.Limits`)."""

    @property
    def frame_bytes(self) -> int:
        """Largest frame, in bytes after the size field."""
        ...

    @property
    def header_bytes(self) -> int:
        """Largest client id, and largest head up to a Produce request's acks, in bytes."""
        ...

    @property
    def request_bytes(self) -> int:
        """Largest request that is held until it is whole, if it is not a Produce request, in bytes."""
        ...

    @property
    def unproven_bytes(self) -> int:
        """Most bytes that are kept of a client before its broker has accepted it."""
        ...

    @property
    def requests_in_flight(self) -> int:
        """Requests of one connection without a response before its client is read no further."""
        ...


class Undecided(NamedTuple):
    """A request that has so many rows, perhaps, that it is decided on in turns with the event loop."""

    waiting: Waiting
    frame: bytearray


class _ProduceHead:
    """How a Produce request to one topic begins that has to be answered and names nothing that is asked for.

    Args:
        route: Its own.
        wanted: What was asked for.
        chunk: What it stands in.
        at: Where it begins there.
        names_end: Where the name or id of its topic ends.
    """

    __slots__ = ("end", "head", "least_bytes", "route", "wanted")

    def __init__(self, route: Route, wanted: tuple[bytes, ...], chunk: memoryview, at: int, names_end: int) -> None:
        self.route = route
        self.wanted = wanted
        self.head = chunk[at + _CLIENT_ID_AT : names_end].tobytes()
        """From the length of the client id on: what stands before it differs from request to request."""
        self.end = names_end - at
        self.least_bytes = self.end - SIZE_BYTES
        """The size of a request that is no longer than its head."""


class RequestLeg:
    """One connection's requests; owned by its `Connection`."""

    def __init__(
        self,
        limits: FrameLimits,
        tally: Tally,
        waiting: deque[Waiting],
        interception: Interception,
        kept: ConnectionMemory | None = None,
    ) -> None:
        self.unread = 0
        """Bytes at the end of the last chunk that must come again in front of the next one."""
        self.frames = 0
        """Frames whose head was accepted."""
        self.draining = False
        self.frame_started: float | None = None
        """When the first byte of the frame under way was seen; None between frames."""
        self._header_bytes = limits.header_bytes
        self._frame_bytes = limits.frame_bytes
        self._request_bytes = limits.request_bytes
        self._unproven_bytes = limits.unproven_bytes
        self._kept = kept or ConnectionMemory()
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
        self._has_session = False
        self._last_produce: _ProduceHead | None = None
        self._current: Waiting | None = None
        self.undecided: Undecided | None = None
        """A large request that is all there; what comes behind it stays unread until it is decided on."""
        self.completed: list[Waiting] = []
        self.served: list[tuple[Waiting, Any]] = []
        """Requests of the last chunk that Kordon is to answer, with what the interception said of each."""

    def receive(self, chunk: memoryview, now: float) -> list[Buffer] | None:
        """Takes the next bytes of the client.

        Args:
            chunk: They, behind what was left `unread`.
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
        for waiting in self.completed:
            waiting.handed = now
            self._tally.request_seconds.observe(now - waiting.started)
        self.completed.clear()

    @property
    def under_way(self) -> bool:
        """Whether an accepted frame is not complete yet, or not decided on."""
        return self._remaining > 0 or self.undecided is not None

    @property
    def passing(self) -> Waiting | None:
        """The request of which a part has gone to the broker, or may soon, and that awaits no answer yet."""
        if self.undecided is not None:
            return self.undecided.waiting
        return self._current if self._remaining and self._held is None and not self._dropping else None

    def end_sessions(self) -> None:
        """Has those who go on with a Fetch session begin another one."""
        self._has_session = False

    def restart_clock(self, now: float) -> None:
        """Forgives the time that a frame under way has taken so far."""
        if self.frame_started is not None:
            self.frame_started = now

    def _begin(self, chunk: memoryview, at: int, end: int, now: float) -> bool:
        """Judges the frame at `at`; False if its head is not all there yet, or none may begin any more."""
        if self.draining:
            return False
        if self.frame_started is None:
            self.frame_started = now
        if end - at < REQUEST_LOOK_BYTES:
            return self._look_at_beginning(chunk, at, end)
        size, api_key, api_version, correlation_id, client_id_bytes = look_request(chunk, at)
        if not SMALLEST_REQUEST <= size <= self._frame_bytes:
            self._check_size(size, chunk, at)
        if client_id_bytes > self._header_bytes or client_id_bytes > size - SMALLEST_REQUEST:
            raise self._too_long_a_head(api_key, size, client_id_bytes)
        route = verdicts.route(api_key, api_version) or self._private_route(api_key, api_version)
        if route is None:
            self._hear(chunk, at + REQUEST_LOOK_BYTES, end, client_id_bytes)
            waiting = self._answer_or_refuse(api_key, api_version, correlation_id)
        else:
            waiting = Waiting(route, correlation_id, self.frame_started)
            if self._interception.wants(route):
                is_taken = self._begin_held(route, size)
            elif api_key == apis.PRODUCE:
                is_taken = self._begin_produce(waiting, size, chunk, at, end)
            else:
                is_taken = self._take_up(waiting, size, chunk, at, end)
            if not is_taken:
                return False
        self._tally.requests[waiting.route.index] += 1
        self.frames += 1
        self._current = waiting
        self._remaining = SIZE_BYTES + size
        return True

    def _begin_held(self, route: Route, size: int) -> bool:
        """Begins to hold a request until it is whole; False: it may not be before the broker accepts the client."""
        if size > self._request_bytes and route.api.key != apis.PRODUCE:
            detail = f"a {route.api.name} request of {size} bytes; limits.request_bytes allows {self._request_bytes}"
            raise ClientProtocolError(CloseCause.REQUEST_TOO_LARGE, detail)
        if not self.proven and self._kept.request_bytes + size > self._unproven_bytes:
            self.lacks_proof = size
            return False
        self._held = bytearray()
        return True

    def ask_for_proof(self, pieces: list[Buffer], now: float) -> None:
        """Asks the broker what it answers only after a log-in: the broker alone judges log-ins."""
        self._ask(PROOF, RequestHeader(PROOF.route.api.key, PROOF.route.version, 0, None), now, pieces)

    def _hear(self, chunk: memoryview, at: int, end: int, client_id_bytes: int) -> None:
        """Has the client id be known of a request that is not read, as far as it is here."""
        if 0 <= client_id_bytes <= end - at:
            self._interception.hear(str(chunk[at : at + client_id_bytes], errors="replace"))

    def _private_route(self, api_key: int, api_version: int) -> Route | None:
        """Returns where a request of the dialect leads, None where this connection does not speak it."""
        route = verdicts.private_route(api_key, api_version)
        return route if route is not None and self._interception.wants(route) else None

    def _look_at_beginning(self, chunk: memoryview, at: int, end: int) -> bool:
        """Judges a frame's size if that is there; False: its head is not."""
        if end - at >= SIZE_BYTES:
            self._check_size(look_size(chunk, at), chunk, at)
        return False

    def _take_up(self, waiting: Waiting, size: int, chunk: memoryview, at: int, end: int) -> bool:
        """Queues an unwanted request for its response, or holds it, as it may name what the interception asks for.

        It may as long as it is not all here.
        """
        wanted = self._interception.asked_for(waiting.route)
        if wanted:
            frame_end = at + SIZE_BYTES + size
            if frame_end > end or holds_any(chunk[at:frame_end].tobytes(), wanted):
                return self._begin_held(waiting.route, size)
        self._waiting.append(waiting)
        return True

    def _begin_produce(self, waiting: Waiting, size: int, chunk: memoryview, at: int, end: int) -> bool:
        """Queues a Produce request for its response, or looks at it first; False: its head is incomplete.

        Most begin like the one before, up to the name of their topic, and go its way without another look.
        """
        route, last = waiting.route, self._last_produce
        wanted = self._interception.asked_for(route)
        if (
            last is not None
            and last.route is route
            and last.wanted is wanted
            and last.least_bytes <= size
            and chunk[at + _CLIENT_ID_AT : at + last.end].tobytes() == last.head
        ):
            self._waiting.append(waiting)
            return True
        return self._look_at_produce(waiting, size, chunk, at, end)

    def _look_at_produce(self, waiting: Waiting, size: int, chunk: memoryview, at: int, end: int) -> bool:
        """Queues a Produce request for its response, unless acks=0 says that none will come, or it has to be held."""
        frame_end = at + SIZE_BYTES + size
        end = min(end, frame_end)
        route = waiting.route
        try:
            acks, topics_at = look_produce(chunk, at, end, route.version)
        except WireError as error:
            raise ClientProtocolError(CloseCause.MALFORMED_REQUEST, str(error)) from None
        if acks is None:
            if end == frame_end:
                raise ClientProtocolError(CloseCause.MALFORMED_REQUEST, "a Produce request ends before its acks")
            if end - at > 2 * self._header_bytes:
                raise self._too_long_a_head(apis.PRODUCE, size, 0)
            return False
        names_end = look_only_name(chunk, topics_at, end, route.version)
        if wanted := self._interception.asked_for(route):
            said = chunk[at:names_end].tobytes() if names_end else None
            said = said or look_names(chunk, at, topics_at, end, route.version)
            if said is None or holds_any(said, wanted):
                return self._begin_held(route, size)
        if acks != 0:
            self._waiting.append(waiting)
            if names_end and names_end - at <= _LONGEST_KEPT_HEAD:
                self._last_produce = _ProduceHead(route, wanted, chunk, at, names_end)
        return True

    def _complete(self, pieces: list[Buffer]) -> None:
        if self._current is not None and not self._dropping:
            if self._held is not None:
                held, self._held = self._held, None
                if len(held) > MOST_BYTES_AT_ONCE and self._current.route.api.key != apis.PRODUCE:
                    self.undecided = Undecided(self._current, held)
                else:
                    self._kept.memory_bytes -= len(held)
                    self._decide(self._current, held, pieces)
            self.completed.append(self._current)
        self._current = None
        self._dropping = False
        self.frame_started = None

    def decide_late(self) -> list[Buffer]:
        """Decides on the request that was large; returns what goes to the broker.

        Raises:
            ClientProtocolError: It is refused.
        """
        pieces: list[Buffer] = []
        if self.undecided is not None:
            self._decide(*self.undecided, pieces)
            self._kept.memory_bytes -= len(self.undecided.frame)
        return pieces

    def _ends_session(self, waiting: Waiting, frame: bytearray, body_at: int) -> bool:
        """Has a client name all its partitions whose session may hold what is managed since (TAKEOVER-WAITS).

        The broker says so, as of a session that it does not have: it ends the connection of who has not logged in.
        """
        if self._has_session or begins_session(frame, body_at, waiting.route.version):
            self._has_session = True
            return False
        route = waiting.route
        self._interception.refused(route.api.key, route.version, "FETCH_SESSION_ID_NOT_FOUND", ends=False)
        forget_session(frame, body_at, route.version)
        return True

    def _decide(self, waiting: Waiting, frame: bytearray, pieces: list[Buffer]) -> None:
        """Lets a request pass, or changes it, or has it answered here, as the interception says."""
        try:
            header, header_bytes = parse_request_header(memoryview(frame)[SIZE_BYTES:])
            body_at = SIZE_BYTES + header_bytes
            route = waiting.route
            silent = route.api.key == apis.PRODUCE and not look_acks(frame, 0, len(frame), route.version)
            self._interception.hear(header.client_id)
            is_wanted_fetch = route.api.key == apis.FETCH and self._interception.wants(route)
            passes = is_wanted_fetch and self._ends_session(waiting, frame, body_at)
            decision = None if passes else self._interception.decide(route, memoryview(frame)[body_at:])
        except TooManyRows as error:
            raise ClientProtocolError(
                CloseCause.TOO_MANY_ROWS, f"{error}; limits.request_rows allows no more"
            ) from None
        except WireError as error:
            raise ClientProtocolError(CloseCause.MALFORMED_REQUEST, str(error)) from None
        if decision is not None:
            self._kept.keep(waiting, len(frame))
        if isinstance(decision, Serve):
            body = decision.rest
            for question in decision.questions:
                self._ask(question, header, waiting.started, pieces)
            waiting.promised, waiting.asks = True, body is not None and not silent
            self.served.append((waiting, decision.request))
        else:
            body = _change(waiting, decision)
        if not silent:
            self._waiting.append(waiting)
        if body is not None:
            pieces += [(body_at - SIZE_BYTES + len(body)).to_bytes(SIZE_BYTES, "big"), frame[SIZE_BYTES:body_at], body]
        elif not waiting.promised:
            pieces.append(frame)

    def _ask(self, question: Question, header: RequestHeader, started: float, pieces: list[Buffer]) -> None:
        """Asks the broker something of Kordon's own, in the client's name."""
        route = question.route
        asked = Waiting(route, header.correlation_id, started)
        asked.promised, asked.told, asked.edit = True, question.told, None
        self._waiting.append(asked)
        head = build_request_header(route.api.key, route.version, header.correlation_id, header.client_id)
        pieces += [(len(head) + len(question.body)).to_bytes(SIZE_BYTES, "big"), head, question.body]

    def _check_size(self, size: int, chunk: memoryview, at: int) -> None:
        if SMALLEST_REQUEST <= size <= self._frame_bytes:
            return
        if not self.frames:
            opening = bytes(chunk[at : at + SIZE_BYTES])
            spoken = _SPOKEN_BY_OTHERS.get(opening) or _SPOKEN_BY_OTHERS.get(opening[:2])
            if spoken:
                raise ClientProtocolError(CloseCause.NOT_KAFKA, f"the client speaks {spoken}, not Kafka")
        if size > self._frame_bytes:
            detail = f"a request of {size} bytes; limits.frame_bytes allows {self._frame_bytes}"
            raise ClientProtocolError(CloseCause.FRAME_TOO_LARGE, detail)
        raise ClientProtocolError(CloseCause.MALFORMED_REQUEST, f"a request cannot have a size of {size} bytes")

    def _too_long_a_head(self, api_key: int, size: int, client_id_bytes: int) -> ClientProtocolError:
        name = api_name(api_key)
        if client_id_bytes > size - SMALLEST_REQUEST:
            detail = f"the client id of a {name} request is longer than the request"
            return ClientProtocolError(CloseCause.MALFORMED_REQUEST, detail)
        detail = f"the head of a {name} request exceeds limits.header_bytes ({self._header_bytes})"
        return ClientProtocolError(CloseCause.HEADER_TOO_LARGE, detail)

    def _answer_or_refuse(self, api_key: int, api_version: int, correlation_id: int) -> Waiting:
        """Answers an ApiVersions request of a version to come, as brokers do (KIP-511); refuses all else."""
        if api_key == apis.API_VERSIONS and api_version > 0:
            self._tally.answered[verdicts.NEWEST_API_VERSIONS.index] += 1
            self._interception.refused(api_key, api_version, _UNSUPPORTED, ends=False)
            answer = [unsupported_api_versions(correlation_id)]
            waiting = Waiting(verdicts.NEWEST_API_VERSIONS, correlation_id, 0.0, answer)
            self._waiting.append(waiting)
            self._dropping = True
            return waiting
        name = api_name(api_key)
        self._tally.refused[name] += 1
        self._interception.refused(api_key, api_version, _UNSUPPORTED, ends=True)
        detail = f"api key {api_key} ({name}) version {api_version} is not among what Kordon advertises"
        raise ClientProtocolError(CloseCause.UNSUPPORTED_REQUEST, detail)


def _change(waiting: Waiting, decision: Translate | Announce | None) -> bytes | None:
    """Has the answer to a request changed; returns what the broker is asked in its place, None: as it came."""
    match decision:
        case None:
            return None
        case Announce(private):
            waiting.edit = Offer(ordered=True, private=private)
            return None
        case Translate(body, back, only_with):
            waiting.edit = Translated(waiting.route, waiting.edit, back, only_with)
            return body
