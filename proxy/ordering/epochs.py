"""The leader epoch of a virtual partition (RISING-EPOCH): how often it has moved, then its physical partition's own.

30        15 14               0
├─ move ────┼─ leader epoch ──┤

So it rises with every move, and behind a move with every election: what clients compare stays comparable.
"""

from __future__ import annotations

from typing import Final

_MOVE_SHIFT: Final = 15
LARGEST_EPOCH: Final = (1 << _MOVE_SHIFT) - 1
"""Of a physical partition, as far as they are told apart."""


def virtual_epoch(move: int, epoch: int) -> int:
    """Returns the leader epoch that clients see.

    Args:
        move: How often the virtual partition had moved, at most 65,535 times.
        epoch: The physical partition's leader epoch; -1 stays -1 (unknown), and 32,767 elections are the most
            that are told apart.
    """
    return -1 if epoch < 0 else move << _MOVE_SHIFT | min(epoch, LARGEST_EPOCH)


def split_epoch(virtual: int) -> tuple[int, int]:
    """Takes a leader epoch that a client sent apart: the move, and the physical partition's epoch (RISING-EPOCH).

    Args:
        virtual: The virtual number, which is not negative.
    """
    return virtual >> _MOVE_SHIFT, virtual & LARGEST_EPOCH
