"""Opens every n-th batch of what brokers answer, and tells its keys by their hashes (`schema.KEYS`).

Which batches these are, their base offsets alone decide: a micro-batch that is read again opens the same ones. Opened
are batches that Kordon has placed, as their producer ids say, and of each the first records only.

What a batch unpacks to is bounded, and so is all that is unpacked of one answer. What is larger, and what cannot be
read, counts as a batch whose keys are not known; it stops nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from kordon.codecs.errors import WireError
from kordon.codecs.records import CRC_AT, CRC_FROM
from kordon.codecs.retag import crc32c
from kordon.codecs.split import CONTROL
from kordon.codecs.unpack import UnpackedTooLarge, records_in, room_for, unpacked
from kordon.spark_jobs.brokers import PartitionKey
from kordon.spark_jobs.judging.rules.belonging import JANITOR
from kordon.spark_jobs.judging.schema import KEYS
from kordon.spark_jobs.key_hashes import hashes_of

ONE_IN: Final = 256
"""One of so many batches is opened by default: that costs some per cent of what it costs to read all headers."""
OPENED_RECORDS: Final = 16
"""Of a batch that is opened, so many records are looked at."""
KEY_BYTES: Final = 256
"""Keys that are longer are left out."""
UNPACKED_BYTES: Final = 4 << 20
"""What a batch may unpack to, ..."""
ANSWER_BYTES: Final = 32 << 20
"""... and all batches of an answer."""
_HASHED_AT_ONCE: Final = 4_096
"""The keys that are kept until they are hashed."""
_V_BITS: Final = 48
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)
"""2^64 by the golden ratio: its multiples are spread evenly, whatever the steps between offsets are."""
_CAST: Final = [pl.col(name).cast(kind) for name, kind in KEYS.items()]


class KeySample:
    """The sampled keys of one partition.

    Args:
        place: The partition.
        one_in: The number of batches of which one is opened; 0: no batch is opened.
    """

    def __init__(self, place: PartitionKey, one_in: int) -> None:
        self._place = place
        self._one_in = one_in
        self._keys: list[bytes] = []
        self._offsets: list[int] = []
        self._unknown: list[int] = []
        self._tables: list[pl.DataFrame] = []

    def open(self, records: memoryview, headers: npt.NDArray[Any], spans: npt.NDArray[np.int64]) -> None:
        """Opens some batches of an answer.

        Args:
            records: The records of the answer.
            headers: The headers of batches in the answer, as `batch_reader.HEADER`.
            spans: A row for each batch, with the positions at which it begins and ends.
        """
        places = np.flatnonzero(_are_opened(headers, self._one_in)).tolist() if self._one_in else []
        left = ANSWER_BYTES
        for place in places:
            start, end = spans[place].tolist()
            left -= self._take(int(headers["base_offset"][place]), records[start:end], min(left, UNPACKED_BYTES))
        if len(self._keys) >= _HASHED_AT_ONCE:
            self._tables.append(self._hashed())

    def table(self) -> pl.DataFrame:
        """Returns what there is, as `KEYS`."""
        rows = pl.concat([*self._tables, self._hashed()])
        topic, partition = pl.lit(self._place.topic), pl.lit(self._place.partition)
        return rows.with_columns(topic.alias("topic"), partition.alias("partition")).select(_CAST)

    def _take(self, base_offset: int, batch: memoryview, limit: int) -> int:
        """Takes the keys of one batch, each once; returns what has been unpacked."""
        try:
            plain = _sound(batch, limit)
            keys = dict.fromkeys(_keys_in(plain))
        except WireError as error:
            self._unknown.append(base_offset)
            return limit if isinstance(error, UnpackedTooLarge) else 0
        self._keys += keys
        self._offsets += [base_offset] * len(keys)
        return len(plain)

    def _hashed(self) -> pl.DataFrame:
        hashes = {name: pl.Series(each) for name, each in hashes_of(self._keys)._asdict().items()}
        known = pl.DataFrame({"base_offset": pl.Series(self._offsets, dtype=pl.Int64), **hashes})
        unknown = pl.DataFrame({"base_offset": pl.Series(self._unknown, dtype=pl.Int64)})
        self._keys, self._offsets, self._unknown = [], [], []
        return known if unknown.is_empty() else pl.concat([known, unknown], how="diagonal")


def _are_opened(headers: npt.NDArray[Any], one_in: int) -> npt.NDArray[np.bool_]:
    """Tells the batches of the sample; what the janitor writes, and what did not come through Kordon, is not in it."""
    v = (headers["producer_id"].astype(np.int64) >> _V_BITS) - 1
    is_meant = (v >= 0) & (v != JANITOR) & (headers["attributes"].astype(np.int64) & CONTROL == 0)
    spread = headers["base_offset"].astype(np.int64).view(np.uint64) * _SPREAD
    told: npt.NDArray[np.bool_] = is_meant & ((spread >> np.uint64(32)) % np.uint64(one_in) == 0)
    return told


def _sound(batch: memoryview, limit: int) -> memoryview:
    if crc32c(batch[CRC_FROM:]) != int.from_bytes(batch[CRC_AT:CRC_FROM], "big"):
        raise WireError("the checksum of a batch is not that of its bytes", message="RecordBatch")
    return unpacked(batch, limit, _room())


def _keys_in(plain: memoryview) -> Iterator[bytes]:
    """Yields the keys of the first records; a record without key, or with an empty one, may be put anywhere."""
    for record in islice(records_in(plain), OPENED_RECORDS):
        if record.key and len(record.key) <= KEY_BYTES:
            yield bytes(record.key)


@cache
def _room() -> memoryview:
    return room_for(UNPACKED_BYTES)
