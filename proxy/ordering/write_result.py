"""What brokers say of a write."""

from __future__ import annotations

from enum import Enum


class Result(Enum):
    """What the broker said of a write."""

    WRITTEN = "written"
    REJECTED = "rejected"
    """An error of the batch itself: it is not in the log, and will not be."""
    REFUSED = "refused"
    """Another error for the batch's client: it may be in the log."""
    SEQUENCE = "sequence"
    """An error of the identity: OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, UNKNOWN_PRODUCER_ID."""
    LOST = "lost"
    """There will be no answer."""
