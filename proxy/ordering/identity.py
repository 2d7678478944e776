"""The producer id that a batch has in the log, and what it tells (ORIGIN-TAG).

63      48 47  40 39                                    0
├ v + 1 ──┼ move ┼ the producer id that the client knows ┤

Batches of dialect clients belong to no virtual partition: they have `NO_V`, and the layout epoch as their move.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kordon.proxy.ordering.streams import Stream, is_physical

CLIENT_BITS: Final = 40
"""The bits of a tagged producer id that are the client's own. The bits above them name the owner."""
_MOVE_BITS: Final = 8
_V_SHIFT: Final = CLIENT_BITS + _MOVE_BITS
_SMALLEST_TAGGED: Final = 1 << _V_SHIFT
LARGEST_CLIENT_ID: Final = (1 << CLIENT_BITS) - 1
"""Producers with larger ids cannot write to managed topics. A cluster gets there after 10^12 producers."""
MOVES: Final = 1 << _MOVE_BITS
"""Moves are counted modulo this."""
NO_V: Final = (1 << 15) - 2
"""Takes the place of the virtual partition in a batch that a dialect client wrote to a physical partition."""
JANITOR: Final = NO_V - 1
"""Takes the place of the virtual partition in a janitor's marker, which readers never see. V is at most this number."""


class Owner(NamedTuple):
    """The stay that a batch was written for. Two stays of a virtual partition share an owner `MOVES` moves apart."""

    v: int
    """The virtual partition, or `NO_V`."""
    move: int
    """How often `v` had moved, or the layout epoch of the physical partition's segment: modulo 256."""


class Identity(NamedTuple):
    """What a tagged producer id says."""

    v: int
    """The virtual partition, or `NO_V`."""
    move: int
    """How often `v` had moved, or the layout epoch of the physical partition's segment: modulo 256."""
    client_id: int
    """The producer id that the client knows."""

    @property
    def owner(self) -> Owner:
        """The stay that the batch was written for."""
        return Owner(self.v, self.move)

    @property
    def is_physical(self) -> bool:
        """Whether it was written to the physical partition as such, by a client of the dialect."""
        return self.v == NO_V


def owner_of(stream: Stream, move: int) -> Owner:
    """Returns the owner that batches of a stream name during a stay with this `Stay.move`."""
    return Owner(NO_V if is_physical(stream) else stream, move % MOVES)


def tag(stream: Stream, move: int, client_id: int) -> int:
    """Returns the producer id that a batch has in the log."""
    v = NO_V if is_physical(stream) else stream
    return (v + 1) << _V_SHIFT | (move % MOVES) << CLIENT_BITS | client_id


def untag(producer_id: int) -> Identity | None:
    """Reads a producer id from the log; None: it was not written through Kordon."""
    if producer_id < _SMALLEST_TAGGED:
        return None
    return Identity(
        (producer_id >> _V_SHIFT) - 1, producer_id >> CLIENT_BITS & (MOVES - 1), producer_id & LARGEST_CLIENT_ID
    )
