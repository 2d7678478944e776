"""Keys are hashed as the clients hash them that choose partitions by it."""

from __future__ import annotations

import warnings
import zlib
from typing import Final

import pytest

pytest.importorskip("polars", reason="the auditor's extra is not installed: pip install 'kordon[audit]'")

import polars as pl
from aiokafka.partitioner import murmur2
from hypothesis import given
from hypothesis import strategies as st

from kordon.spark_jobs.judging.partitioners import PARTITIONERS
from kordon.spark_jobs.key_hashes import hashes_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # how kafka-python reads its own schemas
    from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

CHOSEN: Final = {
    b"a": (4, 3, 0, 8),
    b"order-1": (10, 7, 1, 1),
    "Zürich".encode(): (1, 6, 8, 0),
    "客户-17".encode(): (2, 2, 10, 10),
    b"\x00\x01\xc3\xbf": (0, 11, 0, 8),
    b"abc": (3, 6, 11, 11),
    b"abcd": (8, 1, 3, 5),
    b"abcde": (1, 9, 0, 0),
    b"order-267853": (1, 0, 7, 1),
    b"order-723985": (8, 3, 8, 0),
    b"7f9c2b1e-5a3d-4f0e-9b1a-2c3d4e5f6a7b": (7, 2, 3, 3),
    b"x" * 256: (2, 8, 1, 1),
}
"""Of 12 partitions, what clients have chosen: Java, kafkajs 2.2.4, franz-go 1.22 and librdkafka by `murmur2_random`;
librdkafka by default and kafka-go's `CRC32Balancer`; sarama, kafka-go, and librdkafka by `fnv1a_random`; sarama and
kafka-go by their reference hashers."""


def test_partitions_are_those_that_real_clients_have_chosen() -> None:
    """By each of the known partitioners, for keys of all lengths modulo 4, and hashes with and without a sign."""
    told = pl.DataFrame({name: pl.Series(each) for name, each in hashes_of(list(CHOSEN))._asdict().items()})
    partitions = told.select(each.partition(pl.lit(12)).alias(each.name) for each in PARTITIONERS)
    assert partitions.rows() == list(CHOSEN.values())


@given(st.lists(st.binary(max_size=70), max_size=30))
def test_keys_of_any_lengths_are_hashed_side_by_side_as_one_by_one(keys: list[bytes]) -> None:
    """They share a matrix, in which short ones end before long ones."""
    hashes = hashes_of(keys)
    assert hashes.murmur2.tolist() == [murmur2(key) for key in keys]
    assert hashes.murmur2.tolist() == [murmur2_of_kafka_python(key) for key in keys]
    assert hashes.crc32.tolist() == [zlib.crc32(key) for key in keys]
    assert hashes.fnv1a.tolist() == [fnv1a(key) for key in keys]


def fnv1a(key: bytes) -> int:
    """FNV-1a as its authors write it."""
    value = 0x811C9DC5
    for byte in key:
        value = (value ^ byte) * 0x01000193 % 2**32
    return value
