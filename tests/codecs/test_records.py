"""Record batches are read by their headers alone, and patched without touching what the CRC covers."""

from random import Random

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.util import calc_crc32c
from hypothesis import given
from hypothesis import strategies as st

from kordon.codecs.errors import WireError
from kordon.codecs.records import (
    BATCH_HEADER,
    CRC_AT,
    CRC_FROM,
    HEADER_BYTES,
    LOG_OVERHEAD,
    ControlRecord,
    ControlType,
    batches,
    look_batch,
    parse_control_batch,
    patch_base_offset,
    patch_leader_epoch,
)
from kordon.testing.messages.values import Values

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


def batch(values: list[bytes], **options: int) -> bytearray:
    """A batch as aiokafka builds it."""
    settings = {"magic": 2, "compression_type": 0, "is_transactional": 0, "batch_size": 10_000}
    builder = DefaultRecordBatchBuilder(producer_id=9, producer_epoch=2, base_sequence=5, **(settings | options))
    for offset, value in enumerate(values):
        builder.append(offset, timestamp=1_000 + offset, key=None, value=value, headers=[])
    return bytearray(builder.build())


def control_batch(key: bytes, value: bytes) -> bytes:
    """A control batch, built by hand after DefaultRecord.java."""
    inner = b"\0" + b"\0" + b"\0" + bytes([len(key) * 2]) + key + bytes([len(value) * 2]) + value + b"\0"
    record = bytes([len(inner) * 2]) + inner
    header = {"batch_length": HEADER_BYTES - LOG_OVERHEAD + len(record), "attributes": 0x30, "records_count": 1}
    return BATCH_HEADER.build(2, header) + record


@given(st.randoms(use_true_random=False), st.integers(0, 5))
def test_look_equals_the_table(random: Random, at: int) -> None:
    """Field for field what construct reads."""
    data = BATCH_HEADER.build(2, Values(random).message(BATCH_HEADER, 2))
    assert len(data) == HEADER_BYTES
    assert look_batch(bytes(at) + data, at)._asdict() == dict(BATCH_HEADER.parse(2, data))


@given(st.randoms(use_true_random=False), INT64, INT32)
def test_patches_equal_a_rebuilt_header(random: Random, base_offset: int, leader_epoch: int) -> None:
    """Patching in place gives the bytes that the table builds from changed values, CRC and all."""
    value = Values(random).message(BATCH_HEADER, 2)
    data = bytearray(b"--" + BATCH_HEADER.build(2, value))
    patch_base_offset(data, 2, base_offset)
    patch_leader_epoch(data, 2, leader_epoch)
    changed = value | {"base_offset": base_offset, "partition_leader_epoch": leader_epoch}
    assert bytes(data[2:]) == BATCH_HEADER.build(2, changed)


def test_patched_batch_keeps_a_right_crc() -> None:
    """Base offset and leader epoch lie in front of what the CRC covers."""
    data = batch([b"a", b"b"])
    patch_base_offset(data, 0, 77)
    patch_leader_epoch(data, 0, 4)
    (span,) = batches(data)
    assert span.header is not None
    assert span.header.crc == int.from_bytes(data[CRC_AT:CRC_FROM], "big") == calc_crc32c(bytes(data[CRC_FROM:]))
    assert (span.header.base_offset, span.header.next_offset, span.header.partition_leader_epoch) == (77, 79, 4)


def test_batches_are_walked_by_their_headers() -> None:
    """Three batches of another library: their places, producers and counts."""
    parts = [batch([b"a"]), batch([b"b", b"cc", b"ddd"]), batch([b"x" * 500], is_transactional=1)]
    spans = list(batches(memoryview(b"".join(parts))))
    assert [(span.start, span.end) for span in spans] == [
        (0, len(parts[0])),
        (len(parts[0]), len(parts[0]) + len(parts[1])),
        (len(parts[0]) + len(parts[1]), sum(map(len, parts))),
    ]
    headers = [span.header for span in spans if span.header is not None]
    assert [header.records_count for header in headers] == [1, 3, 1]
    assert [header.is_transactional for header in headers] == [False, False, True]
    assert {(header.producer_id, header.producer_epoch, header.base_sequence) for header in headers} == {(9, 2, 5)}
    assert not any(header.is_control or header.compression for header in headers)


def test_last_batch_may_be_cut_off() -> None:
    """Brokers answer a Fetch with a number of bytes, wherever that cuts."""
    whole, cut = batch([b"a"]), batch([b"b"])
    for length in range(len(cut)):
        assert [span.end for span in batches(bytes(whole + cut[:length]))] == [len(whole)]


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_sets_are_recognised(magic: int) -> None:
    """Magic 0 and 1 are stepped over message by message."""
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=0, batch_size=10_000)
    for offset in range(3):
        builder.append(offset, timestamp=None if magic == 0 else 5, key=b"k", value=b"v" * offset)
    data = bytes(builder.build())
    spans = list(batches(data))
    assert [(span.magic, span.header) for span in spans] == [(magic, None)] * 3
    assert spans[-1].end == len(data)


@pytest.mark.parametrize(
    ("at", "data", "said"),
    [
        (8, b"\xff\xff\xff\xff", "magic 2 cannot have the length -1"),
        (8, b"\0\0\0\x30", "magic 2 cannot have the length 48"),
        (16, b"\x03", "magic 3 is unknown"),
        (16, b"\xff", "magic 255 is unknown"),
    ],
)
def test_impossible_batch_is_refused(at: int, data: bytes, said: str) -> None:
    """A length below the header's, or a format of the future."""
    broken = batch([b"a"])
    broken[at : at + len(data)] = data
    with pytest.raises(WireError, match=said):
        list(batches(broken))


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("0000 0000", "0000 00000007", ControlRecord(ControlType.ABORT, 7)),
        ("0000 0001", "0000 00000007", ControlRecord(ControlType.COMMIT, 7)),
        ("0001 0001 ff", "0001 00000008 ff", ControlRecord(ControlType.COMMIT, 8)),
        ("0000 0002", "00", ControlRecord(ControlType.LEADER_CHANGE, None)),
        ("0000 0099", "", ControlRecord(ControlType.UNKNOWN, None)),
    ],
    ids=["abort", "commit", "commit of a newer version", "leader change", "type of the future"],
)
def test_control_batch_says_what_it_is(key: str, value: str, expected: ControlRecord) -> None:
    """Commit or abort, and by which epoch of the coordinator."""
    assert parse_control_batch(control_batch(bytes.fromhex(key), bytes.fromhex(value))) == expected


def test_control_batch_cut_at_every_byte_is_refused() -> None:
    """Down to the last byte of its one record."""
    data = control_batch(bytes.fromhex("0000 0001"), bytes.fromhex("0000 00000007"))
    for length in range(len(data) - 1):  # the last byte is the count of headers, the first one of none
        with pytest.raises(WireError):
            parse_control_batch(data[:length])


def test_data_batch_is_no_control_batch() -> None:
    """Records of users are not opened."""
    with pytest.raises(WireError, match="no uncompressed control batch"):
        parse_control_batch(batch([b"a"]))
