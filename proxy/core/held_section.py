"""Bytes of a response that are kept until they are whole and can be changed."""

from __future__ import annotations

from typing import Final

from kordon.proxy.core.causes import CloseCause
from kordon.proxy.core.errors import BrokerProtocolError
from kordon.proxy.core.waiting import ConnectionMemory

_LARGEST_SECTION: Final = 16 * 1024 * 1024
"""Bytes of a section that is changed: 16 MiB hold the addresses of 100,000 brokers."""


class HeldSection:
    """A section of one response, and where the section begins with the body the frame's head before it."""

    __slots__ = ("_bytes", "_head_bytes", "_kept", "is_held")

    def __init__(self, kept: ConnectionMemory) -> None:
        self.is_held = False
        """Whether something is held."""
        self._kept = kept
        self._bytes = bytearray()
        self._head_bytes = 0

    def begin(self, head: memoryview) -> None:
        """Holds what comes from here on.

        Args:
            head: The frame before the section; empty where that has been sent already.
        """
        self.is_held, self._head_bytes = True, len(head)
        self.add(head)

    def add(self, piece: memoryview) -> None:
        """Holds another piece.

        Raises:
            BrokerProtocolError: The section has too many bytes.
        """
        if len(self._bytes) + len(piece) > _LARGEST_SECTION:
            detail = f"more than {_LARGEST_SECTION} bytes of addresses in a response"
            raise BrokerProtocolError(CloseCause.FRAME_TOO_LARGE, detail)
        self._bytes += piece
        self._kept.memory_bytes += len(piece)

    def head(self) -> bytearray:
        """Returns a copy of the frame before the section."""
        return self._bytes[: self._head_bytes]

    def section(self) -> bytes:
        """Returns a copy of the section."""
        return bytes(self._bytes[self._head_bytes :])

    def end(self) -> None:
        """Forgets the section."""
        self._kept.memory_bytes -= len(self._bytes)
        self.is_held, self._head_bytes, self._bytes = False, 0, bytearray()
