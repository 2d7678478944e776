"""A batch with some records left out is what another reader of batches has: the same records, and a right CRC."""

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from kordon.codecs.errors import WireError
from kordon.codecs.picked import PickableBatch
from kordon.codecs.records import patch_base_offset
from kordon.codecs.unpack import UnpackedTooLarge

BASE = 7_000
LIMIT_BYTES = 1 << 20
PLAIN, GZIP, ZSTD = 0, 1, 4
KEYS = st.none() | st.binary(max_size=20)


def batch(keys: list[bytes | None], compression: int = PLAIN, value: bytes = b"value") -> bytes:
    """A batch of an idempotent producer, as a broker keeps it."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=compression,
        is_transactional=0,
        producer_id=5,
        producer_epoch=1,
        base_sequence=3,
        batch_size=1 << 20,
    )
    for number, key in enumerate(keys):
        assert builder.append(number, 1_000 + number, key, value, [("h", b"1")]) is not None
    made = bytearray(builder.build())
    patch_base_offset(made, 0, BASE)
    return bytes(made)


@given(st.lists(KEYS, min_size=1, max_size=30), st.sampled_from([PLAIN, GZIP, ZSTD]), st.data())
def test_some_records_of_a_batch_are_the_same_records(
    keys: list[bytes | None], compression: int, data: st.DataObject
) -> None:
    """Offsets, times, keys, values and headers; the producer is the same, too."""
    whole = batch(keys, compression)
    pickable = PickableBatch(whole, LIMIT_BYTES)
    assert [(each.offset - BASE, each.key) for each in pickable.records] == [*enumerate(keys)]
    wanted = data.draw(st.sets(st.integers(0, len(keys) - 1), min_size=1))
    made = DefaultRecordBatch(pickable.only({BASE + each for each in wanted}))
    assert made.validate_crc()
    assert (made.base_offset, made.producer_id, made.base_sequence) == (BASE, 5, 3)
    assert made.last_offset_delta == len(keys) - 1
    found = [(each.offset - BASE, each.timestamp, each.key, each.value, each.headers) for each in made]
    assert found == [(each, 1_000 + each, keys[each], b"value", [("h", b"1")]) for each in sorted(wanted)]


def test_a_batch_of_which_all_is_wanted_stays_as_it_came() -> None:
    """Compressed as it was."""
    whole = batch([b"a", b"b"], ZSTD)
    assert PickableBatch(whole, LIMIT_BYTES).only({BASE, BASE + 1}) == whole


def test_a_batch_that_holds_too_much_is_not_opened() -> None:
    """A few bytes can say that they hold very much."""
    whole = batch([None], ZSTD, bytes(1 << 20))
    assert len(whole) < 200
    with pytest.raises(UnpackedTooLarge):
        PickableBatch(whole, 1 << 19)


@given(st.integers(61, 200), st.integers(0, 255))
def test_damaged_records_are_refused_or_read_and_nothing_else(at: int, value: int) -> None:
    """No offset lies outside of the batch, whatever its bytes say."""
    damaged = bytearray(batch([b"key", None, b"other"], value=b"v" * 30))
    damaged[at % len(damaged)] = value
    try:
        records = PickableBatch(damaged, LIMIT_BYTES).records
    except WireError:
        return
    assert all(each.end <= len(damaged) for each in records)
