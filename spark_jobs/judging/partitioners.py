"""The partitioners of known producers: the partition of a key by its hash and the number of partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import polars as pl

_POSITIVE: Final = 0x7FFF_FFFF
_SIGN: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class Partitioner:
    """One partitioner of a client."""

    name: str
    title: str
    """Who uses it, as findings say it."""
    hashed: Callable[[], pl.Expr]
    """What it divides by the number of partitions; the rest is the partition."""

    def partition(self, count: pl.Expr) -> pl.Expr:
        """Returns the partition, of `count`, of keys with the columns of `KEYS`."""
        return (self.hashed() % count).cast(pl.Int32)


def _masked(name: str) -> pl.Expr:
    """Java's `toPositive`."""
    return pl.col(name).cast(pl.Int64) & _POSITIVE


def _absolute(name: str) -> pl.Expr:
    """The number without its sign, as Go's and C's clients take it."""
    number = pl.col(name).cast(pl.Int64)
    return pl.when(number >= _SIGN).then(2 * _SIGN - number).otherwise(number)


PARTITIONERS: Final = (
    Partitioner("murmur2", "murmur2, as of Java, kafkajs and franz-go", lambda: _masked("murmur2")),
    Partitioner("crc32", "CRC-32, as of librdkafka", lambda: pl.col("crc32").cast(pl.Int64)),
    Partitioner("fnv1a", "FNV-1a, as of sarama and kafka-go", lambda: _absolute("fnv1a")),
    Partitioner("fnv1a_masked", "FNV-1a, as of sarama's reference hasher", lambda: _masked("fnv1a")),
)
"""In the order in which they are told where several would do."""
