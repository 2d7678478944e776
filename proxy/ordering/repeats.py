"""The batches that clients are to send again, before what they have sent behind them counts (REPEAT-FIRST).

A client has several batches of one partition under way. If it is told to send the first one again, the next one may
come before that, and there is a gap. librdkafka takes another epoch on OUT_OF_ORDER_SEQUENCE_NUMBER, and sends all of
them again under it. But a copy of the first one may still be under way to the broker, where the new epoch hides that it
is the same: if it comes first, it stands there twice. So the client is told to send the second one again, too.
"""

from __future__ import annotations

from typing import Final, NamedTuple

REPEAT_SECONDS: Final = 15.0
"""For which a batch is waited for. A client that has not sent it again by then has given it up, or sends it by another
proxy; then gaps are told as they are."""
_MOST: Final = 10_000
_SEQUENCES: Final = 1 << 31


class _Repeat(NamedTuple):
    epoch: int
    sequence: int
    until: float


class Repeats:
    """The batches of one stream that are to come again, by their writers."""

    def __init__(self) -> None:
        self._first: dict[int, _Repeat] = {}
        """The first one of each writer."""

    def expect(self, producer_id: int, epoch: int, sequence: int, now: float) -> None:
        """Notes that a client was told to send a batch again.

        Args:
            producer_id: The client's producer id.
            epoch: The producer epoch.
            sequence: The sequence of the batch's first record, as the client counts.
            now: The time in seconds.
        """
        if self.is_behind(producer_id, epoch, sequence, now):
            return
        self._first.pop(producer_id, None)
        self._first[producer_id] = _Repeat(epoch, sequence, now + REPEAT_SECONDS)
        if len(self._first) > _MOST:
            del self._first[next(iter(self._first))]

    def written(self, producer_id: int) -> None:
        """Notes that a batch of a producer is written: what was before it is, too."""
        self._first.pop(producer_id, None)

    def is_behind(self, producer_id: int, epoch: int, sequence: int, now: float) -> bool:
        """Whether a batch before this one is to come again."""
        first = self._first.get(producer_id)
        return (
            first is not None
            and first.epoch == epoch
            and now < first.until
            and 0 < (sequence - first.sequence) % _SEQUENCES < _SEQUENCES // 2
        )
