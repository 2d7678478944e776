"""Batches are told apart by their headers, given another place, and replaced by fillers that every reader passes."""

import warnings
from pathlib import Path
from random import Random
from subprocess import run

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from hypothesis import given
from hypothesis import strategies as st

from kordon.codecs.errors import WireError
from kordon.codecs.records import BATCH_HEADER, ControlType, batches, parse_control_batch
from kordon.codecs.split import MOST_FILLED, filler, patch, split
from kordon.testing.jars import kafka_version
from kordon.testing.kafka_tools import tool_command

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # how kafka-python reads its own schemas
    from kafka.record import MemoryRecords as KafkaPythonRecords

SOME_LOG = st.lists(st.tuples(st.integers(1, 4), st.integers(-1, 2**62), st.integers(0, 2**31 - 1)), max_size=6)
"""Batches by (records, producer id, leader epoch)."""


def batch(base_offset: int, count: int, producer_id: int = -1, leader_epoch: int = 0, codec: int = 0) -> bytearray:
    """A batch as aiokafka builds it, where and as a broker would have put it."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        batch_size=10_000,
    )
    for delta in range(count):
        builder.append(delta, timestamp=1_000, key=b"k", value=b"value %d" % (base_offset + delta), headers=[])
    built = bytearray(builder.build())
    patch(built, split(built)[0], base_offset, leader_epoch)
    return built


def log(parts: list[tuple[int, int, int]]) -> bytearray:
    """Batches that follow each other from offset 10 on."""
    data, at = bytearray(), 10
    for count, producer_id, leader_epoch in parts:
        data += batch(at, count, producer_id, leader_epoch)
        at += count
    return data


@given(SOME_LOG)
def test_split_says_what_the_table_says(parts: list[tuple[int, int, int]]) -> None:
    """Place, offsets, producer, attributes and leader epoch of each batch are those of the whole header."""
    data = log(parts)
    told = [
        (b.start, b.end, b.base_offset, b.next_offset, b.producer_id, b.attributes, b.leader_epoch) for b in split(data)
    ]
    spans = [(span, span.header) for span in batches(data) if span.header is not None]
    assert told == [
        (s.start, s.end, h.base_offset, h.next_offset, h.producer_id, h.attributes, h.partition_leader_epoch)
        for s, h in spans
    ]


def test_what_is_cut_off_is_left_out() -> None:
    """Wherever a Fetch answer ends, only whole batches are found."""
    whole, cut = batch(0, 2), batch(2, 3)
    for length in range(len(cut)):
        assert [(b.start, b.end) for b in split(bytes(whole + cut[:length]))] == [(0, len(whole))]


@given(st.randoms(use_true_random=False), st.binary(max_size=200))
def test_any_bytes_are_batches_or_an_error(random: Random, noise: bytes) -> None:
    """What is found lies within the bytes, in their order, and moves forwards."""
    data = log([(2, 5, 1), (1, 6, 1)])
    for _ in range(random.randint(0, 3)):
        data[random.randrange(len(data))] = random.randrange(256)
    data[random.randrange(len(data)) :] = noise
    try:
        found = split(data)
    except WireError:
        return
    ends = [0, *(b.end for b in found)]
    assert [b.start for b in found] == ends[:-1]
    assert ends[-1] <= len(data)
    assert all(b.end > b.start and 0 <= b.base_offset < b.next_offset for b in found)


@pytest.mark.parametrize(
    ("at", "data"),
    [
        (8, "ffffffff"),
        (8, "00000030"),
        (16, "03"),
        (23, "ffffffff"),
        (0, "ffffffffffffffff"),
    ],
    ids=["negative length", "length below the header's", "unknown magic", "negative last delta", "negative offset"],
)
def test_impossible_batch_is_refused(at: int, data: str) -> None:
    """No length or offset is believed that a broker cannot have written."""
    broken = batch(0, 1)
    broken[at : at + len(data) // 2] = bytes.fromhex(data)
    with pytest.raises(WireError):
        split(broken)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_are_stepped_over_and_keep_their_bytes(magic: int) -> None:
    """Magic 0 and 1, in front of newer batches or alone, down to the shortest message; no patch harms them."""
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=0, batch_size=10_000)
    for offset in range(3):
        builder.append(offset, timestamp=None if magic == 0 else 5, key=None, value=None)
    old = bytearray(builder.build())
    assert [(b.base_offset, b.next_offset, b.magic) for b in split(old)] == [(n, n + 1, magic) for n in range(3)]
    mixed = old + batch(3, 2)
    assert [b.next_offset for b in split(mixed)] == [1, 2, 3, 5]
    patch(mixed, split(mixed)[0], 99, 99)
    assert mixed[: len(old)] == old


@given(st.integers(0, 2**62), st.integers(-1, 2**31 - 1), st.sampled_from([0, 1, 2, 3, 4]))
def test_patched_batch_reads_the_same_elsewhere(base_offset: int, leader_epoch: int, codec: int) -> None:
    """Other libraries find the same records, with a right CRC, from the new offset on."""
    data = batch(base_offset, 3, codec=codec, leader_epoch=leader_epoch)
    read = AiokafkaRecords(bytes(data)).next_batch()
    assert read.validate_crc()
    assert [record.offset - base_offset for record in read] == [0, 1, 2]
    assert BATCH_HEADER.parse(2, data[:61]).partition_leader_epoch == leader_epoch


@given(st.integers(0, 2**62), st.integers(1, MOST_FILLED), st.integers(-1, 2**31 - 1))
def test_filler_is_a_sound_control_batch_over_its_range(base_offset: int, count: int, leader_epoch: int) -> None:
    """One COMMIT marker at the last offset, no producer, a right CRC: nothing to deliver, and then onwards."""
    data = filler(base_offset, base_offset + count, leader_epoch)
    (found,) = split(data)
    assert (found.start, found.end) == (0, len(data))
    assert (found.base_offset, found.next_offset) == (base_offset, base_offset + count)
    assert (found.producer_id, found.attributes, found.leader_epoch) == (-1, 0x30, leader_epoch)
    assert parse_control_batch(data).type is ControlType.COMMIT
    read = AiokafkaRecords(data).next_batch()
    assert read.validate_crc()
    assert read.is_control_batch
    assert read.next_offset == base_offset + count
    assert [record.offset for record in read] == [base_offset + count - 1]
    other = KafkaPythonRecords(data).next_batch()
    assert other.validate_crc()
    assert other.is_control_batch
    assert other.next_offset == base_offset + count
    assert [record.offset for record in other] == [base_offset + count - 1]


@pytest.mark.parametrize(("base", "end"), [(5, 5), (5, 4), (5, 6 + MOST_FILLED)])
def test_filler_leads_onwards_and_not_too_far(base: int, end: int) -> None:
    """An empty or backward range has no filler, nor has one that 31 bits cannot say."""
    with pytest.raises(ValueError, match="no filler"):
        filler(base, end, 0)


@pytest.mark.programs
def test_java_reads_fillers_between_batches(tmp_path: Path) -> None:
    """Kafka's own reader, told to read all records of a segment, finds it whole and the fillers control batches."""
    file = tmp_path / "00000000000000000000.log"
    file.write_bytes(batch(0, 2) + filler(2, 1_000, 0) + batch(1_000, 1) + filler(1_001, 1_001 + MOST_FILLED, 0))
    tool = tool_command("kafka-dump-log", kafka_version(), tmp_path)
    done = run(
        [*tool, "--deep-iteration", "--files", str(file)], capture_output=True, text=True, timeout=60, check=True
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("baseOffset:")]
    ends = [line.split("lastOffset: ")[1].split()[0] for line in lines]
    assert ends == ["1", "999", "1000", str(1_000 + MOST_FILLED)]
    assert ["isControl: true" in line for line in lines] == [False, True, False, True]
    assert all("isvalid: true" in line.lower() for line in lines)
    assert done.stdout.count("endTxnMarker: COMMIT") == 2
