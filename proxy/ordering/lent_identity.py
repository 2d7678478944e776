"""The identity under which writes without a producer id are sent (LENT-IDENTITY).

The identity belongs to the stream, and clients know nothing of it. If one of its writes fails, the identity takes its
next epoch, and the writes that were sent after the failed one are sent again. If the broker rejects a batch before it
appends it, only the batch's own client is affected: its sequences are free, and the writes after it take them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from kordon.proxy.ordering.write_result import Result

SEQUENCES: Final = 1 << 31
"""The number of sequences of an identity; 0 follows the last one."""
_LAST_EPOCH: Final = (1 << 15) - 1
_MOST_ATTEMPTS: Final = 5
"""The most times that one write is sent."""


class _Attempted(Protocol):
    attempts: int
    abandoned: bool


_Write = TypeVar("_Write", bound=_Attempted)


@dataclass(slots=True)
class LentIdentity(Generic[_Write]):
    """A producer id with the epoch and the sequence of the next write."""

    producer_id: int
    epoch: int = 0
    sequence: int = 0
    in_flight: int = 0
    """Writes that are sent and not answered."""
    is_broken: bool = False
    """Whether the next write begins another epoch."""
    free: int | None = None
    """The sequence of a rejected batch, which the next write takes. No batch that was sent after it can have been
    appended."""
    again: list[_Write] = field(default_factory=list[_Write])
    """The writes that were sent after a failed one, in their order."""

    @property
    def rests(self) -> bool:
        """Whether nothing is sent until all writes under way are answered."""
        return self.is_broken or self.free is not None

    @property
    def can_be_renewed(self) -> bool:
        """Whether it rests, and all writes that were under way are answered."""
        return not self.in_flight and (self.is_broken or self.free is not None)

    def sent(self, records: int) -> None:
        """Counts a write of so many records, which is sent under the present sequence."""
        self.sequence = (self.sequence + records) % SEQUENCES
        self.in_flight += 1

    def answered(self, write: _Write, sequence: int, result: Result) -> bool:
        """Takes in what became of a write.

        Args:
            sequence: The sequence under which it was sent.

        Returns:
            Whether the write is sent again.
        """
        self.in_flight -= 1
        if result is not Result.SEQUENCE or self.free is None:  # behind a rejected one it fails by no fault of its own
            write.attempts += 1
        is_sent_again = result is Result.SEQUENCE and write.attempts < _MOST_ATTEMPTS and not write.abandoned
        if is_sent_again:
            self.again.append(write)
        if result is Result.REJECTED:
            self.free = sequence if self.free is None else self.free
        elif result is Result.WRITTEN:
            self.is_broken |= self.free is not None  # brokers that have forgotten an identity take what is behind a gap
        elif self.free is None or result is not Result.SEQUENCE:
            self.is_broken = True
        return is_sent_again

    def renewed(self) -> LentIdentity[_Write] | None:
        """Returns the identity of the writes after a failed one: with the next epoch, or with the free sequence.

        Returns:
            None: the epochs of the producer id are used up.
        """
        if not self.is_broken and self.free is not None:
            return LentIdentity(self.producer_id, self.epoch, self.free)
        return LentIdentity(self.producer_id, self.epoch + 1) if self.epoch < _LAST_EPOCH else None
