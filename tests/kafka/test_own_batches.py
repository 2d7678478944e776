"""What a Fetch of Kordon's own topics brings, whatever its bytes are: read, or told of and passed."""

import struct
from typing import Final

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kordon.codecs.records import CRC_AT, CRC_FROM, HEADER_BYTES, MAGIC_AT, patch_base_offset
from kordon.proxy.kafka.batches import BatchIdentity, Committed, NewRecord, Record, build_batch
from kordon.testing.messages.bombs import CODECS, bomb, old_bomb

NOBODY: Final = BatchIdentity(-1, -1, -1)
END: Final = 1_000


def batch(
    *keys: str, at: int, codec: int = 0, identity: BatchIdentity = NOBODY, in_transaction: bool = False
) -> bytearray:
    """Makes a batch as Kordon writes it, which stands at an offset."""
    entries = [NewRecord(key, b"{}") for key in keys]
    made = bytearray(build_batch(entries, identity, is_transactional=in_transaction, codec=codec))
    patch_base_offset(made, 0, at)
    return made


def read(*batches: bytes | bytearray, position: int = 0) -> tuple[list[tuple[str, int]], list[str], int]:
    """Returns what was read (key, offset), what is wrong with the rest, and where to go on."""
    found = Committed(b"".join(batches), [], position, END)
    records = records_of(found)
    good = [(each.key, each.offset) for each in records if not each.fault]
    return good, [each.fault for each in records if each.fault], found.next_offset


def records_of(found: Committed) -> list[Record]:
    """Goes over all that a Fetch brought."""
    return [each for each in found if each is not None]


def with_crc(damaged: bytearray) -> bytearray:
    """Has a batch claim the checksum that it has."""
    struct.pack_into(">I", damaged, CRC_AT, google_crc32c.value(bytes(damaged[CRC_FROM:])))
    return damaged


BEFORE, AFTER = batch("a", at=0), batch("b", at=9)


def test_a_damaged_batch_tells_of_its_keys_and_holds_up_nothing() -> None:
    """Its checksum is wrong; whoever was concerned is known, and nothing it says is believed."""
    damaged = batch("topic/orders", "topic/invoices", at=1)
    damaged[-2] ^= 1
    found = Committed(bytes(BEFORE + damaged + AFTER), [], 0, END)
    assert [(each.key, bool(each.fault)) for each in records_of(found)] == [
        ("a", False),
        ("topic/orders", True),
        ("topic/invoices", True),
        ("b", False),
    ]
    assert found.next_offset == 10


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_passed(codec: str) -> None:
    """It is opened up to a bound, and stands for itself."""
    bomb_at = bytearray(bomb(codec, 200_000_000))
    patch_base_offset(bomb_at, 0, 1)
    good, faults, position = read(BEFORE, bomb_at, AFTER)
    assert good == [("a", 0), ("b", 9)]
    assert len(faults) == 1
    assert position == 10


@pytest.mark.parametrize("codec", CODECS.values())
def test_a_small_compressed_batch_is_read(codec: int) -> None:
    """A log that was restored by other tools may have such."""
    assert read(batch("a", "b", at=3, codec=codec), position=3) == ([("a", 3), ("b", 4)], [], 5)


def test_messages_of_old_are_passed() -> None:
    """They were an endless loop: nothing was read, and the position stayed."""
    old = bytearray(old_bomb("gzip", 100_000_000))
    patch_base_offset(old, 0, 1)
    good, faults, position = read(BEFORE, old, AFTER)
    assert good == [("a", 0), ("b", 9)]
    assert ["magic 1" in each for each in faults] == [True]
    assert position == 10


@pytest.mark.parametrize(
    ("at", "value"), [(8, b"\xff\xff\xff\xff"), (8, b"\x00\x00\x00\x05"), (MAGIC_AT, b"\x07")], ids=str
)
def test_what_is_no_batch_is_passed_an_offset_at_a_time(at: int, value: bytes) -> None:
    """Where the next one begins is not known; the broker is asked for what follows."""
    broken = batch("x", at=1)
    broken[at : at + len(value)] = value
    good, faults, position = read(BEFORE, broken, AFTER)
    assert good == [("a", 0)]
    assert len(faults) == 1
    assert position == 2
    assert read(AFTER, position=2) == ([("b", 9)], [], 10)


@pytest.mark.parametrize("delta", [-5, 2_000_000_000])
def test_a_header_that_leads_elsewhere_is_not_followed(delta: int) -> None:
    """Beyond the log's end it would look as if records had been lost, which ends a proxy."""
    broken = batch("x", at=1)
    struct.pack_into(">i", broken, 23, delta)
    good, _, position = read(BEFORE, with_crc(broken))
    assert position in (1, 2)
    assert ("a", 0) in good


def test_records_that_cannot_be_taken_apart_are_told_of_as_one() -> None:
    """Whatever they were about."""
    broken = batch("x", at=1)
    broken[HEADER_BYTES] = 0x7E  # the record's length
    good, faults, position = read(BEFORE, with_crc(broken), AFTER)
    assert good == [("a", 0), ("b", 9)]
    assert len(faults) == 1
    assert position == 10


def test_what_was_aborted_is_not_given() -> None:
    """As before: by the producer, from the first offset on."""
    doomed = batch("x", at=1, identity=BatchIdentity(7, 0, 0), in_transaction=True)
    found = Committed(bytes(BEFORE + doomed + AFTER), [(7, 1)], 0, END)
    assert records_of(found) == [Record("a", b"{}", 0), Record("b", b"{}", 9)]


def test_a_record_says_in_whose_transaction_it_was_written() -> None:
    """Whoever writes can name any producer; brokers let it write in no transaction but its own."""
    outside = batch("x", at=1, identity=BatchIdentity(7, 0, 0))
    within = batch("y", at=2, identity=BatchIdentity(7, 0, 0), in_transaction=True)
    found = records_of(Committed(bytes(BEFORE + outside + within), [], 0, END))
    assert [(each.key, each.producer_id) for each in found] == [("a", -1), ("x", -1), ("y", 7)]


@given(st.data())
def test_whatever_bytes_come_reading_goes_on(data: st.DataObject) -> None:
    """Each Fetch leads at least an offset on, and never beyond the end; nothing is raised."""
    whole = bytearray(BEFORE + batch("topic/orders", "wish/1", at=1) + AFTER)
    for _ in range(data.draw(st.integers(1, 6))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    position = data.draw(st.integers(0, 12))
    found = Committed(bytes(whole), [], position, END)
    records_of(found)
    assert position <= found.next_offset <= END
