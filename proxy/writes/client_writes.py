"""The writes of a Produce request, each of which finds its way back to the request."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from kordon.codecs.produce import WriteOutcome
from kordon.proxy.decisions.runs import Client
from kordon.proxy.ordering.transactions.beliefs import Ground
from kordon.proxy.ordering.write_sequencer import Write


class PendingProduce:
    """The outcomes of one request, until all are known."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.outcomes: list[WriteOutcome | None] = []
        """In the order of the request's entries; None: not known yet."""
        self._left = 0
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def place(self, outcome: WriteOutcome | None = None) -> int:
        """Makes a place for one more outcome, or for one that is known; returns its number."""
        self.outcomes.append(outcome)
        self._left += outcome is None
        return len(self.outcomes) - 1

    def settle(self, place: int, outcome: WriteOutcome) -> None:
        """Takes in an outcome; the first one counts."""
        if self.outcomes[place] is None:
            self.outcomes[place] = outcome
            self._left -= 1
            if not self._left and not self._done.done():
                self._done.set_result(None)

    async def wait(self) -> list[WriteOutcome]:
        """Returns all outcomes."""
        if self._left:
            await self._done
        return [outcome for outcome in self.outcomes if outcome is not None]


@dataclass(slots=True, eq=False, kw_only=True)
class ClientWrite(Write):
    """A batch of a client's request."""

    pending: PendingProduce
    place: int
    """In the request."""
    batch: memoryview
    """As the client sent it, or under the identity under which it was sent last."""
    timeout_ms: int
    """How long the client lets the broker wait for copies."""
    is_unsent: bool = True
    """Whether it counts among what is not sent."""
    ground: Ground | None = None
    """What it rests on that its transaction is open where it goes to; None: it belongs to none."""
    patience_ms: int = 2_000
    """How long the broker may keep its answer back, and with it all that is behind on the connection, before it is
    asked again; each time twice as long."""

    def settle(self, outcome: WriteOutcome) -> None:
        """Tells the request."""
        self.pending.settle(self.place, outcome)
