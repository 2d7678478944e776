"""The witness of a transaction: a batch that Kordon writes in front of a transaction's data (docs/why/transactions.md).

It is transactional and has the client's own producer id and epoch, so brokers and coordinators take it for a part of
the transaction. It has one record in transactions of the first protocol and two in those of the second (KIP-890). So
neither can be the repetition of the other. Readers never see it.
"""

from __future__ import annotations

from typing import Final

from kordon.codecs.errors import WireError
from kordon.codecs.look import Buffer
from kordon.codecs.records import HEADER_BYTES, LOG_OVERHEAD, BatchHeader
from kordon.codecs.unpack import RECORD_COST_BYTES, records_of

WITNESS_KEY: Final = b"__kordon.txn"
"""Of each record of a witness, which has neither value nor headers."""
WITNESS_RECORDS_V1: Final = 1
WITNESS_RECORDS_V2: Final = 2
MOST_WITNESS_BYTES: Final = HEADER_BYTES + 128
"""Of a whole batch, also where a topic's own compression has made it larger."""
_OPENED_BYTES: Final = WITNESS_RECORDS_V2 * RECORD_COST_BYTES
_SMALLEST_TAGGED: Final = 1 << 48


def may_be_witness(header: BatchHeader) -> bool:
    """Whether a batch can be a witness by its header; its records have to be looked at (`is_witness`)."""
    return (
        header.is_transactional
        and not header.is_control
        and 0 <= header.producer_id < _SMALLEST_TAGGED
        and WITNESS_RECORDS_V1 <= header.records_count <= WITNESS_RECORDS_V2
        and header.records_count == header.last_offset_delta + 1
        and LOG_OVERHEAD + header.batch_length <= MOST_WITNESS_BYTES
    )


def is_witness(header: BatchHeader, batch: Buffer) -> bool:
    """Whether a batch is a witness. What cannot be read is none.

    Args:
        batch: The whole batch of magic 2, in whatever compression.
    """
    if not may_be_witness(header):
        return False
    try:
        records = list(records_of(batch, _OPENED_BYTES))
    except WireError:
        return False
    is_mine = all(each.key == WITNESS_KEY and each.value is None and not each.headers for each in records)
    return is_mine and len(records) == header.records_count
