"""What a Produce request waits for, and the way that a stream's writes take in the shell."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kordon.codecs.produce import Outcome
from kordon.proxy.decisions.journal import Client
from kordon.proxy.ordering.line import Line, Write
from kordon.proxy.ordering.streams import Stream
from kordon.proxy.topics.managed_topics import ManagedTopic, Why

if TYPE_CHECKING:
    from kordon.proxy.writes.lane import Lane


class Pending:
    """The writes of one request, until all have an outcome.

    Args:
        client: Who has sent it.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.outcomes: list[Outcome | None] = []
        """By place in the request; None: not known yet."""
        self._left = 0
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def place(self, outcome: Outcome | None = None) -> int:
        """Makes a place for one more outcome, or for one that is known."""
        self.outcomes.append(outcome)
        self._left += outcome is None
        return len(self.outcomes) - 1

    def settle(self, place: int, outcome: Outcome) -> None:
        """Takes in an outcome; the first one counts."""
        if self.outcomes[place] is None:
            self.outcomes[place] = outcome
            self._left -= 1
            if not self._left and not self._done.done():
                self._done.set_result(None)

    async def wait(self) -> list[Outcome]:
        """Returns all outcomes."""
        if self._left:
            await self._done
        return [outcome for outcome in self.outcomes if outcome is not None]


@dataclass(slots=True, eq=False)
class Ticket:
    """A write's way back to its request."""

    pending: Pending
    place: int
    records: memoryview
    """Its batch, as the client sent it, or under the identity under which it was sent last."""
    timeout_ms: int
    """How long the client lets the broker wait for copies."""
    queued: bool = True
    """Whether it counts among what is not sent."""
    patience_ms: int = 2_000
    """How long the broker may keep its answer back, and with it all that is behind on the connection, before it is
    asked again; each time twice as long."""

    def settle(self, outcome: Outcome) -> None:
        """Tells the request."""
        self.pending.settle(self.place, outcome)


@dataclass(slots=True, eq=False)
class Course:
    """A stream's line, and where it is being sent."""

    topic: ManagedTopic
    stream: Stream
    line: Line
    lane: Lane | None = None
    """By which it was sent last; it changes when nothing is under way."""
    queued: bool = False
    """Whether it has a turn on the lane."""
    held_since: float | None = None
    """Since when nothing may be sent, in seconds of the loop's clock."""
    held_for: Why | None = None
    """What was waited for when that began."""
    refusing: bool = False
    """Whether it was held for too long, or too much was: all is refused until it goes on (SHORT-FENCE)."""


def ticket_of(write: Write) -> Ticket:
    """Returns what a write of this worker carries."""
    ticket = write.payload
    assert isinstance(ticket, Ticket)
    return ticket


def client_of(write: Write) -> Client:
    """Returns who has sent a write of this worker."""
    return ticket_of(write).pending.client
