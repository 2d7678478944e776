"""The producer id that a batch has in the log, and what it tells (ORIGIN-TAG).

63      48 47  40  39  38  37                                  0
├ v + 1 ──┼ move ┼ txn ┼ v2 ┼ the producer id that the client knows ┤

The bits 39 and 38 say that the batch belongs to a transaction, and by which protocol. With the client's own id they
make the *writer*: sequences of a producer are counted apart in transactions of each protocol and outside of them.

Batches of dialect clients belong to no virtual partition: they have `NO_V`, and the layout epoch as their move.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kordon.proxy.ordering.streams import Stream, is_physical
from kordon.proxy.ordering.transactions.events import Protocol

WRITER_BITS: Final = 40
"""The bits of a tagged producer id that name the writer. The bits above them name the owner."""
_CLIENT_BITS: Final = 38
_MOVE_BITS: Final = 8
_V_SHIFT: Final = WRITER_BITS + _MOVE_BITS
_SMALLEST_TAGGED: Final = 1 << _V_SHIFT
LARGEST_CLIENT_ID: Final = (1 << _CLIENT_BITS) - 1
"""Producers with larger ids cannot write to managed topics. A cluster gets there after 2.7 * 10^11 producers."""
_TRANSACTIONAL: Final = 1 << 39
_V2: Final = 1 << 38
_PROTOCOL_BITS: Final = {None: 0, Protocol.V1: _TRANSACTIONAL, Protocol.V2: _TRANSACTIONAL | _V2}
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
    protocol: Protocol | None = None
    """The protocol of the batch's transaction; None: the batch belongs to none."""

    @property
    def writer(self) -> int:
        """The client's id with the bits that tell its transactions apart, as images have it."""
        return writer_id(self.client_id, self.protocol)

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


def writer_id(client_id: int, protocol: Protocol | None) -> int:
    """Returns whose sequences a batch continues with: the client's id, and the bits of its transaction's protocol."""
    return _PROTOCOL_BITS[protocol] | client_id


def writer_of(producer_id: int) -> int:
    """Returns the writer that a tagged producer id names."""
    return producer_id & (1 << WRITER_BITS) - 1


def client_id_of(writer: int) -> int:
    """Returns the producer id that the client of a writer knows; -1 for one without idempotence."""
    return writer & LARGEST_CLIENT_ID if writer >= 0 else writer


def tag(stream: Stream, move: int, writer: int) -> int:
    """Returns the producer id that a batch has in the log.

    Args:
        writer: See `writer_id`; of a batch outside of transactions, the id that the client knows.
    """
    v = NO_V if is_physical(stream) else stream
    return (v + 1) << _V_SHIFT | (move % MOVES) << WRITER_BITS | writer


def untag(producer_id: int) -> Identity | None:
    """Reads a producer id from the log; None: it was not written through Kordon."""
    if producer_id < _SMALLEST_TAGGED:
        return None
    v, move = (producer_id >> _V_SHIFT) - 1, producer_id >> WRITER_BITS & (MOVES - 1)
    return Identity(v, move, producer_id & LARGEST_CLIENT_ID, protocol_of(producer_id))


def protocol_of(producer_id: int) -> Protocol | None:
    """Returns the protocol of the transaction that a tagged producer id is of; None: of none."""
    if not producer_id & _TRANSACTIONAL:
        return None
    return Protocol.V2 if producer_id & _V2 else Protocol.V1
