"""Compressed batches are opened as others open them, and never further than the bound."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import cramjam
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from kordon.codecs.errors import WireError
from kordon.codecs.records import HEADER_BYTES
from kordon.codecs.unpack import RECORD_COST_BYTES, UnpackedTooLarge, records_in, records_of, room_for, unpacked
from kordon.testing.messages.bombs import CODECS, bomb, old_bomb

LIMIT = 1 << 20
RECORDS = st.lists(
    st.tuples(st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=300)), min_size=1, max_size=40
)


def batch(records: Sequence[tuple[bytes | None, bytes | None]], codec: int, base_offset: int = 0) -> bytes:
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 20)
    for delta, (key, value) in enumerate(records):
        builder.append(delta, 1_000 + delta, key, value, [("h", b"1")])
    built = bytearray(builder.build())
    built[:8] = base_offset.to_bytes(8, "big")
    return bytes(built)


def old_batch(
    records: Sequence[tuple[bytes | None, bytes | None]], codec: int, magic: int, base_offset: int = 0
) -> bytes:
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=1 << 20)
    for delta, (key, value) in enumerate(records):
        builder.append(delta, None if magic == 0 else 1_000 + delta, key, value)
    built = bytearray(builder.build())
    built[:8] = (base_offset + len(records) - 1).to_bytes(8, "big")
    return bytes(built)


def contents(records: Any) -> list[tuple[Any, ...]]:
    return [(each.offset, each.timestamp, each.key, each.value, list(each.headers)) for each in records]


def judged(data: bytes) -> list[tuple[Any, ...]]:
    return contents(MemoryRecords(data).next_batch())


@given(RECORDS, st.sampled_from([0, *CODECS.values()]), st.integers(0, 2**60))
def test_batch_is_opened_as_others_open_it(
    records: Sequence[tuple[bytes | None, bytes | None]], codec: int, base_offset: int
) -> None:
    """Offsets, timestamps, keys, values and headers are the same, whatever the codec."""
    data = batch(records, codec, base_offset)
    assert contents(records_of(data, LIMIT)) == judged(data)
    assert contents(MemoryRecords(bytes(unpacked(data, LIMIT))).next_batch()) == judged(data)


@pytest.mark.parametrize("codec", CODECS)
def test_one_room_serves_many_batches_within_each_ones_bound(codec: str) -> None:
    """What another batch left in it is not seen, and a smaller bound than the room's size holds."""
    room = room_for(LIMIT)
    for size in (90_000, 5, 70_000):
        data = batch([(b"k", b"v" * size)], CODECS[codec])
        assert contents(records_in(unpacked(data, LIMIT, room))) == judged(data)
    with pytest.raises(UnpackedTooLarge):
        unpacked(data, 60_000, room)


@pytest.mark.parametrize("codec", [0, 1, 2, 3])
@given(records=RECORDS, base_offset=st.integers(0, 2**60))
def test_messages_of_old_are_opened_as_others_open_them(
    codec: int, records: list[tuple[bytes | None, bytes | None]], base_offset: int
) -> None:
    """Wrapped messages of magic 1 get the offsets that count from the wrapper's."""
    data = old_batch(records[:1] if codec == 0 else records, codec, 1, base_offset)
    assert contents(records_of(data, LIMIT)) == judged(data)


def test_time_of_the_wrapper_rules_where_brokers_gave_it() -> None:
    """Under log append time only the wrapper's timestamp is right."""
    data = bytearray(old_batch([(b"k", b"v"), (b"k", b"w")], 1, 1))
    data[17] |= 0x08
    data[18:26] = (77).to_bytes(8, "big")
    assert contents(records_of(data, LIMIT)) == judged(bytes(data))
    assert [each.timestamp for each in records_of(data, LIMIT)] == [77, 77]


@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("is_broken", [False, True])
def test_lz4_of_the_oldest_clients_is_opened(checksum: bool, is_broken: bool) -> None:
    """Kafka once wrote a wrong checksum into the header of lz4 frames (KIP-57); offsets of magic 0 are whole ones."""
    plain = b"".join(old_batch([(b"k", b"v%d" % n)], 0, 0, n) for n in range(5, 8))
    packer = cramjam.lz4.Compressor(content_checksum=checksum, block_linked=False)
    packer.compress(plain)
    frame = bytearray(bytes(packer.finish()))
    frame[6] ^= 0xFF if is_broken else 0
    size = 14 + len(frame)
    front = (7).to_bytes(8, "big") + size.to_bytes(4, "big") + bytes(4) + b"\0\3" + b"\xff" * 4
    opened = records_of(front + len(frame).to_bytes(4, "big") + frame, LIMIT)
    assert [(each.offset, each.value) for each in opened] == [(5, b"v5"), (6, b"v6"), (7, b"v7")]


