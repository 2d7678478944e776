"""The markers by which a coordinator ends a transaction in a log.

Source: Kafka documentation, "Control Batches"; ControlRecordType.java.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from kordon.codecs.errors import WireError
from kordon.codecs.look import Buffer
from kordon.codecs.records import LOG_OVERHEAD, BatchHeader
from kordon.codecs.unpack import RECORD_COST_BYTES, records_of

_MOST_BYTES: Final = 4096
"""Of a whole batch; a coordinator's has some 80."""
_TYPE: Final = slice(2, 4)
"""In the record's key, behind its version."""


class MarkerType(IntEnum):
    """What a marker does."""

    ABORT = 0
    COMMIT = 1


def marker_type(header: BatchHeader, batch: Buffer) -> MarkerType | None:
    """Returns what a control batch does to its producer's transaction; None: it is no marker of a known type.

    Args:
        batch: The whole batch of magic 2.
    """
    if not header.is_control or header.producer_id < 0 or LOG_OVERHEAD + header.batch_length > _MOST_BYTES:
        return None
    try:
        record = next(records_of(batch, RECORD_COST_BYTES), None)
        return None if record is None else MarkerType(int.from_bytes(bytes(record.key or b"")[_TYPE], "big"))
    except (WireError, ValueError):
        return None
