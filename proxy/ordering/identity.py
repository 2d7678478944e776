"""Who wrote a batch, as the log has it: rule I1.

63      48 47  40 39                                    0
├ v + 1 ──┼ move ┼ the producer id that the client knows ┤
"""

from __future__ import annotations

from typing import Final, NamedTuple

_CLIENT_BITS: Final = 40
_MOVE_BITS: Final = 8
_V_SHIFT: Final = _CLIENT_BITS + _MOVE_BITS
_SMALLEST_TAGGED: Final = 1 << _V_SHIFT
LARGEST_CLIENT_ID: Final = (1 << _CLIENT_BITS) - 1
"""Producer ids above it cannot write to managed topics; a cluster gets there after 10^12 producers."""
MOVES: Final = 1 << _MOVE_BITS
"""Moves are counted modulo this."""


class Identity(NamedTuple):
    """What a tagged producer id says."""

    v: int
    move: int
    """How often `v` had moved, modulo 256."""
    client_id: int
    """The producer id that the client knows."""


def tag(v: int, move: int, client_id: int) -> int:
    """Returns the producer id under which a batch stands in the log."""
    return (v + 1) << _V_SHIFT | (move % MOVES) << _CLIENT_BITS | client_id


def untag(producer_id: int) -> Identity | None:
    """Reads a producer id from the log; None: it was not written through Kordon."""
    if producer_id < _SMALLEST_TAGGED:
        return None
    return Identity(
        (producer_id >> _V_SHIFT) - 1, producer_id >> _CLIENT_BITS & (MOVES - 1), producer_id & LARGEST_CLIENT_ID
    )
