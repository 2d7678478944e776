"""Finds what the log says of transactions: witnesses of Kordon's, and the markers of coordinators.

Both stand under the client's own producer id and have no tag. Headers tell which batches can be one; only these are
opened. A topic without transactions has none.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kordon.codecs.errors import WireError
from kordon.codecs.records import HEADER_BYTES, ControlType, look_batch, parse_control_batch
from kordon.codecs.witness import MOST_WITNESS_BYTES, WITNESS_RECORDS_V2, is_witness
from kordon.spark_jobs.judging.rules.belonging import WITNESS
from kordon.spark_jobs.judging.rules.transaction_log import ABORT, COMMIT

EVENTS: Final = (None, WITNESS, COMMIT, ABORT)
"""By their numbers here."""
_NONE, _WITNESS, _COMMIT, _ABORT = range(len(EVENTS))
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_SMALLEST_TAGGED: Final = 1 << 48
_MARKER: Final = {bytes.fromhex("00 0000 08 0000 0001"): _COMMIT, bytes.fromhex("00 0000 08 0000 0000"): _ABORT}
"""The record of a marker behind its length, as brokers write it: attributes, deltas, length of the key, the key."""
_MARKER_BYTES: Final = 8
_LENGTH_BYTES: Final = 1

Headers = npt.NDArray[Any]
"""As `batch_reader.HEADER`."""


def events_of(records: memoryview, headers: Headers, spans: npt.NDArray[np.int64]) -> npt.NDArray[np.int8] | None:
    """Returns what batches say of transactions, by the numbers of `EVENTS`; None: nothing.

    Args:
        records: The answer of a broker.
        headers: The headers of the batches in the answer.
        spans: A row for each batch, with the positions at which it begins and ends.
    """
    attributes = headers["attributes"]
    is_transactional = attributes & _TRANSACTIONAL != 0
    if not is_transactional.any():
        return None
    is_control = is_transactional & (attributes & _CONTROL != 0)
    found = np.zeros(len(headers), dtype=np.int8)
    for place in np.flatnonzero(is_control).tolist():
        start, end = spans[place].tolist()
        found[place] = _marker(records[start:end])
    for place in np.flatnonzero(is_transactional & ~is_control & _may_be_witnesses(headers, spans)).tolist():
        start, end = spans[place].tolist()
        found[place] = _WITNESS if is_witness(look_batch(records, start), records[start:end]) else _NONE
    return found


def _may_be_witnesses(headers: Headers, spans: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Whether batches are as small as a witness, and not tagged."""
    is_small = (spans[:, 1] - spans[:, 0] <= MOST_WITNESS_BYTES) & (headers["records_count"] <= WITNESS_RECORDS_V2)
    told: npt.NDArray[np.bool_] = is_small & (headers["producer_id"] < _SMALLEST_TAGGED)
    return told


def _marker(batch: memoryview) -> int:
    """Tells a commit from an abort; other control batches, and what cannot be read, are no events."""
    known = _MARKER.get(bytes(batch[HEADER_BYTES + _LENGTH_BYTES :][:_MARKER_BYTES]))
    if known is not None:
        return known
    try:
        kind = parse_control_batch(batch).type
    except WireError:
        return _NONE
    return {ControlType.COMMIT: _COMMIT, ControlType.ABORT: _ABORT}.get(kind, _NONE)
