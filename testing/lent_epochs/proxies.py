"""What a proxy does around the product's decisions: it reads and writes the log, calls the broker, answers, and dies.

A request is a generator. Each `yield` says how long it waits, in seconds, and is where its proxy may die or stop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias

from kordon.proxy.ordering import lent_epochs
from kordon.proxy.ordering.lent_epochs import (
    CALL_SECONDS,
    TAKE_OVER_SECONDS,
    EpochClaim,
    Lent,
    ProducerIdentity,
    Refusal,
)

if TYPE_CHECKING:
    from kordon.testing.lent_epochs.run import World

Answer: TypeAlias = ProducerIdentity | Refusal
Serving: TypeAlias = Generator[float, None, Answer]
SLOW: Final = TAKE_OVER_SECONDS - CALL_SECONDS
"""What a call that began in time takes at most."""
_TOKENS: Final = count()


class Reader:
    """What one proxy has read of the log."""

    def __init__(self, world: World) -> None:
        self.lent: Lent | None = None
        self.read_up_to = world.log.compacted(world.now)
        self.read_at = world.now
        """When the last record that counts was read."""
        self.tail_read_at = 0.0
        self.counted: dict[int, bool] = {}
        """By offset, whether a record counts."""
        self.world = world

    def read(self, end: int) -> None:
        """Reads on to an offset."""
        for offset in range(self.read_up_to, end):
            _, record = self.world.log.records[offset]
            self.counted[offset] = lent_epochs.counts(self.lent, record)
            self.tail_read_at = self.world.now
            if self.counted[offset]:
                self.lent, self.read_at = record, self.world.now
        self.read_up_to = max(self.read_up_to, end)

    @property
    def is_spoilt(self) -> bool:
        """Whether the last record is one that does not count."""
        return not self.counted.get(self.read_up_to - 1, True)

    @property
    def is_left_spoilt(self) -> bool:
        """Whether that has been so for as long as its writer needs to mend it."""
        return self.is_spoilt and self.world.now - self.tail_read_at >= TAKE_OVER_SECONDS


class Proxy:
    """One process of Kordon."""

    def __init__(self, world: World, rng: Random) -> None:
        self.world = world
        self._rng = rng
        self.asleep_until = 0.0
        self.requests: list[int] = []
        """Under way, by number."""
        self._reader = Reader(world)

    def die(self) -> None:
        """Forgets all; another process comes in its place."""
        self.requests.clear()
        self._reader = Reader(self.world)

    def follow(self) -> None:
        """Reads the log without a request, and mends what others have left spoilt."""
        self._reader.read(self.world.log.end)
        if self._reader.is_left_spoilt and self._reader.lent is not None:
            self._reader.read(1 + self.world.log.append(self.world.now, lent_epochs.repeated(self._reader.lent)))

    def serve(self, given: ProducerIdentity | None, on_token: Callable[[str], None]) -> Serving:
        """Serves an InitProducerId request; tells the token that it gets."""
        asked = EpochClaim(str(next(_TOKENS)), given)
        on_token(asked.token)
        while True:
            yield from self._read_to_end()
            decision = lent_epochs.decide(self._reader.lent, asked, may_take_over=self._may_take_over())
            if not isinstance(decision, Lent):
                return decision
            sent = self.world.now
            if not (yield from self._write(decision)):
                continue
            answer = yield from self._call(asked.token, sent)
            if answer is not None:
                return answer

    def _may_take_over(self) -> bool:
        return self.world.now - self._reader.read_at >= TAKE_OVER_SECONDS

    def _read_to_end(self) -> Generator[float, None, None]:
        """Reads all that stood in the log when it was asked for its end."""
        end = self.world.log.end
        yield self._rng.uniform(0, 0.02)
        self._reader.read(end)

    def _mend(self) -> Generator[float, None, None]:
        """Writes what counts behind a record of this proxy that does not, which compaction would leave alone."""
        while self._reader.is_spoilt and self._reader.lent is not None:
            yield from self._append(lent_epochs.repeated(self._reader.lent))

    def _write(self, record: Lent) -> Generator[float, None, bool]:
        """Appends a record; returns whether it counts."""
        does_count = yield from self._append(record)
        if not does_count:
            yield from self._mend()
        return does_count

    def _append(self, record: Lent) -> Generator[float, None, bool]:
        """Appends a record and reads up to it; returns whether it counts."""
        yield self._rng.uniform(0, 0.01)
        offset = self.world.log.append(self.world.now, record)
        yield self._rng.uniform(0, 0.01)
        self._reader.read(offset + 1)
        return self._reader.counted[offset]

    def _call(self, token: str, sent: float) -> Generator[float, None, Answer | None]:
        """Calls the broker until it has ended the transaction before; None: to be decided anew."""
        while True:
            yield self._rng.uniform(0, 0.02)
            if self.world.now - sent >= CALL_SECONDS:
                return Refusal.BUSY
            if self.world.is_refused():
                yield from self._release(token)
                return Refusal.BUSY
            came = self.world.call(self._rng.uniform(0, SLOW) if self._rng.random() < 0.05 else 0.01)
            while not came:
                yield 0.02
            if (answer := came[0]) is not None:
                return (yield from self._settle(token, answer))
            yield from self._read_to_end()
            again = None if self._reader.lent is None else lent_epochs.called_again(self._reader.lent, token)
            sent = self.world.now
            if again is None or not (yield from self._write(again)):
                return None

    def _release(self, token: str) -> Generator[float, None, None]:
        """Writes that the broker has refused a call; its client asks again."""
        released = None if self._reader.lent is None else lent_epochs.released(self._reader.lent, token)
        if released is not None:
            yield from self._write(released)

    def _settle(self, token: str, answer: ProducerIdentity) -> Generator[float, None, Answer | None]:
        while True:
            yield from self._read_to_end()
            found = None if self._reader.lent is None else lent_epochs.settled(self._reader.lent, token, answer)
            if found is None:
                return None
            record, told = found
            if (yield from self._write(record)):
                return told
