"""Which of a worker's answers to InitProducerId have crossed: in which order brokers gave them is unknown."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Final

_MOST: Final = 1_000


class CrossedAnswers:
    """Remembers whom a worker has passed answers to lately."""

    def __init__(self) -> None:
        self._told: deque[int] = deque(maxlen=_MOST)  # hashes: names may have 32 KB each
        self.count = 0
        """How many answers there were."""

    def add(self, transactional_id: str, asked_at: int) -> bool:
        """Takes in an answer; returns whether another one for the same id has come since its request.

        Args:
            transactional_id: The transactional id for which both requests ask.
            asked_at: The value of `count` when the request came.
        """
        since, name = self.count - asked_at, hash(transactional_id)
        has_crossed = since > _MOST or name in islice(reversed(self._told), since)
        self._told.append(name)
        self.count += 1
        return has_crossed
