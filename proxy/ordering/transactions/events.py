"""What the log of a physical partition holds of transactions.

    W(P, 5)   data of v3, tag P   data of v7, tag P   COMMIT(P, 5)   W(P, 5)   data of v3, tag P   ABORT(P, 5)

Data stand under tagged producer ids (ORIGIN-TAG), so brokers do not see a transaction in them. The *witness* is a small
transactional batch under the client's own producer id and epoch, written before the data. It makes the transaction's
coordinator write a marker into the same log, and brokers hold the last stable offset of that log until then.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Protocol(Enum):
    """The two protocols of transactions."""

    V1 = "v1"
    """Clients send AddPartitionsToTxn, and an epoch lasts for many transactions. Markers have the epoch of the data;
    those of a transaction that timed out or was fenced have a later one."""
    V2 = "v2"
    """KIP-890: the first Produce adds the partition, and each transaction has an epoch of its own. Markers have the
    next epoch."""


class Witness(NamedTuple):
    """A witness in a log."""

    offset: int
    producer_id: int
    """The client's own producer id."""
    epoch: int
    """The producer epoch."""


class Marker(NamedTuple):
    """A control batch by which a coordinator ended a transaction in a log."""

    offset: int
    producer_id: int
    """The client's own producer id."""
    epoch: int
    """The producer epoch in the control batch."""
    is_commit: bool


Event = Witness | Marker


class Batch(NamedTuple):
    """A batch of transactional data in a log, as its header tells it."""

    offset: int
    producer_id: int
    """The client's own, out of the tag."""
    epoch: int
    """The producer epoch."""
    protocol: Protocol
