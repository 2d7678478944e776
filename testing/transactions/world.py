"""Time, chance and turns: activities that can be interrupted at each of their steps."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from random import Random
from typing import Final, Generic, Protocol, TypeVar

_Value = TypeVar("_Value")
Condition = Callable[[], bool]
Activity = Generator[Condition | None, None, _Value]
"""It yields between two steps, with what it waits for; None: nothing."""
STEPS_A_SECOND: Final = 100
_DRAWS: Final = 6


class Owner(Protocol):
    """Whoever takes the steps of an activity."""

    @property
    def is_stopped(self) -> bool: ...


class Slot(Generic[_Value]):
    """The place for an answer."""

    def __init__(self) -> None:
        self.value: _Value | None = None

    @property
    def is_filled(self) -> bool:
        return self.value is not None

    def put(self, value: _Value) -> None:
        """Keeps the first answer; who asked twice gets that one."""
        if self.value is None:
            self.value = value


@dataclass(slots=True, eq=False)
class _Turn:
    owner: Owner | None
    activity: Activity[None]
    waits_for: Condition | None = None


class World:
    """Takes one step of one activity at a time.

    Args:
        seed: Decides everything.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311 - chance that can be repeated
        self.now = 0
        """Steps since the beginning."""
        self.story: list[str] = []
        """What happened, for whoever has to understand a failing seed."""
        self.wrong: list[str] = []
        """The promises that were broken."""
        self.is_healing = False
        """Whether nothing goes wrong any more, and nobody begins anything."""
        self._turns: list[_Turn] = []

    @property
    def seconds(self) -> float:
        return self.now / STEPS_A_SECOND

    def tell(self, what: str) -> None:
        self.story.append(f"{self.now}: {what}")

    def break_promise(self, what: str) -> None:
        self.wrong.append(f"{self.now}: {what}")

    def happens(self, chance: float) -> bool:
        return self.random.random() < chance

    def below(self, number: int) -> int:
        """Draws a number from 0 on."""
        return int(self.random.random() * number)

    def spawn(self, activity: Activity[None], owner: Owner | None = None) -> None:
        """Begins an activity.

        Args:
            activity: It ends when it has nothing more to do.
            owner: While it is stopped, so is the activity; None: nobody stops it.
        """
        self._turns.append(_Turn(owner, activity))

    def journey(self) -> Condition:
        """Returns the wait of a request on its way, which is long now and then."""
        until = self.now + (self.below(300) if self.happens(0.04) else 0)
        return lambda: self.now >= until

    def step(self) -> None:
        """Lets an activity that is drawn go on; if it cannot, another one is drawn, a few times."""
        self.now += 1
        for _ in range(_DRAWS):
            if self._turns and self._go_on(self._turns[self.below(len(self._turns))]):
                return

    def _go_on(self, turn: _Turn) -> bool:
        if turn.owner is not None and turn.owner.is_stopped:
            return False
        if turn.waits_for is not None and not turn.waits_for():
            return False
        try:
            turn.waits_for = next(turn.activity)
        except StopIteration:
            self._turns.remove(turn)
        return True
