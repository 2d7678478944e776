"""What was written to a log since its producers were asked for: the headers of its batches, folded (STILL-CUT).

Below `position` nothing is unknown: what stood in the log when its producers were asked for is in that answer, which
may tell of later batches, too. These come again here, and the last batch of a producer is what counts.
"""

from __future__ import annotations

from collections.abc import Iterable

_SEQUENCES = 1 << 31


class Tail:
    """The end of one log, as far as it has been read.

    Args:
        position: The log end before its producers were asked for.
        leader_epoch: The epoch of the leader that gave them. Another leader may have lost some of them.
        in_transaction: Producers that had a transaction open.
    """

    def __init__(self, position: int, leader_epoch: int, in_transaction: Iterable[int] = ()) -> None:
        self.position = position
        """All below has been read."""
        self.leader_epoch = leader_epoch
        self.written: dict[int, tuple[int, int]] = {}
        """Epoch and last sequence by producer id, of those who have written from then on."""
        self.in_transaction = set(in_transaction)

    def take(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        last_offset_delta: int,
        *,
        is_transactional: bool = False,
        is_control: bool = False,
    ) -> None:
        """Takes in the next batch of the log, by the fields of its header."""
        if producer_id < 0:
            return
        if is_control:  # the epoch of a marker says nothing of what was written
            self.in_transaction.discard(producer_id)
            return
        self.written[producer_id] = (producer_epoch, (base_sequence + last_offset_delta) % _SEQUENCES)
        if is_transactional:
            self.in_transaction.add(producer_id)
