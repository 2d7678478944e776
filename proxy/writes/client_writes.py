"""The writes of a Produce request, each of which finds its way back to the request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

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
        self._left = 1
        """How many outcomes are not known; one more as long as entries may come, which may be refused at once."""
        self._told: Callable[[], None] | None = None

    def place(self, outcome: WriteOutcome | None = None) -> int:
        """Makes a place for one more outcome, or for one that is known; returns its number."""
        self.outcomes.append(outcome)
        self._left += outcome is None
        return len(self.outcomes) - 1

    def settle(self, place: int, outcome: WriteOutcome) -> None:
        """Takes in an outcome; the first one counts."""
        if self.outcomes[place] is None:
            self.outcomes[place] = outcome
            self._count_down()

    def tell(self, told: Callable[[], None]) -> None:
        """Has `told` called when all outcomes are known, which may be now. Every entry has its place."""
        self._told = told
        self._count_down()

    async def wait(self) -> list[WriteOutcome]:
        """Returns all outcomes. Every entry has its place."""
        known: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.tell(partial(_end, known))
        await known
        return self.known

    @property
    def known(self) -> list[WriteOutcome]:
        """The outcomes that are known."""
        return [outcome for outcome in self.outcomes if outcome is not None]

    def _count_down(self) -> None:
        self._left -= 1
        if not self._left and self._told is not None:
            told, self._told = self._told, None
            told()


def _end(wait: asyncio.Future[None]) -> None:
    if not wait.done():  # its client may have gone
        wait.set_result(None)


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
