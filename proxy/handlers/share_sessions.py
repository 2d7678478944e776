"""The share sessions of one connection, as far as they concern managed topics (KIP-932).

The client's broker keeps the same session of the same member, with all that is not managed: each request goes there
too. So the broker judges epochs, member ids and rights, bounds how many sessions there are, and says when one is gone.
What stands here is which virtual partitions the session names.

A session belongs to its connection. With the connection's end, or the session's own, what its member has in hand is
given back at once, as brokers do it. A session that begins again gives nothing back: its member may still work on it.

Source: ShareSessionCache.java, SharePartitionManager.java (Kafka 4.3).
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple
from uuid import UUID

from kordon.proxy.decisions.runs import Client

MOST_SESSIONS: Final = 4
"""Of a connection; clients have one. One more takes the place of the oldest."""


class VirtualPartition(NamedTuple):
    """A partition as clients name it."""

    topic_id: UUID
    """The id of the topic's face."""
    number: int


class ShareSession:
    """A session of one member.

    Args:
        give_back: Has what its member has in hand given to others.
        client: The client whose connection has the session.

    Attributes:
        name: The session's unique name, which its locks have.
        partitions: The partitions that the session names. Those that have waited longest for their turn come first.
        held: The partitions from which its member was given records.
        has_others: Whether it names, or has named, partitions of topics that are not managed.
        lock: Held while a request is answered: the next one begins where that ends.
    """

    def __init__(
        self, group_id: str, member_id: str, give_back: Callable[[ShareSession], None], client: Client
    ) -> None:
        self.client = client
        self.group_id = group_id
        self.member_id = member_id
        self.name = secrets.token_urlsafe(12)
        self.partitions: dict[VirtualPartition, None] = {}
        self.held: set[VirtualPartition] = set()
        self.has_others = False
        self.lock = asyncio.Lock()
        self.lock_ms = 0
        """As its member was told last."""
        self._give_back = give_back

    def end(self) -> None:
        """Gives back what its member has in hand."""
        if self.held:
            self._give_back(self)

    def turn(self) -> None:
        """Lets the partition that was first go last."""
        for first in self.partitions:
            self.partitions[first] = self.partitions.pop(first)
            return


class ShareSessions:
    """The share sessions of one connection."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[tuple[str, str], ShareSession] = OrderedDict()

    def begin(self, session: ShareSession) -> None:
        """Keeps a session, in place of an earlier one of the same member."""
        self._sessions.pop((session.group_id, session.member_id), None)
        self._sessions[session.group_id, session.member_id] = session
        if len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)

    def of(self, group_id: str, member_id: str) -> ShareSession | None:
        """Returns the session of a member; None: it has none here."""
        return self._sessions.get((group_id, member_id))

    def drop(self, session: ShareSession) -> None:
        """Forgets a session, and gives nothing back."""
        if self._sessions.get((session.group_id, session.member_id)) is session:
            del self._sessions[session.group_id, session.member_id]

    def close(self) -> None:
        """Ends all of them: the connection has ended."""
        for session in self._sessions.values():
            session.end()
        self._sessions.clear()