@pytest.mark.parametrize("wrap", [bomb, old_bomb])
@pytest.mark.parametrize("codec", CODECS)
def test_what_is_too_large_is_not_opened(wrap: Callable[[str, int], bytes], codec: str) -> None:
    """A bound is kept to the byte, by each codec."""
    if wrap is old_bomb and codec == "zstd":
        pytest.skip("not of magic 1")
    data = wrap(codec, 100_000)
    plain = len(unpacked(data, LIMIT)) - (HEADER_BYTES if wrap is bomb else 0)
    assert sum(len(each.value or b"") for each in records_of(data, plain)) == 100_000
    for limit in (plain - 1, 1_000):
        with pytest.raises(UnpackedTooLarge):
            list(records_of(data, limit))


def test_raw_snappy_and_blocks_of_snappy_are_both_bounded() -> None:
    """Java clients write blocks, each of which says its own length; librdkafka writes raw."""
    blocks = batch([(b"k", bytes(100_000))], CODECS["snappy"])
    assert blocks[HEADER_BYTES : HEADER_BYTES + 7] == b"\x82SNAPPY"
    for data in (blocks, bomb("snappy", 100_000)):
        assert [len(each.value or b"") for each in records_of(data, LIMIT)] == [100_000]
        with pytest.raises(UnpackedTooLarge):
            unpacked(data, 99_000)


def test_members_of_gzip_count_together() -> None:
    """A gzip stream may have several members; the bound is of all."""
    data = batch([(b"k", b"v" * 5_000)], 0)
    half = 3_000
    header = bytearray(data[:HEADER_BYTES])
    header[22] |= CODECS["gzip"]
    body = b"".join(
        bytes(cramjam.gzip.compress(part)) for part in (data[HEADER_BYTES:][:half], data[HEADER_BYTES:][half:])
    )
    split_up = bytes(header) + body
    assert [each.value for each in records_of(split_up, LIMIT)] == [b"v" * 5_000]
    with pytest.raises(UnpackedTooLarge):
        unpacked(split_up, half + 100)


def test_very_many_small_records_are_too_large() -> None:
    """A record costs time, however short it is: its number is held against the bound before anything is unpacked."""
    data = batch([(None, None)] * 1_000, CODECS["gzip"])
    assert len(list(records_of(data, 1_000 * RECORD_COST_BYTES))) == 1_000
    with pytest.raises(UnpackedTooLarge, match="1000 records"):
        unpacked(data, 1_000 * RECORD_COST_BYTES - 1)
    old = old_batch([(None, None)] * 1_000, CODECS["gzip"], 1)
    assert len(list(records_of(old, 1_000 * RECORD_COST_BYTES))) == 1_000
    with pytest.raises(UnpackedTooLarge, match="more than 999"):
        unpacked(old, 1_000 * RECORD_COST_BYTES - 1)


def test_messages_wrapped_twice_are_refused() -> None:
    """One layer is what there is; each further one could hold a hundred times as much."""
    with pytest.raises(WireError, match="other than plain"):
        list(records_of(old_bomb("gzip", 1_000, wrapped=2), LIMIT))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [1, 2])
def test_what_cannot_be_read_is_a_wire_error(codec: str, magic: int) -> None:
    """Cut off, or changed, at any byte: an error of the codecs, and nothing else."""
    if magic == 1 and codec == "zstd":
        pytest.skip("not of magic 1")
    records = [(b"key", b"value %d" % n) for n in range(5)]
    data = batch(records, CODECS[codec]) if magic == 2 else old_batch(records, CODECS[codec], 1)
    for at in range(17, len(data)):
        for broken in (data[:at], data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]):
            try:
                list(records_of(broken, LIMIT))
            except WireError:
                continue


MEASURE = """
import resource, sys
from kordon.codecs.unpack import UnpackedTooLarge, records_of
from kordon.testing.messages.bombs import bomb, old_bomb
limit, sizes = 32 << 20, {"zstd": [200_000_000, 1_900_000_000], "gzip": [200_000_000], "lz4": [200_000_000]}
for codec in sizes:
    for value_bytes in sizes[codec]:
        data = [bomb(codec, value_bytes)] + ([] if codec == "zstd" else [old_bomb(codec, value_bytes)])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for each in data:
            try:
                list(records_of(each, limit))
                sys.exit(f"{codec}: opened")
            except UnpackedTooLarge:
                pass
        print(codec, len(data[0]), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.slow
def test_bombs_take_no_more_memory_than_the_bound() -> None:
    """Six kilobytes that hold 200 MB, sixty that hold 1.9 GB: the process grows by the bound and a block."""
    told = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True).stdout
    grown = [int(line.split()[-1]) for line in told.splitlines()]
    assert len(grown) == 4
    assert sum(grown) < 60, told
