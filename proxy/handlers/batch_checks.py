"""Looks at what a client wants written to a virtual partition, before it gets a place in a line."""

from __future__ import annotations

from struct import Struct as Layout
from typing import Final, NamedTuple

from kordon.codecs.error_codes import Code
from kordon.codecs.look import Buffer
from kordon.codecs.records import CURRENT_MAGIC, HEADER_BYTES, LOG_OVERHEAD, MAGIC_AT
from kordon.codecs.unpack import RECORD_COST_BYTES
from kordon.proxy.ordering.identity import LARGEST_CLIENT_ID
from kordon.proxy.ordering.write_sequencer import NO_PRODUCER

_BATCH: Final = Layout(">8xi9xhi16xqhi")
"""Length, attributes, last offset delta, (timestamps), producer id, producer epoch, base sequence."""
_TRANSACTIONAL: Final = 0x10
_ATTRIBUTES_AT: Final = 22
"""The position of the lower byte of the attributes."""
_COMPRESSION: Final = 0x07
_ZSTD: Final = 4
_ZSTD_SINCE: Final = 7
"""First version of Produce that may carry zstd (KIP-110)."""


class Unfit(NamedTuple):
    """Why records cannot be written."""

    code: int
    """The error code; one of a broker's may be newer than `Code`."""
    message: str


TURN_ON: Final = "set ordering.transactions to true in all proxies: docs/transactions.md"
NOT_TAKEN: Final = Unfit(
    Code.INVALID_TXN_STATE, f"Kordon takes no transactional writes to topics with virtual partitions; {TURN_ON}"
)
"""NO-TRANSACTIONS. Java, librdkafka and franz-go fail the batch and the transaction at once upon this code, and retry
neither: Java's sender hands the message on, librdkafka calls it permanent, franz-go ends the batch."""


class CheckedBatch(NamedTuple):
    """What matters of one batch."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int
    """How many sequence numbers it takes."""


def is_transactional(records: Buffer | None) -> bool:
    """Whether what stands there, if it is a batch, belongs to a transaction."""
    return records is not None and len(records) >= HEADER_BYTES and records[_ATTRIBUTES_AT] & _TRANSACTIONAL != 0


def look_records(
    version: int, records: Buffer | None, opened_bytes: int | None = None, *, no_transaction: Unfit | None = NOT_TAKEN
) -> CheckedBatch | Unfit:
    """Judges the records of one partition; the broker judges the rest.

    Args:
        opened_bytes: Most bytes of records that a compressed batch may hold, by its header, where others open it; None:
            nobody does.
        no_transaction: Why a batch of a transaction is refused; None: it is not.
    """
    if records is None or len(records) <= MAGIC_AT:
        return Unfit(Code.INVALID_RECORD, "A Produce request has exactly one record batch per partition")
    if records[MAGIC_AT] != CURRENT_MAGIC:  # MAGIC-TWO
        message = f"Message format v{records[MAGIC_AT]} cannot be written to a topic with virtual partitions"
        return Unfit(Code.UNSUPPORTED_FOR_MESSAGE_FORMAT, message)
    size = len(records)
    if size < HEADER_BYTES:
        return Unfit(Code.INVALID_RECORD, "A Produce request has exactly one record batch per partition")
    length, attributes, last_delta, producer_id, epoch, sequence = _BATCH.unpack_from(records)
    if LOG_OVERHEAD + length != size:
        return Unfit(Code.INVALID_RECORD, "A Produce request has exactly one record batch per partition")
    batch = CheckedBatch(producer_id, epoch, sequence, last_delta + 1)
    unfit = _why_not(version, attributes, batch, no_transaction)
    if unfit is None and opened_bytes is not None and attributes & _COMPRESSION:
        unfit = _too_large(batch, opened_bytes)
    return batch if unfit is None else unfit


def _why_not(version: int, attributes: int, batch: CheckedBatch, no_transaction: Unfit | None) -> Unfit | None:
    producer_id, epoch, sequence, records = batch
    if attributes & _TRANSACTIONAL:
        if no_transaction is not None:
            return no_transaction
        if producer_id == NO_PRODUCER:
            return Unfit(Code.INVALID_RECORD, "A batch of a transaction has no producer id")
    if attributes & _COMPRESSION == _ZSTD and version < _ZSTD_SINCE:
        return Unfit(Code.UNSUPPORTED_COMPRESSION_TYPE, f"Produce {version} cannot carry zstd")
    if records < 1:
        return Unfit(Code.INVALID_RECORD, "A record batch must have at least one record")
    if producer_id > LARGEST_CLIENT_ID:  # ORIGIN-TAG
        return Unfit(
            Code.INVALID_PRODUCER_ID_MAPPING,
            f"Producer id {producer_id} is above {LARGEST_CLIENT_ID}, the largest for virtual partitions",
        )
    if producer_id < NO_PRODUCER or (producer_id != NO_PRODUCER and (epoch < 0 or sequence < 0)):
        message = f"Producer id {producer_id} cannot have epoch {epoch} and sequence {sequence}"
        return Unfit(Code.INVALID_RECORD, message)
    return None


def _too_large(batch: CheckedBatch, opened_bytes: int) -> Unfit | None:
    """Refuses a compressed batch that readers would never get. Only its header is looked at."""
    if batch.records * RECORD_COST_BYTES <= opened_bytes:
        return None
    message = f"A compressed batch has {batch.records} records; limits.opened_bytes ({opened_bytes}) allows fewer"
    return Unfit(Code.RECORD_LIST_TOO_LARGE, message)
