"""Responses on their way downstream: matched with their requests, streamed on, or changed where they name brokers.

begin ──(nothing to change)──> stream ──(last byte)──> begin
  ├────(WHOLE, HEAD)──> hold ──(section all there: changed, sent)──> stream
  └────(TAIL)──> stream ──(border, endpoints behind it)──> hold ──(last byte: changed, sent)──> begin
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from kordon.codecs import apis
from kordon.codecs.errors import WireError
from kordon.codecs.headers import parse_response_header, response_header_version
from kordon.codecs.look import RESPONSE_LOOK_BYTES, SIZE_BYTES, SMALLEST_RESPONSE, Buffer, look_response
from kordon.codecs.row import Row
from kordon.codecs.skim import Skim
from kordon.codecs.turns import MOST_BYTES_AT_ONCE
from kordon.proxy.core.addresses import Advertised
from kordon.proxy.core.causes import CloseCause
from kordon.proxy.core.errors import BrokerProtocolError
from kordon.proxy.core.frame_limits import FrameLimits
from kordon.proxy.core.held_section import HeldSection
from kordon.proxy.core.long_reads import LongReads
from kordon.proxy.core.rewrite import SMALLEST_ENDPOINTS, Change, Edit, Nodes, Section, Translated
from kordon.proxy.core.tally import Tally
from kordon.proxy.core.verdicts import Route
from kordon.proxy.core.waiting import BROKER, Awaits, ConnectionMemory, PendingRequest, Waiting

_SIZE: Final = Struct(">i")
_BEFORE_LOG_IN: Final = frozenset({apis.API_VERSIONS, apis.SASL_HANDSHAKE, apis.SASL_AUTHENTICATE})
"""What brokers answer before a log-in; on anything else they close the connection."""


def _names_nobody(chunk: memoryview, frame_end: int, end: int) -> bool:
    """Whether a response that is all there ends in five zeros, hence without endpoints (a look instead of a skim).

    Endpoints end with a port, a rack and two tagged-field sections, of which five zeros would need port 0 or a rack of
    four NULs. A Produce response without them ends with throttle_time_ms, 0 unless quotas bite, and an empty section.
    """
    return frame_end <= end and not int.from_bytes(chunk[frame_end - 5 : frame_end], "big")


def _keep_all(_: object) -> None:
    """A part of what Kordon serves is merged as it is."""


class ResponseLeg:
    """One connection's responses; owned by its `Connection`."""

    def __init__(
        self, limits: FrameLimits, tally: Tally, waiting: Waiting, advertised: Advertised, kept: ConnectionMemory
    ) -> None:
        self.unread = 0
        """Bytes at the end of the last chunk that must come again before the next one."""
        self.nodes: Nodes = {}
        """Brokers that the pieces of the last `receive` name, as the cluster knows them."""
        self._header_bytes = limits.header_bytes
        self._frame_bytes = limits.frame_bytes
        self._tally = tally
        self._waiting = waiting
        self._kept = kept
        self.proves = False
        """Whether the broker has answered a request that it answers only after a log-in."""
        self._advertised = advertised
        # Of the response under way:
        self._current: PendingRequest | None = None
        self._remaining = 0
        self._started = 0.0
        self._frame_at = -1  # where it begins in the chunk at hand; -1: in an earlier one
        self._edit: Change | None = None
        self._skim: Skim | None = None  # finds the border of the section, None once it is behind
        self._held = HeldSection(kept)
        # Of the chunk at hand:
        self._pieces: list[Buffer] = []
        self._start = 0  # first byte that is neither in `_pieces` nor in `_held`
        self.completed: list[float] = []
        self.parts: list[tuple[PendingRequest, Row]] = []
        """Answers of the last chunk that go into what Kordon serves."""
        self.long_reads = LongReads(advertised, kept)
        self.stalled = False
        """Whether the broker's answer under way comes behind one that Kordon has promised and not yet given."""

    @property
    def between_frames(self) -> bool:
        """Whether no response is under way."""
        return self._current is None and not self.unread

    def receive(self, chunk: memoryview, now: float) -> list[Buffer] | None:
        """Takes the next bytes of the broker.

        Args:
            chunk: The bytes, after what was left `unread`; sizes of changed frames are patched in it.
            now: Seconds of a monotonic clock.

        Returns:
            What goes to the client: views into `chunk` and changed sections; `nodes` tells whom they name. None: all of
            `chunk` as it is, one frame or a part of one, as it nearly always comes.

        Raises:
            BrokerProtocolError: A response that nobody asked for or that cannot be made safe to pass on.
        """
        if self._pieces or self.nodes:
            self._pieces, self.nodes = [], {}
        self._start = 0
        self.stalled = False
        end = len(chunk)
        try:
            at = 0 if self._current is not None else self._begin(chunk, 0, end, now)
            if at is not None and self._passes(chunk, at, end):
                self.unread = 0
                return None
            at = self._cut(chunk, at or 0, end, now)
        except WireError as error:
            raise BrokerProtocolError(CloseCause.MALFORMED_RESPONSE, str(error)) from None
        self._frame_at = -1
        self.unread = end - at
        if at == end and not (self._start or self._pieces):
            return None  # frames, or parts of frames, of which nothing is held, changed or left out
        self._flush(chunk, at)
        return self._pieces

    def _passes(self, chunk: memoryview, at: int, end: int) -> bool:
        """Takes the rest of a chunk if it continues as it is, and no answer of Kordon's own before it."""
        left = self._remaining - (end - at)
        if left < 0 or self._pieces:
            return False
        if self._edit is not None:
            skim = self._skim
            if skim is None or self._held.is_held or not left or not skim.skips(end - at):
                return False
        self._frame_at = -1
        self._remaining = left
        if not left:
            self._finish(chunk)
        return True

    def _cut(self, chunk: memoryview, at: int, end: int, now: float) -> int:
        """Goes through the responses of a chunk; returns where it stopped."""
        while at < end:
            if self._current is None:
                body = self._begin(chunk, at, end, now)
                if body is None:
                    break
                at = body
            at = self._advance(chunk, at, min(end, at + self._remaining))
        return at

    def forget(self) -> None:
        """Lets go of what is held: the connection is closed."""
        self._held.end()
        self._kept.forget()

    def performed(self, now: float) -> None:
        """Notes that the responses completed since the last call have been handed to the client's socket."""
        for started in self.completed:
            self._tally.response_seconds.observe(now - started)
        self.completed.clear()

    def answers(self) -> list[Buffer]:
        """Takes the answers of Kordon's own whose turn has come."""
        due: list[Buffer] = []
        while self._current is None and self._waiting and self._waiting[0].answer is not None:
            pending = self._waiting.popleft()
            self._tally.responses[pending.route.index] += 1
            if pending.kept_bytes:
                self._kept.release_answer(pending)
            due += pending.answer or ()
        return due

    def _flush(self, chunk: memoryview, at: int) -> None:
        """Passes on what lies before `at`."""
        if at > self._start:
            self._pieces.append(chunk[self._start : at] if at - self._start < len(chunk) else chunk)
            self._start = at

    def _begin(self, chunk: memoryview, at: int, end: int, now: float) -> int | None:
        """Matches the frame at `at` with its request; returns where its body begins, None if bytes are missing."""
        if end - at < RESPONSE_LOOK_BYTES:
            return None
        size, correlation_id = look_response(chunk, at)
        if not SMALLEST_RESPONSE <= size <= self._frame_bytes:
            raise self._wrong_size(size)
        pending = self._waiting[0] if self._waiting else None
        if pending is None or pending.correlation_id != correlation_id or pending.awaits is not BROKER:
            if self._is_stalled(chunk, at):
                return None
            pending = self._waiting.expected(correlation_id)
        is_plain = pending.awaits is BROKER
        edit = pending.edit if is_plain else Translated(pending.route, pending.edit, _keep_all)
        if isinstance(edit, Translated):
            edit = edit.begun()
        body: int | None = at + RESPONSE_LOOK_BYTES
        if edit is not None:
            body = self._begin_edit(edit, pending.route, chunk, at, end, size=size)
        if body is None:
            return None
        self._current = self._waiting.popleft() if is_plain else pending
        self._started = now
        self._frame_at = at
        self._remaining = at + SIZE_BYTES + size - body
        self.proves = self.proves or pending.route.api.key not in _BEFORE_LOG_IN
        if pending.handed:
            self._tally.broker_seconds.observe(now - pending.handed)
        if not self._remaining:
            self._finish(chunk)
        return body

    def _begin_edit(self, edit: Change, route: Route, chunk: memoryview, at: int, end: int, *, size: int) -> int | None:
        """Prepares to change the response at `at`; returns where its body begins, None if bytes are missing."""
        frame_end = at + SIZE_BYTES + size
        if edit.section is Section.TAIL and _names_nobody(chunk, frame_end, end):
            return at + RESPONSE_LOOK_BYTES
        body = self._header_end(route, chunk, at, min(end, frame_end), size)
        if body is None:
            return None
        self._edit = edit
        self._skim = edit.skim(route.version) if isinstance(edit, Edit) and edit.last else None
        if edit.section is not Section.TAIL:
            self._begin_held(chunk, at, body)
        return body

    def _is_stalled(self, chunk: memoryview, at: int) -> bool:
        """Gives the answers of Kordon's own that are due before the frame at `at`; tells whether one is missing."""
        if self._waiting and self._waiting[0].answer is not None:
            self._flush(chunk, at)
            self._pieces.extend(self.answers())
        self.stalled = bool(self._waiting) and self._waiting.asked() is None
        return self.stalled

    def _wrong_size(self, size: int) -> BrokerProtocolError:
        if size < SMALLEST_RESPONSE:
            return BrokerProtocolError(CloseCause.MALFORMED_RESPONSE, f"the broker sent a response of {size} bytes")
        detail = f"a response of {size} bytes; limits.frame_bytes allows {self._frame_bytes}"
        return BrokerProtocolError(CloseCause.FRAME_TOO_LARGE, detail)

    def _header_end(self, route: Route, chunk: memoryview, at: int, end: int, size: int) -> int | None:
        """Finds where the body begins: behind the tagged fields of response header v1; None if that is not here yet."""
        look_end = at + RESPONSE_LOOK_BYTES
        if response_header_version(route.api.key, route.version) == 0:
            return look_end
        if end > look_end and chunk[look_end] == 0:
            return look_end + 1
        try:
            _, consumed = parse_response_header(route.api.key, route.version, chunk[at + SIZE_BYTES : end])
        except WireError:
            if end - at < min(SIZE_BYTES + size, self._header_bytes):
                return None
            raise
        return at + SIZE_BYTES + consumed

    def _advance(self, chunk: memoryview, at: int, stop: int) -> int:
        """Moves through the body of the response under way, `stop` at most; returns where it stopped."""
        skim = self._skim
        if skim is not None:
            stop = skim.advance(chunk, at, stop)
        self._remaining -= stop - at
        if self._held.is_held:
            self._flush(chunk, at)
            self._held.add(chunk[at:stop])
            self._start = stop
        if skim is not None and skim.done:
            self._pass_border(chunk, stop)
        if not self._remaining:
            self._finish(chunk)
        return stop

    def _pass_border(self, chunk: memoryview, border: int) -> None:
        """The section's end (HEAD) or beginning (TAIL) is at `border`."""
        self._skim = None
        if self._held.is_held:
            self._send_changed(chunk)
        elif self._remaining < SMALLEST_ENDPOINTS:
            self._edit = None
        else:
            self._begin_held(chunk, border, border)

    def _begin_held(self, chunk: memoryview, at: int, section_at: int) -> None:
        """Keeps from `at` on what comes, until the section is whole that begins at `section_at`."""
        self._flush(chunk, at)
        self._held.begin(chunk[at:section_at])
        self._start = section_at

    def _send_changed(self, chunk: memoryview) -> None:
        """Changes the section that is whole now, and passes it on."""
        if self._edit is None or self._current is None:
            return
        section = self._held.section()
        if len(section) > MOST_BYTES_AT_ONCE and self._edit.section is Section.WHOLE:
            is_part = self._current.awaits is not BROKER
            self.long_reads.add(self._current, self._edit, section)
            if not is_part:  # it is promised to its client meanwhile, as if Kordon served it
                self._current.awaits = Awaits.SERVICE
                self._waiting.appendleft(self._current)
            self._end_section()
            return
        if self._current.awaits is not BROKER and isinstance(self._edit, Translated):
            value, nodes = self._edit.parse(self._current.route.version, section, self._advertised)
            self.nodes |= nodes
            if self._current.told is not None:
                self._current.told(value)
            else:
                self.parts.append((self._current, value))
            self._end_section()
            return
        fit = self._edit.section is Section.TAIL and self._frame_at < 0
        changed, nodes = self._edit.apply(self._current.route.version, section, self._advertised, fit=fit)
        self.nodes |= nodes
        head = self._held.head()
        frame, frame_at = (head, 0) if head else (chunk, self._frame_at)
        if len(changed) != len(section):
            _SIZE.pack_into(frame, frame_at, _SIZE.unpack_from(frame, frame_at)[0] + len(changed) - len(section))
        self._pieces += [head, changed] if head else [changed]
        self._end_section()

    def _end_section(self) -> None:
        self._edit = None
        self._held.end()

    def _finish(self, chunk: memoryview) -> None:
        """The last byte of the response under way is here."""
        if self._current is None:
            return
        if self._skim is not None:
            raise WireError(f"a {self._current.route.api.name} response ends in the middle of a field")
        if self._held.is_held:
            self._send_changed(chunk)
        if self._current.awaits is BROKER:
            if self._current.kept_bytes:
                self._kept.release(self._current)
            self._tally.responses[self._current.route.index] += 1
            self.completed.append(self._started)
        elif self._current.awaits is Awaits.QUESTION:
            self._waiting.remove(self._current)
        else:
            self._current.awaits = Awaits.SERVICE
        self._current = None
        self._edit = None
