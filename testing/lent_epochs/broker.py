"""Models of a coordinator of Kafka before 2.5, and of a compacted log."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final

from kordon.proxy.ordering.lent_epochs import Lent, ProducerIdentity

LAST_EPOCH: Final = 6
"""In place of 32766."""
COMPACTION_LAG: Final = 90.0
"""Seconds for which the log keeps all records (min.compaction.lag.ms)."""


@dataclass
class Coordinator:
    """Of one transactional id."""

    rng: Random
    current: ProducerIdentity | None = None
    """What the last InitProducerId has given; None: the broker has never heard of the id, or has forgotten it."""
    is_open: bool = False
    """Whether a transaction is."""
    is_ending: bool = False
    ids: int = 0

    def init(self) -> ProducerIdentity | None:
        """Answers InitProducerId without id and epoch; None: CONCURRENT_TRANSACTIONS."""
        if self.is_ending and self.rng.random() < 0.5:
            return None
        self.is_ending = False
        if self.current is None or self.current.epoch >= LAST_EPOCH:
            self.ids += 1
            self.current = ProducerIdentity(self.ids, 0)
            return self.current
        self.current = self.current._replace(epoch=self.current.epoch + 1)
        if not self.is_open:
            return self.current
        self.is_open, self.is_ending = False, True
        return None

    def begin(self, identity: ProducerIdentity) -> bool:
        """Begins a transaction, if this is the current producer."""
        if identity != self.current or self.is_ending:
            return False
        self.is_open = True
        return True

    def end(self, identity: ProducerIdentity) -> None:
        if identity == self.current:
            self.is_open = False

    def expire(self) -> bool:
        """Forgets the id, unless a transaction is open; returns whether it has."""
        if self.is_open or self.is_ending:
            return False
        self.current = None
        return True


@dataclass
class Log:
    """The records of one transactional id."""

    records: list[tuple[float, Lent]] = field(default_factory=list[tuple[float, Lent]])

    def append(self, now: float, record: Lent) -> int:
        """Returns the offset."""
        self.records.append((now, record))
        return len(self.records) - 1

    @property
    def end(self) -> int:
        return len(self.records)

    def compacted(self, now: float) -> int:
        """Returns the first offset that is still there: of what is old, only the last record."""
        old = sum(written < now - COMPACTION_LAG for written, _ in self.records)
        return min(old, max(0, len(self.records) - 1))
