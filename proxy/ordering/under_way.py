"""The writes of a worker that fences and leases wait for: they are unanswered, or answered too late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Generic, TypeVar

_Answer = TypeVar("_Answer")
Partition = tuple[str, int]
"""Topic and physical partition."""


class DrainWait:
    """A wait for all that is unanswered of some partitions.

    Args:
        under_way: The writes that are sent and not answered.
        partitions: The partitions whose answers are waited for.
    """

    def __init__(self, under_way: UnderWay, partitions: Iterable[Partition]) -> None:
        self._under_way = under_way
        self.landed = dict.fromkeys(partitions, 0)
        """By partition, the offset behind what was written since this wait began; 0: nothing was written."""

    @property
    def is_over(self) -> bool:
        """Whether nothing is unanswered."""
        return not any(self._under_way.of(partition) for partition in self.landed)


class UnderWay:
    """Writes that are sent and not answered, by physical partition."""

    def __init__(self) -> None:
        self._counts: Counter[Partition] = Counter()
        self._drains: list[DrainWait] = []

    def __len__(self) -> int:
        return self._counts.total()

    def of(self, partition: Partition) -> int:
        """Returns how many there are of a partition."""
        return self._counts[partition]

    def sent(self, partition: Partition) -> None:
        """Counts one more."""
        self._counts[partition] += 1

    def answered(self, partition: Partition, written_to: int = 0) -> None:
        """Counts one less: it is answered, or never will be.

        Args:
            written_to: The offset behind it, if the broker says that it is written.
        """
        self._counts[partition] -= 1
        for drain in self._drains:
            if partition in drain.landed:
                drain.landed[partition] = max(drain.landed[partition], written_to)

    @property
    def is_waited_for(self) -> bool:
        """Whether anybody waits for answers."""
        return bool(self._drains)

    def drain(self, partitions: Iterable[Partition]) -> DrainWait:
        """Begins to wait; what is sent from now on counts, too."""
        drain = DrainWait(self, partitions)
        self._drains.append(drain)
        return drain

    def end(self, drain: DrainWait) -> None:
        """Waits no more."""
        self._drains = [each for each in self._drains if each is not drain]


class Fate(Enum):
    """What becomes of a broker's answer."""

    TELL = "tell"
    """The answer is compared with the layout in force, and its client is told."""
    KEEP = "keep"
    """The answer waits for the lease, and until the layouts were read since."""
    LOSE = "lose"
    """Too many wait: its client is told that there was no answer."""


class KeptAnswers(Generic[_Answer]):
    """Successes that came when this worker had no lease: they may stand behind a cut unknown to it (LATE-ANSWER).

    Args:
        most: The largest number of answers that wait.
        seconds: The longest time that an answer waits.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._answers: list[tuple[_Answer, float]] = []

    def __len__(self) -> int:
        return len(self._answers)

    def take(self, answer: _Answer, *, is_written: bool, may_serve: bool, now: float) -> Fate:
        """Says what becomes of an answer, and keeps it if it is to wait.

        Args:
            is_written: Whether it says that the write is in the log.
            may_serve: Whether the lease lives, and the layouts were read since it was joined.
            now: The time in seconds.
        """
        if may_serve or not is_written:
            return Fate.TELL
        if len(self._answers) >= self._most:
            return Fate.LOSE
        self._answers.append((answer, now))
        return Fate.KEEP

    def release(self, waits: Callable[[_Answer], bool] = lambda _: False) -> list[_Answer]:
        """Returns all but those that wait still, in their order; the lease lives, and the layouts were read since."""
        answers, self._answers = self._answers, [each for each in self._answers if waits(each[0])]
        return [answer for answer, _ in answers if not waits(answer)]

    def overdue(self, now: float) -> list[_Answer]:
        """Returns those that have waited for too long, and forgets them."""
        due = [answer for answer, since in self._answers if now - since > self._seconds]
        self._answers = self._answers[len(due) :]
        return due
