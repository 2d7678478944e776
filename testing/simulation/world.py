"""Time and chance of a simulation."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from random import Random
from typing import Final

PACE: Final = (0.8, 1.2)
"""At least and at most, of what was asked for, between two turns of what happens again and again."""


class World:
    """A clock that jumps from event to event.

    Args:
        seed: Decides everything.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)  # noqa: S311 - chance that can be repeated
        self.now = 0.0
        self.story: list[str] = []
        """What happened, for whoever has to understand a failing seed."""
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()

    def at(self, time: float, what: Callable[[], None]) -> None:
        """Lets something happen at a time; what was asked for first happens first."""
        heapq.heappush(self._events, (time, next(self._count), what))

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        """Lets something happen later."""
        heapq.heappush(self._events, (self.now + seconds, next(self._count), what))

    def soon(self, what: Callable[[], None], most: float = 0.02) -> None:
        """Lets something happen within `most` seconds."""
        self.after(self.random.uniform(0.0005, most), what)

    def each(self, seconds: float | Callable[[], float], what: Callable[[], bool]) -> None:
        """Lets something happen again and again until it returns False; where the pace changes, it is asked for."""

        def again() -> None:
            if what():
                pace = seconds() if callable(seconds) else seconds
                self.at(self.now + pace * (least + spread * random()), again)

        random, least, spread = self.random.random, PACE[0], PACE[1] - PACE[0]  # what `uniform` does, without calls
        self.after((seconds() if callable(seconds) else seconds) * random(), again)

    def between(self, least: int, most: int) -> int:
        """Draws a number, `most` included: by the draws of `Random.randint`, in fewer calls."""
        numbers = most - least + 1
        bits, draw = numbers.bit_length(), self.random.getrandbits
        while (drawn := draw(bits)) >= numbers:
            pass
        return least + drawn

    def chance(self, probability: float) -> bool:
        """Throws a coin."""
        return self.random.random() < probability

    def say(self, line: str) -> None:
        """Writes into the story."""
        self.story.append(f"{self.now:8.3f}  {line}")

    def run(self, until: float, done: Callable[[], object] = lambda: False) -> None:
        """Lets events happen until a time, or until nothing is left to wait for, which is asked after each of them."""
        events, pop = self._events, heapq.heappop
        while events and events[0][0] <= until and not done():
            self.now, _, what = pop(events)
            what()
        if not done():
            self.now = max(self.now, until)

    def end(self) -> None:
        """Lets nothing happen any more of what was asked for: what it holds on to is free at once."""
        self._events.clear()


class Pipe:
    """One direction of a connection: what goes in first comes out first, however long each is on its way.

    Args:
        world: Time.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._last = 0.0

    def send(self, seconds: float, what: Callable[[], None]) -> None:
        """Lets something come out after so long, or behind what went in before."""
        self._last = max(self._last, self._world.now + seconds)
        self._world.at(self._last, what)
