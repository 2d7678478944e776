"""Cuts what a broker sends on one of Kordon's own connections into the frames of its answers.

It copies as little as can be: a large answer is received straight into the memory that it is read from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from kordon.codecs.look import SIZE_BYTES, SMALLEST_RESPONSE, look_size

LARGEST_ANSWER: Final = 64 * 1024 * 1024
"""Bytes; what claims to be larger is no answer of a Kafka broker."""
_SCRATCH_BYTES: Final = 64 * 1024


class AnswerFrames(asyncio.BufferedProtocol):
    """One connection's receiving end.

    Args:
        on_answer: Called with each answer behind its size field, in order; the memory is the receiver's.
        on_lost: Called once with the reason when the connection is gone, or sends what cannot be an answer.
        on_flow: Called with False when the socket takes no more for now, and with True when it does again.
    """

    def __init__(
        self,
        on_answer: Callable[[memoryview], None],
        on_lost: Callable[[Exception | str], None],
        on_flow: Callable[[bool], None],
    ) -> None:
        self._on_answer = on_answer
        self._on_lost = on_lost
        self._on_flow = on_flow
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._kept = 0
        """Bytes of a size field whose rest has not come, at the start of the scratch."""
        self._frame: memoryview | None = None
        """A frame that did not come in one piece."""
        self._filled = 0

    def get_buffer(self, sizehint: int) -> memoryview:
        """Says where the next bytes go."""
        return self._scratch[self._kept :] if self._frame is None else self._frame[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Takes bytes in."""
        if self._frame is None:
            self._cut(self._kept + nbytes)
            return
        self._filled += nbytes
        if self._filled == len(self._frame):
            frame, self._frame = self._frame, None
            self._on_answer(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        """Passes the end on."""
        self._on_lost(exc or "the broker closed the connection")

    def pause_writing(self) -> None:
        """The socket's buffer is full."""
        self._on_flow(False)

    def resume_writing(self) -> None:
        """The socket's buffer has room again."""
        self._on_flow(True)

    def _cut(self, end: int) -> None:
        at, self._kept = 0, 0
        while end - at >= SIZE_BYTES:
            size = look_size(self._scratch, at)
            if not SMALLEST_RESPONSE <= size <= LARGEST_ANSWER:
                self._on_lost(f"a response of {size} bytes; this is no Kafka broker")
                return
            at += SIZE_BYTES
            here = self._scratch[at : min(at + size, end)]
            if len(here) < size:
                self._frame = memoryview(bytearray(size))
                self._frame[: len(here)] = here
                self._filled = len(here)
                return
            self._on_answer(memoryview(bytes(here)))
            at += size
        self._kept = end - at
        self._scratch[: self._kept] = bytes(self._scratch[at:end])
