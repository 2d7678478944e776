"""Answers of a broker that take so long to read that others have their turn meanwhile."""

from __future__ import annotations

from kordon.codecs.errors import WireError
from kordon.codecs.row import Row
from kordon.proxy.core.addresses import Advertised
from kordon.proxy.core.causes import CloseCause
from kordon.proxy.core.errors import BrokerProtocolError
from kordon.proxy.core.events import ReadInTurns
from kordon.proxy.core.rewrite import Change, Nodes, Translated
from kordon.proxy.core.waiting import BROKER, ConnectionMemory, PendingRequest


class LongReads:
    """Makes the commands by which long answers are read.

    Args:
        kept: The connection's memory, which counts the answers until they are read.
    """

    def __init__(self, advertised: Advertised, kept: ConnectionMemory) -> None:
        self.commands: list[ReadInTurns] = []
        """For the answers of the last chunk; whoever performs them clears the list."""
        self._advertised = advertised
        self._kept = kept
        self._bytes: dict[PendingRequest, int] = {}

    def add(self, pending: PendingRequest, edit: Change, section: bytes) -> None:
        """Has an answer read and changed; it counts as kept until `forget`."""
        is_part = pending.awaits is not BROKER
        change = edit.parse if is_part and isinstance(edit, Translated) else edit.apply

        def read() -> tuple[bytes | Row, Nodes]:
            try:
                return change(pending.route.version, section, self._advertised)
            except WireError as error:
                raise BrokerProtocolError(CloseCause.MALFORMED_RESPONSE, str(error)) from None

        self.commands.append(ReadInTurns(pending, read))
        self._bytes[pending] = len(section)
        self._kept.memory_bytes += len(section)

    def forget(self, pending: PendingRequest) -> None:
        """Lets go of an answer that has been read."""
        self._kept.memory_bytes -= self._bytes.pop(pending, 0)
