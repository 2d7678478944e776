"""Batches of a writer that went around Kordon: their records are shared out among those who live there (BYPASS-SHARED).

Nothing but this and the janitor of compacted topics opens users' records (`opening.py`). It costs some 5 µs a record,
which is why it is counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from aiokafka.partitioner import murmur2
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from kordon.codecs.records import patch_base_offset
from kordon.codecs.unpack import OpenedRecord
from kordon.proxy.ordering.chain import Stay
from kordon.proxy.ordering.reading import share_out

_POSITIVE: Final = 0x7FFFFFFF
_NO_PRODUCER: Final = -1
_MAGIC: Final = 2
_BATCH_BYTES: Final = 1024 * 1024
"""Of records; one that is larger is a batch by itself."""


class Shares:
    """The records of one batch, by who gets them.

    Args:
        residents: Who lives where it stands; at least one.
        v_count: V.
    """

    def __init__(self, residents: Mapping[int, Stay], v_count: int) -> None:
        self.built: list[tuple[int, bytearray]] = []
        """Virtual partition and a batch of its own, not compressed, each record at the offset that it has in the
        physical partition; in order, and whole after `finish`."""
        self._residents = residents
        self._v_count = v_count
        self._open: dict[int, _Share] = {}

    def take(self, records: Sequence[OpenedRecord]) -> None:
        """Takes in what comes next."""
        hashes = [record.offset if record.key is None else hash_of(bytes(record.key)) for record in records]
        for v, record in zip(share_out(hashes, self._residents, self._v_count), records, strict=True):
            share = self._open.get(v)
            if share is None or not share.has_room:
                self._close(v)
                share = self._open[v] = _Share(record.offset)
            share.add(record)

    def finish(self) -> list[tuple[int, bytearray]]:
        """Returns all that was built."""
        for v in list(self._open):
            self._close(v)
        return self.built

    def _close(self, v: int) -> None:
        share = self._open.pop(v, None)
        if share is not None:
            self.built.append((v, share.build()))


class _Share:
    """A batch that is being built."""

    def __init__(self, base_offset: int) -> None:
        self._base_offset = base_offset
        self._builder: Any = DefaultRecordBatchBuilder(
            _MAGIC, DefaultRecordBatch.CODEC_NONE, 0, _NO_PRODUCER, -1, -1, _POSITIVE
        )

    @property
    def has_room(self) -> bool:
        return bool(self._builder.size() < _BATCH_BYTES)

    def add(self, record: OpenedRecord) -> None:
        delta = record.offset - self._base_offset
        kept = self._builder.append(delta, record.timestamp, record.key, record.value, list(record.headers))
        assert kept is not None  # its bound is higher than any record's

    def build(self) -> bytearray:
        built = bytearray(self._builder.build())
        patch_base_offset(built, 0, self._base_offset)
        return built


def hash_of(key: bytes) -> int:
    """Returns the hash of a key, not negative, by which producers choose where nobody says otherwise."""
    return int(murmur2(key)) & _POSITIVE
