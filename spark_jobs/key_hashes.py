"""The hashes by which known producers choose the partition of a key, of many keys at once.

    murmur2  Java, kafka-python, aiokafka, kafkajs, franz-go; librdkafka if it is told so
    crc32    librdkafka and what is built on it (`consistent_random`, its default), ruby-kafka
    fnv1a    sarama, kafka-go; librdkafka if it is told so

Keys lie in a matrix, the longest first. So each step of numpy is about the keys that have a byte there, and some
hundred keys cost hardly more than one.

Source: `Utils.murmur2` in Kafka; rdcrc32.c, rdfnv1a.c in librdkafka; partitioner.go in sarama.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Hashes: TypeAlias = npt.NDArray[np.uint32]

_WORD_BYTES: Final = 4
_MURMUR_SEED: Final = np.uint32(0x9747B28C)
_MURMUR_FACTOR: Final = np.uint32(0x5BD1E995)
_FNV_OFFSET: Final = np.uint32(0x811C9DC5)
_FNV_PRIME: Final = np.uint32(0x01000193)


class KeyHashes(NamedTuple):
    """The hashes of each key, in the order of the keys."""

    murmur2: Hashes
    crc32: Hashes
    fnv1a: Hashes


def hashes_of(keys: Sequence[bytes]) -> KeyHashes:
    """Returns the hashes of keys."""
    lengths = np.fromiter(map(len, keys), dtype=np.int64, count=len(keys))
    order = np.argsort(-lengths, kind="stable")
    ordered = _Ordered([keys[place] for place in order.tolist()], lengths[order])
    crc32 = np.fromiter(map(zlib.crc32, keys), dtype=np.uint32, count=len(keys))
    return KeyHashes(_placed(ordered.murmur2(), order), crc32, _placed(ordered.fnv1a(), order))


def _placed(hashes: Hashes, order: npt.NDArray[np.int64]) -> Hashes:
    back = np.empty_like(hashes)
    back[order] = hashes
    return back


class _Ordered:
    """Keys, the longest first, filled up with zeros."""

    def __init__(self, keys: Sequence[bytes], lengths: npt.NDArray[np.int64]) -> None:
        width = _WORD_BYTES * (int(lengths.max(initial=0)) // _WORD_BYTES + 1)
        data = b"".join(key.ljust(width, b"\0") for key in keys)
        self._bytes = np.frombuffer(data, dtype=np.uint8).reshape(-1, width)
        self._lengths = lengths

    def murmur2(self) -> Hashes:
        """Returns what `Utils.murmur2` does, as unsigned numbers."""
        words = self._bytes.view("<u4").astype(np.uint32)
        whole = self._lengths // _WORD_BYTES
        hashes = _MURMUR_SEED ^ self._lengths.astype(np.uint32)
        mixed = words * _MURMUR_FACTOR
        mixed = (mixed ^ (mixed >> np.uint32(24))) * _MURMUR_FACTOR
        for place, count in _counts(whole):
            hashes[:count] = hashes[:count] * _MURMUR_FACTOR ^ mixed[:count, place]
        rest = np.flatnonzero(self._lengths % _WORD_BYTES)
        hashes[rest] = (hashes[rest] ^ words[rest, whole[rest]]) * _MURMUR_FACTOR
        hashes = (hashes ^ (hashes >> np.uint32(13))) * _MURMUR_FACTOR
        return hashes ^ (hashes >> np.uint32(15))

    def fnv1a(self) -> Hashes:
        """Returns FNV-1a of 32 bits."""
        hashes = np.full(len(self._lengths), _FNV_OFFSET)
        for place, count in _counts(self._lengths):
            hashes[:count] = (hashes[:count] ^ self._bytes[:count, place]) * _FNV_PRIME
        return hashes


def _counts(lengths: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yields each place of keys, and how many are longer, of lengths that fall."""
    places = np.arange(int(lengths.max(initial=0)))
    return zip(places.tolist(), np.searchsorted(-lengths, -places, side="left").tolist(), strict=True)
