"""Batches of a writer that went round Kordon: opened, and shared out among those who live there (rule F2).

Nothing but this and the janitor of compacted topics opens users' records. It costs some 5 µs a record, which is why it
is counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aiokafka.errors import CorruptRecordException, UnsupportedCodecError
from aiokafka.partitioner import murmur2
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from kordon.codecs.errors import WireError
from kordon.codecs.records import patch_base_offset
from kordon.codecs.schema import Buffer
from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.reading import share_out

_POSITIVE: Final = 0x7FFFFFFF
_NO_PRODUCER: Final = -1
_MAGIC: Final = 2
_SPARE_BYTES: Final = 1024


def open_batch(batch: Buffer, residents: Mapping[int, Stay], v_count: int) -> dict[int, bytearray]:
    """Shares the records of one batch out.

    Args:
        batch: One whole batch (or, of magic 0 and 1, one message); not compressed afterwards.
        residents: Who lives where it stands; at least one.
        v_count: V.

    Returns:
        By virtual partition, a batch with its records, each at the offset that it has in the physical partition.

    Raises:
        WireError: The batch cannot be read.
    """
    records = records_of(batch)
    hashes = [record.offset if record.key is None else hash_of(bytes(record.key)) for record in records]
    shares: dict[int, list[Any]] = {}
    for v, record in zip(share_out(hashes, residents, v_count), records, strict=True):
        shares.setdefault(v, []).append(record)
    return {v: _build(share) for v, share in shares.items()}


def hash_of(key: bytes) -> int:
    """Returns the hash of a key, not negative, by which producers choose where nobody says otherwise."""
    return int(murmur2(key)) & _POSITIVE


def records_of(batch: Buffer) -> list[Any]:
    """Opens one whole batch (or, of magic 0 and 1, one message), whatever its compression.

    Returns:
        Its records, with `offset`, `timestamp`, `key`, `value` and `headers`.

    Raises:
        WireError: It cannot be read.
    """
    try:
        opened = MemoryRecords(bytes(batch)).next_batch()
        return [] if opened is None else list(opened)
    except (CorruptRecordException, UnsupportedCodecError, ValueError, IndexError, RuntimeError) as error:
        raise WireError(f"the records of a batch cannot be read: {error}", message="RecordBatch") from error


def _build(records: list[Any]) -> bytearray:
    base = records[0].offset
    size = sum(DefaultRecordBatchBuilder.estimate_size_in_bytes(each.key, each.value, each.headers) for each in records)
    builder: Any = DefaultRecordBatchBuilder(
        _MAGIC, DefaultRecordBatch.CODEC_NONE, 0, _NO_PRODUCER, -1, -1, size + _SPARE_BYTES
    )
    for each in records:
        kept = builder.append(each.offset - base, each.timestamp, each.key, each.value, list(each.headers))
        assert kept is not None  # the size was made for them
    built = bytearray(builder.build())
    patch_base_offset(built, 0, base)
    return built
